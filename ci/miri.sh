#!/usr/bin/env bash
# Undefined behaviour and weak memory, interpreted. What takes longest runs beside the rest, since
# each program is interpreted on one CPU.
set -euo pipefail
miri() {
    local flags=$1
    shift
    MIRIFLAGS=$flags cargo +nightly miri test --target-dir target/miri "$@"
}
miri "" -p kinlock --test every_lock --test spin --test mutex --test condvar --test rwlock --test legal_uses --no-run
miri "" -p kinlock-invalidation --test invalidation --no-run
miri "" -p kinlock-core -p kinlock-ids --lib --no-run
miri "-Zmiri-many-seeds=0..2" -p kinlock --test every_lock --test spin
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# These take minutes per seed.
miri "-Zmiri-seed=1" -p kinlock --test mutex --test condvar --test rwlock --test legal_uses >"$log" 2>&1 &
beside=$!
status=0
# All backends of delayed invalidation but `wide`, which is inline assembly. The tests leak their tags
# on purpose.
miri "-Zmiri-seed=1 -Zmiri-ignore-leaks" -p kinlock-invalidation --test invalidation || status=$?
# These tests leak their tables and storage on purpose.
miri "-Zmiri-ignore-leaks" -p kinlock-core --lib -- raw::waiter raw::once raw::cna::tests::leaving \
    raw::rwlock::tests::sent || status=$?
miri "-Zmiri-ignore-leaks" -p kinlock-ids --lib -- raw:: || status=$?
wait "$beside" || status=$?
cat "$log"
exit $status
