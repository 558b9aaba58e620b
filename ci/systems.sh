#!/usr/bin/env bash
# Tests on other systems and machines than this one: C libraries, kernels and NUMA machines, by
# Debian's packages and qemu; aarch64; musl. Without names, runs every row; `list` lists the rows.
# Each row says how long it took. A row that cannot run, because a tool or a package is missing,
# fails.
#
# A booted machine reads its topology, tortures locks and concurrency IDs for a second each, and
# runs two programs under the preloaded library. `expected` has the topology that it must find. The
# processor is emulated unless this one can virtualise; an emulated processor is slow, and proves
# nothing about memory ordering. Packages (20 to 80 MB per kernel) are downloaded once; they are
# fetched anew when their folder is removed. The kernel of the row `slices` is built once, from
# Debian's source (160 MB), which takes eleven minutes of CPU time and 3 GB of space.
#   KINLOCK_SYSTEMS  where packages and kernels are kept [~/.cache/kinlock-systems]
#   KINLOCK_MIRROR   where Debian's packages are [where this machine gets its packages]
#   KINLOCK          a command that is built already, with kinlock-lab and the library in its folder
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/lib/debian.sh

# For each row, the function that runs it. The arguments of `boot` are: architecture, release that
# has the kernel, the kernel's version and flavour, machine, and how the kernel provides IDs. Linux
# has concurrency IDs from 6.3 on, and 7.0 does not restart sequences on aarch64. The flavour `own`
# is built here, with time-slice extensions, which no kernel of Debian's has.
declare -A rows=(
    [glibc]="glibc"
    [linux-5.10]="boot amd64 bullseye 5.10 cloud-amd64 four leases"
    [linux-6.1]="boot amd64 bookworm 6.1 cloud-amd64 memoryless leases"
    [linux-6.1-rt]="boot amd64 bookworm 6.1 rt-amd64 one leases"
    [linux-6.12]="boot amd64 trixie 6.12 cloud-amd64 holes sequences"
    [linux-7]="boot amd64 trixie-backports 7 cloud-amd64 sixteen sequences"
    [slices]="boot amd64 trixie-backports 7 own pair sequences"
    [interleaved]="boot amd64 trixie 6.12 cloud-amd64 interleaved sequences"
    [memory-only]="boot amd64 trixie 6.12 cloud-amd64 memory-only sequences"
    [aarch64-linux-6.12]="boot arm64 trixie 6.12 cloud-arm64 four sequences"
    [aarch64-linux-7.0]="boot arm64 trixie-backports 7.0 cloud-arm64 two leases"
    [aarch64-linux-7]="boot arm64 trixie-backports 7 cloud-arm64 two sequences"
    [aarch64-user]="aarch64_user"
    [musl]="musl"
)
order=(linux-5.10 linux-6.1 linux-6.1-rt linux-6.12 linux-7 slices interleaved memory-only aarch64-linux-6.12
    aarch64-linux-7.0 aarch64-linux-7 aarch64-user musl glibc)

# What `kinlock topology` must find: the CPUs of each node, with "-" for a node without memory, and
# whether `auto` reorders queues by node (CNA).
declare -A expected=(
    [four]="0: 0-1, 1: 2-3, 2: 4-5, 3: 6-7; online 0-7; auto on"
    [two]="0: 0-1, 1: 2-3; online 0-3; auto on"
    [memoryless]="0: 0-1, 1: 2-3, 2: 4-5, 3-: 6-7; online 0-7; auto on"
    [holes]="0: 0-1, 1-: none, 2: 4-5, 3: 6-7; online 0-1,4-7; auto on"
    [interleaved]="0: 0,2,4,6, 1: 1,3,5,7; online 0-7; auto on"
    [memory-only]="0: 0-1, 1: 2-3, 2: none; online 0-3; auto on"
    [one]="0: 0; online 0; auto off"
    [pair]="0: 0-1; online 0-1; auto off"
    [sixteen]="0: 0-7, 1: 8-15; online 0-15; auto on"
)
# CPUs that are taken offline before anything else.
declare -A offline=([holes]="2 3")
# The release that the guests' C library comes from. Any kernel works with it.
libraries=trixie

fail() { echo "FAILED: $*" >&2; exit 1; }
need() {
    local tool
    for tool in "$@"; do
        command -v "$tool" >/dev/null || fail "$tool is missing; ci/install.sh installs what it can"
    done
}

