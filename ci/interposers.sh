#!/usr/bin/env bash
# Checks that programs give right answers with kinlock and another library that many users preload,
# before and after it in LD_PRELOAD, and under each form of the command. Both libraries wrap
# functions of the C library. Prints how long the programs took, per library and form. All of the
# libraries have to be installed.
#   ci/interposers.sh [NAME]    only the libraries whose names begin so
#   KINLOCK                     the command to test [this checkout's]
set -euo pipefail
cd "$(dirname "$0")/.."
only=${1:-}

fail() { echo "ci/interposers.sh: $*" >&2; exit 1; }

# The name of each library and its file.
all=(faketime:faketime/libfaketime.so.1 faketimeMT:faketime/libfaketimeMT.so.1
    eatmydata:libeatmydata.so fakeroot:libfakeroot/libfakeroot-sysv.so jemalloc:libjemalloc.so.2
    mimalloc:libmimalloc.so.2 profiler:libprofiler.so.0 nss_wrapper:libnss_wrapper.so)
folder=/usr/lib/$(cc -print-multiarch)
for other in "${all[@]}"; do
    [ -e "$folder/${other#*:}" ] || fail "${other#*:} is missing: ci/install.sh installs it"
done
for program in kccachetest fakeroot; do
    command -v "$program" >/dev/null || fail "$program is missing: ci/install.sh installs it"
done
. ci/lib/command.sh
library=$(realpath "$(dirname "$kinlock")/libkinlock_preload.so")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp /etc/passwd /etc/group "$work/"
export NSS_WRAPPER_PASSWD=$work/passwd NSS_WRAPPER_GROUP=$work/group

# `right NAME LIBRARIES COMMAND...`: both programs give the right answer when COMMAND runs them,
# with these libraries preloaded into the command itself. fakeroot needs its server, the profiler a
# file.
right() {
    local name=$1 libraries=$2 words program before=()
    shift 2
    local with=(LD_PRELOAD="$libraries")
    case $name in
    faketime*) with+=(FAKETIME=+2d) ;;
    fakeroot) before=(fakeroot --) ;;
    # The profiler's timer survives an exec, but its handler does not. With the default of 10 ms of
    # CPU time the timer may end a program before the profiler starts in it, even without kinlock.
    profiler) with+=(CPUPROFILE="$work/profile" CPUPROFILE_FREQUENCY=1) ;;
    esac
    for program in kccachetest echo; do
        words=(/bin/echo ok)
        [ "$program" = echo ] || words=(kccachetest order -th 4 2000)
        if ! timeout --kill-after=5 60 "${before[@]}" env "${with[@]}" "$@" "${words[@]}" \
            >"$work/out" 2>"$work/err" || ! grep -q "^ok$" "$work/out"; then
            echo "FAILED: LD_PRELOAD=$libraries $* ${words[*]}" >&2
            tail -n 5 "$work/out" "$work/err" >&2
            exit 1
        fi
    done
}

forms=(before behind run report standby record)
printf '%-12s' library "${forms[@]}"
echo
for other in "${all[@]}"; do
    name=${other%%:*}
    other=$folder/${other#*:}
    [[ $name == "$only"* ]] || continue
    printf '%-12s' "$name"
    for form in "${forms[@]}"; do
        began=$(date +%s%N)
        case $form in
        before) right "$name" "$other:$library" ;;
        behind) right "$name" "$library:$other" ;;
        run) right "$name" "$other" "$kinlock" run -- ;;
        report) right "$name" "$other" "$kinlock" run "--report=$work/report" -- ;;
        standby) right "$name" "$other" "$kinlock" run --standby -- ;;
        record) right "$name" "$other" "$kinlock" record -o "$work/recorded" -- ;;
        esac
        printf '%-12s' "$((($(date +%s%N) - began) / 1000000)) ms"
    done
    echo
done
