# Sourced by scripts that need packages of other Debian releases. For them apt uses its own list of
# sources and its own folders, not those of this machine. The script must have a function `fail`.

# Prints the first of this machine's sources of packages that is Debian's.
own_mirror() { apt-get indextargets --format '$(REPO_URI) $(ORIGIN)' | sed -n '/security/! s/ Debian$//p' | head -1; }

# debian_mirror: sets `mirror` to where Debian's packages are.
debian_mirror() {
    mirror=${KINLOCK_MIRROR:-$(own_mirror)}
    [ -n "$mirror" ] || fail "this machine has no packages of Debian's: say where they are by KINLOCK_MIRROR"
}

# debian_lists RELEASE ARCHITECTURE FOLDER [deb-src]: downloads the lists of packages into FOLDER,
# and sets the array `apt` to the options that make apt-get and apt-cache use that folder.
debian_lists() {
    local release=$1 architecture=$2 state=$3 keyring=/usr/share/keyrings/debian-archive-keyring.gpg
    debian_mirror
    [ -f "$keyring" ] || fail "$keyring is missing: install debian-archive-keyring"
    mkdir -p "$state"/{lists,archives}/partial
    : >"$state/status"
    echo "${4:-deb} [arch=$architecture signed-by=$keyring] $mirror $release main" >"$state/sources"
    apt=(-qq -o Dir::Etc::SourceList="$state/sources" -o Dir::Etc::SourceParts=/dev/null
        -o Dir::Etc::Preferences=/dev/null -o Dir::Etc::PreferencesParts=/dev/null
        -o Dir::State="$state" -o Dir::State::status="$state/status" -o Dir::Cache="$state"
        -o APT::Architecture="$architecture" -o APT::Architectures="$architecture" -o APT::Sandbox::User=root
        -o Acquire::Retries=3 -o Acquire::Languages=none -o APT::Update::Error-Mode=any)
    apt-get "${apt[@]}" update >&2 || fail "cannot read the lists of $release ($architecture) from $mirror"
}

# debian_unpack PACKAGE.deb... FOLDER: unpacks the packages in FOLDER.
debian_unpack() {
    local package to=${*: -1}
    # In packages of older releases /bin and /lib are folders, which must not replace the links.
    for package in "${@:1:$#-1}"; do
        dpkg-deb --fsys-tarfile "$package" | tar -x --keep-directory-symlink --no-same-owner -C "$to"
    done
}

# debian_source RELEASE PACKAGE[=VERSION] FOLDER: unpacks the source in FOLDER.
debian_source() {
    debian_lists "$1" "$(dpkg --print-architecture)" "$3/state" deb-src
    (cd "$3" && apt-get "${apt[@]}" source "$2") >&2 || fail "cannot fetch the source of $2 from $mirror"
    rm -rf "$3/state"
}
