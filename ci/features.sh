#!/usr/bin/env bash
# Other targets, fewer features, the oldest supported compiler.
set -euo pipefail
libraries=(-p kinlock-core -p kinlock -p kinlock-ids -p kinlock-invalidation)
cargo check -p kinlock-core -p kinlock --no-default-features
cargo check "${libraries[@]}" --target aarch64-unknown-linux-gnu
cargo check -p kinlock-core -p kinlock --target aarch64-unknown-linux-gnu --no-default-features
# A kernel's use of the algorithms, on a platform of its own.
cargo build --release -p kinlock-core --no-default-features --example bare_metal --target x86_64-unknown-none
msrv=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
if rustup toolchain list | grep -q "^$msrv"; then
    cargo "+$msrv" check "${libraries[@]}" --target-dir target/msrv
else
    echo "!!!! Rust $msrv is not installed: the minimum version was NOT checked" >&2
fi
