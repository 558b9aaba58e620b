#!/usr/bin/env bash
# Predicts how fast programs are with other numbers of threads, from a recording with two threads,
# measures how fast they are, and prints both as a table. Needs bash, python3, and the programs. The
# machine should be idle.
#
#   ci/predict.sh 'NAME | METRIC | COMMAND'...
#
#   NAME     what the program is called in the table
#   METRIC   a regular expression whose first group is a rate in the program's output. With `1/`
#            before it the group is a time, and all times that are found are added
#   COMMAND  run without a shell; {t} stands for the number of threads, {1000/t} for a thousand
#            divided by it
#
#   KINLOCK=PATH     the command; its library and kinlock-lab are in the same folder
#                    [target/release/kinlock]
#   THREADS='1 2 4'  numbers of threads that are predicted [1 2 4 8 16]
#   RECORDED=N       the number of threads that is recorded [2]
#   ROUNDS=N         how often each number of threads is measured, in turn [5]
#   SECONDS_EACH=S   simulated seconds [0.3]
#   FOLDER=PATH      where recordings and simulations are kept [a temporary one, removed]
#
# For example
#   ci/predict.sh 'order | 1/time: ([0-9.]+) | kccachetest order -th {t} {320000/t}' \
#       'readrandom | readrandom .* ([0-9]+) ops/sec |
#           db_bench --benchmarks=fillrandom,readrandom --threads={t}'
set -euo pipefail
KINLOCK=$(realpath "${KINLOCK:-target/release/kinlock}")
export KINLOCK
if [ $# -eq 0 ]; then
    sed -n '2,/^set/{/^#/s/^# \?//p}' "$0" >&2
    exit 2
fi
if [ -z "${FOLDER:-}" ]; then
    FOLDER=$(mktemp -d)
    trap 'rm -rf "$FOLDER"' EXIT
fi
mkdir -p "$FOLDER"
FOLDER=$(realpath "$FOLDER")
export FOLDER
python3 /dev/fd/9 "$@" 9<<'END'
import json, os, re, shlex, statistics, subprocess, sys

kinlock, folder = os.environ["KINLOCK"], os.environ["FOLDER"]
threads = [int(n) for n in os.environ.get("THREADS", "1 2 4 8 16").split()]
recorded = int(os.environ.get("RECORDED", "2"))
rounds = int(os.environ.get("ROUNDS", "5"))
seconds = os.environ.get("SECONDS_EACH", "0.3")


def words(command, n):
    command = re.sub(r"\{(\d+)/t\}", lambda m: str(int(m[1]) // n), command)
    return shlex.split(command.replace("{t}", str(n)))


def rate(how, metric, command, n):
    """Runs the program by a verb of ours. Its rate."""
    call = [kinlock, *how, "--", *words(command, n)]
    done = subprocess.run(call, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    output = done.stdout + done.stderr
    if done.returncode != 0:
        sys.exit(f"{shlex.join(call)}: exit status {done.returncode}\n{output[-2000:]}")
    inverse = metric.startswith("1/")
    found = [float(text) for text in re.findall(metric[2 * inverse:], output)]
    if not found or sum(found) == 0:
        sys.exit(f"{shlex.join(call)}: no {metric!r} in its output\n{output[-2000:]}")
    return 1 / sum(found) if inverse else found[0]


def simulated(name):
    """The speeds that a simulation predicts, over the recorded one, and the shares of waiting."""
    report = f"{folder}/{name}.simulated.json"
    call = [f"{kinlock}-lab", "sim", "--quiet", "--machine", "this", "--workload", f"{folder}/{name}.json"]
    call += ["--locks", "mutex", "--baseline", "mutex", "--threads", ",".join(map(str, threads))]
    call += ["--seconds", seconds, "--json", report]
    subprocess.run(call, check=True, stdout=subprocess.DEVNULL)
    report = json.load(open(report))
    base = report["parameters"]["workloads"][0]["recorded_per_second"]
    speeds = {}
    for entry in report["results"]:
        run = entry["runs"][0]
        waited = sum(lock["wait_ns"] for lock in run.get("waited", []))
        share = waited / (entry["threads"] * run["seconds"] * 1e9)
        speeds[entry["threads"]] = (entry["ops_per_us"]["median"] * 1e6 / base, share)
    return speeds


def waiting(name, metric, command, n):
    """The share of waiting that a report says."""
    report = f"{folder}/{name}.report.json"
    rate(["run", "--report=/dev/null", "--json", report], metric, command, n)
    processes = json.load(open(report))["processes"]
    most = max(processes, key=lambda process: sum(lock["locked"] for lock in process["locks"]))
    waited = sum(lock["wait"]["total_ns"] for lock in most["locks"])
    return waited / (n * most["seconds"] * 1e9)


programs = []
for argument in sys.argv[1:]:
    parts = [part.strip() for part in argument.split(" | ", 2)]
    if len(parts) != 3:
        sys.exit(f"{argument!r} is not 'NAME | METRIC | COMMAND'")
    programs.append(parts)
print(f"{os.cpu_count()} CPUs; recorded with {recorded} threads; medians of {rounds} runs [least, most]\n")
print("| program | threads | measured | predicted | error | waiting, measured | predicted |")
print("| --- | --- | --- | --- | --- | --- | --- |")
misses = []
for name, metric, command in programs:
    made = rate(["record", "-o", f"{folder}/{name}.json"], metric, command, recorded)
    speeds = simulated(name)
    measured = {n: [] for n in threads}
    for number in range(rounds):
        for n in threads if number % 2 == 0 else threads[::-1]:
            measured[n].append(rate(["run"], metric, command, n))
    for n in threads:
        middle = statistics.median(measured[n])
        speed, share = speeds[n]
        error = speed * made / middle - 1
        spread = f"{middle:.4g} [{min(measured[n]):.4g}, {max(measured[n]):.4g}]"
        shares = f"{100 * waiting(name, metric, command, n):.1f} % | {100 * share:.1f} %"
        print(f"| {name} | {n} | {spread} | {speed * made:.4g} | {100 * error:+.0f} % | {shares} |", flush=True)
        if abs(error) > 0.25:
            misses.append(f"{name} with {n}")
print("\nwithin 25 %: all" if not misses else f"\nnot within 25 %: {', '.join(misses)}")
END
