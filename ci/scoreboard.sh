#!/usr/bin/env bash
# The simulator against published tables: the error of no speed-up may grow by more than 5 points over the
# recorded one. `ci/scoreboard.sh --record` records anew, after a change that is right and makes it worse.
set -euo pipefail
cd "$(dirname "$0")/.."

recorded=lab/sim/published/scoreboard.csv
now=$(mktemp)
trap 'rm -f "$now"' EXIT
cargo run --quiet --release -p kinlock-lab -- reproduce \
    cna-lock2 cna-locktorture cna-open1 cna-leveldb-readrandom mutex-spinners invalidation cid-200ms cid-10ms \
    --seeds 1 --band 0 --quiet --csv - >"$now"
python3 ci/scoreboard.py "$now" "$recorded" "$@"
