#!/usr/bin/env bash
# Undefined behaviour and weak memory, interpreted, with several seeds. An interpreted program uses one
# CPU, so the longest tests run beside the rest.
set -euo pipefail
miri() {
    local flags=$1
    shift
    MIRIFLAGS=$flags cargo +nightly miri test -p kinlock --target-dir target/miri "$@"
}
miri "" --lib --test spin --test mutex --test condvar --test invalidation --no-run
miri "-Zmiri-many-seeds=0..2" --test spin
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# These take minutes per seed.
miri "-Zmiri-seed=1" --test mutex --test condvar >"$log" 2>&1 &
beside=$!
status=0
# All backends of delayed invalidation but `wide`, which is inline assembly. The test leaks its tags on
# purpose.
miri "-Zmiri-seed=1 -Zmiri-ignore-leaks" --test invalidation || status=$?
# These tests leak their tables and storage on purpose.
miri "-Zmiri-ignore-leaks" --lib -- raw::ids raw::waiter raw::cna::tests::leaving || status=$?
wait "$beside" || status=$?
cat "$log"
exit $status
