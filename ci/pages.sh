#!/usr/bin/env bash
# Opens the pages that --html writes in a browser: narrow, wide, light, dark and printed. No page
# may be wider than its window, load another file, or run text as a script. Tables and pictures have
# captions, and texts have enough contrast to be read. With a folder as argument, pictures of the
# pages are kept there as PNG.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
pictures=()
if [ $# -gt 0 ]; then
    mkdir -p "$1"
    pictures=(--pictures "$(realpath "$1")")
fi
# The name of the program's thread, of its lock and of its functions, and an argument.
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
# A page of bench has no text that comes from a user.
python3 ci/lib/pages.py "${pictures[@]}" "$hostile" "$out"/{report,compare,scan}.html
python3 ci/lib/pages.py "${pictures[@]}" "kinlock-mutex" "$out/bench.html"
