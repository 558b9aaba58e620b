#!/usr/bin/env bash
# Tests the C library: builds and installs it into a tree, and uses it from there, as its users do.
# It exports exactly what symbols.txt lists, and the header declares exactly what abi.txt has. Each
# test in C is compiled as C and as C++, by each compiler that is installed, with the shared and
# with the static library.
#
# `ci/c.sh --record` writes symbols.txt and abi.txt from the header. Lines that were released must
# neither vanish nor change.
set -euo pipefail
cd "$(dirname "$0")/../lib/c"
export LC_ALL=C
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/tree

fail() {
    echo "ci/c.sh: $*" >&2
    exit 1
}

# ---- what the header declares -----------------------------------------------

# The declarations of the header, one per line, without attributes.
declarations() {
    gcc -E -P -DKINLOCK_NO_INLINE -D'__attribute__(x)=' -x c include/kinlock.h -o "$work/all"
    printf '#include <stddef.h>\n#include <stdint.h>\n' |
        gcc -E -P -x c - -o "$work/system"
    tail -n +"$(($(wc -l <"$work/system") + 1))" "$work/all" |
        tr -s ' \n\t' ' ' | sed -e 's/; */;\n/g' | sed -e ':a;/{[^}]*$/{N;s/\n/ /;ba}' -e 's/ *$//' |
        sed -e 's/ ;$/;/'
    sed -e ':a;/\\$/{N;s/ *\\\n */ /;ba}' include/kinlock.h |
        grep -E '^#define KINLOCK_(ABI|VERSION_MAJOR|IDS|FOREVER|[A-Z]*_INIT)'
}

declared() {
    declarations | grep -o 'kinlock_[a-z_]*(' | tr -d '(' | sort -u
}

if [ "${1:-}" = --record ]; then
    declared >symbols.txt
    declarations >abi.txt
    exit 0
fi
declarations | diff -u abi.txt - || fail "the header does not declare what abi.txt records"
declared | diff -u symbols.txt - || fail "the header does not declare the functions of symbols.txt"
for name in $(cat symbols.txt); do
    grep -qw "$name" tests/c/* || fail "no test calls $name"
done
version=$(sed -n 's/^version = "\(.*\)"/\1/p' ../../Cargo.toml | head -1)
in_header=$(sed -n 's/^#define KINLOCK_VERSION_[MP][A-Z]* //p' include/kinlock.h | paste -sd.)
[ "$version" = "$in_header" ] || fail "the header has version $in_header, Cargo.toml $version"

# ---- building and installing ------------------------------------------------

said=$(make --silent install DESTDIR="$tree" PREFIX=/usr 2>&1 | tee /dev/stderr)
[[ $said != *"loader's cache"* ]] || fail "a tree is no place that the loader knows, nor has to"
make --silent install PREFIX="$work/prefix" LDCONFIG=true | grep -q "not in the loader's cache" ||
    fail "an installed library that programs do not find is not told"
export PKG_CONFIG_SYSROOT_DIR=$tree PKG_CONFIG_LIBDIR=$tree/usr/lib/pkgconfig
[ "$(pkg-config --modversion kinlock)" = "$version" ] || fail "kinlock.pc has another version"
for directory in lib include; do
    moved=$(pkg-config --define-variable=prefix=/moved --variable=${directory}dir kinlock)
    [[ $moved = */moved/$directory ]] || fail "kinlock.pc does not move with its prefix: $moved"
done
shared=$tree/usr/lib/libkinlock.so.1
static=$tree/usr/lib/libkinlock.a

exported=$(nm -D --defined-only "$shared")
echo "$exported" | awk '$2 != "A" { print $3 }' | sed 's/@@KINLOCK_1$//' | sort |
    diff -u symbols.txt - || fail "the shared library exports something else than symbols.txt"
nm -g --defined-only "$static" | awk 'NF == 3 { print $3 }' | sort |
    diff -u symbols.txt - || fail "the static library shows something else than symbols.txt"
for name in $(cat symbols.txt); do
    [ -s "$tree/usr/share/man/man3/$name.3" ] || fail "$name has no man page"
done
# Tools find the same probes as in glibc.
probes=$(readelf -n "$shared" | grep -A1 'Provider: libpthread' | sed -n 's/.*Name: //p' | sort -u |
    tr '\n' ' ')
