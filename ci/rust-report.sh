#!/usr/bin/env bash
# Tests `kinlock run --report` with a program in Rust. With the feature `report` of the crate the
# report names the hot lock by its line, and by the type that it guards if symbols name types; also
# in a static program, which is refused without the feature, and in a program that stands by.
# Without the feature the report has no lock of the crate, and says why. Known numbers of operations
# are counted, and no legal use is called misuse. For a program that hangs, `kinlock report` says
# which thread waits for which.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cargo build --quiet -p kinlock-command -p kinlock-preload
kinlock=$target/debug/kinlock
line=$(grep -n 'self.stock.lock()' lib/kinlock/examples/hot.rs | cut -d: -f1)
triple=$(rustc -vV | sed -n 's/^host: //p')
static=${triple%-gnu}-musl
rustup target list --installed 2>/dev/null | grep -qx "$static" || static=$triple

# build NAME TARGET FLAGS ARGUMENTS: builds the example under that name. With an explicit target the
# flags do not apply to build scripts and macros.
build() {
    local name=$1 for=$2 flags=$3
    shift 3
    RUSTFLAGS=$flags CARGO_TARGET_DIR=$target/rust-report \
        cargo build --quiet -p kinlock --example hot --target "$for" "$@"
    cp "$target/rust-report/$for/debug/examples/hot" "$work/$name"
}
build with "$triple" "-C symbol-mangling-version=v0" --features report
cargo build --quiet -p kinlock --features report --example reported --example hung
cp "$target/debug/examples/reported" "$target/debug/examples/hung" "$work"
build without "$triple" ""
build static "$static" "-C target-feature=+crt-static -C strip=debuginfo" --features report
build static-without "$static" "-C target-feature=+crt-static"

# locks JSON: prints what the report says about each lock of the crate, one per line.
locks() {
    python3 - "$1" <<'END'
import json, sys
for process in json.load(open(sys.argv[1]))["processes"]:
    if process["lock"] == "crate kinlock":
        for lock in process["locks"]:
            print(lock["name"], lock["kind"], lock["side"], lock["locked"], lock["threads"],
                  lock.get("place"), lock.get("data"), sep="\t")
        for waited in process["waits"]:
            print(waited["name"], waited["kind"], waited["waited"], sep="\t")
END
}

# expect FILE PATTERN: fails unless a line of the file matches.
expect() {
    grep -qP "$2" "$1" || { echo "$0: no line is like $2 in:" >&2; cat "$1" >&2; exit 1; }
}

for name in with static; do
    "$kinlock" run --report="$work/$name.txt" --json "$work/$name.json" -- "$work/$name" 4 500 \
        >"$work/$name.out" 2>"$work/$name.err"
    # A note in the program says that it records by itself. So there is no message that nothing can
    # be preloaded into it.
    [ ! -s "$work/$name.err" ] || { echo "$0: $(cat "$work/$name.err")" >&2; exit 1; }
    grep -qx '4 customers, .* things' "$work/$name.out"
    locks "$work/$name.json" >"$work/$name.locks"
    # The hot lock: 4 threads took it 500 times each, and the first one once more. If the program's
    # symbols do not name types, the line ends with None.
    expect "$work/$name.locks" "\tmutex\tNone\t2001\t5\t.*hot.rs:$line\t"
    expect "$work/$name.locks" "LOG\S*\tmutex\tNone\t5\t5\t.*hot.rs:"
    expect "$work/$name.locks" "PRICES\S*\trwlock\tread\t2000\t4\t.*hot.rs:"
    expect "$work/$name.locks" "\tcondition variable\t[1-9]"
    expect "$work/$name.txt" "first taken at .*hot.rs:$line"
    # No part says that the program took no lock, and call chains end in functions of the program.
    ! grep -E 'took no|__rust_begin|call_once|lang_start|thread_start' "$work/$name.txt" >&2 ||
        { echo "$0: $name: the line above" >&2; exit 1; }
