#!/usr/bin/env bash
# Runs the benchmarks for a short time: every lock on every workload, the other suites, and every
# output format.
set -euo pipefail
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
cargo run --release --quiet -- bench --seconds 0.01 --rounds 2 --quiet \
    --json "$out/r.json" --csv "$out/r.csv" --markdown "$out/r.md" --plot "$out/r.svg"
# This fails if a stamp is lost.
cargo run --release --quiet -- bench invalidation --seconds 0.01 --rounds 2 --quiet \
    --json "$out/i.json" --csv "$out/i.csv" --markdown "$out/i.md" --plot "$out/i.svg"
cargo run --release --quiet -- bench ids --seconds 0.01 --rounds 2 --quiet \
    --json "$out/c.json" --csv "$out/c.csv" --markdown "$out/c.md" --plot "$out/c.svg"
for report in r.json r.csv r.md r.svg i.json i.csv i.md i.svg c.json c.csv c.md c.svg; do
    test -s "$out/$report"
done