[ "$(uname -m)" != x86_64 ] || [ "$probes" = "cond_broadcast cond_signal cond_wait mutex_acquired \
mutex_entry mutex_release mutex_timedlock_acquired mutex_timedlock_entry rdlock_acquire_read \
rdlock_entry rwlock_unlock wrlock_acquire_write wrlock_entry " ] || fail "probes: $probes"
# The linker would replace a group by a group of the same name from another archive.
groups=$(readelf -g "$static")
[ "$(grep -c 'no section groups' <<<"$groups")" = 1 ] || fail "the static library: $groups"
dynamic=$(readelf -d "$shared")
echo "$dynamic" | grep -q 'SONAME.*\[libkinlock.so.1\]' || fail "the shared library has no soname"
needed=$(echo "$dynamic" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
[ "$needed" = libc.so.6 ] || fail "the shared library needs: $needed"
echo "$dynamic" | grep -q NODELETE || fail "the shared library may be unloaded"
if nm -D --undefined-only "$shared" | grep -q '__tls_get_addr'; then
    [ "$(uname -m)" != x86_64 ] || fail "the C library finds thread-locals, and may allocate"
fi

# ---- compiling --------------------------------------------------------------

warnings=(-O2 -Wall -Wextra -Wpedantic -Werror)
include=$(pkg-config --cflags kinlock)
compilers=(gcc)
for other in clang; do
    if command -v "$other" >/dev/null; then
        compilers+=("$other")
    else
        echo "!!!! $other is missing: NOT tested with it" >&2
    fi
done

plus() {
    case $1 in gcc) echo g++ ;; clang) echo clang++ ;; esac
}

# The header compiles by itself and when it is included twice, in every language, without warnings,
# including warnings that few programs enable.
printf '#include <kinlock.h>\n#include <kinlock.h>\n' >"$work/twice.c"
printf '#include <kinlock.hpp>\n#include <kinlock.hpp>\n' >"$work/twice.cpp"
strict=(-fsyntax-only -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wundef -Werror)
for compiler in "${compilers[@]}"; do
    for language in c99 c11 c17; do
        "$compiler" -std=$language "${strict[@]}" -Wstrict-prototypes $include "$work/twice.c"
    done
    for language in c++11 c++14 c++17 c++20; do
        for file in twice.c twice.cpp; do
            "$(plus "$compiler")" -x c++ -std=$language "${strict[@]}" $include "$work/$file"
        done
    done
done

# Clang before version 9 has no `asm goto`.
inline_of() {
    gcc -E -P -D__clang__ -D__clang_major__="$1" $include "$work/twice.c" |
        grep -c kinlock_counter_add_inline || true
}
if [ "$(uname -m)" = x86_64 ]; then
    [ "$(inline_of 8)" = 0 ] || fail "the header has an asm goto for clang 8"
    [ "$(inline_of 9)" -gt 0 ] || fail "the header has no inline function for clang 9"
fi

libraries=(shared static)
link() {
    case $1 in
    shared) echo "$(pkg-config --libs kinlock) -pthread" ;;
    static) echo "$static -pthread -ldl" ;;
    esac
}
export LD_LIBRARY_PATH=$tree/usr/lib

# run NAME COMMAND..: runs it with a limit that ends a hang, but not a wait for a CPU.
run() {
    timeout 300 "${@:2}" || fail "$1 ended with status $?"
}

tests=(mutex cond rwlock spin once forks misuse signals ids invalidation machine queues)
count=0
for compiler in "${compilers[@]}"; do
    for library in "${libraries[@]}"; do
        for test in "${tests[@]}"; do
            "$compiler" -std=c99 "${warnings[@]}" $include "tests/c/$test.c" \
                -o "$work/$test" $(link "$library")
            run "$test, $compiler, $library" "$work/$test"
            "$(plus "$compiler")" -x c++ -std=c++11 "${warnings[@]}" $include "tests/c/$test.c" \
                -x none -o "$work/$test" $(link "$library")
            run "$test as C++, $compiler, $library" "$work/$test"
            count=$((count + 2))
        done
        for language in c++11 c++17; do
            "$(plus "$compiler")" -std=$language "${warnings[@]}" $include tests/c/classes.cpp \
                -o "$work/classes" $(link "$library")
            run "classes, $compiler, $language, $library" "$work/classes"
            count=$((count + 1))
        done
        "$compiler" -std=c99 "${warnings[@]}" $include tests/c/allocator.c \
            -o "$work/allocator" $(link "$library") -ldl
        run "allocator, $compiler, $library" "$work/allocator"
        count=$((count + 1))
    done
done

# ---- modules of C++20 -------------------------------------------------------