# ---- packages ----

cache=${KINLOCK_SYSTEMS:-$HOME/.cache/kinlock-systems}

# kernel ARCHITECTURE RELEASE VERSION FLAVOUR: sets `image` to the newest such kernel.
kernel() {
    local to=$cache/kernels/$2-$3-$4 found
    image=$(compgen -G "$to/vmlinuz-*" || true)
    [ -z "$image" ] || return 0
    rm -rf "$to"
    mkdir -p "$to"
    debian_lists "$2" "$1" "$to/apt"
    if [ "$4" = own ]; then
        own_kernel "$3" "$to"
        return
    fi
    # Since Linux 6.19 the image is in a separate package.
    found=$(apt-cache "${apt[@]}" pkgnames linux- |
        sed -nE "s/^linux-(image|binary)-(${3//./\\.}[.][0-9.]+([-+][a-z0-9]+)?-$4)\$/\2/p" | sort -uV | tail -1)
    [ -n "$found" ] || fail "$2 has no kernel $3 of the flavour $4"
    (cd "$to/apt/archives" && { apt-get "${apt[@]}" download "linux-binary-$found" 2>/dev/null ||
        apt-get "${apt[@]}" download "linux-image-$found" >&2; }) || fail "cannot download the kernel $found of $2"
    mkdir "$to/files"
    dpkg-deb --fsys-tarfile "$to"/apt/archives/*.deb | tar -x -C "$to/files" --wildcards '*/vmlinuz*' ||
        fail "no image in the package of the kernel $found"
    plain_image "$(find "$to/files" -name "vmlinuz*" -type f | head -1)" "$to/image"
    rm -r "$to/apt"
    mv "$to/image" "$to/vmlinuz-$found"
    rm -r "$to/files"
    image=$to/vmlinuz-$found
}

# own_kernel VERSION FOLDER: builds Debian's newest source of that version, with only the options of
# ci/lib/kernel.config.
own_kernel() {
    local to=$2 tree=$2/tree found
    need flex bison bc make gcc xz
    gcc -E -include gelf.h -x c /dev/null >/dev/null 2>&1 || fail "libelf-dev is missing; see ci/install.sh"
    found=$(apt-cache "${apt[@]}" pkgnames "linux-source-$1." | sort -V | tail -1)
    [ -n "$found" ] || fail "there is no source of Linux $1"
    (cd "$to/apt/archives" && apt-get "${apt[@]}" download "$found" >&2) || fail "cannot download $found"
    mkdir "$tree"
    # Half of the source is registers of graphics cards, which are left out.
    dpkg-deb --fsys-tarfile "$to"/apt/archives/linux-source-*.deb | tar -xO --wildcards '*/linux-source-*.tar.xz' |
        xz -dc | tar -x -C "$tree" --strip-components 1 --exclude '*/drivers/gpu/drm/amd/include' ||
        fail "cannot unpack $found"
    rm -r "$to/apt"
    make -s -C "$tree" KCONFIG_ALLCONFIG="$PWD/ci/lib/kernel.config" allnoconfig >"$to/log" 2>&1 &&
        make -s -C "$tree" -j"$(nproc)" bzImage >>"$to/log" 2>&1 || {
        tail -n 20 "$to/log"
        fail "$found cannot be built: $to/log"
    }
    found=$(make -s -C "$tree" kernelrelease)
    mv "$tree/arch/x86/boot/bzImage" "$to/vmlinuz-$found"
    rm -r "$tree"
    image=$to/vmlinuz-$found
}

# Unpacks an image that would unpack itself under EFI, because qemu cannot start it directly.
plain_image() {
    python3 - "$1" "$2" <<'END'
import gzip, struct, subprocess, sys
data = open(sys.argv[1], "rb").read()
if data[4:8] == b"zimg":
    start, size = struct.unpack_from("<II", data, 8)
    how = data[24:56].split(b"\0")[0].decode()
    packed = data[start:start + size]
    if how == "gzip":
        data = gzip.decompress(packed)
    else:
        data = subprocess.run([how, "-dc"], input=packed, stdout=subprocess.PIPE, check=True).stdout
open(sys.argv[2], "wb").write(data)
END
}

