#!/usr/bin/env bash
# The simulator against published tables: the error of no number may grow by more than 5 points
# over the recorded one.
#
#   ci/scoreboard.sh [TABLE...]   only these tables
#   ci/scoreboard.sh --record     records anew, after a change that is right and makes it worse
set -euo pipefail
cd "$(dirname "$0")/.."

recorded=lab/sim/published/scoreboard.csv
all=(cna-lock2 cna-locktorture cna-open1 cna-leveldb-readrandom mutex-spinners mutex-aim7-others
    osq-prev-cpu osq-own-line invalidation invalidation-ours invalidation-polled invalidation-96
    cid-200ms cid-10ms)
record=()
if [ "${1:-}" = --record ]; then
    record=(--record)
    shift
    [ $# = 0 ] || { echo "all tables are recorded together" >&2; exit 2; }
fi
tables=("${@:-${all[@]}}")
. ci/lib/command.sh
now=$(mktemp)
trap 'rm -f "$now"' EXIT
"$kinlock" reproduce "${tables[@]}" --seeds 1 --band 0 --quiet --csv - >"$now"
python3 ci/lib/scoreboard.py "$now" "$recorded" "${record[@]}" "${tables[@]}"
