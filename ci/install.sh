#!/usr/bin/env bash
# Installs what the checks need beyond a stable toolchain, and reports what it cannot install. A
# check that needs something that is missing fails or is skipped, as its script says.
set -uo pipefail
cd "$(dirname "$0")/.."

missing() { echo "!!!! cannot install $1: $2" >&2; }

as_root=()
[ "$(id -u)" = 0 ] || as_root=(sudo -n)
updated=

# Installs one Debian package. One at a time, so that a package that does not exist does not prevent
# the others.
install() {
    command -v apt-get >/dev/null && "${as_root[@]}" true 2>/dev/null || return 1
    [ -n "$updated" ] || "${as_root[@]}" apt-get update -qq >/dev/null 2>&1
    updated=yes
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "$1" >/dev/null 2>&1
}

# need PACKAGE CONSEQUENCE COMMAND...: if the command fails, the package is missing.
need() {
    local package=$1 consequence=$2
    shift 2
    "$@" >/dev/null 2>&1 || install "$package" || missing "$package" "$consequence"
}

header() { echo "#include <$1>" | cc -E -x c -; }

need libck-dev "the peer ck-mcs will not be measured" header ck_spinlock.h
need liburcu-dev "the rival liburcu of bench invalidation will not be measured" \
    header urcu/urcu-memb.h
for peer in nsync absl; do
    need "lib$peer-dev" "that peer will not be measured" dpkg -s "lib$peer-dev"
done
need python3-prometheus-client "ci/openmetrics.sh will fail" \
    /usr/bin/python3 -c 'import prometheus_client'
need valgrind "ci/instructions.sh will fail" command -v valgrind
need g++ "ci/c.sh will fail" command -v g++
need clang "ci/c.sh will test with gcc only" command -v clang
need cmake "ci/c.sh will not test the files for CMake" command -v cmake
for package in qemu-user gcc-aarch64-linux-gnu libc6-dev-arm64-cross; do
    need "$package" "ci/features.sh will not run the sequences of aarch64" dpkg -s "$package"
done
# For children with another C library. gcc-multilib conflicts with the compiler for aarch64.
for package in musl-tools libc6-dev-i386 "lib32gcc-$(cc -dumpversion | cut -d. -f1)-dev"; do
    need "$package" "children of that kind will not be tested" dpkg -s "$package"
done
for package in gcc-mingw-w64-x86-64-posix g++-mingw-w64-x86-64-posix wine64; do
    need "$package" "ci/fallback.sh will not test for Windows" dpkg -s "$package"
done
need dpkg-dev "ci/c-project.sh will fail" command -v dpkg-source
need chromium "ci/pages.sh will fail" command -v chromium
need debian-archive-keyring "ci/glibc.sh will fail" \
    test -f /usr/share/keyrings/debian-archive-keyring.gpg
for program in qemu-system-x86:qemu-system-x86_64 qemu-system-arm:qemu-system-aarch64 cpio; do
    need "${program%%:*}" "ci/systems.sh will fail" command -v "${program##*:}"
done
for tool in flex bison bc; do
    need "$tool" "ci/systems.sh will not build a kernel" command -v "$tool"
done
need libelf-dev "ci/systems.sh will not build a kernel" header gelf.h
for tool in lintian mmdebstrap dpkg-dev:dpkg-shlibdeps; do
    need "${tool%%:*}" "ci/deb.sh will fail" command -v "${tool##*:}"
done
for program in kyotocabinet-utils:kccachetest rocksdb-tools:db_bench sysbench redis-server zstd \
    stress-ng memcached libmemcached-tools:memcslap openjdk-17-jdk-headless:javac; do
    need "${program%%:*}" "ci/programs.sh will not run it" command -v "${program##*:}"
done
for package in faketime libeatmydata1 fakeroot libjemalloc2 libmimalloc2.0 libgoogle-perftools4 \
    libnss-wrapper; do
    need "$package" "ci/interposers.sh will fail" dpkg -s "$package"
done

rustup component add rustfmt clippy >/dev/null 2>&1 ||
    missing "rustfmt, clippy" "ci/fmt.sh and ci/clippy.sh will fail"
rustup target add aarch64-unknown-linux-gnu x86_64-unknown-none x86_64-unknown-linux-musl \
    >/dev/null 2>&1 ||
    missing "the aarch64, bare-metal and musl targets" "ci/features.sh, ci/musl.sh or ci/systems.sh will fail"
msrv=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
rustup toolchain list | grep -q "^$msrv" ||
    rustup toolchain install "$msrv" --profile minimal >/dev/null 2>&1 ||
    missing "Rust $msrv" "the minimum version will not be checked"
sources=$(rustc +nightly --print sysroot 2>/dev/null)/lib/rustlib/src
if ! cargo +nightly miri --version >/dev/null 2>&1 || ! [ -d "$sources" ]; then
    # An installed nightly is not updated, since any version will do.
    rustup toolchain list | grep -q '^nightly' ||
        rustup toolchain install nightly --profile minimal >/dev/null 2>&1
    rustup component add --toolchain nightly miri rust-src >/dev/null 2>&1 ||
        missing "nightly with miri and rust-src" "ci/miri.sh and ci/tsan.sh will fail"
fi
exit 0
