#!/usr/bin/env bash
# Reads what `kinlock report PID --follow --openmetrics FILE` writes by Prometheus' own parser
# (Debian: python3-prometheus-client): the file is complete whenever it is read, counters never
# fall, and they count what the program did. Beyond a hundred names, all others share one series.
set -euo pipefail
cd "$(dirname "$0")/.."
# The package is for this interpreter, which need not come first in PATH.
/usr/bin/python3 -c 'import prometheus_client.openmetrics.parser' 2>/dev/null || {
    echo "$0: python3-prometheus-client is missing" >&2
    exit 1
}
target=${CARGO_TARGET_DIR:-target}
work=$(mktemp -d)
trap 'kill "${server:-$$}" 2>/dev/null || true; rm -rf "$work"' EXIT
cargo build --quiet -p kinlock-command -p kinlock-preload
kinlock=$target/debug/kinlock
{
    echo '#include <pthread.h>'
    echo '#include <unistd.h>'
    for n in {1..150}; do echo "pthread_mutex_t lock$n = PTHREAD_MUTEX_INITIALIZER;"; done
    echo 'int main(void) { for (;;) { usleep(1000);'
    for n in {1..150}; do echo "pthread_mutex_lock(&lock$n); pthread_mutex_unlock(&lock$n);"; done
    echo '} }'
} >"$work/many.c"
cc -O1 -pthread -o "$work/many \"1" "$work/many.c"
"$kinlock" run --standby -- "$work/many \"1" &
server=$!
until grep -q process.switch "/proc/$server/maps" 2>/dev/null; do
    kill -0 "$server" || { echo "$0: the program that stands by has ended" >&2; exit 1; }
    sleep 0.1
done
"$kinlock" report "$server" --follow --openmetrics "$work/many.prom" &
follower=$!
/usr/bin/python3 - "$work/many.prom" "$server" "$follower" <<'END'
import os, sys, time
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse

path, server, follower = sys.argv[1], sys.argv[2], int(sys.argv[3])
before, growths, end = {}, 0, time.time() + 120
while growths < 2 or len(before) == 0:
    assert time.time() < end, f"the numbers do not grow: {before}"
    try:
        text = open(path).read()
    except FileNotFoundError:
        time.sleep(0.01)
        continue
    counters = {}
    for family in parse(text):
        assert family.type in ("counter", "gauge"), family
        assert family.documentation, family
        for sample in family.samples:
            assert sample.labels["process_pid"] == server, sample
            assert sample.labels["process_executable_name"] == 'many "1', sample
            if family.type == "counter":
                counters[sample.name, sample.labels["lock_name"]] = sample.value
    fallen = [key for key, value in before.items() if counters.get(key, 0) < value]
    assert not fallen, fallen
    growths += bool(before) and counters != before
    before = counters
    time.sleep(0.01)
names = {name for _, name in before}
assert len(names) == 101 and "(others)" in names, sorted(names)
taken = "kinlock_lock_acquisitions_total"
# Each of the locks is taken as often as any other, up to the moment at which its count is read.
# Fifty have no series of their own.
one = min(value for (family, name), value in before.items()
          if family == taken and name != "(others)")
assert one > 0 and before[taken, "(others)"] >= 50 * (one - 1), before
os.kill(follower, 2)
END
# The command ends by SIGTERM, since a shell's background jobs ignore SIGINT.
kill "$follower" 2>/dev/null || true
wait "$follower"
echo "Prometheus' parser reads the counters of locks"
