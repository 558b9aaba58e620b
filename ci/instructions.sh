#!/usr/bin/env bash
# Counts the instructions that it takes to acquire and release a free lock. The count is exact and
# the same in every run, even on a busy machine. The count of an empty loop is subtracted, and loops
# of two lengths cancel out the startup.
#
# A higher count than stated here is a regression. If the count is lower, lower the limit. A new
# compiler may change the counts. The standard library's mutex is there for reference.
set -euo pipefail

declare -A limit=([kinlock-spin]=18 [kinlock-mutex]=13 [kinlock-mutex-joined]=16
    [kinlock-rwlock-read]=26 [kinlock-rwlock-write]=8 [kinlock-rwlock-biased]=38)
# With the feature `report`: its two tests, and the calls that follow them, need registers.
declare -A reporting=([kinlock-mutex]=19 [kinlock-rwlock-read]=33 [kinlock-rwlock-write]=15)
# In a C program under `run --report`, including the loop and the calls. The report samples some
# acquisitions at random, so these limits have some room.
declare -A reported=([mutex]=160 [recursive]=200 [read]=260 [write]=235)

if [ "$(uname -m)" != x86_64 ]; then
    echo "!!!! the limits are for x86_64: instructions were NOT counted on $(uname -m)" >&2
    exit 0
fi
command -v valgrind >/dev/null || { echo "valgrind is missing; see ci/install.sh" >&2; exit 1; }
cargo build --release --quiet -p kinlock --example uncontended
program=${CARGO_TARGET_DIR:-target}/release/examples/uncontended
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Prints the number of instructions of `uncontended LOCK PAIRS`.
count() {
    valgrind --tool=callgrind --callgrind-out-file="$work/out" "$program" "$1" "$2" \
        2>"$work/log" >/dev/null ||
        { cat "$work/log" >&2; exit 1; }
    sed -n 's/^summary: *//p; s/^totals: *//p' "$work/out" | head -1
}

# Prints the instructions per turn of the loop, in hundredths. Startup differs by a few instructions
# between runs, which does not matter over thousands of turns.
per_turn() {
    local few many
    few=$(count "$1" 10000)
    many=$(count "$1" 110000)
    echo $(((many - few + 500) / 1000))
}

empty=$(per_turn none)
failed=0
# check LOCK LIMIT NOTE: with an empty limit it only prints the count.
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

cargo build --release --quiet -p kinlock-preload
library=$(realpath "${CARGO_TARGET_DIR:-target}/release/libkinlock_preload.so")
cat >"$work/pairs.c" <<'END'
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
int main(int count, char **words)
{
    pthread_mutex_t *taken = strcmp(words[1], "mutex") == 0 ? &mutex : &recursive;
    for (long pairs = atol(words[2]); pairs > 0; pairs--) {
        if (words[1][0] == 'w')
            pthread_rwlock_wrlock(&lock), pthread_rwlock_unlock(&lock);
        else if (words[1][2] == 'a')
            pthread_rwlock_rdlock(&lock), pthread_rwlock_unlock(&lock);
        else
            pthread_mutex_lock(taken), pthread_mutex_unlock(taken);
    }
    return 0 * count;
}
END
cc -O1 -pthread "$work/pairs.c" -o "$work/pairs"
program=$work/pairs
export LD_PRELOAD=$library KINLOCK_REPORT=$work/report
for lock in mutex recursive read write; do
    found=$((($(per_turn "$lock") + 50) / 100))
    printf '%-20s %3d instructions per lock and unlock, at most %d, under a report\n' \
        "$lock" "$found" "${reported[$lock]}"
    if [ "$found" -gt "${reported[$lock]}" ]; then
        echo "$lock: more instructions than the ${reported[$lock]} stated in $0" >&2
        failed=1
    fi
done
exit $failed
