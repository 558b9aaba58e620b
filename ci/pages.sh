#!/usr/bin/env bash
# The pages that --html writes, opened in a browser: narrow, wide, light, dark and printed. None is
# wider than its window, asks for another file or runs a text; tables and pictures have captions,
# and texts can be read on their ground. With a folder as argument, what the pages look like is kept
# there as PNG.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
pictures=()
if [ $# -gt 0 ]; then
    mkdir -p "$1"
    pictures=(--pictures "$(realpath "$1")")
fi
# As the name of the program's thread, of its lock, of its functions, and as an argument.
hostile='<script>hostile=1</script>'
cargo build --release --quiet -p kinlock-command
kinlock=${CARGO_TARGET_DIR:-target}/release/kinlock
cc -g -O1 -pthread ci/lib/hostile.c -o "$out/hostile"
"$kinlock" run --report="$out/report.txt" --order --html "$out/report.html" -- \
    "$out/hostile" 4 "$hostile"
"$kinlock" compare --quiet --rounds 5 --warmup 0 --html "$out/compare.html" -- \
    "$out/hostile" 2 "$hostile" >"$out/compare.txt"
"$kinlock" compare --quiet --rounds 5 --warmup 0 --html "$out/scan.html" \
    --scan "threads=1,2,4" --scan "text=$hostile,x" -- "$out/hostile" '{threads}' '{text}' \
    >"$out/scan.txt"
"$kinlock" bench --quiet --seconds 0.01 --rounds 2 --html "$out/bench.html" --workload counter,long \
    --threads 1,2 >"$out/bench.txt"
# A page of bench has no text of the user's.
python3 ci/lib/pages.py "${pictures[@]}" "$hostile" "$out"/{report,compare,scan}.html
python3 ci/lib/pages.py "${pictures[@]}" "kinlock-mutex" "$out/bench.html"
