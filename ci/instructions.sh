#!/usr/bin/env bash
# Counts the instructions that taking and releasing a free lock costs. The count is exact, and the
# same in every run, on a busy machine too. An empty loop's count is subtracted; two lengths cancel
# startup.
#
# A higher count than stated here is a regression; a lower one asks for a lower limit. A new
# compiler may change either. The standard library's mutex is there for reference.
set -euo pipefail

declare -A limit=([kinlock-spin]=18 [kinlock-mutex]=13 [kinlock-mutex-joined]=16
    [kinlock-rwlock-read]=26 [kinlock-rwlock-write]=8 [kinlock-rwlock-biased]=38)
# With the feature `report`, whose two tests and the calls behind them need registers.
declare -A reporting=([kinlock-mutex]=19 [kinlock-rwlock-read]=33 [kinlock-rwlock-write]=15)

if [ "$(uname -m)" != x86_64 ]; then
    echo "!!!! the limits are for x86_64: instructions were NOT counted on $(uname -m)" >&2
    exit 0
fi
command -v valgrind >/dev/null || { echo "valgrind is missing; see ci/install.sh" >&2; exit 1; }
cargo build --release --quiet -p kinlock --example uncontended
program=${CARGO_TARGET_DIR:-target}/release/examples/uncontended
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# All instructions of `uncontended LOCK PAIRS`.
count() {
    valgrind --tool=callgrind --callgrind-out-file="$work/out" "$program" "$1" "$2" \
        2>"$work/log" >/dev/null ||
        { cat "$work/log" >&2; exit 1; }
    sed -n 's/^summary: *//p; s/^totals: *//p' "$work/out" | head -1
}

# Instructions per turn of the loop, in hundredths: startup differs by a few between runs, thousands
# of turns do not.
per_turn() {
    local few many
    few=$(count "$1" 10000)
    many=$(count "$1" 110000)
    echo $(((many - few + 500) / 1000))
}

empty=$(per_turn none)
failed=0
# check LOCK LIMIT NOTE: an empty limit only prints.
check() {
    local found
    found=$((($(per_turn "$1") - empty + 50) / 100))
    printf '%-20s %3d instructions per lock and unlock%s%s\n' "$1" "$found" "${2:+, limit $2}" "$3"
    [ -n "$2" ] || return 0
    if [ "$found" -gt "$2" ]; then
        echo "$1: more instructions than the $2 stated in $0" >&2
        failed=1
    elif [ "$found" -lt "$2" ]; then
        echo "$1: fewer instructions: lower the limit in $0, which says $2" >&2
        failed=1
    fi
}
for lock in kinlock-spin kinlock-mutex kinlock-mutex-joined \
    kinlock-rwlock-read kinlock-rwlock-write kinlock-rwlock-biased std-mutex; do
    check "$lock" "${limit[$lock]:-}" ""
done
cargo build --release --quiet -p kinlock --example uncontended --features report
for lock in kinlock-mutex kinlock-rwlock-read kinlock-rwlock-write; do
    check "$lock" "${reporting[$lock]}" ", with the feature report while nobody listens"
done
exit $failed
