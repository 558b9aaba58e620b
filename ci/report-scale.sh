#!/usr/bin/env bash
# A report of a large program: a tree of 1,000 processes with ten threads and a hundred locks each,
# from a file with 600,000 functions. All of it has to be in the report, /dev/shm must not fill, and
# nothing may stay there. Prints how long the report took after the program's end, and how much
# memory the tables had at most.
#
#   ci/report-scale.sh [CHILDREN [FUNCTIONS]]    default: 999 600000
set -euo pipefail
cd "$(dirname "$0")/.."
children=${1:-999}
functions=${2:-600000}
threads=10
locks=100
# A thousand tables, all at the same time, take half a MiB each. With less memory than that (64 MiB
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
cat >"$work/tree.c" <<'C'
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static pthread_mutex_t locks[LOCKS];
static pthread_barrier_t all;

/* Takes each lock, and the first one together with all others. */
static void *work(void *unused) {
    (void)unused;
    pthread_barrier_wait(&all);
    for (int i = 0; i < LOCKS; i++) {
        pthread_mutex_lock(&locks[i]);
        if (i == 0)
            usleep(100);
        pthread_mutex_unlock(&locks[i]);
    }
    return NULL;
}

static int fail(const char *what) {
    perror(what);
    return 1;
}

static int threads(void) {
    pthread_t ids[THREADS];
    pthread_barrier_init(&all, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&ids[i], NULL, work, NULL))
            return fail("pthread_create");
    for (int i = 0; i < THREADS; i++)
        pthread_join(ids[i], NULL);
    return 0;
}

/* Has `n` descendants, a third of them from each of three children. All of them live until their
   descendants have ended. */
static int tree(int n) {
    int left = n, kids = 0, bad = 0;
    pid_t child[3];
    for (int i = 0; i < 3 && left > 0; i++) {
        int share = (left + 2 - i) / (3 - i);
        child[kids] = fork();
        if (child[kids] < 0)
            return fail("fork");
        if (child[kids++] == 0)
            exit(tree(share - 1));
        left -= share;
    }
    bad |= threads();
    for (int i = 0; i < kids; i++) {
        int status;
        bad |= waitpid(child[i], &status, 0) < 0 || status != 0;
    }
    return bad;
}

int main(int count, char **arguments) {
    if (count != 2)
        return 2;
    int bad = tree(atoi(arguments[1]));
    FILE *end = fopen(getenv("END_FILE"), "w");
    if (!end)
        return fail("END_FILE");
    fclose(end);
    return bad;
}
C
gcc -O2 -Wall -Werror -pthread -DLOCKS="$locks" -DTHREADS="$threads" \
    "$work/tree.c" "$work/filler.s" -o "$work/tree"

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
END_FILE="$WORK/end" "$KINLOCK" run --report --json "$WORK/report.json" -- \
    "$WORK/tree" "$CHILDREN" 2>"$WORK/report.txt"
date +%s.%N >"$WORK/reported"
find /dev/shm -mindepth 1 >"$WORK/left"
S
SHM=$shm WORK=$work KINLOCK=$kinlock CHILDREN=$children \
    timeout 1200 unshare -m bash "$work/measured.sh" ||
    { echo "the program or its report failed:" >&2; tail -5 "$work/report.txt" >&2; exit 1; }

python3 - "$work" "$children" "$threads" "$locks" <<'P'
import json, os, sys

work, children, threads, locks = sys.argv[1], *map(int, sys.argv[2:])
report = json.load(open(f"{work}/report.json"))
processes = report["processes"]
wanted = children + 1
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
