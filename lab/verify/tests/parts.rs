//! Tests of those parts of the checks that need no lock. They are here and not in the library,
//! because the library would be compiled a second time for them, which takes longer than for any
//! other crate.

mod report {
    use kinlock_verify::report::PerThread;

    #[test]
    fn merging_is_like_taking_all_threads_together() {
        let merged = PerThread::of(&[1, 2])
            .merge(PerThread::of(&[]))
            .merge(PerThread::of(&[9]));
        assert_eq!(merged, PerThread::of(&[1, 2, 9]));
    }
}

mod oracle {
    use kinlock_verify::oracle::SharedState;

    #[test]
    fn one_thread_at_a_time_is_fine() {
        let state = SharedState::new();
        for me in 1..=100 {
            state.section(me, || ());
        }
        assert_eq!(state.verdict(100), Ok("100 sections".into()));
    }

    #[test]
    fn a_second_thread_inside_is_seen() {
        let state = SharedState::new();
        let mut once = true;
        state.section(1, || {
            if std::mem::take(&mut once) {
                state.section(2, || ());
            }
        });
        assert_eq!(
            state.verdict(2),
            Err("2 violations; the first: thread 2 entered while thread 1 was inside".into())
        );
    }

    #[test]
    fn a_lost_update_is_seen() {
        let state = SharedState::new();
        state.section(1, || ());
        assert!(state.verdict(2).is_err_and(|e| e.contains("counts 1 of 2")));
    }
}

mod shrink {
    use kinlock_verify::explore::shrink::shrink;

    #[test]
    fn finds_the_items_that_matter() {
        let left = shrink((0..1000).collect(), |items| {
            items.contains(&17) && items.contains(&880)
        });
        assert_eq!(left, [17, 880]);
    }

    #[test]
    fn finds_that_nothing_matters() {
        assert!(shrink((0..10).collect::<Vec<i32>>(), |_| true).is_empty());
    }

    #[test]
    fn keeps_what_it_cannot_do_without() {
        let left = shrink((0..5).collect(), |items| items.len() == 5);
        assert_eq!(left, [0, 1, 2, 3, 4]);
    }
}

mod replay {
    use kinlock_verify::explore::Replay;
    use kinlock_verify::explore::{ids, invalidation, locks};
    use std::fmt::Display;
    use std::str::FromStr;

    fn again<R: FromStr<Err = String> + Display>(text: &str) -> String {
        text.parse::<R>().map_or_else(|e| e, |r| r.to_string())
    }

    #[test]
    fn what_is_written_can_be_read() {
        for text in [
            "cna:plain:*:7:*",
            "cna:timed:8:0:-",
            "fifo:order:2:1:0.17,3.88",
        ] {
            assert_eq!(again::<Replay<locks::Specimen>>(text), text);
        }
        let text = "task-owned:mixed:*:7:1.5";
        assert_eq!(again::<Replay<ids::Specimen>>(text), text);
        let text = "slots:mixed:4:7:-";
        assert_eq!(again::<Replay<invalidation::Specimen>>(text), text);
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            "cna",
            "nix:plain:*:7:*",
            "cna:nix:*:7:*",
            "condvar:order:*:7:*",
            "cna:plain:0:7:*",
            "cna:plain:*:x:*",
            "cna:plain:*:7:1",
            "cna:plain:*:7:1.x",
        ] {
            assert!(text.parse::<Replay<locks::Specimen>>().is_err(), "{text}");
        }
    }
}
