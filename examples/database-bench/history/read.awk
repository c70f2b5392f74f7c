#!/usr/bin/awk -f
/^[^ #]/ { inside = ($1 == name ":"); next }
inside && NF >= 2 { key = $1; sub(/:$/, "", key); value[key] = $2 }
END {
  count = split(value["clients"], clients, ",")
  for (i = 1; i <= count; i++) {
    printf "{\"system\": {\"engine\": \"%s\", \"package\": \"%s\"}, \"box\": \"%s\", ", value["engine"], value["package"], value["box"]
    printf "\"load\": {\"clients\": %d, \"scale\": %s}", clients[i], value["scale"]
    if (value["isolation"] != "") printf ", \"options\": {\"isolation\": \"%s\"}", value["isolation"]
    printf "}\n"
  }
}
