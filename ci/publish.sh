#!/usr/bin/env bash
# Checks that the crates that users depend on are ready for the registry: each has a description, a
# README and the licences. `cargo publish --dry-run` packs them, and compiles each package against
# the packages that it depends on. All other crates refuse to be published. Nothing is uploaded.
set -euo pipefail
cd "$(dirname "$0")/.."
public=(kinlock-core kinlock-linux kinlock-report kinlock-recorder kinlock kinlock-ids kinlock-invalidation)

cargo metadata --format-version 1 --no-deps --locked | python3 -c '
import json, sys

PUBLIC = sys.argv[1:]
NEEDED = ["description", "license", "documentation", "readme", "rust_version", "keywords", "categories"]
packages = {package["name"]: package for package in json.load(sys.stdin)["packages"]}
wrong = []
for name, package in packages.items():
    # An empty list of registries is `publish = false`.
    if name not in PUBLIC:
        if package["publish"] != []:
            wrong.append(f"{name} lacks publish = false")
        continue
    if package["publish"] is not None:
        wrong.append(f"{name} cannot be published")
    wrong += [f"{name} has no {field}" for field in NEEDED if not package[field]]
    for used in package["dependencies"]:
        if used["kind"] != "dev" and used["name"] in packages and used["name"] not in PUBLIC:
            wrong.append(f"{name} needs {used['name']}, which is not published")
wrong += [f"there is no crate {name}" for name in PUBLIC if name not in packages]
if wrong:
    sys.exit("\n".join(wrong))
' "${public[@]}"

for crate in "${public[@]}"; do
    packed=$(cargo package --list --locked --allow-dirty -p "$crate")
    for file in README.md LICENSE-MIT LICENSE-APACHE; do
        grep -qx "$file" <<<"$packed" || { echo "$crate is packed without $file" >&2; exit 1; }
    done
done
arguments=()
for crate in "${public[@]}"; do
    arguments+=(-p "$crate")
done
# Cargo takes what it unpacked and compiled in an earlier run for current as long as the version is
# the same. So both are removed first.
export CARGO_TARGET_DIR=$PWD/target/publish
rm -rf target/publish "${CARGO_HOME:-$HOME/.cargo}"/registry/src/-*/kinlock*
log=$(mktemp)
trap 'rm -f "$log"' EXIT
cargo publish --dry-run --locked --allow-dirty "${arguments[@]}" 2>&1 | tee "$log" | grep -v '^ *Compiling'
# Cargo warns of what the registry accepts, but its readers would miss. It also warns of a network
# error when it tries again.
harmless='aborting upload due to dry run|^warning: spurious network error'
if grep -A3 '^warning' "$log" | grep -vE "$harmless" | grep '^warning'; then
    echo "ci/publish.sh: the warnings above" >&2
    exit 1
fi
