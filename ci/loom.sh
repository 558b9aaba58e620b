#!/usr/bin/env bash
# The model checker, for SECONDS (default 6) per model. Each model prints how many executions it
# explored; seeded defects must be caught, for which each has an hour whatever SECONDS is: the
# slowest takes 80 seconds on an idle machine.
set -euo pipefail
RUSTFLAGS="--cfg loom" KINLOCK_MODEL_SECONDS="${1:-6}" cargo test --release \
    -p kinlock-core -p kinlock-ids -p kinlock-invalidation --test "loom_*" --target-dir target/loom \
    -- --nocapture --test-threads "$(nproc)"
