#!/usr/bin/env bash
# The model checker. Each model prints how many executions it explored; broken locks must be caught.
set -euo pipefail
RUSTFLAGS="--cfg loom" cargo test --release -p kinlock --test loom --test loom_mutex --test loom_condvar --test loom_ids --test loom_invalidation --target-dir target/loom -- --nocapture --test-threads 2
