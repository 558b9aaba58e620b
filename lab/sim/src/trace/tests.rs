//! Chains through timelines that are written down here.

use super::path::{Piece, Request, Timeline, Wake, What, chain};
use super::{Cause, LineName, Part, Reach};

const WORD: LineName = LineName {
    part: Part::Word,
    number: 0,
};

fn request(reach: Option<Reach>, sent: u64, arrived: u64, served: u64, answered: u64) -> Request {
    Request {
        line: WORD,
        reach,
        sent,
        arrived,
        served,
        answered,
    }
}

/// Timelines of two threads with these spans: thread, from, to, what.
fn timelines(spans: &[(usize, u64, u64, What)]) -> [Timeline; 2] {
    let mut timelines = [Timeline::default(), Timeline::default()];
    for &(thread, from, to, what) in spans {
        timelines[thread].push(from, to, what, 0);
    }
    timelines
}

fn shown(pieces: Vec<Piece>) -> Vec<(usize, Cause, u64, u64)> {
    let shown = |piece: Piece| (piece.thread, piece.cause, piece.from, piece.to);
    pieces.into_iter().map(shown).collect()
}

const FAR: Cause = Cause::Line(Part::Word, Reach::OtherSocket);
const NEAR: Cause = Cause::Line(Part::Word, Reach::SameCache);
const QUEUE: Cause = Cause::Queue(Part::Word);

#[test]
fn a_hand_off_goes_back_to_the_release_on_another_thread() {
    let store = request(Some(Reach::OtherSocket), 100, 150, 150, 200);
    let wake = Wake {
        thread: 0,
        visible: 200,
        request: store,
    };
    let load = request(Some(Reach::SameCache), 205, 215, 230, 240);
    let timelines = timelines(&[
        (1, 20, 205, What::Spins(Some(wake))),
        (1, 205, 240, What::Requests(load)),
        (1, 240, 250, What::Leaves),
    ]);
    let expected = [
        (0, Cause::Own, 90, 100),
        // The request did not queue, so it is one piece.
        (0, FAR, 100, 200),
        (1, Cause::Spin, 200, 205),
        (1, NEAR, 205, 215),
        (1, QUEUE, 215, 230),
        (1, NEAR, 230, 240),
        (1, Cause::Spin, 240, 250),
        (1, Cause::Own, 250, 260),
    ];
    assert_eq!(shown(chain(&timelines, 1, 90, 260)), expected);
    // The part before the release is cut off.
    let late = shown(chain(&timelines, 1, 220, 245));
    let expected = [
        (1, QUEUE, 220, 230),
        (1, NEAR, 230, 240),
        (1, Cause::Spin, 240, 245),
    ];
    assert_eq!(late, expected);
    assert!(chain(&timelines, 1, 50, 50).is_empty());
}

#[test]
fn a_spinner_that_came_late_did_not_wait_for_the_write() {
    let wake = Wake {
        thread: 0,
        visible: 40,
        request: request(None, 39, 39, 39, 40),
    };
    let timelines = timelines(&[(1, 50, 60, What::Spins(Some(wake)))]);
    let got = shown(chain(&timelines, 1, 30, 60));
    assert_eq!(got, [(1, Cause::Own, 30, 50), (1, Cause::Spin, 50, 60)]);
}

#[test]
fn a_sleeper_goes_back_to_its_waker() {
    let timelines = timelines(&[
        (0, 100, 130, What::Leaves),
        (1, 10, 500, What::IsOff(Some((0, 140)))),
    ]);
    let got = shown(chain(&timelines, 1, 110, 510));
    let expected = [
        (0, Cause::Spin, 110, 130),
        (0, Cause::Own, 130, 140),
        (1, Cause::Sleep, 140, 500),
        (1, Cause::Own, 500, 510),
    ];
    assert_eq!(got, expected);
}
