#!/usr/bin/env bash
# Checks that Firefox and Chromium draw a page with the same pixels under `run`, `run --report` and
# `run --standby` as without kinlock: with their sandboxes, in a fresh profile, in each of TIMES
# tries. Browsers make their processes by a plain `clone`, which calls no fork handlers.
#   ci/browsers.sh [TIMES]    [5]
#   KINLOCK                   the command to test [this checkout's]
# Needs firefox-esr, chromium and python3; tests QtWebEngine, too, if python3-pyqt5.qtwebengine is
# installed. Chromium's sandbox refuses root, so root becomes `nobody` here.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "ci/browsers.sh: $*" >&2; exit 1; }

for tool in firefox-esr chromium python3 setpriv; do
    command -v "$tool" >/dev/null || fail "$tool is missing: apt-get install firefox-esr chromium"
done
. ci/lib/command.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The user `nobody` may read them there.
cp "$kinlock" "$(dirname "$kinlock")/libkinlock_preload.so" ci/lib/browsers.py "$work/"
user=()
if [ "$(id -u)" = 0 ]; then
    user=(setpriv --reuid=nobody --regid=nogroup --clear-groups)
    chown nobody "$work"
fi
"${user[@]}" env -i PATH="$PATH" LC_ALL=C.UTF-8 python3 "$work/browsers.py" "$work" "${1:-5}"
