#!/usr/bin/env bash
# Makes Debian packages of what `make install` installs: kinlock (the command), libkinlock1 (the
# shared library), libkinlock-dev (what C and C++ programs are compiled with), kinlock-dbgsym (what
# debuggers read). `ci/deb.sh build [FOLDER]` makes them, in target/deb or in FOLDER. They are for
# the release of Debian on which they are made. DEBFULLNAME and DEBEMAIL name the maintainer.
#
# `ci/deb.sh` makes and tests them: lintian must find no error. The packages are installed in a root
# with this machine's release and a compiler, and a user without privileges uses them there. When
# they are purged, no file of theirs must be left. Downloads some 100 MB once. Needs root or sudo,
# to mount and to change the root.
#   KINLOCK_CACHE    where that root is kept [~/.cache/kinlock-debian]
#   KINLOCK_MIRROR   where Debian's packages are [where this machine gets its packages]
set -euo pipefail
folder=${2:+$(realpath -m -- "$2")} # before the folder changes
cd "$(dirname "$0")/.."
export LC_ALL=C.UTF-8

fail() { echo "ci/deb.sh: $*" >&2; exit 1; }

# ---- within a mount namespace: deb.sh --in ROOT FOLDER VERSION ----

# Runs a command in the root, as a user without privileges.
inside() {
    timeout -k 5 300 chroot --userspec=nobody:nogroup "$root" /usr/bin/env -i PATH=/usr/bin:/bin HOME=/t/home \
        LC_ALL=C.UTF-8 MANPAGER=cat MANWIDTH=80 "$@" </dev/null
}

files() { (cd "$root" && find . -xdev -path ./t -prune -o -print | sort); }

# says TEXT COMMAND...: the command must succeed, and print a line with that text, on stdout or
# stderr.
says() {
    local expected=$1 found
    shift
    found=$(inside "$@" 2>&1) || fail "$* ended with status $?: $found"
    grep -qF -e "$expected" <<<"$found" || fail "$* does not say $expected, but: $found"
}

use_command() {
    says "kinlock $version" kinlock --version
    says 'lib/kinlock/libkinlock_preload.so-for/$PLATFORM/' kinlock run --print-env
    says "called no function of pthread" kinlock run -- /bin/true
    says "locks of count" kinlock run --report -- /t/count
    says "over pthread" kinlock compare --rounds 2 -- /bin/true
    inside bash -c '. /usr/share/bash-completion/completions/kinlock && COMP_WORDS=(kinlock com) COMP_CWORD=1 &&
        _kinlock kinlock com kinlock && [ "${COMPREPLY[*]}" = compare ]' || fail "bash does not complete"
}

use_pages() {
    says "kinlock-compare(1)" man kinlock
    says "kinlock run --report" man kinlock-run
    says "KINLOCK_QUANTUM" man 7 kinlock
    says "WHAT HOLDS FOR ALL FUNCTIONS" man 3 kinlock
    says "kinlock_mutex_trylock(kinlock_mutex_t *mutex);" man kinlock_mutex_trylock
    says "kinlock_mutex (3)" apropos kinlock_mutex
}

use_library() {
    local program library linked
    # CMake calls the shared library kinlock.
    inside sh -ec 'cd /t/home/examples
        { make && cmake -S . -B cmake && cmake --build cmake; } >log 2>&1 || { cat log; exit 1; }
        mv cmake/queue-kinlock cmake/queue-shared
        mv cmake/cache-kinlock cmake/cache-shared' >&2 || fail "the examples do not compile"
    for program in {,cmake/}{queue,cache}-{shared,static}; do
        program=/t/home/examples/$program
        linked=$(inside ldd "$program")
        library=$(grep -c libkinlock.so.1 <<<"$linked") || true
        [ "$library" = "$([[ $program = *shared ]] && echo 1 || echo 0)" ] || fail "$program is linked with: $linked"
        inside "$program" >/dev/null || fail "$program ended with status $?"
    done
}

in_root() {
    local pristine=$1 folder=$2 left
    version=$3
    work=$(mktemp -d)
    mount -t tmpfs tmpfs "$work"
    mkdir "$work"/{upper,work,root}
    root=$work/root
    mount -t overlay overlay -o "lowerdir=$pristine,upperdir=$work/upper,workdir=$work/work" "$root"
    mkdir "$root/t"
    cp -r "$folder/." "$root/t"
    mkdir "$root/t/home"
    mv "$root/t/examples" "$root/t/home"
    chown -R nobody:nogroup "$root/t/home"
    mount -t proc proc "$root/proc"
    mount --rbind /dev "$root/dev"
    files >"$work/before"
    chroot "$root" sh -c 'dpkg --install /t/*.deb' >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "not installed"; }
    use_command
    use_pages
    use_library
    chroot "$root" dpkg --purge "${packages[@]}" >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "not purged"; }
    # The caches of the package manager, the loader and man may change.
    left=$(files | comm -13 "$work/before" - |
        grep -vE '^\./var/(lib/dpkg/|log/|cache/(ldconfig|man)/)|^\./etc/ld\.so\.cache$' || true)
    [ -z "$left" ] || fail "left after a purge: $left"
    echo "installed, used, and purged without a trace: ${packages[*]}"
}

