#!/usr/bin/env bash
# Records the results that the README's tables are made from: raw JSON, the commands and the full
# tables, in target/results/<date>-<cpu model>/ and target/results/<date>-simulated-<machine>/, and
# their summaries in docs/results. Takes under 6 minutes. The machine should be idle; if it is busy,
# the JSON has a warning.
#
#   ci/record-results.sh             record all
#   ci/record-results.sh measured    only what runs on this machine
#   ci/record-results.sh simulated   only the simulated runs
#   ci/record-results.sh grid        what locks are judged by, without and with a busy process, in
#                                    target/results/<date>-<cpu model>-grid/: the quick grid for the
#                                    mutexes and the spinlocks, its longer sections for the mutexes,
#                                    and the workloads with maps. 28 minutes more
#   ci/record-results.sh validate    the workloads that bench and sim share, measured on this
#                                    machine and simulated on a model of it, in
#                                    target/results/<date>-<cpu model>-validate/. A minute more
#
# QUICK=1 shortens all runs, to test the script itself. RESULTS=DIR writes all results to DIR.
# KINLOCK=PATH names a command that is built already, with kinlock-lab in the same folder if there
# is something to simulate.
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:-all}
case $what in
    all | measured | simulated | grid | validate) ;;
    *) echo "usage: $0 [all|measured|simulated|grid|validate]" >&2; exit 2 ;;
esac

if [ -z "${KINLOCK:-}" ]; then
    cargo run --release --quiet -- --version >&2
    case $what in
        all | simulated | validate) cargo build --release --quiet -p kinlock-lab ;;
    esac
fi
kinlock=${KINLOCK:-${CARGO_TARGET_DIR:-target}/release/kinlock}
results=${RESULTS:-target/results}
summaries=${RESULTS:-docs/results}
date=$(date +%F)
quick=${QUICK:-}
short=${quick:+0.02}
once=${quick:+1}

# The CPU's name as part of a path: lower case, without trade marks, frequencies and blanks.
slug() {
    sed -E 's/\((R|TM)\)//gI; s/ @.*//; s/ CPU| Processor//g' |
        tr -cs 'A-Za-z0-9\n' '-' | tr A-Z a-z | sed 's/^-//; s/-$//'
}

# record FOLDER NAME VERB ARGUMENTS...: runs the command, keeps its JSON, tables and command line.
record() {
    local folder=$1 name=$2
    shift 2
    mkdir -p "$folder"
    local command="kinlock $*"
    echo "$name: $command" >&2
    printf '%s\n' "${command//$folder\//}" >>"$folder/commands.txt"
    "$kinlock" "$@" --quiet --json "$folder/$name.json" --markdown "$folder/$name.md" >/dev/null
    # Removes paths of this machine.
    sed -i "s#\"$kinlock\"#\"kinlock\"#" "$folder/$name.json"
}

model=$(sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo | head -1 | slug)
measured=$results/$date-${model:-$(uname -m)}

if [ "$what" = validate ]; then
    folder=$measured-validate
    rm -rf "$folder"
    record "$folder" validate validate --seconds "${short:-0.1}" --rounds "${once:-3}"
fi

if [ "$what" = grid ]; then
    folder=$measured-grid
    rm -rf "$folder"
    # Longer slices, which show the slowest thread's share over a second.
    record "$folder" share-64 bench locks --workload grid-core --quick --threads 64 \
        --locks kinlock-mutex,std-mutex,parking-lot --seconds "${short:-2}" --rounds 1
    for threads in 2 4 16; do
        record "$folder" "grid-$threads-hogs-2" bench locks --workload grid-core --quick \
            --threads "$threads" --hogs 2 --rounds "${once:-3}"
    done
    for hogs in 0 1; do
        # Few threads first, as below. The grid's usual slices.
        for threads in 2 4 16 64; do
            record "$folder" "grid-$threads-hogs-$hogs" bench locks --workload grid-core --quick \
                --threads "$threads" --hogs "$hogs" --rounds "${once:-3}" \
                --plot "$folder/grid-$threads-hogs-$hogs.svg"
        done
        for threads in 2 4 16; do
            record "$folder" "wide-$threads-hogs-$hogs" bench locks --workload grid-wide --quick \
                --threads "$threads" --locks kinlock-mutex,std-mutex,parking-lot,pthread-mutex \
                --hogs "$hogs" --rounds "${once:-3}"
        done
        record "$folder" "maps-hogs-$hogs" bench locks --workload kv,lru,readrandom \
            --threads 2,16,64 --locks kinlock-mutex,std-mutex,parking-lot,pthread-mutex \
            --hogs "$hogs" --seconds "${short:-0.5}" --rounds "${once:-3}"
        record "$folder" "spin-2-hogs-$hogs" bench locks --workload grid-core --quick --threads 2 \
            --locks kinlock-spin,mcslock,ck-mcs,pthread-spin,tas --baseline tas --hogs "$hogs" \
            --seconds "${short:-0.25}" --rounds "${once:-3}"
        # With more threads than CPUs, locks in strict order take minutes.
        record "$folder" "spin-16-hogs-$hogs" bench locks --workload grid-core --quick --threads 16 \
            --locks kinlock-spin,pthread-spin,tas --baseline tas --hogs "$hogs" \
            --rounds "${once:-2}"
    done
fi

if [ "$what" = all ] || [ "$what" = measured ]; then
    folder=$measured
    rm -rf "$folder"
    locks=kinlock-mutex,std-mutex,parking-lot
    rounds=${quick:+2}
    measure() { # NAME SECONDS ROUNDS ARGUMENTS...
        local name=$1 seconds=$2 times=$3
        shift 3
        record "$folder" "$name" bench locks --locks "$locks" "$@" \
            --seconds "${short:-$seconds}" --rounds "${rounds:-$times}"
    }
    # Few threads first: the load average after many threads would look like a busy machine.
    measure alone 0.2 15 --workload empty --threads 1
    measure pingpong 0.5 7 --workload pingpong
    measure maps 0.5 7 --workload kv,lru --threads 4
    measure long 0.5 9 --workload long --threads 16
    measure counter 0.5 9 --workload counter --threads 2,16,64
fi

if [ "$what" = all ] || [ "$what" = simulated ]; then
    machine=haswell-ex-4s
    simulated=0.3
    [ -z "$quick" ] || simulated=0.002
    folder=$results/$date-simulated-$machine
    rm -rf "$folder"
    for workload in lock2 locktorture; do
        record "$folder" "$workload" sim --machine "$machine" --workload "$workload" \
            --locks qspinlock,cna-v10,cna --threads 1,2,4,8,16,36,72,142 \
            --seconds "$simulated" --seeds 2 --plot "$folder/$workload.svg"
    done
    folder=$folder-grid
    rm -rf "$folder"
    [ -n "$quick" ] || simulated=0.02
    record "$folder" grid sim --machine "$machine" --workload grid-core --quick \
        --seconds "$simulated" --seeds 2 --plot "$folder/grid.svg"
fi
folders=()
for folder in "$measured" "$measured-grid" "$measured-validate" \
    "$results/$date-simulated-"*; do
    [ -d "$folder" ] && folders+=("$folder")
done
ci/summarise_results.py --results "$summaries" "${folders[@]}"
echo "now run ci/readme_table.py, and look at what changed" >&2