done
expect "$work/with.locks" "hot.rs:$line\thot::Stock$"

"$kinlock" run --report="$work/without.txt" --json "$work/without.json" -- "$work/without" 4 500 \
    >/dev/null
locks "$work/without.json" >"$work/without.locks"
[ ! -s "$work/without.locks" ] || { echo "$0: locks without the feature" >&2; exit 1; }
tr -s ' \n' ' ' <"$work/without.txt" >"$work/joined"
expect "$work/joined" "; not seen are .* crate kinlock without its feature report"
"$kinlock" run --report=/dev/null --json "$work/refused.json" -- "$work/static-without" 4 500 \
    2>"$work/refused" >/dev/null || [ $? = 126 ]
expect "$work/refused" "statically linked"

"$kinlock" run --report=/dev/null --order --json "$work/reported.json" -- "$work/reported"
python3 - "$work/reported.json" <<'END'
import json, sys
process, = [p for p in json.load(open(sys.argv[1]))["processes"] if p["lock"] == "crate kinlock"]
found = {}
for lock in process["locks"]:
    name = lock["name"].split("::")[-1].split("+")[0]
    found[name, lock["side"]] = [lock[what] for what in ("locked", "failed_tries", "timeouts")]
expected = {
    ("MUTEX", None): [12, 1, 1],
    ("FAIR", None): [10, 0, 0],
    ("REENTRANT", None): [10, 0, 0],
    ("RWLOCK", "write"): [9, 1, 0],
    ("RWLOCK", "read"): [14, 0, 0],
    ("AWAITED", None): [2, 0, 0],
    ("ONE", None): [2, 0, 0],
    ("OTHER", None): [2, 0, 0],
}
assert found == expected, f"locks: {found}"
waits = {(w["name"].split("::")[-1], w["kind"], w["waited"], w["timeouts"]) for w in process["waits"]}
assert waits == {("CONDVAR", "condition variable", 1, 1)}, waits
assert process["misuses"] == [], process["misuses"]
circles = [{step["held"].split("::")[-1] for step in cycle["steps"]}
           for cycle in process["order"]["cycles"]]
assert circles == [{"ONE", "OTHER"}], circles
END

# All that guards may do, including guards that are sent to other threads.
uses=$(cargo test -p kinlock --features report,send_guard,arc_lock --test legal_uses --no-run \
    --message-format json 2>/dev/null |
    sed -n 's/.*"name":"legal_uses".*"executable":"\([^"]*\)".*/\1/p')
"$kinlock" run --report=/dev/null --order --json "$work/uses.json" -- "$uses" --quiet
python3 - "$work/uses.json" <<'END'
import json, sys
processes = [p for p in json.load(open(sys.argv[1]))["processes"] if p["lock"] == "crate kinlock"]
locks = [lock for process in processes for lock in process["locks"]]
assert len(locks) > 10, locks
misuses = [(m["what"], m["frames"][:4]) for process in processes for m in process["misuses"]]
# One test releases a lock once too often, which the lock has to survive.
assert [what for what, _ in misuses] == ["not-held"], misuses
cycles = [cycle for process in processes for cycle in process["order"]["cycles"]]
assert cycles == [], cycles
END

