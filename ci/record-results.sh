#!/usr/bin/env bash
# Records the results that the README's table is made from: raw JSON, the commands and the full
# tables, in docs/results/<date>-<cpu model>/ and docs/results/<date>-simulated-<machine>/.
# Takes under 6 minutes. The machine should be idle: a busy one is noted in the JSON's warnings.
#
#   ci/record-results.sh             record all
#   ci/record-results.sh measured    only what runs on this machine
#   ci/record-results.sh simulated   only the simulated runs
#
# QUICK=1 shortens all runs, to test the script itself. RESULTS=DIR writes elsewhere. KINLOCK=PATH
# takes a command that is built already.
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:-all}
case $what in all | measured | simulated) ;; *) echo "usage: $0 [all|measured|simulated]" >&2; exit 2 ;; esac

if [ -z "${KINLOCK:-}" ]; then
    cargo build --release --quiet -p kinlock-cli
fi
kinlock=${KINLOCK:-${CARGO_TARGET_DIR:-target}/release/kinlock}
results=${RESULTS:-docs/results}
date=$(date +%F)
quick=${QUICK:-}

# The CPU's name as in a path: lower case, without trade marks, frequencies and blanks.
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
}

if [ "$what" != simulated ]; then
    model=$(sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo | head -1 | slug)
    folder=$results/$date-${model:-$(uname -m)}
    rm -rf "$folder"
    locks=kinlock-mutex,std-mutex,parking-lot
    long=${quick:+0.02}
    rounds=${quick:+2}
    measure() { # NAME SECONDS ROUNDS ARGUMENTS...
        local name=$1 seconds=$2 times=$3
        shift 3
        record "$folder" "$name" bench locks --locks "$locks" "$@" \
            --seconds "${long:-$seconds}" --rounds "${rounds:-$times}"
    }
    # Few threads first: the load that many leave behind would be noted as a busy machine.
    measure alone 0.2 15 --workload empty --threads 1
    measure pingpong 0.5 7 --workload pingpong
    measure maps 0.5 7 --workload kv,lru --threads 4
    measure long 0.5 9 --workload long --threads 16
    measure counter 0.5 9 --workload counter --threads 2,16,64
fi

if [ "$what" != measured ]; then
    machine=haswell-ex-4s
    simulated=0.05
    [ -z "$quick" ] || simulated=0.002
    folder=$results/$date-simulated-$machine
    rm -rf "$folder"
    for workload in lock2 locktorture; do
        record "$folder" "$workload" sim --machine "$machine" --workload "$workload" \
            --locks qspinlock,cna-v10,cna --threads 1,2,4,8,16,36,72,142 \
            --seconds "$simulated" --seeds 2 --plot "$folder/$workload.svg"
    done
    cp "$folder/locktorture.svg" "$results/" # the README's picture
fi
echo "now run ci/readme_table.py, and look at what changed" >&2