mkdir "$work/module"
from=$PWD/tests/c
[ "$(g++ -dumpversion | cut -d. -f1)" -ge 11 ] || fail "g++ is older than 11: it has no modules"
for header in kinlock.h kinlock.hpp kinlock_fallback.h; do
    options=(-std=c++20 -O2 -Wall -Wextra -Werror -pthread $include "-DHEADER=<$header>")
    # g++ leaves the compiled module in the current folder.
    (
        cd "$work/module"
        g++ "${options[@]}" -fmodules-ts -c "$from/module.cpp" -o module.o
        g++ "${options[@]}" -fmodules-ts "$from/importer.cpp" module.o -o program $(link shared)
    )
    run "a module with $header, g++" "$work/module/program"
    for clang in $(command -v clang++ || true); do
        "$clang" "${options[@]}" -x c++-module --precompile tests/c/module.cpp \
            -o "$work/module/counting.pcm"
        "$clang" -std=c++20 -O2 -pthread -c "$work/module/counting.pcm" -o "$work/module/module.o"
        "$clang" "${options[@]}" -fmodule-file=counting="$work/module/counting.pcm" \
            tests/c/importer.cpp "$work/module/module.o" -o "$work/module/program" $(link shared)
        run "a module with $header, clang" "$work/module/program"
    done
done

# ---- headers of other versions ----------------------------------------------

# header FOLDER NAME VALUE: makes a header in which the definition of NAME has another value.
header() {
    mkdir -p "$work/$1"
    sed "s/^#define $2 .*/#define $2 $3/" include/kinlock.h >"$work/$1/kinlock.h"
    grep -q "^#define $2 $3\$" "$work/$1/kinlock.h" || fail "kinlock.h does not define $2"
}
header older KINLOCK_VERSION_MINOR 0
header newer KINLOCK_VERSION_MINOR 999
header other KINLOCK_ABI 2
for each in older:0 newer:ENOTSUP other:ENOTSUP; do
    gcc -std=c99 "${warnings[@]}" -I"$work/${each%:*}" -DEXPECTED="${each#*:}" tests/c/versions.c \
        -o "$work/versions" $(link shared)
    run "a header that is ${each%:*}" "$work/versions"
done
# A program that was linked with a later library, which has one more function, runs with this one.
{ cat symbols.txt; echo kinlock_from_later; } | sed 's/.*/void &(void) {}/' >"$work/later.c"
gcc -w -shared -fPIC "$work/later.c" -o "$work/newer/libkinlock.so.1" \
    -Wl,-soname,libkinlock.so.1 -Wl,--version-script=kinlock.map
for binding in lazy now; do
    gcc -std=c99 "${warnings[@]}" -I"$work/newer" -DEXPECTED=ENOTSUP -DLATER tests/c/versions.c \
        -o "$work/versions" "$work/newer/libkinlock.so.1" -Wl,-z,$binding
    ! "$work/versions" call 2>"$work/log" || fail "a function that is missing was called"
    grep -q kinlock_from_later "$work/log" || fail "nobody says what is missing: $(cat "$work/log")"
done
gcc -std=c99 "${warnings[@]}" -I"$work/newer" -DEXPECTED=ENOTSUP -DLATER tests/c/versions.c \
    -o "$work/versions" "$work/newer/libkinlock.so.1" -Wl,-z,lazy
run "a function that is missing and is not called" "$work/versions"

# ---- examples, and what the documentation shows -----------------------------

# Prints code block number $2 of language $1 in file $3.
block() {
    awk -v fence="\`\`\`$1" -v want="$2" \
        '$0 == fence { n++; inside = 1; next } /^```/ { inside = 0 } inside && n == want' "$3"
}
block c 1 ../../docs/guide/c.md >"$work/guide.c"
block cpp 1 ../../docs/guide/c.md >"$work/guide.cpp"
gcc -std=c99 "${warnings[@]}" $include "$work/guide.c" -o "$work/guide" $(link shared)
[ "$(timeout 300 "$work/guide")" = "no job" ] || fail "the guide's program does not print what it says"
g++ -std=c++11 "${warnings[@]}" $include "$work/guide.cpp" -o "$work/guide" $(link shared)
run "the guide's program in C++" "$work/guide"
if command -v cmake >/dev/null; then
    # CMake finds the library although the tree was moved after the installation, and although /lib
    # is a link to /usr/lib.
    ln -s usr/lib "$tree/lib"
    for compiler in "${compilers[@]}"; do
        CC=$compiler CXX=$(plus "$compiler") cmake -S examples -B "$work/cmake-$compiler" \
            -DCMAKE_BUILD_TYPE=Release -Dkinlock_DIR="$tree/lib/cmake/kinlock" >"$work/log" &&
            cmake --build "$work/cmake-$compiler" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
        for library in kinlock static; do
            for example in queue cache; do
                run "$example, CMake, $compiler, $library" \
                    "$work/cmake-$compiler/$example-$library" >"$work/log"
            done
        done
    done
