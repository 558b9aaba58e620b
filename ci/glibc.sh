#!/usr/bin/env bash
# Checks that one preload library and one libkinlock.so.1 work with all versions of glibc from 2.31
# on: programs print the same with and without the preload library, and the tests of libkinlock
# pass. They run in root file systems made of the packages of Debian's releases, without a
# container.
# With names of releases: only these. Downloads some 80 MB per release once. Needs root or sudo, to
# mount and to change the root.
#   KINLOCK_CACHE    where the root file systems are kept [~/.cache/kinlock-glibc]
#   KINLOCK_LIBRARY  the library to test [this checkout's]
#   KINLOCK_MIRROR   where Debian's packages are [where this machine gets its packages, if it runs
#                    Debian]
set -euo pipefail
cd "$(dirname "$0")/.."

# The oldest comes first: the programs are compiled with its C library.
declare -A glibc=([bullseye]=2.31 [bookworm]=2.36 [trixie]=2.41 [forky]=2.43)
all=(bullseye bookworm trixie forky)
packages=(libc6 libgcc-s1 libstdc++6 coreutils dash diffutils python3-minimal libpython3-stdlib sqlite3 xz-utils pigz
    default-jre-headless)
of_oldest=(libc6-dev libstdc++-10-dev)
locks=(kinlock-mutex pthread)
# The programs that take long test nothing about the C library; ci/preload.sh runs them.
programs=(allocations asynchronous attributes c11 cancel codes cxx depth early forks owners peers rwcodes
    rwforeign spin versions waits)

fail() { echo "FAILED: $*" >&2; exit 1; }

# ---- within the mount namespace: glibc.sh --in ROOT FOLDER RELEASE ----

# The tests of libkinlock, shared and static.
c_tests=(mutex cond rwlock spin once forks misuse signals ids invalidation machine queues)

failures=0
differs() {
    failures=$((failures + 1))
    echo "FAILED: $release: $*" >&2
}

# Runs a command in the root, with a limit, because a lost wake-up is a hang.
inside() { timeout -k 5 300 chroot "$root" /usr/bin/env -i PATH=/usr/bin:/bin HOME=/t LC_ALL=C "$@" </dev/null; }

# A program has the same output and status with and without the library.
same() {
    local what=$1 lock want got
    shift
    want=$(inside "$@" 2>&1; echo "status $?")
    [[ $want == *"status 0" ]] || { differs "$what: without the library: $want"; return; }
    for lock in "${locks[@]}"; do
        got=$(inside LD_PRELOAD=/t/library.so KINLOCK_LOCK="$lock" "$@" 2>&1; echo "status $?")
        [ "$want" = "$got" ] || {
            differs "$what, $lock:"
            diff <(echo "$want") <(echo "$got") | tail -4 >&2 || true
        }
    done
}

