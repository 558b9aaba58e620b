#!/usr/bin/env bash
# ThreadSanitizer, which instruments the standard library too. It knows neither membarrier nor futexes,
# and needs neither: it checks that data under the lock is ordered. Left out: tests with thousands of
# threads, and `wide`, whose inline assembly it does not see.
set -euo pipefail
RUSTFLAGS="-Zsanitizer=thread" cargo +nightly test -p kinlock --test spin --test mutex --test condvar --test invalidation --target-dir target/tsan \
    -Zbuild-std --target x86_64-unknown-linux-gnu -- --skip five_thousand --skip wide::
