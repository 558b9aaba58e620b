//! `kinlock-lab torture ids` as a user runs it.

mod support;

use support::{json, refused};

#[test]
fn bad_input_is_named_in_one_line() {
    refused("torture ids --ids fine", "busted-restart");
    refused("torture ids --seconds -1", "--seconds");
    refused("torture ids --scenarios x", "fork");
    if kinlock_ids::Backend::Restartable.available().is_err() {
        refused("torture ids --backend rseq", "restartable sequences");
    }
}

#[test]
fn what_works_passes() {
    let sound = "torture ids --backend lease --seconds 1 --threads 4";
    assert_eq!(json(sound)["passed"], true);
}
