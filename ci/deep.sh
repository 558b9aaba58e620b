#!/usr/bin/env bash
# Runs the long forms of the checks, every night and before a change of an algorithm counts as done:
# the steps of ci/steps.toml whose tier is "deep". They take about three hours on two CPUs. All
# of them run, also if one fails. By hand, with a log:
#
#   ci/deep.sh 2>&1 | tee deep.log
#
# Beyond .ci/run this has: more schedules, more stress and more time per model for each subject, all
# of Miri, ThreadSanitizer, more crates of others, and all defects that are seeded on purpose.
set -euo pipefail
cd "$(dirname "$0")/.."
python3 ci/steps.py run deep
