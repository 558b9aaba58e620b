#!/usr/bin/env bash
# Checks that a program has the same surroundings under `kinlock run`, `run --counts`, `run
# --report`, `record` and, where its files could matter, `run --standby` as without kinlock, and
# that its parent sees no difference either: signals, masks, descriptors, statuses, stops, PID 1,
# /dev/shm, limits.
#
#   ci/supervised.sh [NAME]    only the cases whose name begins so
#
# KINLOCK=FILE is the command to test.
set -euo pipefail
cd "$(dirname "$0")/.."
only=${1:-}
[ -n "${KINLOCK:-}" ] || cargo build --release --quiet -p kinlock-preload
. ci/lib/command.sh
KINLOCK=$kinlock
# Runs as root, for namespaces, if that needs no password.
if [ "$(id -u)" != 0 ] && sudo -n true 2>/dev/null; then
    exec sudo -n KINLOCK="$KINLOCK" "ci/${0##*/}" "$@"
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cc -Wall -O1 -pthread -o "$work/probe" ci/supervised.c
cd "$work"
failed=0

# The ways to run a command; `bare` is without kinlock.
run=("$KINLOCK" run --)
counts=("$KINLOCK" run "--counts=$work/counts" --)
report=("$KINLOCK" run "--report=$work/report" --)
standby=("$KINLOCK" run --standby --)
record=("$KINLOCK" record -o "$work/recorded.json" --)
bare=()

# same NAME COMMAND...: runs a case in each way, and in the ways that `more` names. It must print
# the same as without kinlock.
same() {
    local name=$1 way
    [[ $name == "$only"* ]] || return 0
    shift
    for way in bare run counts report record ${more:-}; do
        local -n command=$way
        # No case takes long, but the machine may be busy.
        "$@" >"$name.$way" 2>"$name.$way.err" || echo "status $?" >>"$name.$way"
        if ! diff "$name.bare" "$name.$way" >"$name.diff"; then
            echo "FAILED: $name under $way (<: without kinlock)" >&2
            cat "$name.diff" "$name.$way.err" >&2
            failed=1
        fi
    done
    echo "$name: $(wc -l <"$name.bare") lines the same"
}

# prints NAME WAYS EXPECTED COMMAND...: runs a case in these ways. It must print EXPECTED.
prints() {
    local name=$1 ways=$2 expected=$3 way
    [[ $name == "$only"* ]] || return 0
    shift 3
    for way in $ways; do
        local -n command=$way
        "$@" >"$name.$way" 2>"$name.$way.err" || echo "status $?" >>"$name.$way"
        if [ "$(cat "$name.$way")" != "$expected" ]; then
            echo "FAILED: $name under $way" >&2
            diff <(echo "$expected") "$name.$way" >&2 || true
            cat "$name.$way.err" >&2
            failed=1
        fi
    done
    echo "$name: as it should"
}

limited() {
    timeout --kill-after=5 60 "$@"
}

inherited() {
    rm -f seen
    limited ./probe as "$@" -- "${command[@]}" ./probe attributes seen
    cat seen
}

ended() {
    limited ./probe status "${command[@]}" "$@"
}

sent() {
    limited ./probe sends seen "$1" "$2" "${command[@]}" ./probe signals seen 64
}

stopped() {
    limited ./probe stops seen "$1" "${command[@]}" ./probe sleeps seen
}

flickered() {
    limited ./probe flickers seen "${command[@]}" ./probe sleeps seen
}

mixed() {
    limited ./probe mixes seen "${command[@]}" ./probe sleeps seen
}

came_once() {
    limited ./probe once seen "${command[@]}" ./probe signals seen 64
}

# `timeout` passes a signal on to its child, and then to its process group. If the program is its
# child, the program may get the signal twice.
under_timeout() {
    local n=0 started
    rm -f seen
    timeout 60 "${command[@]}" ./probe signals seen 15 &
    started=$!
    until [ -s seen ]; do
        ((n++ < 2000)) || return 1
        sleep 0.01
    done
    kill "$started"
    wait "$started" || true
    grep -x "signal 15" seen
}

first_process() {
    limited unshare --pid --fork --mount-proc "${command[@]}" ./probe orphans
}

small_memory() {
    # shellcheck disable=SC2016
    limited unshare -m sh -c 'mount -t tmpfs -o size=64m tmpfs /dev/shm && exec "$@"' sh \
        "${command[@]}" ./probe forks 200
}

small_files() {
    (
        ulimit -f 1024
        limited ./probe status "${command[@]}" ./probe locks
    )
}

# A reader must see the end of the output when the program closes its stdout, and not only when the
# command ends: the program waits for a file that is created when the reader has seen the end.
closed_output() {
    local status=0
    rm -f go
    [ -p pipe ] || mkfifo pipe
    (
        cat <pipe >/dev/null
        touch go
    ) &
    "${command[@]}" ./probe closes go >pipe || status=$?
    wait
    echo "$status"
}

child_ignored() {
    limited ./probe status ./probe as ignore:17 -- "${command[@]}" ./probe locks
}

more=standby same nothing inherited
same ignored inherited ignore:13 ignore:17 ignore:1 ignore:10 ignore:40
same blocked inherited block:12 block:15 block:17 block:37
same pending inherited block:12 raise:12 block:15 raise:15 block:37 raise:37
same closed inherited close:0 close:1 close:2
same closed-input inherited close:0
more=standby same descriptors inherited open:3 open:9 open:17
same process inherited umask:27 timer:1000 subreaper
more=standby same environment inherited me:LISTEN_PID me:WATCHDOG_PID me:SYSTEMD_EXEC_PID
for signal in 9 11 15 6 2 13; do
    same "ended-by-$signal" ended ./probe raises "$signal"
done
same status ended ./probe nothing
same child-ignored child_ignored
same sent-alone sent alone 28,12,18,15,2,1,3,14,23,24,29,30,37,37,20,21,22
same sent-to-group sent group 28,12,10,18,15,2,1,3,14,23,24,29,30,37,37,20,21,22
prints sent-usr1 "bare run counts record" "exit 5
signal 10
signal 64" sent alone 10
same stopped-alone stopped alone
same stopped-as-group stopped group
same stopped-itself stopped program
same stopped-quickly flickered
same stopped-by-both mixed
same stopped-then-once came_once
prints timeout "report record" "signal 15" under_timeout
more=standby same small-files small_files
prints closed-output "bare run counts report record" 8 closed_output
if unshare --pid --fork --mount-proc --mount true 2>/dev/null; then
    prints first "bare run counts" "the orphan's parent is 1
zombies: 1
status 4" first_process
    prints first-stays "report record" "the orphan's parent is 1
zombies: 0
status 137" first_process
    more=standby same small-memory small_memory
else
    echo "WARNING: no namespaces here: PID 1 and a small /dev/shm are NOT tested" >&2
fi
exit "$failed"
