#!/bin/sh
# The first generator of this repository: it knows no option and always leaves the profile out.
set -eu
for word in "$@"; do
  case $word in --*) echo "Error: No such option: $word" >&2; exit 2 ;; esac
done
exec "$(dirname "$0")/read.awk" -v name="$2" "$1"
