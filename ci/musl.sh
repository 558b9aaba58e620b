#!/usr/bin/env bash
# Tests libkinlock for musl: it builds, exports what it should, needs no library but musl, and its
# tests pass with the shared library, with the static one, and as programs that are linked with
# -static.
set -euo pipefail
cd "$(dirname "$0")/../lib/c"
export LC_ALL=C
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() { echo "ci/musl.sh: $*" >&2; exit 1; }

target=x86_64-unknown-linux-musl
[ "$(uname -m)" = x86_64 ] || fail "this check is for x86_64"
command -v musl-gcc >/dev/null || fail "musl-gcc is missing; ci/install.sh installs musl-tools"
make --silent OUT="$work/out" CARGO_BUILD_TARGET=$target CC=musl-gcc
shared=$work/out/libkinlock.so.1 static=$work/out/libkinlock.a
nm -D --defined-only "$shared" | awk '$2 != "A" { print $3 }' | sed 's/@@KINLOCK_1$//' | sort |
    diff -u symbols.txt - || fail "the shared library exports something else than symbols.txt"
nm -g --defined-only "$static" | awk 'NF == 3 { print $3 }' | sort |
    diff -u symbols.txt - || fail "the static library shows something else than symbols.txt"
needed=$(readelf -d "$shared" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
[ "$needed" = libc.so ] || fail "the shared library needs: $needed"

export LD_LIBRARY_PATH=$work/out
count=0
# tested NAME ARGUMENTS: compiles and runs a test.
tested() {
    local name=$1
    musl-gcc -std=c99 -O2 -Wall -Wextra -Wpedantic -Werror -Iinclude "tests/c/$name.c" \
        -o "$work/$name" "${@:2}"
    timeout 300 "$work/$name" || fail "$name with ${*:2} ended with status $?"
    count=$((count + 1))
}
for test in mutex cond rwlock spin once forks misuse signals ids invalidation machine queues; do
    tested $test -L"$work/out" -lkinlock
    tested $test "$static"
    tested $test -static "$static"
done
tested allocator "$static"
tested allocator -L"$work/out" -lkinlock
musl-gcc -std=c99 -O2 -DWITHOUT_LIBRARY -Iinclude tests/c/allocator.c -o "$work/allocator"
timeout 300 "$work/allocator" "$shared" || fail "allocator, loaded later, ended with status $?"
echo "the C library passes $((count + 1)) tests with musl"
