# Sourced by scripts that run the command: sets `kinlock` to its path. KINLOCK=PATH names a command
# that is built already. Otherwise it is built as users build it, together with the library that it
# preloads and the programs of the laboratory, which it executes.
if [ -z "${KINLOCK:-}" ]; then
    cargo build --release --quiet --bins
    cargo build --release --quiet -p kinlock-preload
    for main in lab/*/src/main.rs; do
        [ -e "$main" ] || continue
        cargo build --release --quiet --bins --manifest-path "${main%src/*}Cargo.toml"
    done
    KINLOCK=${CARGO_TARGET_DIR:-target}/release/kinlock
fi
kinlock=$(realpath "$KINLOCK")
