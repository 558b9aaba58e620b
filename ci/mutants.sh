#!/usr/bin/env bash
# Checks that seeded defects are caught. No shipped source has a line for them:
# lab/verify/mutants/*.patch adds them to a copy of the tree, target/mutants/tree, whose checks must
# catch each of them. A patch that does not apply is an error.
#
#   ci/mutants.sh           unit tests, quick tests, and the model checker
#   ci/mutants.sh deep      also the hunts of the explorer and of torture, which take long
#   ci/mutants.sh tree      makes the copy only, as far as the patches apply, to be mended by hand
#   ci/mutants.sh refresh   writes the patches anew, from the changes in the copy
set -euo pipefail
shopt -s nullglob
cd "$(dirname "$0")/.."
patches=$PWD/lab/verify/mutants
tree=$PWD/target/mutants/tree

# For each patch, the files that it changes. `base.patch` has all others.
declare -A files=(
    [spin]='lib/core/*/qspinlock* lib/core/*/cna* lib/core/*/raw/waiter* lib/core/tests/loom_spin*'
    [mutex]='lib/core/*/raw/mutex* lib/core/tests/loom_mutex* lib/core/tests/loom_notified*'
    [condvar]='lib/core/*/raw/condvar* lib/core/tests/loom_condvar*'
    [rwlock]='lib/core/*/raw/rwlock* lib/core/tests/loom_rwlock*'
    [once]='lib/core/*/raw/once* lib/core/tests/loom_once*'
    [ids]='lib/ids'
    [lab]='lab'
)

# The copy is a repository of its own. Its index is the original tree, so `git diff` prints the
# patches.
make_tree() {
    rm -rf "$tree.old"
    [ ! -e "$tree" ] || mv "$tree" "$tree.old"
    mkdir -p "$tree"
    git ls-files -z --cached --others --exclude-standard |
        while IFS= read -rd '' file; do [ ! -e "$file" ] || printf '%s\0' "$file"; done |
        tar --null --files-from - --create | tar --extract --touch --directory "$tree"
    # With another version its crates have other names under target/ than the tree's crates. So both
    # trees can share target/ and the crates of others that are compiled there.
    sed -i '0,/^version = "\(.*\)"/s//version = "\1+mutants"/' "$tree/Cargo.toml"
    git -C "$tree" init --quiet
    echo '*.rej' >>"$tree/.git/info/exclude"
    git -C "$tree" add --all
    local patch refused=()
    for patch in "$patches"/*.patch; do
        git -C "$tree" apply --reject --whitespace=nowarn "$patch" 2>"$tree/.git/apply.log" ||
            { refused+=("${patch##*/}"); grep -v 'cleanly\.$' "$tree/.git/apply.log" >&2; }
    done
    # Files that have not changed since the last copy keep their times, so that they are not
    # compiled again.
    local file
    for file in $(git -C "$tree" ls-files --cached --others); do
        ! cmp -s "$tree.old/$file" "$tree/$file" || touch -r "$tree.old/$file" "$tree/$file"
    done
    rm -rf "$tree.old"
    [ ${#refused[@]} = 0 ] || {
        echo "these do not apply: ${refused[*]}" >&2
        echo "mend target/mutants/tree by its *.rej, and then: ci/mutants.sh refresh" >&2
        return 1
    }
}

# Prints the changes of these paths, without the lines that change with every change of a file.
changes() {
    git -C "$tree" diff --no-ext-diff --unified=2 -- "$@" | sed '/^index /d'
}

refresh() {
    git -C "$tree" add --intent-to-add .
    set -f
    local name path others=(':!Cargo.lock')
    for name in "${!files[@]}"; do
        changes ${files[$name]} >"$patches/$name.patch"
        for path in ${files[$name]}; do others+=(":!$path"); done
    done
    changes . "${others[@]}" >"$patches/base.patch"
}

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
case "${1:-}" in
    tree) make_tree; exit ;;
    refresh) refresh; exit ;;
esac
make_tree
cd "$tree"
export CARGO_TARGET_DIR=$target
cargo fmt --all --check
cargo test --lib -p kinlock-core -- caught::
cargo test -p kinlock-verify --test caught
RUSTFLAGS="--cfg loom" KINLOCK_MODEL_SECONDS=6 cargo test --release \
    -p kinlock-core -p kinlock-ids --test "loom_*" --target-dir "$target/loom" \
    -- --nocapture --test-threads "$(nproc)" caught::
[ "${1:-}" = deep ] || exit 0

cargo test -p kinlock-verify --test caught -- --ignored
# In its own folder, because the commands have the same names in both trees.
cargo build --release --quiet -p kinlock-lab --target-dir "$target/mutants"
catches() {
    local status=0
    "$target/mutants/release/kinlock-lab" "$@" || status=$?
    if [ "$status" != 1 ]; then
        echo "exit status $status: not all that is broken on purpose was caught" >&2
        exit 1
    fi
}
# Most defects are caught within a thousand schedules, a writer's stale request within 100,000.
catches explore locks --quiet --locks busted --schedules 100000
catches explore ids --quiet --policies busted --schedules 100000
catches torture locks --locks busted --seconds 3
catches torture ids --ids busted --seconds 3