else
    echo "!!!! cmake is missing: its files were NOT tested" >&2
fi
for compiler in "${compilers[@]}"; do
    for library in "${libraries[@]}"; do
        "$compiler" -std=c99 "${warnings[@]}" $include examples/queue.c -o "$work/queue" \
            $(link "$library")
        run "queue, $compiler, $library" "$work/queue" >"$work/log"
        "$(plus "$compiler")" -std=c++17 "${warnings[@]}" $include examples/cache.cpp \
            -o "$work/cache" $(link "$library")
        run "cache, $compiler, $library" "$work/cache" >"$work/log"
    done
done

# ---- loaded later, several copies, sandboxes, sanitizers --------------------

gcc -std=c99 "${warnings[@]}" -DWITHOUT_LIBRARY $include tests/c/allocator.c \
    -o "$work/allocator" -pthread -ldl
run "allocator, loaded later" "$work/allocator" "$shared"

for copy in one two; do
    gcc -std=c99 "${warnings[@]}" -fPIC -shared $include tests/c/copy.c -o "$work/$copy.so" \
        "$static" -Wl,-z,defs,--exclude-libs,ALL
done
for library in "${libraries[@]}"; do
    gcc -std=c99 "${warnings[@]}" $include tests/c/copies.c -o "$work/copies" \
        $(link "$library") -ldl
    run "copies, $library" "$work/copies" "$work/one.so" "$work/two.so"
done

# A shared object that contains the header's inline addition, and is unloaded.
for compiler in "${compilers[@]}"; do
    "$compiler" -std=c99 "${warnings[@]}" -fPIC -shared $include tests/c/plugin.c \
        -o "$work/plugin.so" $(link shared)
    "$compiler" -std=c99 "${warnings[@]}" $include tests/c/unload.c -o "$work/unload" \
        $(link shared) -ldl
    run "unload, $compiler" "$work/unload" "$work/plugin.so"
done

# Static programs. The linker warns that the library refers to dlopen.
for test in "${tests[@]}"; do
    gcc -std=c99 "${warnings[@]}" -static $include "tests/c/$test.c" -o "$work/$test" \
        "$static" -pthread 2>"$work/log" || { cat "$work/log" >&2; exit 1; }
    run "$test, linked with -static" "$work/$test"
done

# Sandboxes. glibc's pthread_join needs one of the operations, so the tests poll instead.
gcc -std=c99 "${warnings[@]}" tests/c/refuse.c -o "$work/refuse"
refused=(rseq,membarrier rseq membarrier futex-wait futex-wait-bitset futex-wake-bitset
    futex-requeue futex-cmp-requeue futex2)
