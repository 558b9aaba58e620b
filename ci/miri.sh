#!/usr/bin/env bash
# Searches for undefined behaviour and for errors under weak memory, by Miri's interpreter.
#
#   ci/miri.sh short    the algorithms, and what every lock does
#   ci/miri.sh          also everything else that can be interpreted, and several seeds
#
# Miri interprets each program on one CPU, so what takes longest runs in parallel to the rest.
set -euo pipefail
miri() {
    local flags=$1
    shift
    MIRIFLAGS=$flags cargo +nightly miri test --target-dir target/miri "$@"
}
# These tests take minutes per seed.
long=(-p kinlock --test mutex --test condvar --test rwlock --test legal_uses)
every=(-p kinlock --test every_lock)
invalidation=(-p kinlock-invalidation --test invalidation)

case ${1:-} in
short)
    beside=("" "${every[@]}")
    ;;
"")
    beside=("-Zmiri-seed=1" "${long[@]}")
    miri "" "${invalidation[@]}" --no-run
    miri "-Zmiri-many-seeds=0..2" "${every[@]}"
    ;;
*)
    echo "usage: ci/miri.sh [short]" >&2
    exit 2
    ;;
esac
miri "" "${beside[@]:1}" --no-run
miri "" -p kinlock-core -p kinlock-ids --lib --no-run

log=$(mktemp)
trap 'rm -f "$log"' EXIT
miri "${beside[@]}" >"$log" 2>&1 &
other=$!
status=0
# Tests leak their tables, storage and tags on purpose.
if [ "${1:-}" != short ]; then
    miri "-Zmiri-seed=1 -Zmiri-ignore-leaks" "${invalidation[@]}" || status=$?
fi
miri "-Zmiri-ignore-leaks" -p kinlock-core --lib -- raw::waiter raw::once raw::cna::tests::leaving \
    raw::rwlock::tests::sent || status=$?
miri "-Zmiri-ignore-leaks" -p kinlock-ids --lib -- raw:: || status=$?
wait "$other" || status=$?
cat "$log"
exit $status
