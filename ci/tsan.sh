#!/usr/bin/env bash
# ThreadSanitizer, which instruments the standard library too. It knows neither membarrier nor
# futexes, and needs neither: it checks that data under a lock is ordered. Thousands of threads are
# too many for it. Its own state of a thread ends before the last destructors, which one test makes
# speak, and its shadow memory has page faults, which another counts.
set -euo pipefail
RUSTFLAGS="-Zsanitizer=thread" cargo +nightly test -p kinlock -p kinlock-invalidation \
    --test every_lock --test spin --test mutex --test condvar --test invalidation \
    --target-dir target/tsan \
    -Zbuild-std --target x86_64-unknown-linux-gnu -- --skip five_thousand \
    --skip must_not_end_within --skip reads_no_places
