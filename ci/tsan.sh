#!/usr/bin/env bash
# ThreadSanitizer, which instruments the standard library too. It knows neither membarrier nor futexes, and needs neither: what it checks is that
# data under the lock is ordered. Thousands of threads are too many for it, and inline assembly (`wide`) it does not see.
set -euo pipefail
RUSTFLAGS="-Zsanitizer=thread" cargo +nightly test -p kinlock --test spin --test mutex --test condvar --test invalidation --target-dir target/tsan \
    -Zbuild-std --target x86_64-unknown-linux-gnu -- --skip five_thousand --skip wide::
