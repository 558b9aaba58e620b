#!/usr/bin/env bash
# Builds for other targets, with fewer features, and with the oldest supported compiler.
set -euo pipefail
libraries=(-p kinlock-core -p kinlock-linux -p kinlock -p kinlock-ids -p kinlock-invalidation)
cargo check -p kinlock --no-default-features --target x86_64-unknown-none
cargo check "${libraries[@]}" --target aarch64-unknown-linux-gnu
cargo check -p kinlock --target aarch64-unknown-linux-gnu --no-default-features
cargo check -p kinlock --target aarch64-unknown-linux-gnu --features report
# The command as packages have it has to say how to get the verb that it lacks.
cargo build -p kinlock-command --no-default-features
status=0
said=$("${CARGO_TARGET_DIR:-target}"/debug/kinlock bench 2>&1) || status=$?
[[ $status = 2 && $said = *"cargo run --release -- bench"* ]] ||
    { echo "FAILED: bench without its feature ended with $status: $said" >&2; exit 1; }
# Guards that are sent to other threads, which needs a feature that the usual tests lack.
cargo test -p kinlock --features send_guard,arc_lock --test legal_uses
# Restartable sequences are assembled only where they are used, as in the unit tests. Those tests
# need no kernel that restarts sequences, so an emulator of programs can run them.
arm() {
    env CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER="$1" \
        CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -L /usr/aarch64-linux-gnu" \
        cargo test -p kinlock-ids --lib --target aarch64-unknown-linux-gnu "${@:2}"
}
if command -v qemu-aarch64 >/dev/null && command -v aarch64-linux-gnu-gcc >/dev/null; then
    arm aarch64-linux-gnu-gcc sequence::
else
    echo "!!!! qemu-aarch64 or aarch64-linux-gnu-gcc is missing:" \
        "the sequences of aarch64 were NOT run" >&2
    arm true --no-run
fi
# A use of the algorithms as in a kernel, on its own platform.
cargo build --release -p kinlock-core --example bare_metal --target x86_64-unknown-none
msrv=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
if rustup toolchain list | grep -q "^$msrv"; then
    cargo "+$msrv" check "${libraries[@]}" --features kinlock/report --target-dir target/msrv
else
    echo "!!!! Rust $msrv is not installed: the minimum version was NOT checked" >&2
fi
