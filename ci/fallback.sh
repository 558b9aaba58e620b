#!/usr/bin/env bash
# Tests kinlock_fallback.h, which implements the locks of kinlock.h by the system's locks. It has to
# declare each function of a lock that the library has, and the library's own tests of these locks
# have to pass with it, as C99 and C++11, by each compiler that is installed, with glibc, with musl,
# and for Windows under Wine.
set -euo pipefail
cd "$(dirname "$0")/../lib/c"
export LC_ALL=C
work=$(mktemp -d)
wine=
clean() {
    # Wine's server would go on for some seconds, and write into this folder.
    [ -z "$wine" ] || WINEPREFIX=$work/wine "$server" -k -w 2>/dev/null || true
    rm -rf "$work"
}
trap clean EXIT

fail() { echo "ci/fallback.sh: $*" >&2; exit 1; }
without() { echo "!!!! $1 is missing: NOT tested $2; ci/install.sh installs it" >&2; }

tests=(mutex cond rwlock spin once fallback)
warnings=(-O2 -Wall -Wextra -Wpedantic -Werror -Iinclude -DFALLBACK)
strict=(-fsyntax-only -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wundef -Werror -Iinclude)
printf '#include <kinlock_fallback.h>\n#include <kinlock_fallback.h>\n' >"$work/twice.c"
printf '#include <kinlock.h>\n' >>"$work/twice.c"
count=0

# runs NAME COMMAND..: runs it with a limit that ends a hang, but not a wait for a CPU.
runs() {
    timeout 300 "${@:2}" || fail "$1 ended with status $?"
    count=$((count + 1))
}

# everywhere NAME CC CXX EXTENSION RUNNER..: runs all tests, compiled by these compilers.
everywhere() {
    local name=$1 cc=$2 cxx=$3 extension=$4 test runner=("${@:5}")
    "$cc" -std=c99 -D_POSIX_C_SOURCE=200809L "${strict[@]}" -Wstrict-prototypes "$work/twice.c"
    for test in "${tests[@]}"; do
        "$cc" -std=c99 "${warnings[@]}" "tests/c/$test.c" -o "$work/$test$extension" "${link[@]}"
        runs "$test, $name" "${runner[@]}" "$work/$test$extension"
    done
    [ -n "$cxx" ] || return 0
    "$cxx" -x c++ -std=c++11 "${strict[@]}" "$work/twice.c"
    # Not under Wine, which takes seconds to start a program.
    for test in $([ -n "$extension" ] || echo "${tests[@]}"); do
        "$cxx" -x c++ -std=c++11 "${warnings[@]}" "tests/c/$test.c" -x none \
            -o "$work/$test$extension" "${link[@]}"
        runs "$test as C++, $name" "${runner[@]}" "$work/$test$extension"
    done
    "$cxx" -std=c++17 "${warnings[@]}" tests/c/classes.cpp -o "$work/classes$extension" "${link[@]}"
    runs "classes, $name" "${runner[@]}" "$work/classes$extension"
}

# ---- what it declares: the functions of all that it has ----

printf '#include <kinlock_fallback.h>\n' | gcc -E -P -Iinclude -x c - >"$work/declared"
grep -v -E '^kinlock_(ids|counters?|area|stack|invalidation)_' symbols.txt |
    while read -r name; do
        grep -qw "$name" "$work/declared" || fail "$name is not declared"
    done
versions() { grep -E '^#define KINLOCK_(ABI|VERSION_M|VERSION_P)' "include/$1"; }
diff <(versions kinlock.h) <(versions kinlock_fallback.h) || fail "the headers differ in version"
version=$(sed -n 's/^version = "\(.*\)"/\1/p' ../../Cargo.toml | head -1)
grep -q "return \"$version\";" include/kinlock_fallback.h || fail "it returns another version"

# The compiler's message names what the header lacks.
for absent in ids_t:concurrency_ids counter_t:counters stack_t:stacks \
    invalidation_t:delayed_invalidation; do
    if gcc -std=c99 "${warnings[@]}" -DABSENT="kinlock_${absent%:*}" -fsyntax-only \
        tests/c/fallback.c 2>"$work/log"; then
        fail "kinlock_${absent%:*} exists"
    fi
    grep -q "kinlock_fallback_has_no_${absent#*:}" "$work/log" ||
        fail "the message about kinlock_${absent%:*}: $(cat "$work/log")"
done
# A file may include only one of the two headers, and needs a POSIX that has a monotonic clock.
if printf '#include <kinlock.h>\n#include <kinlock_fallback.h>\n' |
    gcc -fsyntax-only -Iinclude -x c - 2>"$work/log" || ! grep -q 'not both' "$work/log"; then
    fail "both headers are accepted"
fi
if printf '#include <kinlock_fallback.h>\n' |
    gcc -std=c99 -fsyntax-only -Iinclude -x c - 2>"$work/log" || ! grep -q POSIX "$work/log"; then
    fail "it does not say what it needs under -std=c99"
fi

# ---- the tests --------------------------------------------------------------

link=(-pthread)
everywhere gcc gcc g++ ""
if command -v clang >/dev/null; then
    everywhere clang clang clang++ ""
    analysis=(clang -fsyntax-only -Wthread-safety -Werror -Iinclude -DFALLBACK tests/c/analysis.c)
    "${analysis[@]}"
    if "${analysis[@]}" -DMISTAKE 2>"$work/log" || ! grep -q 'requires holding' "$work/log"; then
        fail "clang's analysis has not found an access without the lock"
    fi
else
    without clang "with it"
fi
for race in "" -DRACE; do
    gcc -std=c99 "${warnings[@]}" -fsanitize=thread -g $race tests/c/race.c -o "$work/race$race" \
        -pthread
done
runs "race, free of races" "$work/race"
if timeout 300 "$work/race-DRACE" 2>"$work/log" || ! grep -q 'data race' "$work/log"; then
    fail "the thread sanitizer has not found a race"
fi
gcc -std=c99 "${warnings[@]}" -fsanitize=thread -g tests/c/fallback.c -o "$work/race" -pthread
runs "fallback with the thread sanitizer" "$work/race"
if command -v musl-gcc >/dev/null; then
    everywhere musl musl-gcc "" ""
else
    without musl-tools "with musl"
fi
windows=x86_64-w64-mingw32
if ! command -v $windows-gcc-posix >/dev/null; then
    without "gcc-mingw-w64-x86-64" "for Windows"
elif ! found=$(command -v wine64 || command -v /usr/lib/wine/wine64); then
    without wine64 "on Windows, only compiled"
    link=(-static -pthread)
    everywhere "Windows, not run" $windows-gcc-posix $windows-g++-posix .exe true
else
    wine=$found
    server=$(command -v wineserver || command -v /usr/lib/wine/wineserver || echo true)
    export WINEPREFIX=$work/wine WINEDEBUG=-all
    link=(-static -pthread)
    echo 'int main(void) { return 7; }' >"$work/seven.c"
    $windows-gcc-posix "$work/seven.c" -o "$work/seven.exe"
    status=0
    timeout 300 "$wine" "$work/seven.exe" 2>"$work/log" || status=$?
    [ "$status" = 7 ] || fail "Wine returns $status for 7: $(cat "$work/log")"
    everywhere "Windows (Wine)" $windows-gcc-posix $windows-g++-posix .exe "$wine"
fi
echo "the fallback does what the library does, in $count programs"
