# Sourced by scripts that need packages of Debian's other releases. Apt works with a list of sources
# and folders of its own there, beside what this machine installs from. The script has a function
# `fail`.

# Of what this machine installs packages from, the first that is Debian's.
own_mirror() { apt-get indextargets --format '$(REPO_URI) $(ORIGIN)' | sed -n '/security/! s/ Debian$//p' | head -1; }

# debian_mirror: sets `mirror`.
debian_mirror() {
    mirror=${KINLOCK_MIRROR:-$(own_mirror)}
    [ -n "$mirror" ] || fail "this machine has no packages of Debian's: say where they are by KINLOCK_MIRROR"
}

# debian_lists RELEASE ARCHITECTURE FOLDER [deb-src]: reads the lists into FOLDER, which becomes
# apt's, and sets the array `apt` to the options that make apt-get and apt-cache use it.
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

# debian_unpack PACKAGE.deb... FOLDER
debian_unpack() {
    local package to=${*: -1}
    # Older releases have /bin and /lib as folders of their own.
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
