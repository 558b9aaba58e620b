#!/usr/bin/env bash
# Tests a real C project on kinlock's C library: nng, a messaging library, in Debian's version. It
# is built as it is, and with lib/c/examples/nng.patch, which replaces the mutexes and condition
# variables of pthreads by kinlock_mutex_t and kinlock_cond_t. Its own tests have to pass in both
# builds. Builds some 400 files, in two minutes on an idle machine.
#
# `ci/c-project.sh --measure PAIRS` also runs nng's own benchmarks, both builds in turn, PAIRS
# times, and prints medians. The machine should be idle for that.
#   KINLOCK_CACHE    where the source is kept [~/.cache/kinlock-nng]
#   KINLOCK_MIRROR   where Debian's packages are [where this machine gets its packages]
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C

fail() { echo "ci/c-project.sh: $*" >&2; exit 1; }

pairs=0
case ${1:-} in
"") ;;
--measure) pairs=${2:?how many pairs} ;;
*) fail "usage: ci/c-project.sh [--measure PAIRS]" ;;
esac
for tool in apt-get dpkg-source cmake patch python3 nm; do
    command -v "$tool" >/dev/null || fail "$tool is missing; ci/install.sh installs what it can"
done

# ---- the source -------------------------------------------------------------

. ci/lib/debian.sh
version=1.5.2
cache=${KINLOCK_CACHE:-$HOME/.cache/kinlock-nng}
if ! [ -d "$cache/nng-$version" ]; then
    debian_source bookworm nng "$cache"
    [ -d "$cache/nng-$version" ] || fail "bookworm has another version of nng than $version"
fi

# ---- both builds ------------------------------------------------------------

work=$(realpath -m "${CARGO_TARGET_DIR:-target}")/c-project
mkdir -p "$work"
make --silent -C lib/c install DESTDIR="$work/tree" PREFIX=/usr
if ! cmp -s lib/c/examples/nng.patch "$work/source/kinlock.patch"; then
    rm -rf "$work/source"
    cp -r "$cache/nng-$version" "$work/source"
    patch --quiet -d "$work/source" -p1 <lib/c/examples/nng.patch
    cp lib/c/examples/nng.patch "$work/source/kinlock.patch"
fi

# build NAME SOURCE
build() {
    cmake -S "$2" -B "$work/$1" -DCMAKE_BUILD_TYPE=Release -DNNG_TESTS=ON -DNNG_TOOLS=ON \
        -Dkinlock_DIR="$work/tree/usr/lib/cmake/kinlock" >"$work/$1.log" 2>&1 &&
        cmake --build "$work/$1" -j"$(nproc)" >>"$work/$1.log" 2>&1 ||
        { tail -n 40 "$work/$1.log" >&2; fail "nng $1 kinlock does not build"; }
}
build without "$cache/nng-$version"
build with "$work/source"
plain=$(nm -D --undefined-only "$work/without/src/tools/perf/inproc_thr")
patched=$(nm -D --undefined-only "$work/with/src/tools/perf/inproc_thr")
[[ $plain = *pthread_cond_wait* ]] || fail "nng does not use what the patch replaces"
[[ $patched = *kinlock_mutex_lock@KINLOCK_1* ]] || fail "the patched nng does not use kinlock"
[[ $patched != *pthread_cond_wait* ]] || fail "the patched nng uses what the patch replaces"

# ---- nng's own tests --------------------------------------------------------

# Runs the tests one after the other, since they use fixed ports. Tries a test up to three times,
# because some tests measure time. Prints the names of the tests that pass, one per line.
passing() {
    (cd "$work/$1" && ctest --timeout 300 --repeat until-pass:3) >"$work/$1.tests" 2>&1 || true
    sed -n 's,^ *\([0-9]*/[0-9]*\)\{0\,1\} *Test  *#[0-9]*: \([^ ]*\) \.* *Passed.*,\2,p' "$work/$1.tests" |
        sort -u >"$work/$1.passed"
}
passing without
passing with
count=$(wc -l <"$work/without.passed")
[ "$count" -ge 80 ] || { tail -n 30 "$work/without.tests" >&2
    fail "only $count of nng's tests pass as it is"; }
if lost=$(comm -23 "$work/without.passed" "$work/with.passed") && [ -n "$lost" ]; then
    tail -n 30 "$work/with.tests" >&2
    fail "tests that pass without kinlock only:" $lost
fi
echo "nng $version: $count of its tests pass as it is, $(wc -l <"$work/with.passed") with kinlock"

# ---- its benchmarks ---------------------------------------------------------

[ "$pairs" -gt 0 ] || exit 0
exec python3 - "$work" "$pairs" <<'END'
import random, re, statistics, subprocess, sys
work, pairs = sys.argv[1], int(sys.argv[2])
# What is measured, the arguments, where the figure is in the output, and whether more is better.
benchmarks = [
    ("messages per second, one direction", ["inproc_thr", "64", "200000"], r"throughput: (\d+) \[msg", True),
    ("microseconds per round trip", ["inproc_lat", "64", "20000"], r"latency: ([\d.]+) \[us", False),
]
for what, (program, *arguments), figure, more in benchmarks:
    found = {"without": [], "with": []}
    for _ in range(pairs):
        order = list(found)
        random.shuffle(order)
        for build in order:
            run = subprocess.run([f"{work}/{build}/src/tools/perf/{program}", *arguments],
                                 capture_output=True, text=True, check=True, timeout=600)
            found[build].append(float(re.search(figure, run.stdout).group(1)))
    ratios = [new / old if more else old / new for new, old in zip(found["with"], found["without"])]
    print(f"{what}: {statistics.median(found['without']):.4g} without, "
          f"{statistics.median(found['with']):.4g} with kinlock; better by "
          f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f} in {pairs} pairs)")
END
