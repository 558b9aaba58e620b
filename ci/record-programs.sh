#!/usr/bin/env bash
# Compares our mutex with the C library's in programs that others wrote, on an idle machine and next
# to one busy process. Records the results in target/results/<date>-<cpu model>-programs/, with a
# summary in docs/results. Takes 25 minutes.
# The machine should be idle. Needs the Debian packages of ci/install.sh.
#
#   ci/record-programs.sh [NAME...]    only the programs whose names begin so, such as `kccachetest`
#
# KINLOCK=PATH names a command that is built already, with its library in the same folder. ROUNDS=N
# sets the number of rounds. EACH=COMMAND runs each comparison by that command.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ -z "${KINLOCK:-}" ]; then
    cargo run --release --quiet -- --version >&2
    cargo build --release --quiet -p kinlock-preload
fi
kinlock=$(realpath "${KINLOCK:-${CARGO_TARGET_DIR:-target}/release/kinlock}")
slug() {
    sed -E 's/\((R|TM)\)//gI; s/ @.*//; s/ CPU| Processor//g' |
        tr -cs 'A-Za-z0-9\n' '-' | tr A-Z a-z | sed 's/^-//; s/-$//'
}
model=$(sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo | head -1 | slug)
folder=$PWD/target/results/$(date +%F)-${model:-$(uname -m)}-programs
mkdir -p "$folder"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
wanted=("$@")

# record NAME ARGUMENTS...: compares without and with a busy process.
record() {
    local name=$1 hogs prefix matches=
    shift
    for prefix in "${wanted[@]:-}"; do
        [[ $name == "$prefix"* ]] && matches=1
    done
    [ -n "$matches" ] || return 0
    for hogs in 0 1; do
        echo "$name, $hogs other busy processes" >&2
        (cd "$work" && ${EACH:-} "$kinlock" compare --quiet --rounds "${ROUNDS:-8}" --hogs "$hogs" \
            --json "$folder/$name-hogs-$hogs.json" "$@" >"$folder/$name-hogs-$hogs.txt")
        # Removes paths of this machine.
        sed -i "s#$kinlock#kinlock#g; s#$work/##g; s#$PWD#.#g" "$folder/$name-hogs-$hogs".*
    done
}

db="$work/db"
db_bench --benchmarks=fillrandom --num=50000 --db="$db" >"$work/fill" 2>&1
redis=(--shell --metric 'GET: ([0-9.]+) requests' "redis-server --port 16381 --save '' --io-threads 4 \
    --io-threads-do-reads yes >server & until redis-cli -p 16381 ping >ping 2>&1; do sleep 0.05; done; \
    redis-benchmark -p 16381 -n 100000 -c 64 -P 4 --threads 2 -t get -q; redis-cli -p 16381 shutdown \
    nosave; wait")

# Programs that hardly contend.
for threads in 2 16 64; do
    record "kccachetest-wicked-$threads" -- kccachetest wicked -th $threads $((400000 / threads))
    record "rocksdb-readrandom-$threads" --metric 'readrandom .* ([0-9]+) ops/sec' -- db_bench \
        --benchmarks=readrandom --use_existing_db=1 --num=50000 --db="$db" --threads=$threads \
        --reads=$((160000 / threads))
done
record redis-io-threads-4 "${redis[@]}"
# Programs that contend.
for threads in 4 16 64; do
    record "kccachetest-order-$threads" -- kccachetest order -th $threads $((320000 / threads))
    record "sysbench-mutex-$threads" --metric 'total time: *([0-9.]+)s' --lower-is-better -- \
        sysbench mutex --threads=$threads --mutex-num=1 --mutex-loops=10 \
        --mutex-locks=$((8000000 / threads)) run
    record "rocksdb-one-shard-$threads" --metric 'readrandom .* ([0-9]+) ops/sec' -- db_bench \
        --benchmarks=readrandom --use_existing_db=1 --num=50000 --db="$db" --threads=$threads \
        --reads=$((160000 / threads)) --cache_numshardbits=0 --cache_size=1000000
    record "git-pack-objects-$threads" --shell "git -C '$PWD' pack-objects --all --threads=$threads \
        --stdout --no-reuse-delta -q </dev/null | wc -c"
done
ci/summarise_results.py "$folder"
