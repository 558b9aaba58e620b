#!/usr/bin/env bash
# The main job of the README, shortened: every lock on every workload, and every output format.
set -euo pipefail
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
cargo run --release --quiet -- bench --seconds 0.01 --rounds 2 --quiet \
    --json "$out/r.json" --csv "$out/r.csv" --markdown "$out/r.md" --plot "$out/r.svg"
test -s "$out/r.json" && test -s "$out/r.csv" && test -s "$out/r.md" && test -s "$out/r.svg"
