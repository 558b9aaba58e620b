#!/usr/bin/env bash
# Installs what the checks need beyond a stable toolchain, and reports what it cannot install. The check
# that needs it then fails or is skipped, as its script says.
set -uo pipefail

missing() { echo "!!!! cannot install $1: $2" >&2; }

if ! echo '#include <ck_spinlock.h>' | cc -E -x c - >/dev/null 2>&1; then
    if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
        { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq libck-dev; } >/dev/null 2>&1 ||
            missing libck-dev "the peer ck-mcs will not be measured"
    else
        missing libck-dev "not root or no apt-get; the peer ck-mcs will not be measured"
    fi
fi
if ! echo '#include <urcu/urcu-memb.h>' | cc -E -x c - >/dev/null 2>&1; then
    if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
        { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq liburcu-dev; } >/dev/null 2>&1 ||
            missing liburcu-dev "the rival liburcu of bench invalidation will not be measured"
    else
        missing liburcu-dev \
            "not root or no apt-get; the rival liburcu of bench invalidation will not be measured"
    fi
fi
if ! command -v valgrind >/dev/null; then
    if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
        { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq valgrind; } >/dev/null 2>&1 ||
            missing valgrind "ci/instructions.sh will fail"
    else
        missing valgrind "not root or no apt-get; ci/instructions.sh will fail"
    fi
fi
if ! command -v qemu-aarch64 >/dev/null || ! command -v aarch64-linux-gnu-gcc >/dev/null; then
    if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
        { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
            qemu-user gcc-aarch64-linux-gnu libc6-dev-arm64-cross; } >/dev/null 2>&1 ||
            missing qemu-user "ci/features.sh will not run the sequences of aarch64"
    else
        missing qemu-user "not root or no apt-get; ci/features.sh will not run the sequences of aarch64"
    fi
fi
# For children of another C library; gcc-multilib would displace the compiler for aarch64.
for package in musl-tools libc6-dev-i386 "lib32gcc-$(cc -dumpversion | cut -d. -f1)-dev"; do
    dpkg -s "$package" >/dev/null 2>&1 && continue
    if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
        { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
            "$package"; } >/dev/null 2>&1 || missing "$package" "children of that kind will not be tested"
    else
        missing "$package" "not root or no apt-get; children of that kind will not be tested"
    fi
done
if ! [ -f /usr/share/keyrings/debian-archive-keyring.gpg ]; then
    if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
        { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq debian-archive-keyring; } \
            >/dev/null 2>&1 || missing debian-archive-keyring "ci/glibc.sh will fail"
    else
        missing debian-archive-keyring "not root or no apt-get; ci/glibc.sh will fail"
    fi
fi
for program in kyotocabinet-utils:kccachetest rocksdb-tools:db_bench sysbench redis-server zstd stress-ng \
    memcached libmemcached-tools:memcslap openjdk-17-jdk-headless:javac; do
    package=${program%%:*}
    command -v "${program##*:}" >/dev/null && continue
    if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
        { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$package"; } >/dev/null 2>&1 ||
            missing "$package" "ci/programs.sh will not run it"
    else
        missing "$package" "not root or no apt-get; ci/programs.sh will not run it"
    fi
done
rustup component add rustfmt clippy >/dev/null 2>&1 ||
    missing "rustfmt, clippy" "ci/fmt.sh and ci/clippy.sh will fail"
rustup target add aarch64-unknown-linux-gnu x86_64-unknown-none >/dev/null 2>&1 ||
    missing "the aarch64 and bare-metal targets" "ci/features.sh will fail"
msrv=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
rustup toolchain list | grep -q "^$msrv" ||
    rustup toolchain install "$msrv" --profile minimal >/dev/null 2>&1 ||
    missing "Rust $msrv" "the minimum version will not be checked"
sources=$(rustc +nightly --print sysroot 2>/dev/null)/lib/rustlib/src
if ! cargo +nightly miri --version >/dev/null 2>&1 || ! [ -d "$sources" ]; then
    # An installed nightly stays as it is: any version will do.
    rustup toolchain list | grep -q '^nightly' ||
        rustup toolchain install nightly --profile minimal >/dev/null 2>&1
    rustup component add --toolchain nightly miri rust-src >/dev/null 2>&1 ||
        missing "nightly with miri and rust-src" "ci/miri.sh and ci/tsan.sh will fail"
fi
exit 0
