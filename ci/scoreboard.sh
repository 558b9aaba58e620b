#!/usr/bin/env bash
# Compares the simulator with published tables: no number may be further off than it was recorded to
# be in docs/results/published, as ci/reproduced.py says.
#
#   ci/scoreboard.sh [TABLE...]   only these tables
set -euo pipefail
cd "$(dirname "$0")/.."
exec python3 ci/reproduced.py --compare "$@"