in_root() {
    root=$1 release=$3
    mount --bind "$2" "$root/t"
    mount -t proc proc "$root/proc"
    mount --rbind /dev "$root/dev"
    local version n plain lock p arguments
    version=$(inside /lib64/ld-linux-x86-64.so.2 --library-path /lib/x86_64-linux-gnu:/usr/lib/x86_64-linux-gnu \
        /t/version)
    [ "$version" = "${glibc[$release]}" ] || fail "$release has glibc $version, expected ${glibc[$release]}"
    # The counts show that the library is loaded and works.
    inside LD_PRELOAD=/t/library.so KINLOCK_COUNTS="/t/counts-$release" /t/known >/dev/null || differs "known"
    grep -q '"calls":32,' "$root/t/counts-$release" || differs "nothing was counted"
    same true true
    for p in "${programs[@]}"; do
        arguments=()
        [ "$p" != early ] || arguments=(/t/plugin.so)
        same "$p" "/t/$p" "${arguments[@]}"
    done
    same xz sh -c 'xz -T2 --block-size=200000 -k -c /t/data | xz -dc | cmp - /t/data'
    same pigz sh -c 'pigz -p 4 -1 -c /t/data | pigz -dc | cmp - /t/data'
    same sqlite3 sqlite3 :memory: "create table t(a); with recursive n(i) as (select 1 union all select i + 1 from n
        where i < 50000) insert into t select i from n; select sum(a) from t;"
    local java
    java=$(cd "$root" && ls -d usr/lib/jvm/*/bin/java | head -1)
    same java "/$java" -Xshare:auto -Xmx64m -XX:+UseSerialGC -cp /t Waits
    # Each thread runs the interpreter for 5 ms at a time, while the other one is in a timed wait.
    plain=$(inside /usr/bin/python3 -S /t/turns.py) || differs "python3: $plain"
    for lock in "${locks[@]}"; do
        n=$(inside LD_PRELOAD=/t/library.so KINLOCK_LOCK="$lock" /usr/bin/python3 -S /t/turns.py) || differs python3
        # The limit is far beyond the difference between one second of CPU time and the next.
        [ "$((n * 20))" -gt "$plain" ] || differs "python3, $lock: $n turns, and $plain without the library"
    done
    bare
    local said
    for p in "${c_tests[@]}"; do
        for p in "c/$p" "c/$p-static"; do
            said=$(timeout -k 5 300 chroot "$root" /usr/bin/env -i LD_LIBRARY_PATH=/t/c "/t/$p" </dev/null 2>&1) ||
                differs "the C library, $p: status $?: $said"
        done
    done
    [ "$failures" -eq 0 ] || exit 1
    echo "$release: glibc $version: ${#programs[@]} programs, xz, pigz, sqlite3, java and python3 answer the same;" \
        "${#c_tests[@]} tests of the C library pass"
}

# Tests in a root with nothing but a C library: no libgcc_s, and before glibc 2.34 no libdl or
# libpthread in use.
bare() {
    local bare=$root/t/bare-$release file whole=$root
    mkdir -p "$bare/t" "$bare/lib64" "$bare/proc"
    mount -t proc proc "$bare/proc"
    for file in ld-linux-x86-64.so.2 libc.so.6 libpthread.so.0; do
        cp -L "$(find "$root/lib/x86_64-linux-gnu/" "$root/usr/lib/x86_64-linux-gnu/" -name "$file" | head -1)" \
            "$bare/lib64/"
    done
    cp "$root"/t/{library.so,codes,rwcodes,plain} "$bare/t/"
    # Programs are started by the names of their files, since the root has no shell.
    for file in plain codes rwcodes; do
        local want got lock
        want=$(LD_LIBRARY_PATH=/lib64 alone "$bare" "/t/$file")
        [[ $want == *"status 0" ]] || differs "$file in a bare root: $want"
        for lock in "${locks[@]}"; do
            got=$(LD_LIBRARY_PATH=/lib64 LD_PRELOAD_IN=/t/library.so KINLOCK_LOCK=$lock alone "$bare" "/t/$file")
            [ "$want" = "$got" ] || differs "$file, $lock, in a bare root: $(echo "$got" | tail -3)"
        done
    done
    root=$whole
}

# The loader sets up the environment of the program, not of chroot.
alone() {
    local root=$1 preload=()
    shift
    [ -z "${LD_PRELOAD_IN:-}" ] || preload=(--preload "$LD_PRELOAD_IN")
    [ "${glibc[$release]}" != 2.31 ] || [ -z "${LD_PRELOAD_IN:-}" ] || preload=(--preload "$LD_PRELOAD_IN")
    timeout -k 5 300 chroot "$root" /lib64/ld-linux-x86-64.so.2 --library-path /lib64 "${preload[@]}" "$@" 2>&1
    echo "status $?"
}

if [ "${1:-}" = --in ]; then
    in_root "${@:2}"
    exit
fi

# ---- the root file systems ----

[ $# -gt 0 ] || set -- "${all[@]}"
cache=${KINLOCK_CACHE:-$HOME/.cache/kinlock-glibc}
. ci/lib/debian.sh
for tool in apt-get dpkg-deb cc javac chroot unshare; do
    command -v "$tool" >/dev/null || fail "$tool is missing; ci/install.sh installs what it can"
done

# Unpacks the packages of a release, once.
fetch() {
    local release=$1 to=$cache/$1 state package wanted=("${packages[@]}")
    [ "$release" != "${all[0]}" ] || wanted+=("${of_oldest[@]}")
    [ "$(cat "$to/packages" 2>/dev/null)" != "${wanted[*]}" ] || return 0
    echo "fetching $release"
    rm -rf "$to"
    state=$to.state
    mkdir -p "$to"/{usr/{bin,sbin,lib,lib64},proc,dev,t,tmp,etc}
    debian_lists "$release" amd64 "$state"
    apt-get "${apt[@]}" -y --no-install-recommends --download-only install "${wanted[@]}" >&2 ||
        fail "cannot download the packages of $release from $mirror"
    for folder in bin sbin lib lib64; do
        ln -s "usr/$folder" "$to/$folder"
    done
    debian_unpack "$state"/archives/*.deb "$to"
    # Makes absolute links relative, so that the compiler can follow them outside of the root.
    find "$to" -type l -lname '/*' | while read -r package; do
        ln -sfn --relative "$to$(readlink "$package")" "$package"
    done
    [ -e "$to/usr/bin/sh" ] || ln -s dash "$to/usr/bin/sh"
    rm -rf "$state"
    echo "${wanted[*]}" >"$to/packages"
}

[ "$(uname -m)" = x86_64 ] || fail "the programs and the packages are for x86_64"
mkdir -p "$cache"
for release in "${all[0]}" "$@"; do
    [ -n "${glibc[$release]:-}" ] || fail "$release: known: ${all[*]}"
    fetch "$release"
done

library=${KINLOCK_LIBRARY:-}
if [ -z "$library" ]; then
    cargo build --quiet --release -p kinlock-preload
    library=${CARGO_TARGET_DIR:-target}/release/libkinlock_preload.so
fi

# ---- the programs ----

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
cp "$library" "$work/library.so"
from=tools/preload/tests/c
# This machine's compiler uses the oldest C library. Without these options it would use its own.
oldest=$cache/${all[0]}
libraries=usr/lib/x86_64-linux-gnu
flags=(--sysroot="$oldest" -B"$oldest/$libraries/" -L"$oldest/$libraries" -L"$oldest/lib/x86_64-linux-gnu" -O1 -w
    -pthread -Wl,--allow-shlib-undefined)
cxx=(-nostdinc++ -isystem "$oldest/usr/include/c++/10" -isystem "$oldest/usr/include/x86_64-linux-gnu/c++/10")
compile() { "$1" "${flags[@]}" "$2" -o "$work/$3" "${@:4}" -ldl || fail "$2 does not compile"; }
for program in known small "${programs[@]}"; do
    source=$(ls "$from/$program".*)
    case $source in
    *.cc) compile cc "$source" "$program" "${cxx[@]}" -l:libstdc++.so.6 ;;
    *) compile cc "$source" "$program" ;;
    esac
done
compile cc "$from/plugin.c" plugin.so -shared -fPIC
# libkinlock is linked with the oldest glibc and used with all: newer ones still have the old
# versions of functions. Before 2.34 threads and the loader had libraries of their own, which have
# been empty since then.
make --silent -C lib/c OUT="$work/c" LDFLAGS="${flags[*]:0:4}" >&2
needed=$(readelf -d "$work/c/libkinlock.so.1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort | paste -sd' ')
case $needed in
libc.so.6 | "libc.so.6 libdl.so.2 libpthread.so.0") ;;
*) fail "the C library needs: $needed" ;;
esac
newest=$(readelf -V "$work/c/libkinlock.so.1" | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -1)
[ "$(printf '%s\n' "$newest" "GLIBC_${glibc[${all[0]}]}" | sort -V | tail -1)" = "GLIBC_${glibc[${all[0]}]}" ] ||
    fail "the C library needs symbols of $newest"
echo "the C library needs symbols of $newest"
for program in "${c_tests[@]}"; do
    source=lib/c/tests/c/$program.c
    compile cc "$source" "c/$program" -std=c99 -Ilib/c/include -L"$work/c" -lkinlock
    compile cc "$source" "c/$program-static" -std=c99 -Ilib/c/include "$work/c/libkinlock.a"
done
cat >"$work/version.c" <<'END'
#include <gnu/libc-version.h>
#include <stdio.h>
int main(void) { return puts(gnu_get_libc_version()) < 0; }
END
compile cc "$work/version.c" version
echo 'int main(void) { return 0; }' >"$work/plain.c"
compile cc "$work/plain.c" plain
head -c 2000000 /dev/urandom >"$work/data"
cat >"$work/turns.py" <<'END'
import threading, time
turns = [0, 0]
# In time of the process: others may have the CPUs.
until = time.process_time() + 1
def work(me):
    while time.process_time() < until:
        for _ in range(100):
            turns[me] += 1
threads = [threading.Thread(target=work, args=(me,)) for me in (0, 1)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(sum(turns))
END
cat >"$work/Waits.java" <<'END'
import java.lang.management.ManagementFactory;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.*;

class Waits {
    interface Wait { void once() throws Exception; }

    /** Says whether a wait lasts as long as it was asked to, and leaves the CPU alone meanwhile. */
    static void check(String what, int times, long millis, Wait wait) throws Exception {
        var threads = ManagementFactory.getThreadMXBean();
        long from = System.nanoTime(), spent = threads.getCurrentThreadCpuTime();
        for (int i = 0; i < times; i++) wait.once();
        long lasted = (System.nanoTime() - from) / 1000000;
        spent = (threads.getCurrentThreadCpuTime() - spent) / 1000000;
        boolean early = lasted < times * millis * 9 / 10, busy = spent > times * millis / 2;
        System.out.println(what + (early ? ": early, after " + lasted + " ms" : ": in time")
            + (busy ? ", busy for " + spent + " ms" : ""));
    }

    public static void main(String[] args) throws Exception {
        Object monitor = new Object();
        check("Object.wait", 10, 200, () -> { synchronized (monitor) { monitor.wait(200); } });
        check("parkNanos", 4, 250, () -> {
            // It may return for no reason, a few times.
            long until = System.nanoTime() + 250000000, left;
            for (int n = 0; n < 10 && (left = until - System.nanoTime()) > 0; n++) LockSupport.parkNanos(left);
        });
        check("sleep", 2, 250, () -> Thread.sleep(250));
        Lock lock = new ReentrantLock();
        Condition condition = lock.newCondition();
        check("await", 2, 250, () -> {
            lock.lock();
            condition.await(250, TimeUnit.MILLISECONDS);
            lock.unlock();
        });
    }
}
END
javac --release 11 -d "$work" "$work/Waits.java" || fail "Waits.java does not compile"

enter=(unshare --mount --propagation private)
[ "$(id -u)" = 0 ] || enter=(sudo -n "${enter[@]}")
# All releases at the same time: the programs mostly sleep.
status=0 running=()
for release in "$@"; do
    "${enter[@]}" ci/glibc.sh --in "$cache/$release" "$work" "$release" &
    running+=($!)
done
for process in "${running[@]}"; do
    wait "$process" || status=1
done
exit $status
