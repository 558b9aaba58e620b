#!/usr/bin/env bash
# Runs glibc's own tests of its threads: mutexes, condition variables, reader-writer locks,
# barriers, semaphores, spinlocks, keys, cancellation, C11 threads. They come from Debian's source
# of the glibc that is installed here, and are built outside of its tree, against the installed
# library. All tests that pass without kinlock have to pass under `kinlock run` and `kinlock run
# --report`. Takes six minutes, mostly asleep.
#   ci/nptl.sh [NAME]    only the tests whose names begin with tst-NAME
#   KINLOCK              the command to test [this checkout's]
#   KINLOCK_CACHE        where the source is kept [~/.cache/kinlock-nptl]
#   KINLOCK_MIRROR       where Debian's packages are [where this machine gets its packages]
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C

fail() { echo "ci/nptl.sh: $*" >&2; exit 1; }

# ---- one run, in its own process: nptl.sh --one FOLDER MODE TEST ----

# Writes "pass", or "fail" and why. A test may exceed its time limit on a loaded machine, so it
# fails only if it fails three times.
one() {
    local work=$1 mode=$2 test=$3 program=$1/bin/$3 arguments=() before=() status
    local result=$work/results/$mode.$test scratch=$work/scratch/$mode.$test
    case $test in
    tst-cancel7 | tst-cancelx7) arguments=(--command "exec $program") ;;
    tst-exec4) arguments=("$program") ;;
    tst-umask1) arguments=("$scratch/file") ;;
    esac
    case $mode in
    plain) ;;
    run) before=("$KINLOCK" run --) ;;
    report) before=("$KINLOCK" run "--report=$scratch/report" --) ;;
    esac
    for _ in 1 2 3; do
        rm -rf "$scratch"
        mkdir -p "$scratch"
        # Some tests open this file, which exists in glibc's tree.
        : >"$scratch/Makefile"
        status=0
        (cd "$scratch" && TMPDIR=$scratch LD_LIBRARY_PATH=$work/bin exec timeout -k 5 200 \
            "${before[@]}" "$program" "${arguments[@]}") >"$result.out" 2>&1 </dev/null || status=$?
        if [ "$mode" = report ] && [ "$status" = 0 ] && ! [ -s "$scratch/report" ]; then
            status="0, but no report"
        fi
        rm -rf "$scratch"
        [ "$status" != 0 ] || { echo pass >"$result"; return; }
        # The status of a test that is not supported here.
        [ "$status" != 77 ] || break
    done
    echo "fail $test: status $status: $(grep -v '^kinlock: \|^Timed out\|^Termination' "$result.out" |
        grep -v '^ *$' | tail -n 1 | cut -c1-200)" >"$result"
}

if [ "${1:-}" = --one ]; then
    one "${@:2}"
    exit
fi

# ---- the source -------------------------------------------------------------

only=${1:-}
. ci/lib/debian.sh
. ci/lib/command.sh
export KINLOCK=$kinlock
cache=${KINLOCK_CACHE:-$HOME/.cache/kinlock-nptl}
for tool in apt-get dpkg-query dpkg-source cc c++; do
    command -v "$tool" >/dev/null || fail "$tool is missing; ci/install.sh installs what it can"
done
version=$(dpkg-query -W -f '${source:Version}' libc6)
source=$cache/glibc-${version%-*}
if [ "$(cat "$source/kinlock-version" 2>/dev/null)" != "$version" ]; then
    rm -rf "$source"
    debian_source "$(. /etc/os-release && echo "$VERSION_CODENAME")" "glibc=$version" "$cache"
    echo "$version" >"$source/kinlock-version"
fi

# ---- the build --------------------------------------------------------------

# The tests and their library include headers that are not installed. Links lead to the headers that
# need nothing else. The others are replaced by the parts that the tests use, without the internals
# of glibc.
work=$(realpath -m "${CARGO_TARGET_DIR:-target}")/nptl
rm -rf "$work"
mkdir -p "$work"/{include/elf,support,bin,results,scratch}
ln -s "$source"/{support,malloc} "$source"/include/{array_length,intprops}.h \
    "$source"/include/{dso_handle,libc-diag,scratch_buffer}.h "$source"/malloc/dynarray.h \
    "$source"/sysdeps/generic/tst-stack-align.h "$source"/sysdeps/nptl/internaltypes.h \
    "$source"/sysdeps/unix/sysv/linux/tst-skeleton-*affinity.c "$work/include/"