packages=(kinlock libkinlock1 libkinlock-dev kinlock-dbgsym)
if [ "${1:-}" = --in ]; then
    in_root "${@:2}"
    exit
fi

# ---- the packages ----

[[ $# = 0 || ($1 = build && $# -le 2) ]] || fail "usage: ci/deb.sh [build [FOLDER]]"
for tool in dpkg-deb dpkg-shlibdeps dpkg-architecture; do
    command -v "$tool" >/dev/null || fail "$tool is missing: install dpkg-dev"
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
out=${folder:-${CARGO_TARGET_DIR:-target}/deb}
architecture=$(dpkg --print-architecture)
libraries=usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)
release=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
version=$release
# A build that is not the release has a version that counts as older.
[ "$(git describe --exact-match --tags 2>/dev/null)" = "v$release" ] ||
    version=$release~$(git log -1 --format=%cd.%h --date=format:%Y%m%d)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
maintainer="${DEBFULLNAME:-The kinlock authors} <${DEBEMAIL:-authors@kinlock.invalid}>"

# move PACKAGE PATH...: moves files from the installed tree into the package.
move() {
    local package=$1 path
    shift
    for path in "$@"; do
        mkdir -p "$work/$package/$(dirname "$path")"
        mv "$work/tree/$path" "$work/$package/$path"
    done
}

depends() {
    mkdir -p "$work/shlibdeps/debian"
    printf 'Source: kinlock\n\nPackage: kinlock\nArchitecture: any\n' >"$work/shlibdeps/debian/control"
    (cd "$work/shlibdeps" && dpkg-shlibdeps -O "$1" 2>/dev/null) | sed -n 's/^shlibs:Depends=//p'
}

# pack PACKAGE: makes the package. Reads its fields and its long description from stdin.
pack() {
    local root=$work/$1 documents=$work/$1/usr/share/doc/$1
    mkdir -p "$root/DEBIAN" "$root/usr/share/doc"
    {
        printf 'Package: %s\nVersion: %s\nArchitecture: %s\n' "$1" "$version" "$architecture"
        printf 'Source: kinlock\nMaintainer: %s\nInstalled-Size: %s\n' "$maintainer" "$(du -sk "$root" | cut -f1)"
        cat
    } >"$root/DEBIAN/control"
    if ! [ -L "$documents" ]; then
        mkdir "$documents"
        cp "$work/copyright" "$documents/copyright"
        gzip -9n <"$work/changelog" >"$documents/changelog.gz"
    fi
    find "$root" -path '*/man/*' -type f -exec gzip -9n {} +
    find "$root" -type d -exec chmod 755 {} +
    (cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
    dpkg-deb --root-owner-group --build "$root" "$out/$1_${version}_$architecture.deb" >/dev/null
}

make --silent install DESTDIR="$work/tree" PREFIX=/usr LIBDIR="/$libraries" ZSHDIR=/usr/share/zsh/vendor-completions
mkdir -p "$out"
for package in "${packages[@]}"; do
    rm -f "$out/${package}"_*.deb # of another version
done

{
    printf 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n'
    printf 'Upstream-Name: kinlock\n\nFiles: *\nCopyright: %s\n' "$(sed -n 's/^Copyright (c) //p' LICENSE-MIT)"
    printf 'License: Expat or Apache-2.0\n\n'
    printf 'License: Expat\n'
    sed -n '/^Permission/,$ { s/^$/./; s/^/ /; p }' LICENSE-MIT
    printf '\nLicense: Apache-2.0\n On Debian systems: /usr/share/common-licenses/Apache-2.0\n'
} >"$work/copyright"
printf 'kinlock (%s) unstable; urgency=medium\n\n  * See CHANGELOG.md in the sources.\n\n -- %s  %s\n' \
    "$version" "$maintainer" "$(date -R -u -d "@$SOURCE_DATE_EPOCH")" >"$work/changelog"

for file in usr/bin/kinlock usr/lib/kinlock/libkinlock_preload.so; do
    id=$(readelf -n "$work/tree/$file" | sed -n 's/.*Build ID: //p')
    [ -n "$id" ] || fail "$file has no build ID"
    to=$work/kinlock-dbgsym/usr/lib/debug/.build-id/${id:0:2}
    mkdir -p "$to"
    mv "$work/tree/$(dirname $file)/.debug/$(basename $file).debug" "$to/${id:2}.debug"
    rmdir "$work/tree/$(dirname $file)/.debug"
done
move libkinlock1 "$libraries/libkinlock.so.1"
move libkinlock-dev usr/include usr/share/man/man3 "$libraries"
move kinlock usr
left=$(find "$work/tree" ! -type d)
[ -z "$left" ] || fail "no package has $left"

strip --strip-unneeded "$work/libkinlock1/$libraries/libkinlock.so.1"
chmod 644 "$work/libkinlock1/$libraries/libkinlock.so.1"
mkdir -p "$work/kinlock-dbgsym/usr/share/doc"
ln -s kinlock "$work/kinlock-dbgsym/usr/share/doc/kinlock-dbgsym"
# In 32-bit processes the loader reads empty libraries in place of the preloaded library.
mkdir -p "$work/kinlock/usr/share/lintian/overrides"
for tag in binary-from-other-architecture shared-library-lacks-prerequisites; do
    echo "kinlock: $tag [usr/lib/kinlock/libkinlock_preload.so-for/*]"
done >"$work/kinlock/usr/share/lintian/overrides/kinlock"

command=$(depends "$work/kinlock/usr/bin/kinlock")
library=$(depends "$work/libkinlock1/$libraries/libkinlock.so.1")
[ -n "$command" ] && [ -n "$library" ] || fail "dpkg-shlibdeps does not know what the packages depend on"

pack kinlock <<END
Depends: $command
Suggests: libkinlock-dev
Section: devel
Priority: optional
Description: tells whether locks slow a program down, and runs it on better ones
 The command runs unmodified programs that use pthreads on the locks of
 kinlock, which are made for machines with many cores. It reports for each
 lock how often and how long threads waited for it and where, compares the
 speed of a program under the locks of the C library and of kinlock, and
 measures locks.
END

mkdir -p "$work/libkinlock1/DEBIAN"
echo "libkinlock 1 libkinlock1 (>= $version)" >"$work/libkinlock1/DEBIAN/shlibs"
echo "activate-noawait ldconfig" >"$work/libkinlock1/DEBIAN/triggers"
pack libkinlock1 <<END
Depends: $library
Multi-Arch: same
Section: libs
Priority: optional
Description: locks for many threads and short critical sections
 A mutex and a NUMA-aware spinlock of four bytes each, a condition variable and
 a reader-writer lock of eight, concurrency IDs for data of each CPU, and
 delayed invalidation. None of the locks allocates memory.
 .
 This package has the shared library, which programs need to run.
END

pack libkinlock-dev <<END
Depends: libkinlock1 (= $version)
Suggests: kinlock
Multi-Arch: same
Section: libdevel
Priority: optional
Description: locks for many threads and short critical sections, for C and C++
 A mutex and a NUMA-aware spinlock of four bytes each, a condition variable and
 a reader-writer lock of eight, concurrency IDs for data of each CPU, and
 delayed invalidation. None of the locks allocates memory.
 .
 This package has the headers, the static library, files for pkg-config and
 CMake, and the manual.
END

ids=$(cd "$work/kinlock-dbgsym/usr/lib/debug/.build-id" && find . -name '*.debug' | tr -d './\n' | sed 's/debug/ /g')
pack kinlock-dbgsym <<END
Depends: kinlock (= $version)
Section: debug
Priority: optional
Auto-Built-Package: debug-symbols
Build-Ids: $ids
Description: debug symbols for kinlock
END
[ "${1:-}" != build ] || exit 0

# ---- the test ----

for tool in lintian mmdebstrap unshare chroot; do
    command -v "$tool" >/dev/null || fail "$tool is missing; ci/install.sh installs what it can"
done
lintian --allow-root --fail-on error "$out"/*"_${version}_$architecture.deb"

as_root=()
[ "$(id -u)" = 0 ] || as_root=(sudo -n)
. /etc/os-release
if [ "$ID" != debian ]; then
    echo "!!!! $NAME is not Debian: the packages were made, and NOT installed and used" >&2
    exit 0
fi
codename=$VERSION_CODENAME
cache=${KINLOCK_CACHE:-$HOME/.cache/kinlock-debian}
root=$cache/$codename
. ci/lib/debian.sh
debian_mirror
# The root has what the packages depend on. The needed versions are cut off the names.
needed=$(sed 's/ ([^)]*)//g; s/ //g' <<<"$command,$library")
wanted=bash,cmake,g++,gcc,libc6-dev,make,man-db,pkg-config,$needed
if [ "$(cat "$root/wanted" 2>/dev/null)" != "$wanted" ]; then
    echo "making a root with $codename"
    "${as_root[@]}" rm -rf "$root"
    mkdir -p "$cache"
    # What mmdebstrap mounts is unmounted with this namespace.
    "${as_root[@]}" unshare --mount --propagation private \
        mmdebstrap --quiet --mode=root --variant=minbase --include="$wanted" "$codename" "$root" "$mirror"
    echo "$wanted" | "${as_root[@]}" tee "$root/wanted" >/dev/null
fi

mkdir "$work/t"
cp "$out"/*"_${version}_$architecture.deb" "$work/t"
cp -r lib/c/examples "$work/t/examples"
# The guide's program in C, for a report.
awk '$0 == "```c" { n++; inside = 1; next } /^```/ { inside = 0 } inside && n == 1' \
    docs/guide/unmodified-programs.md >"$work/count.c"
cc -O2 -pthread "$work/count.c" -o "$work/t/count"
chmod -R a+rX "$work" # for the user without privileges
"${as_root[@]}" unshare --mount --propagation private ci/deb.sh --in "$root" "$work/t" "$release"