for test in mutex cond rwlock once spin ids invalidation forks; do
    gcc -std=c99 "${warnings[@]}" -DPOLL_ENDS $include "tests/c/$test.c" -o "$work/$test" \
        $(link shared)
    # Beyond futexes, these four need only what the first three refuse.
    case $test in spin | ids | invalidation | forks) tried=3 ;; *) tried=${#refused[@]} ;; esac
    for what in "${refused[@]:0:tried}"; do
        run "$test without $what" "$work/refuse" "$what" "$work/$test"
    done
done
gcc -std=c99 "${warnings[@]}" -DPOLL_ENDS $include tests/c/copies.c -o "$work/copies" \
    $(link shared) -ldl
for what in "${refused[@]}"; do
    run "copies without $what" "$work/refuse" "$what" "$work/copies" "$work/one.so" "$work/two.so"
done

# Counters: in C++ functions that the linker discards, in the library itself, and in threads that
# glibc does not register for restartable sequences.
for options in "-O0" "-O2" "-O2 -fno-inline -ffunction-sections -Wl,--gc-sections"; do
    for unit in 1 2; do
        g++ -std=c++11 "${warnings[@]}" $options -DUNIT=$unit $include -c tests/c/units.cpp \
            -o "$work/unit$unit.o"
    done
    g++ $options "$work/unit1.o" "$work/unit2.o" -o "$work/units" $(link shared)
    run "units, $options" "$work/units"
done
gcc -std=c99 "${warnings[@]}" -DKINLOCK_NO_INLINE $include tests/c/ids.c -o "$work/ids" $(link shared)
run "ids without the inline function" "$work/ids"
run "ids without registered threads" env GLIBC_TUNABLES=glibc.pthread.rseq=0 "$work/ids"
gcc -std=c99 "${warnings[@]}" $include tests/c/ids.c -o "$work/ids" $(link shared)
run "inline ids without registered threads" env GLIBC_TUNABLES=glibc.pthread.rseq=0 "$work/ids"

for test in "${tests[@]}"; do
    # Left out, because the sanitizer stops at the null pointers that this test passes.
    [ "$test" != misuse ] || continue
    gcc -std=c99 "${warnings[@]}" -fsanitize=address,undefined -fno-sanitize-recover=all -g \
        $include "tests/c/$test.c" -o "$work/$test" $(link shared)
    run "$test with sanitizers" "$work/$test"
done
gcc -std=c99 "${warnings[@]}" -fsanitize=thread -g $include tests/c/race.c -o "$work/race" \
    $(link shared)
run "race, free of races" "$work/race"
gcc -std=c99 "${warnings[@]}" -fsanitize=thread -g -DRACE $include tests/c/race.c \
    -o "$work/race" $(link shared)
if timeout 300 "$work/race" 2>"$work/log" || ! grep -q 'data race' "$work/log"; then
    fail "the thread sanitizer has not found a race"
fi
if command -v clang >/dev/null; then
    # Also with the functions that kinlock_tsan.h defines for ThreadSanitizer.
    mkdir "$work/tsan"
    cp -r "$(gcc -print-file-name=include)/sanitizer" "$work/tsan"
    for sanitizer in "" -fsanitize=thread; do
        analysis=(clang -fsyntax-only -Wthread-safety -Werror $sanitizer -isystem "$work/tsan"
            $include tests/c/analysis.c)
        "${analysis[@]}"
        if "${analysis[@]}" -DMISTAKE 2>"$work/log" || ! grep -q 'requires holding' "$work/log"; then
            fail "clang's analysis has not found an access without the lock"
        fi
    done
fi

# ---- instructions -----------------------------------------------------------

# All instructions through the shared library, including calls, counted as in ci/instructions.sh.
# Counters are left out, because valgrind has no restartable sequences. Three instructions of each
# lock except the spinlock are probes (nops).
declare -A limit=([mutex]=25 [spin]=29 [read]=54 [write]=21)
if [ "$(uname -m)" != x86_64 ] || ! command -v valgrind >/dev/null; then
    echo "!!!! no valgrind, or not x86_64: instructions were NOT counted" >&2
else
    gcc -std=c99 "${warnings[@]}" $include tests/c/uncontended.c -o "$work/uncontended" \
        $(link shared)
    counted() {
        local count
        rm -f "$work/out"
        valgrind --tool=callgrind --callgrind-out-file="$work/out" "$work/uncontended" "$@" \
            >"$work/log" 2>&1 || { cat "$work/log" >&2; return 1; }
        count=$(sed -n 's/^summary: *//p; s/^totals: *//p' "$work/out" | head -1)
        [ "${count:-0}" -gt 0 ] || { cat "$work/log" >&2; return 1; }
        echo "$count"
    }
    # A failure in $(..) inside of an arithmetic expression would count as 0.
    per_turn() {
        local long short
        long=$(counted "$1" 110000) || return 1
        short=$(counted "$1" 10000) || return 1
        [ "$long" -gt "$short" ] || return 1
        echo $(((long - short + 50000) / 100000))
    }
    empty=$(per_turn none) || fail "valgrind has not counted the empty loop"
    theirs=$(per_turn pthread) || fail "valgrind has not counted pthread_mutex"
    theirs=$((theirs - empty))
    echo "pthread_mutex: $theirs instructions per lock and unlock"
    for lock in mutex spin read write; do
        found=$(per_turn "$lock") || fail "valgrind has not counted $lock"
        found=$((found - empty))
        [ "$found" -gt 0 ] || fail "$lock: no instructions beyond the empty loop"
        echo "$lock: $found instructions, limit ${limit[$lock]}"
        [ "$found" -le "${limit[$lock]}" ] || fail "$lock: more instructions than its limit"
        [ "$lock" != mutex ] || [ $((found * 10)) -le $((theirs * 11)) ] ||
            fail "$lock: more than 1.1 times the instructions of pthread_mutex"
    done
fi
echo "all of them do what they should; $count of them are in every way of compiling and linking"