header() { { echo '#pragma once'; cat; } >"$work/include/$1"; }
header config.h </dev/null
header libc-config.h </dev/null
header stackinfo.h <<'END'
#define _STACK_GROWS_DOWN 1
#define DEFAULT_STACK_PERMS 3
#define PF_X 1
END
header atomic.h <<'END'
#define atomic_load_relaxed(place) __atomic_load_n(place, __ATOMIC_RELAXED)
#define atomic_store_relaxed(place, value) __atomic_store_n(place, value, __ATOMIC_RELAXED)
END
header shlib-compat.h <<'END'
#define TEST_COMPAT(library, from, to) 0
END
header elf/dl-tunables.h <<'END'
#define TUNABLE_GET_FULL(...) 0
END
header allocate_once.h <<'END'
static inline void *allocate_once(void **place, void *(*make)(void *),
                                  void (*unmake)(void *, void *), void *closure)
{
    void *there = __atomic_load_n(place, __ATOMIC_ACQUIRE), *made;
    if (there)
        return there;
    made = make(closure);
    if (__atomic_compare_exchange_n(place, &there, made, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        return made;
    unmake(made, closure);
    return there;
}
END
header before.h <<'END'
#include <errno.h>
#include <limits.h>
#include <linux/limits.h>
#define TIMEOUTFACTOR 1
#define __HAVE_64B_ATOMICS 1
#define __set_errno(value) (errno = (value))
#define attribute_hidden
#define libc_hidden_def(name)
#define libc_hidden_proto(name)
END

# If a file of the tests' library does not compile, the tests that need it do not link. Modules that
# a test loads are in the folder of the test, where the linker also finds those that a test is
# linked with.
cat >"$work/Makefile" <<'END'
.SECONDARY:
.SECONDEXPANSION:
VPATH = $(from)/support:$(from)/malloc:$(from)/nptl:$(from)/sysdeps/pthread
flags = -O1 -g -w -D_GNU_SOURCE -include include/before.h -I include $(patsubst %,-idirafter $(from)/%, \
    . nptl support sysdeps/pthread) -pthread
include flags.mk
support/%.o: %.c
	$(CC) $(flags) $(paths) -c $< -o $@
bin/%.so: %.c
	$(CC) $(flags) $(CFLAGS-$(notdir $<)) -shared -fPIC -Wl,-soname,$(@F) $< -o $@
bin/tst-%: tst-%.c $$(modules-tst-$$*) $$(parts-tst-$$*) support.a
	$(CC) $(flags) $(CFLAGS-$(<F)) -rdynamic -Wl,--as-needed $(filter-out support.a,$^) support.a -o $@
bin/tst-%: tst-%.cc support.a
	$(CXX) $(flags) -rdynamic $^ -o $@
END
objects=$(cd "$source" && ls support/*.c malloc/scratch_buffer_*.c malloc/dynarray_*.c |
    sed 's,.*/\(.*\)\.c,support/\1.o,')
# Static programs are left out, because no library can be preloaded into them. The others that are
# left out are not tests.
sources=$(cd "$source" && ls nptl/tst-*.c nptl/tst-*.cc sysdeps/pthread/tst-*.c | sed 's,.*/,,')
modules=$(sed -nE '/mod[0-9a-z]*\.c$/s,(.*)\.c,\1,p' <<<"$sources")
tests=$(sed -E '/(mod[0-9a-z]*|aux|-common|-static)\.cc?$/d; s,\.cc?$,,' <<<"$sources" | grep "^tst-$only" | sort -u)
{
    grep -hE '^CFLAGS-tst-' "$source"/{nptl,sysdeps/pthread}/Makefile | grep -v '[$\\]'
    for module in $modules; do
        echo "modules-${module%%mod*} += bin/$module.so"
        echo "modules-${module%%-mod*} += bin/$module.so"
    done | sort -u
    for part in $(grep 'aux\.c$' <<<"$sources"); do
        echo "parts-${part%aux.c} = $part"
    done
} >"$work/flags.mk"
paths=$(grep -o '\b[A-Z][A-Z_]*_PATH' "$source/support/support_paths.c" | grep -v '^D[A-Z]*DIR_PATH\|^DOBJ' |
    sort -u | sed "s,.*,-D&='\"$work\"',")
build() { make -C "$work" -k -j"$(nproc)" from="$source" paths="$(echo $paths)" "$@" >>"$work/build.log" 2>&1; }
build $objects || true
ar rc "$work/support.a" "$work"/support/*.o
build $(for name in $tests $(sed 's/$/.so/' <<<"$modules"); do echo "bin/$name"; done) || true
built=$(for test in $tests; do [ ! -x "$work/bin/$test" ] || echo "$test"; done)

# ---- the runs ---------------------------------------------------------------

# all MODE TEST...: prints the tests that pass. Runs more of them at a time than there are CPUs,
# because they mostly sleep.
all() {
    local mode=$1
    shift
    printf '%s\n' "$@" | xargs -r -P 8 -n 1 ci/nptl.sh --one "$work" "$mode"
    for test in "$@"; do
        [ "$(cat "$work/results/$mode.$test")" != pass ] || echo "$test"
    done
}
count() { wc -w <<<"$*"; }
because() { for test in "${@:2}"; do sed -n 's/^fail /    /p' "$work/results/$1.$test"; done; }

echo "glibc $version: $(count $tests) tests, of which $(count $built) build here"
echo "do not build:" $(comm -23 <(echo "$tests") <(echo "$built"))
passing=$(all plain $built)
echo "as they are, $(count $passing) pass; these do not:"
because plain $built
status=0
for mode in run report; do
    right=$(all $mode $passing)
    echo "$mode: $(count $right) of $(count $passing) pass"
    [ "$right" = "$passing" ] || { echo "FAILED under $mode:"; because $mode $passing; status=1; }
done
exit $status
