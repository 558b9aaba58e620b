#!/usr/bin/env bash
# The long forms of the checks, before a change of an algorithm is called done, and every night: about two
# hours on two CPUs. They are run by hand; the log is kept:
#
#   ci/deep.sh 2>&1 | tee deep.log
#
# What it has beyond .ci/run: 200,000 explored schedules of each subject, torture of 60 seconds for each,
# a minute of loom per model, and all defects that are seeded on purpose, each of which must be caught.
set -euo pipefail
cd "$(dirname "$0")/.."
step() {
    echo "==== $* ($(date +%T))"
    "$@"
}
step cargo test --workspace -- --ignored deep
step ci/explore.sh 200000
step ci/torture.sh 60
step ci/loom.sh 60
step ci/miri.sh
step ci/tsan.sh
echo "==== all deep checks passed ($(date +%T))"
