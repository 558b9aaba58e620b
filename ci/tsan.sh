#!/usr/bin/env bash
# Runs tests under ThreadSanitizer, which instruments the standard library too. It knows neither
# membarrier nor futexes, and needs neither: it checks that data under a lock is ordered. Left out
# are a test with thousands of threads, which are too many for it; a test in which a thread prints
# in its last destructor, when the sanitizer's state of the thread is gone; and a test that counts
# page faults, because the sanitizer's shadow memory has some.
set -euo pipefail
RUSTFLAGS="-Zsanitizer=thread" cargo +nightly test -p kinlock -p kinlock-invalidation \
    --test every_lock --test spin --test mutex --test condvar --test invalidation \
    --target-dir target/tsan \
    -Zbuild-std --target x86_64-unknown-linux-gnu -- --skip five_thousand \
    --skip must_not_end_within --skip reads_no_places