# libraries_of ARCHITECTURE: sets `root` to a folder with a C library and busybox.
libraries_of() {
    root=$cache/libraries/$libraries-$1
    [ ! -e "$root/complete" ] || return 0
    rm -rf "$root"
    mkdir -p "$root"/{files/usr/{bin,lib,lib64},apt}
    debian_lists "$libraries" "$1" "$root/apt"
    (cd "$root/apt/archives" && apt-get "${apt[@]}" download libc6 libgcc-s1 busybox-static >&2) ||
        fail "cannot download the C library of $libraries for $1"
    for folder in bin lib lib64; do
        ln -s "usr/$folder" "$root/files/$folder"
    done
    debian_unpack "$root"/apt/archives/*.deb "$root/files"
    rm -r "$root/apt"
    touch "$root/complete"
}

# ---- what runs in the machines ----

# Builds the programs, once for each architecture.
build() {
    local target=${CARGO_TARGET_DIR:-target} cc=cc program
    programs=$work/programs-$1
    [ ! -d "$programs" ] || return 0
    mkdir "$programs.new"
    if [ "$1" = amd64 ]; then
        [ "$(uname -m)" = x86_64 ] || fail "the commands for amd64 are built on x86_64 only"
        [ -n "${KINLOCK:-}" ] || cargo build --release --quiet -p kinlock-preload
        . ci/lib/command.sh
        from=$(dirname "$kinlock")
    else
        cc=aarch64-linux-gnu-gcc
        need "$cc"
        CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=$cc cargo build --release --quiet \
            --target aarch64-unknown-linux-gnu -p kinlock-command -p kinlock-lab -p kinlock-preload
        from=$target/aarch64-unknown-linux-gnu/release
    fi
    cp "$from"/{kinlock,kinlock-lab,libkinlock_preload.so} "$programs.new/"
    # If this machine has the libraries of some peers of the benchmark, the command needs them.
    [ "$1" != amd64 ] || ldd "$from/kinlock" | sed -nE 's/^\s*(libck|liburcu).* => (\S+) .*/\2/p' |
        xargs -r cp -L -t "$programs.new/"
    for program in tools/preload/tests/c/{codes,cancel}.c ci/lib/slices.c; do
        "$cc" -O1 -w -pthread "$program" -o "$programs.new/$(basename "$program" .c)" -ldl ||
            fail "$program does not compile"
    done
    mv "$programs.new" "$programs"
}

# initramfs FLAVOUR MACHINE FILE: writes the machine's initial file system to FILE.
initramfs() {
    local folder=$work/initramfs lib
    rm -rf "$folder"
    mkdir -p "$folder"/{bin,usr}
    ln -s usr/lib "$folder/lib"
    ln -s usr/lib64 "$folder/lib64"
    (cd "$root/files" && find usr/lib usr/lib64 \( -name 'ld-linux*' -o -name 'libc.so.6' -o -name 'libm.so.6' \
        -o -name 'libgcc_s.so.1' -o -name 'libpthread.so.0' -o -name 'libdl.so.2' -o -name 'librt.so.1' \) |
        cpio --quiet -pdm "$folder")
    cp -L "$root/files/bin/busybox" "$folder/bin/"
    find "$programs" -type f ! -name '*.so*' -exec cp -t "$folder/bin" {} +
    find "$programs" -type f -name '*.so*' -exec cp -t "$folder/lib" {} +
    cp ci/lib/guest.sh "$folder/init"
    echo "offline='${offline[$2]:-}' flavour='$1'" >"$folder/row"
    (cd "$folder" && find . | cpio --quiet -o -H newc) >"$3"
}

# ---- the machines ----

