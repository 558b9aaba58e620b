# Sourced by scripts that run the command: sets `kinlock` to its path. KINLOCK=PATH takes one that
# is built already; otherwise it is built, with all other programs of the workspace, since it may
# execute those that lie beside it.
if [ -z "${KINLOCK:-}" ]; then
    cargo build --release --quiet --workspace --bins
    KINLOCK=${CARGO_TARGET_DIR:-target}/release/kinlock
fi
kinlock=$(realpath "$KINLOCK")