# hangs FLAG HOW EXPECTED...: runs a program that hangs in that way, until the report says what is
# expected: a line for each circle, and for each lock its name, its holders and its waiters.
hangs() {
    local flag=$1 how=$2 hung
    shift 2
    "$kinlock" run "$flag" -- "$work/hung" "$how" 2>/dev/null &
    hung=$!
    printf '%s\n' "$@" | sort >"$work/expected"
    for _ in {1..200}; do
        "$kinlock" report "$hung" --all --json "$work/now.json" >/dev/null 2>&1 || continue
        python3 - "$work/now.json" <<'END' | sort >"$work/now"
import json, sys
for process in json.load(open(sys.argv[1]))["processes"]:
    names = {thread["id"]: thread["name"] for thread in process["threads"]}
    limited = {thread["id"] for thread in process["threads"] if thread["limited"]}
    named = lambda ids: " ".join(sorted(names[id] for id in ids))
    waiting = lambda ids: named(ids) + (" for a time" if limited & set(ids) else "")
    for circle in process["deadlocks"]:
        print("deadlock:", named(circle))
    for lock in process["locks"] + process["waits"]:
        if lock["kind"] != "join":
            print(lock["name"].split("::")[-1], named(lock["holders"]), "<",
                  waiting(lock["waiting"]))
END
        ! cmp -s "$work/now" "$work/expected" || break
        sleep 0.1
    done
    kill -KILL "$hung"
    wait "$hung" 2>/dev/null || true
    diff "$work/expected" "$work/now" || { echo "$0: $flag: $how" >&2; exit 1; }
}
for flag in --standby --report=/dev/null; do
    hangs $flag mutexes 'deadlock: auditor teller' 'ACCOUNTS teller < auditor clerk' \
        'JOURNAL auditor < teller'
    hangs $flag readers 'deadlock: auditor teller' 'CATALOGUE teller < auditor' \
        'JOURNAL auditor < teller' 'READY  < clerk'
    hangs $flag upgradable 'CATALOGUE clerk teller < auditor' 'JOURNAL auditor < teller' \
        'READY  < clerk for a time'
done
# If guards may be sent to other threads, the thread that took a lock need not be its holder.
cargo build --quiet -p kinlock --features report,send_guard --example hung
cp "$target/debug/examples/hung" "$work"
for flag in --standby --report=/dev/null; do
    hangs $flag mutexes 'ACCOUNTS  < auditor clerk' 'JOURNAL  < teller'
done

# A set-user-ID program ignores the variables of its user: it creates no file where the user may
# not, and prints nothing.
as_root=(env)
[ "$(id -u)" = 0 ] || as_root=(sudo -n)
if "${as_root[@]}" true 2>/dev/null; then
    strange=$(mktemp -d /tmp/kinlock-rust-report.XXXXXX)
    chmod 755 "$strange"
    "${as_root[@]}" install -o root -m 4755 "$work/reported" "$strange/reported"
    "${as_root[@]}" install -o root -m 700 -d "$strange/private"
    "${as_root[@]}" setpriv --reuid 65534 --regid 65534 --clear-groups \
        env KINLOCK_REPORT="$strange/private/report" KINLOCK_STANDBY=1 KINLOCK_NUMA=nonsense \
        "$strange/reported" >/dev/null 2>"$work/secure"
    "${as_root[@]}" ls -A "$strange/private" >>"$work/secure"
    "${as_root[@]}" rm -r "$strange"
    [ ! -s "$work/secure" ] || { echo "$0: set-user-ID: $(cat "$work/secure")" >&2; exit 1; }
else
    echo "WARNING: no root here: a set-user-ID program is NOT tested" >&2
fi

# This program runs until it is killed.
"$kinlock" run --standby -- "$work/static" 2 1000000000 >/dev/null &
server=$!
trap 'kill $server 2>/dev/null || true; rm -rf "$work"' EXIT
until grep -q process.switch "/proc/$server/maps" 2>/dev/null; do
    kill -0 "$server" || { echo "$0: the program that stands by has ended" >&2; exit 1; }
    sleep 0.1
done
for _ in 1 2; do
    pattern="\tmutex\tNone\t[1-9][0-9]*\t2\t.*hot.rs:$line\t"
    # On a busy machine a thread may not run within a window.
    for _ in {1..20}; do
        "$kinlock" report "$server" --seconds 1 --json "$work/window.json" >/dev/null
        locks "$work/window.json" >"$work/window.locks"
        ! grep -qP "$pattern" "$work/window.locks" || break
    done
    expect "$work/window.locks" "$pattern"
done
echo "the report names the locks of programs in Rust"
