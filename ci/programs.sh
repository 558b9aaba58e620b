#!/usr/bin/env bash
# Checks that programs of Debian, written by others, give right answers on our locks. Programs that
# are not installed are skipped with a warning.
#
#   ci/programs.sh [TIMES [NAME]]    20 times for a release; only programs whose name below begins
#                                    with NAME
set -euo pipefail
cd "$(dirname "$0")/.."
times=${1:-1}
only=${2:-}
cargo build --quiet --release -p kinlock-preload
library=$(realpath "${CARGO_TARGET_DIR:-target}/release/libkinlock_preload.so")
work=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" || true; rm -rf "$work"' EXIT

# `ours SECONDS COMMAND` runs a command on our locks, for at most SECONDS. Its output is in
# $work/out, its counts in $work/counts.
ours() {
    local seconds=$1
    shift
    if ! timeout --kill-after=5 "$seconds" env LD_PRELOAD="$library" KINLOCK_COUNTS="$work/counts" "$@" \
        >"$work/out" 2>"$work/err"; then
        echo "FAILED: $*" >&2
        tail -n 5 "$work/out" "$work/err" >&2
        exit 1
    fi
}

says() {
    if ! grep -q "$1" "$work/out"; then
        echo "FAILED: no '$1' in the output of the last program" >&2
        tail -n 5 "$work/out" >&2
        exit 1
    fi
}

# Prints how many locks the processes since the last call took, and how many of them they found
# taken.
report() {
    if [ -s "$work/counts" ]; then
        awk -v what="$1" -F'"(locked|contended)":' '{ split($2, a, ","); split($3, b, ","); l += a[1]; c += b[1] }
            END { printf "%-22s right; %d locks taken, %d of them found taken\n", what, l, c }' "$work/counts"
        rm "$work/counts"
    else
        echo "$1 right; it did not end by itself, so nothing was counted"
    fi
}

has() {
    command -v "$1" >/dev/null || {
        echo "WARNING: $1 is missing: NOT run" >&2
        return 1
    }
}

kyotocabinet() {
    ours 100 kccachetest wicked -th 4 50000
    says '^ok$'
    report "kccachetest wicked"
    ours 100 kccachetest order -th 16 5000
    says '^ok$'
    report "kccachetest order"
    # The B+ tree mostly takes reader-writer locks.
    ours 100 kctreetest order -th 4 -etc "$work/tree.kct" 10000
    says '^ok$'
    if grep -q '"rw_reads":0,' "$work/counts"; then
        echo "FAILED: kctreetest took no reader-writer lock of ours" >&2
        exit 1
    fi
    report "kctreetest order"
    rm -f "$work/tree.kct"
}

rocksdb() {
    ours 200 db_bench --benchmarks=fillrandom,readrandom,readwhilewriting --num=20000 --threads=4 --db="$work/db"
    says 'readwhilewriting'
    report "rocksdb db_bench"
}

sysbench_() {
    ours 100 sysbench mutex --threads=16 --mutex-num=1 --mutex-loops=10 --mutex-locks=5000 run
    says 'total number of events: *16'
    report "sysbench mutex"
    ours 100 sysbench threads --threads=16 --events=500 --time=60 run
    says 'total number of events: *500'
    report "sysbench threads"
}

compressors() {
    seq 1 400000 >"$work/plain"
    ours 100 xz -T2 --block-size=256KiB -1 -k -f "$work/plain"
    xz -dc "$work/plain.xz" | cmp - "$work/plain"
    report "xz -T2"
    if has zstd; then
        ours 100 zstd -q -T2 -B262144 -f "$work/plain"
        zstd -qdc "$work/plain.zst" | cmp - "$work/plain"
        report "zstd -T2"
    fi
}

python() {
    cat >"$work/threads.py" <<'END'
import queue, threading
from concurrent.futures import ThreadPoolExecutor
q, total, lock = queue.Queue(10), [0], threading.Lock()
def take():
    while (item := q.get()) is not None:
        with lock:
            total[0] += item
workers = [threading.Thread(target=take) for _ in range(8)]
for w in workers: w.start()
for i in range(20000): q.put(i)
for w in workers: q.put(None)
for w in workers: w.join()
with ThreadPoolExecutor(8) as pool:
    print(total[0], sum(pool.map(lambda x: x * x, range(2000))))
END
    ours 100 python3 "$work/threads.py"
    says '^199990000 2664667000$'
    report "python3 threads"
}

redis() {
    local port=16379
    LD_PRELOAD=$library redis-server --port $port --save '' --io-threads 2 --io-threads-do-reads yes --dir "$work" \
        >"$work/redis" 2>&1 &
    server=$!
    for ((n = 0; n < 50; n++)); do
        redis-cli -p $port ping >"$work/out" 2>&1 && break
        sleep 0.1
    done
    ours 100 redis-benchmark -p $port -n 20000 -c 16 --threads 2 -t set,get -q
    redis-cli -p $port set key value >"$work/out"
    redis-cli -p $port get key >"$work/out"
    says value
    redis-cli -p $port shutdown nosave >"$work/out" 2>&1 || true
    wait "$server"
    server=
    report "redis-benchmark"
}

