#!/usr/bin/env bash
# Makes a report of a large program: 1,000 processes with ten threads and a hundred locks each, all
# at the same time, from a file with 600,000 functions. The report has to be complete, /dev/shm must
# not fill up, and nothing may be left there. Prints how long the report took after the program's
# end, and how much memory the tables took at most.
#
#   ci/report-scale.sh [PROCESSES [FUNCTIONS]]    default: 1000 600000
set -euo pipefail
cd "$(dirname "$0")/.."
processes=${1:-1000}
functions=${2:-600000}
threads=10
locks=100
# A thousand tables exist at the same time, of half a MiB each. With less memory than that (64 MiB
# in most containers) the report says how many processes it lacks.
shm=1g

command -v gcc >/dev/null || { echo "gcc is missing; see ci/install.sh" >&2; exit 1; }
unshare -m true || { echo "a mount needs root, or the right to unshare" >&2; exit 1; }
cargo build --release --quiet
kinlock=$(realpath "${CARGO_TARGET_DIR:-target}/release/kinlock")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The symbol table: a function of one instruction for each name.
awk -v n="$functions" 'BEGIN {
    print ".text"
    for (i = 0; i < n; i++)
        printf ".globl filler_%d\n.type filler_%d,@function\nfiller_%d: ret\n.size filler_%d,1\n",
            i, i, i, i
    print ".section .note.GNU-stack,\"\",@progbits"
}' >"$work/filler.s"
gcc -O2 -w -pthread tools/kinlock/tests/programs/staying.c "$work/filler.s" -o "$work/staying"

cat >"$work/measured.sh" <<'S'
set -euo pipefail
mount -t tmpfs -o size="$SHM" tmpfs /dev/shm
(
    most=0
    while sleep 0.05; do
        now=$(df --output=used -k /dev/shm | tail -1)
        [ "$now" -le "$most" ] || { most=$now; echo "$most" >"$WORK/most"; }
    done
) &
watcher=$!
trap 'kill "$watcher"' EXIT
# shellcheck disable=SC2016
"$KINLOCK" run --report --json "$WORK/report.json" -- \
    sh -c '"$WORK/staying" crowded "$PROCESSES" >"$WORK/end"' 2>"$WORK/report.txt"
date +%s.%N >"$WORK/reported"
find /dev/shm -mindepth 1 >"$WORK/left"
S
SHM=$shm WORK=$work KINLOCK=$kinlock PROCESSES=$processes \
    timeout 1200 unshare -m bash "$work/measured.sh" ||
    { echo "the program or its report failed:" >&2; tail -5 "$work/report.txt" >&2; exit 1; }

python3 - "$work" "$processes" "$threads" "$locks" <<'P'
import json, os, sys

work, wanted, threads, locks = sys.argv[1], *map(int, sys.argv[2:])
report = json.load(open(f"{work}/report.json"))
processes = report["processes"]
bad = []
if len(processes) != wanted:
    bad.append(f"{len(processes)} of {wanted} processes")
taken = sum(lock["locked"] for p in processes for lock in p["locks"])
if taken != wanted * threads * locks:
    bad.append(f"{taken} of {wanted * threads * locks} acquisitions")
rows = sum(len(p["locks"]) for p in processes)
left = open(f"{work}/left").read().split()
if left:
    bad.append(f"{len(left)} files stay in /dev/shm, such as {left[0]}")
seconds = float(open(f"{work}/reported").read()) - os.path.getmtime(f"{work}/end")
most = int(open(f"{work}/most").read()) / 1024
print(
    f"{wanted} processes, {wanted * threads} threads, {rows} rows of locks: report after"
    f" {seconds:.1f} s, at most {most:.0f} MiB in /dev/shm"
)
if bad:
    sys.exit("missing in the report: " + "; ".join(bad))
P
