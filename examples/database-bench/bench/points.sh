#!/bin/sh
# Print the points of one workload as JSON lines: points.sh [--no-profile] WORKLOADS.yaml NAME
#
# A workload is a top-level key of the file with "name: value" lines below it. Without --no-profile a workload that asks for
# a profile has one more point for it.
set -eu

profile=yes
while [ $# -gt 0 ]; do
  case $1 in
    --no-profile) profile=no; shift ;;
    --*) echo "Error: No such option: $1" >&2; exit 2 ;;
    *) break ;;
  esac
done
# klaud adds optional arguments at the end of a command
for word in "$@"; do
  case $word in
    --no-profile) profile=no ;;
    --*) echo "Error: No such option: $word" >&2; exit 2 ;;
  esac
done

awk -v name="$2" -v profile="$profile" '
  /^[^ #]/ { inside = ($1 == name ":"); found = found || inside; next }
  inside && NF >= 2 { key = $1; sub(/:$/, "", key); value[key] = $2 }
  END {
    if (!found) { print "no workload " name > "/dev/stderr"; exit 3 }
    count = split(value["clients"], clients, ",")
    for (i = 1; i <= count; i++) {
      printf "{\"system\": {\"engine\": \"%s\", \"package\": \"%s\"}, \"box\": \"%s\", ", value["engine"], value["package"], value["box"]
      printf "\"load\": {\"clients\": %d, \"scale\": %s}", clients[i], value["scale"]
      if (value["isolation"] != "") printf ", \"options\": {\"isolation\": \"%s\"}", value["isolation"]
      printf "}\n"
    }
    if (profile == "yes" && value["profile"] == "yes") printf "{\"eval-only\": true}\n"
  }
' "$1"