# Sets the array `shape` to the arguments of qemu for a machine.
machine() {
    local i
    node() { # NUMBER MEGABYTES CPUS: 0 megabytes or no CPUs make a node without
        [ "$2" = 0 ] || shape+=(-object "memory-backend-ram,id=m$1,size=$2M")
        local node="node,nodeid=$1" range
        [ "$2" = 0 ] || node+=",memdev=m$1"
        for range in ${3:-}; do
            node+=",cpus=$range"
        done
        shape+=(-numa "$node")
    }
    distances() { # FROM-TO=DISTANCE...
        local pair
        for pair in "$@"; do
            shape+=(-numa "dist,src=${pair%%-*},dst=$(echo "$pair" | sed 's/.*-//; s/=.*//'),val=${pair##*=}")
        done
    }
    shape=()
    case $1 in
    four)
        shape=(-m 1024 -smp 8,sockets=4,cores=2,threads=1)
        for i in 0 1 2 3; do node $i 256 "$((2 * i))-$((2 * i + 1))"; done
        distances 0-1=16 0-2=22 0-3=22 1-2=22 1-3=22 2-3=16
        ;;
    two)
        shape=(-m 1024 -smp 4,sockets=2,cores=2,threads=1)
        for i in 0 1; do node $i 512 "$((2 * i))-$((2 * i + 1))"; done
        ;;
    memoryless)
        shape=(-m 1024 -smp 8,sockets=4,cores=2,threads=1)
        node 0 512 0-1
        node 1 256 2-3
        node 2 256 4-5
        node 3 0 6-7
        ;;
    holes)
        shape=(-m 1024 -smp 8,sockets=4,cores=2,threads=1)
        node 0 512 0-1
        node 1 0 2-3
        node 2 256 4-5
        node 3 256 6-7
        ;;
    interleaved)
        shape=(-m 1024 -smp 8,sockets=8,cores=1,threads=1)
        node 0 512 "0 2 4 6"
        node 1 512 "1 3 5 7"
        ;;
    memory-only)
        shape=(-m 1024 -smp 4,sockets=2,cores=2,threads=1)
        node 0 512 0-1
        node 1 256 2-3
        node 2 256
        ;;
    one) shape=(-m 1024 -smp 1) ;;
    pair) shape=(-m 1024 -smp 2) ;;
    sixteen)
        shape=(-m 1024 -smp 16,sockets=2,cores=4,threads=2)
        node 0 512 0-7
        node 1 512 8-15
        ;;
    *) fail "no machine is called $1" ;;
    esac
}

# Prints what the command has found, in the form of `expected`.
found() {
    python3 - "$1" <<'END'
import json, sys
text = open(sys.argv[1]).read()
found = json.loads(text.split("TOPOLOGY\n")[1].split("TOPOLOGY ends")[0])
def ranges(cpus):
    runs = []
    for cpu in cpus:
        if runs and runs[-1][1] == cpu - 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(f"{a}-{b}" if a < b else f"{a}" for a, b in runs) or "none"
nodes = [f"{n['node']}{'' if n['has_memory'] else '-'}: {ranges(n['cpus'])}" for n in found["nodes"]]
online = ranges([c["cpu"] for c in found["cpus"] if c["online"]])
auto = "on" if found["in_use"]["auto"]["reorder"] else "off"
print(f"{', '.join(nodes)}; online {online}; auto {auto}")
END
}

boot() {
    local architecture=$1 name=$5 log=$work/$row.log shape command console got failures=0
    case $architecture in
    amd64)
        command=(qemu-system-x86_64)
        if grep -qwE 'vmx|svm' /proc/cpuinfo && [ -w /dev/kvm ]; then
            command+=(-accel kvm -cpu host)
        else
            command+=(-accel tcg,thread=multi -cpu max)
        fi
        console=ttyS0
        ;;
    arm64)
        command=(qemu-system-aarch64 -machine virt,gic-version=3 -accel "tcg,thread=multi" -cpu max,pauth-impdef=on)
        console=ttyAMA0
        ;;
    esac
    need "${command[0]}" cpio python3
    kernel "${@:1:4}"
    libraries_of "$architecture"
    build "$architecture"
    initramfs "$4" "$name" "$work/initrd"
    machine "$name"
    emulate "$log" "" || failures=1
    got=$(sed -n 's/^IDS //p' "$log")
    [ "$got" = "$6" ] || { echo "  FAILED: IDs by ${got:-nothing}, expected $6"; failures=1; }
    got=$(found "$log" 2>/dev/null || echo nothing)
    if [ "$got" != "${expected[$name]}" ]; then
        echo "  FAILED: topology: $got"
        echo "  expected:         ${expected[$name]}"
        failures=1
    else
        echo "  ok: topology: $got"
    fi
    if [ "$4" = own ]; then
        # Every instruction takes a nanosecond, so no count depends on the load of this machine.
        command=(qemu-system-x86_64 -accel "tcg,thread=single" -icount "shift=0,sleep=off" -cpu max)
        emulate "$log.slices" slices || failures=1
    fi
    [ "$failures" = 0 ]
}

