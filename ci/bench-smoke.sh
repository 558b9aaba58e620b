#!/usr/bin/env bash
# The main job of the README, shortened: every lock on every workload, and every output format.
set -euo pipefail
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
cargo run --release --quiet -- bench --seconds 0.01 --rounds 2 --quiet \
    --json "$out/r.json" --csv "$out/r.csv" --markdown "$out/r.md" --plot "$out/r.svg"
# The demonstration as an example of the library; it fails if a stamp is lost.
cargo run --release --quiet -p kinlock --example page_slots
cargo run --release --quiet -- bench invalidation --seconds 0.01 --rounds 2 --quiet \
    --json "$out/i.json" --csv "$out/i.csv" --markdown "$out/i.md"
test -s "$out/i.json" && test -s "$out/i.csv" && test -s "$out/i.md"
test -s "$out/r.json" && test -s "$out/r.csv" && test -s "$out/r.md" && test -s "$out/r.svg"
