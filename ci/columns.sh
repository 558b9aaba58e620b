#!/usr/bin/env bash
# Lines of Rust, comments in scripts, and lines of the README have at most 100 characters; code in
# scripts, which is pipelines and tables, 120. Exempt is what cannot be broken: in the README rows
# of tables, images, what ci/readme_table.py writes, and blocks that show what a program prints; in
# scripts a line of one word.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C.UTF-8
without='/^```/,/^```/s/.*//; /results:begin/,/results:end/s/.*//; /^(\||!\[)/s/.*//'
{
    git grep -nE '^.{101,}' -- '*.rs' || true
    git grep -nE '^ *#.{100,}|^.{121,}' -- .ci/run ci | grep -vE '^[^:]+:[0-9]+: *[^ ]+$' || true
    sed -E "$without" README.md | grep -nE '^.{101,}' | sed 's/^/README.md:/' || true
} | { ! grep . || { echo "the lines above are too long" >&2; exit 1; }; }
