#!/usr/bin/env bash
# Runs the lints in every configuration of the library. Warnings are errors.
set -euo pipefail
cargo clippy --workspace --all-targets --features kinlock-command/manual -- -D warnings
cargo clippy -p kinlock --no-default-features -- -D warnings
cargo clippy -p kinlock --features events -- -D warnings
cargo clippy -p kinlock --features send_guard,arc_lock,serde,owning_ref --all-targets -- -D warnings
# Named by its path, because the workspace also has the real parking_lot, for the benchmark.
facade=lib/parking-lot/Cargo.toml
cargo clippy --manifest-path $facade --all-targets --features deadlock_detection,arc_lock \
    -- -D warnings
cargo clippy --manifest-path lib/parking-lot-core/Cargo.toml --all-targets \
    --features deadlock_detection -- -D warnings
cargo clippy -p kinlock --all-targets --features deadlock_detection,arc_lock -- -D warnings
cargo clippy -p kinlock -p kinlock-recorder --features kinlock/report --all-targets -- -D warnings
cargo clippy -p kinlock --features report,deadlock_detection -- -D warnings
RUSTFLAGS="--cfg loom" cargo clippy -p kinlock-core -p kinlock-ids -p kinlock-invalidation \
    --target-dir target/loom --tests -- -D warnings
