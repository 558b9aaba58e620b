#!/usr/bin/env bash
# Checks the preloaded library: programs do the same with and without it; it exports only names that
# the C library has; it needs only what a C library of 2012 has; and it cannot allocate where it
# locks. `ci/preload.sh N` repeats the programs N times.
set -euo pipefail
cd "$(dirname "$0")/.."
times=${1:-1}
for ((n = 0; n < times; n++)); do
    cargo test --quiet -p kinlock-preload
done
cargo build --quiet --release -p kinlock-preload
cargo test --quiet --release -p kinlock-preload --test programs the_smallest_stacks
library=${CARGO_TARGET_DIR:-target}/release/libkinlock_preload.so
if ! command -v nm >/dev/null; then
    echo "WARNING: nm is missing: exported symbols NOT checked" >&2
    exit 0
fi
# A process would not start if its C library lacked a symbol version, or if another library were
# missing.
if command -v readelf >/dev/null; then
    needed=$(readelf -d "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
    [ "$needed" = libc.so.6 ] || { echo "the library needs other libraries: $needed" >&2; exit 1; }
    versions=$(readelf -V "$library" |
        sed -n 's/.*Name: \(GLIBC_[0-9.]*\|GCC_[0-9.]*\)  *Flags: .*/\1/p' | sort -Vu)
    newest=$(printf '%s\n' GLIBC_2.17 $versions | sort -Vu | tail -1)
    [ "$newest" = GLIBC_2.17 ] || { echo "the library needs symbols of $newest" >&2; exit 1; }
else
    echo "WARNING: readelf is missing: what the library needs NOT checked" >&2
fi
libc=$(ldd /bin/sh | awk '/libc\.so/ { print $3 }')
exported=$(nm -D --defined-only "$library" | awk '{ print $3 }' | sed 's/@.*//' |
    grep -v '^kinlock_' | sort -u)
known=$(nm -D --defined-only "$libc" | awk '{ print $3 }' | sed 's/@.*//' | sort -u)
if unknown=$(comm -23 <(echo "$exported") <(echo "$known")) && [ -n "$unknown" ]; then
    echo "exported, but not in the C library: $unknown" >&2
    exit 1
fi
# A family of functions is replaced as a whole. Otherwise the C library would release a lock that is
# ours.
mutexes='(__)?pthread_mutex_(init|destroy|lock|trylock|timedlock|clocklock|unlock)'
condvars='pthread_cond_(init|destroy|wait|timedwait|clockwait|signal|broadcast)'
spinlocks='pthread_spin_(init|destroy|lock|trylock|unlock)'
rwlocks='(__)?pthread_rwlock_(init|destroy|(try|timed|clock)?(rd|wr)lock|unlock)'
family="^($mutexes|$condvars|$spinlocks|$rwlocks|(mtx|cnd)_.*)\$"
missing=$(echo "$known" | grep -E "$family" | comm -23 - <(echo "$exported"))
if [ -n "$missing" ]; then
    echo "the C library has what this library does not replace: $missing" >&2
    exit 1
fi
# __tls_get_addr may allocate, which must not happen where a thread locks.
if nm -D --undefined-only "$library" | grep -q __tls_get_addr; then
    echo "the library has thread-locals that the C library finds" >&2
    exit 1
fi
