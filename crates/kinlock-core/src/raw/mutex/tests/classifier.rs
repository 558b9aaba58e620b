//! What samples tell where every thread has a CPU.

use super::*;

#[test]
fn samples_tell_how_a_lock_is_best_taken() {
    let judged = |before, samples: &[(u64, u64, bool)]| {
        let mut wait = Wait {
            prediction: before,
            ..at_front()
        };
        for &(unlocks, nanos, free) in samples {
            wait.classify(unlocks, nanos, free);
        }
        wait.prediction
    };
    let nothing = Prediction::default();
    let confirmed = {
        let mut prediction = nothing;
        prediction.confirm();
        prediction
    };
    for (samples, prediction) in [
        (&[(3, 250, true)][..], Prediction::FAST),
        (&[(7, 500, true)], Prediction::FAST),
        (&[(2, 250, true)], confirmed),
        (&[(5, 500, true)], confirmed),
        // Held: a slower cycle counts as fast, or else barging does not pay.
        (&[(4, 500, false)], Prediction::FAST),
        (&[(2, 250, false)], nothing),
        // Nothing has happened, or the count is full.
        (&[(0, 250, true)], nothing),
        (&[(7, 900, true)], nothing),
        (&[(1, 500, true)], nothing),
        // Free at one sample of three.
        (
            &[(1, 250, false), (0, 400, false), (2, 500, true)],
            confirmed,
        ),
        // Later samples only tell whether the lock is fast.
        (
            &[
                (1, 250, false),
                (1, 400, false),
                (0, 400, false),
                (2, 500, true),
            ],
            nothing,
        ),
        (&[(1, 500, true), (2, 500, true)], nothing),
        (&[(1, 250, false), (4, 500, true)], Prediction::FAST),
    ] {
        assert_eq!(judged(nothing, samples), prediction, "{samples:?}");
        assert_eq!(
            judged(Prediction::FAST, samples),
            prediction,
            "{samples:?}, and it was fast"
        );
    }
    let mut doubted = confirmed;
    doubted.doubt();
    let held = [(2, 250, false); 3];
    assert_eq!(judged(confirmed, &held[..2]), confirmed);
    assert_eq!(judged(confirmed, &held), doubted);
    assert_eq!(
        judged(confirmed, &[(2, 250, false); 6]),
        doubted,
        "once in a wait"
    );
    // The same critical section: that tells something once it is a long one.
    assert_eq!(judged(confirmed, &[(0, 250, false); 9]), confirmed);
    assert_eq!(judged(confirmed, &[(0, 400, false); 3]), doubted);
    // Fast, although barging was expected.
    let mut gone = confirmed;
    gone.doubt_more();
    assert_eq!(judged(confirmed, &[(7, 300, true)]), gone);
    assert_eq!(judged(gone, &[(7, 300, true)]), Prediction::FAST);
    let mut confident = confirmed;
    for _ in 0..6 {
        confident.confirm();
    }
    let mut less = confident;
    less.doubt_more();
    assert_eq!(
        judged(confident, &[(7, 300, true); 6]),
        less,
        "once in a wait"
    );
    // Nothing has happened: as before.
    let mut used_up = confirmed;
    used_up.budget = 0;
    assert!(
        used_up.expects_barging()
            && !nothing.expects_barging()
            && !Prediction::FAST.expects_barging()
    );
    assert_eq!(judged(used_up, &[(0, 250, true)]), confirmed);
    assert_eq!(judged(used_up, &[(7, 900, true)]), used_up);
    assert_eq!(judged(used_up, &[(1, 500, true)]), used_up);
}

#[test]
fn one_slow_sample_of_many_does_not_end_a_fast_prediction() {
    let mut wait = at_front();
    let (fast, slow) = (4, 1);
    for (unlocks, still) in [
        (fast, true),
        (slow, true),
        (fast, true),
        (slow, true),
        (slow, false),
        (slow, false),
    ] {
        wait.classify(unlocks, 300, true);
        assert_eq!(wait.prediction.fast, still);
    }
}