memcached_() {
    local port=16380
    has memcslap || return 0
    LD_PRELOAD=$library KINLOCK_COUNTS=$work/counts memcached -u "$(id -un)" -l 127.0.0.1 -p $port -t 4 -m 64 \
        >"$work/memcached" 2>&1 &
    server=$!
    for ((n = 0; n < 50; n++)); do
        memcping --servers=127.0.0.1:$port >"$work/out" 2>&1 && break
        sleep 0.1
    done
    seq 1 1000 >"$work/value"
    ours 100 memcslap --servers=127.0.0.1:$port --concurrency=8 --execute-number=1000 --test=get
    ours 100 memccp --servers=127.0.0.1:$port "$work/value"
    ours 100 memccat --servers=127.0.0.1:$port value
    says '^1000$'
    kill "$server"
    wait "$server" || true
    server=
    report "memcached"
}

sqlite() {
    cat >"$work/sqlite.py" <<'END'
import sqlite3, sys, threading
db = sqlite3.connect(sys.argv[1], check_same_thread=False, isolation_level=None)
db.execute("create table t (k integer primary key, v integer)")
def work(n):
    for i in range(500):
        db.execute("insert into t values (?, ?)", (n * 500 + i, i))
        db.execute("update t set v = v + 1 where k = ?", (n * 500 + i,))
        db.execute("select count(*) from t where k < 100").fetchone()
threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
for t in threads: t.start()
for t in threads: t.join()
print(*db.execute("select count(*), sum(v) from t").fetchone(), *db.execute("pragma integrity_check").fetchone())
END
    ours 100 python3 "$work/sqlite.py" :memory:
    says '^4000 1002000 ok$'
    report "sqlite threads"
}

java_() {
    cat >"$work/Threads.java" <<'END'
import java.util.concurrent.*;
import java.util.concurrent.locks.*;
import java.util.stream.*;

class Threads {
    static long plain, locked;
    public static void main(String[] args) throws Exception {
        var lock = new ReentrantLock();
        var queue = new ArrayBlockingQueue<Integer>(4);
        var pool = Executors.newFixedThreadPool(16);
        for (int t = 0; t < 8; t++) {
            pool.submit(() -> { for (int i = 0; i < 5000; i++) queue.put(i); return 0; });
            pool.submit(() -> {
                for (int i = 0; i < 5000; i++) {
                    int x = queue.take();
                    synchronized (pool) { plain += x; }
                    lock.lock();
                    try { locked += x; } finally { lock.unlock(); }
                }
                return 0;
            });
        }
        pool.shutdown();
        pool.awaitTermination(90, TimeUnit.SECONDS);
        long sum = LongStream.range(0, 2_000_000).parallel().boxed().mapToLong(Long::longValue).sum();
        System.out.println(plain + " " + locked + " " + sum);
    }
}
END
    ours 100 java -XX:+UseParallelGC -Xmx64m "$work/Threads.java"
    says '^99980000 99980000 1999999000000$'
    report "java"
}

mariadb_() {
    local socket=$work/mariadb.sock user
    local client=(mariadb --no-defaults --socket="$socket" --user=root)
    user=$(id -un)
    mariadb-install-db --no-defaults --datadir="$work/mariadb" --user="$user" --auth-root-authentication-method=normal \
        --skip-test-db >"$work/out" 2>&1
    LD_PRELOAD=$library KINLOCK_COUNTS=$work/counts mariadbd --no-defaults --datadir="$work/mariadb" --user="$user" \
        --socket="$socket" --skip-networking >"$work/mariadbd" 2>&1 &
    server=$!
    for ((n = 0; n < 300; n++)); do
        "${client[@]}" -e 'create database sbtest' >"$work/out" 2>&1 && break
        sleep 0.1
    done
    local bench=(sysbench oltp_read_write --mysql-socket="$socket" --mysql-user=root --tables=2 --table-size=2000
        --threads=8 --events=1000 --time=60)
    "${bench[@]}" prepare >"$work/out" 2>&1
    ours 100 "${bench[@]}" run
    says 'total number of events: *1000'
    "${client[@]}" -e 'check table sbtest.sbtest1, sbtest.sbtest2; select count(*) from sbtest.sbtest1' >"$work/out"
    says '^2000$'
    "${client[@]}" -e shutdown
    wait "$server"
    server=
    report "mariadb"
}

stress() {
    local command=(stress-ng --quiet --mutex 2 --mutex-ops 20000 --pthread 2 --pthread-max 200
        --pthread-ops 2000 --timeout 60)
    # On a busy machine stress-ng gives up now and then, on any locks, because it cannot create a
    # thread.
    local try
    for try in 1 2 3 4 5; do
        (ours 100 "${command[@]}") && break
        grep -q 'could not create any pthreads' "$work/err"
        [ "$try" -lt 5 ] || { echo "WARNING: stress-ng gets no threads: NOT run" >&2; return; }
    done
    report "stress-ng"
}

# Each program with the command that it needs.
all=(kyotocabinet:kccachetest rocksdb:db_bench sysbench_:sysbench compressors:xz python:python3 sqlite:python3
    memcached_:memcached java_:java redis:redis-server stress:stress-ng)
# MariaDB is a big package, so CI does not install it.
[ "$times" -eq 1 ] || all+=(mariadb_:mariadbd)
for ((round = 0; round < times; round++)); do
    for program in "${all[@]}"; do
        if [[ $program == "$only"* ]] && has "${program#*:}"; then
            "${program%:*}"
        fi
    done
done
