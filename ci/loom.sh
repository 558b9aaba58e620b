#!/usr/bin/env bash
# Runs the model checker, for SECONDS (default 6) per model. Each model prints how many executions
# it explored. Domains of invalidation that are broken on purpose must be caught. ci/mutants.sh has
# the locks and allocators of IDs that are broken on purpose.
set -euo pipefail
RUSTFLAGS="--cfg loom" KINLOCK_MODEL_SECONDS="${1:-6}" cargo test --release \
    -p kinlock-core -p kinlock-ids -p kinlock-invalidation --test "loom_*" --target-dir target/loom \
    -- --nocapture --test-threads "$(nproc)"