# emulate LOG ARGUMENT: boots the machine that `boot` has prepared, with an argument for its first
# process, and shows what that process finds. Fails if a check fails, or if the machine does not
# end.
#
# The emulator sometimes executes an instruction that Linux is just replacing, although Linux
# replaces it in the order that processors require: it meets the breakpoint that is there for the
# time of the replacement, and the kernel stops. Then the machine is booted again, twice at most.
emulate() {
    local left=2
    until boot_once "$1" "$2"; do
        if ! grep -qa 'Oops: int3' "$1" || [ $((left--)) = 0 ]; then
            return 1
        fi
        echo "  the emulator has stopped the kernel at a breakpoint of its own; once more"
    done
}

boot_once() {
    local log=$1 emulator
    : >"$log.raw"
    timeout -k 5 900 "${command[@]}" "${shape[@]}" \
        -nographic -no-reboot -nodefaults -serial stdio -net none -kernel "$image" -initrd "$work/initrd" \
        -append "console=$console loglevel=3 panic=-1 mitigations=off tsc=nowatchdog $2" </dev/null \
        >>"$log.raw" 2>&1 &
    emulator=$!
    trap 'kill "$emulator"; exit 143' TERM
    # Not every machine can switch itself off.
    while kill -0 "$emulator" 2>/dev/null && ! grep -qa '^END' "$log.raw"; do
        sleep 1
    done
    kill "$emulator" 2>/dev/null || true
    wait "$emulator" || true
    tr -d '\r' <"$log.raw" >"$log"
    grep -aoE 'KERNEL .*|^(ok|FAILED|\||IDS).*' "$log" | sed "s/^/  /" || true
    if ! grep -qax END "$log"; then
        echo "  FAILED: the machine did not come to its end:"
        tail -n 15 "$log"
        return 1
    fi
    ! grep -qa '^FAILED' "$log"
}

# ---- what needs no machine ----

glibc() { ci/glibc.sh; }

aarch64_user() {
    need qemu-aarch64 aarch64-linux-gnu-gcc
    # This test asks whether a page that cannot be read is mapped, and the emulator says no.
    local skipped=a_page_beside_one_that_cannot_be_read_is_no_meeting_page
    CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
        CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -L /usr/aarch64-linux-gnu" \
        cargo test --quiet --target aarch64-unknown-linux-gnu --lib -p kinlock-core -p kinlock-ids -p kinlock-linux \
        -- --skip "$skipped"
}

musl() {
    need musl-gcc
    local target=x86_64-unknown-linux-musl crates=(-p kinlock-core -p kinlock-linux -p kinlock -p kinlock-ids
        -p kinlock-invalidation)
    rustup target list --installed | grep -qx "$target" || fail "the target $target is not installed"
    cargo test --quiet --target "$target" "${crates[@]}" --lib
    cargo build --quiet --target "$target" -p kinlock-command --bin kinlock
    "${CARGO_TARGET_DIR:-target}/$target/debug/kinlock" topology
    # The preloaded library must not be loaded into processes of musl, and these must still run.
    cargo test --quiet -p kinlock-command --test run children_of_another_c_library
}

# ---- the rows ----

if [ "${1:-}" = list ]; then
    printf '%s\n' "${order[@]}"
    exit
fi
[ $# -gt 0 ] || set -- "${order[@]}"
for row in "$@"; do
    [ -n "${rows[$row]:-}" ] || fail "$row: known: ${order[*]}"
done
work=$(mktemp -d)
# If this script is ended, the machine that runs is ended, too.
running=
trap '[ -z "$running" ] || kill "$running"; exit 143' INT TERM
trap 'rm -rf "$work"' EXIT
mkdir -p "$cache"
bad=()
for row in "$@"; do
    echo "== $row: ${rows[$row]}"
    since=$SECONDS outcome=passed
    # In a separate process, so that the first command that fails ends only the row.
    (set -e; trap - EXIT INT TERM; ${rows[$row]}) &
    running=$!
    wait $running || { outcome=FAILED; bad+=("$row"); }
    printf '== %s: %s after %d.%d minutes\n' "$row" "$outcome" $(((SECONDS - since) / 60)) \
        $(((SECONDS - since) % 60 / 6))
done
[ ${#bad[@]} -eq 0 ] || fail "${#bad[@]} of $# rows: ${bad[*]}"
echo "all $# rows passed"
