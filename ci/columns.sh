#!/usr/bin/env bash
# Checks the length of lines: at most 100 characters in Rust, in comments of scripts and in the
# README; at most 120 in code of scripts, which has pipelines and tables. What cannot be broken is
# exempt: in the README rows of tables, images, what ci/readme_table.py writes, and blocks that show
# what a program prints; in scripts a line of one word.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C.UTF-8
without='/^```/,/^```/s/.*//; /results:begin/,/results:end/s/.*//; /^(\||!\[)/s/.*//'
{
    git grep -nE '^.{101,}' -- '*.rs' || true
    git grep -nE '^ *#.{100,}|^.{121,}' -- .ci/run ci | grep -vE '^[^:]+:[0-9]+: *[^ ]+$' || true
    sed -E "$without" README.md | grep -nE '^.{101,}' | sed 's/^/README.md:/' || true
} | { ! grep . || { echo "the lines above are too long" >&2; exit 1; }; }
