//! `kinlock-lab explore` as people and programs see it.

mod support;

use support::{done, ends, json_with, refused};

#[test]
fn sound_ones_pass() {
    for (line, echo) in [
        (
            "--locks cna,fifo --schedules 300",
            "locks --locks cna,fifo --schedules 300 --seed 1",
        ),
        (
            "ids --policies per-cpu,task-owned --schedules 300 --threads 5",
            "ids --policies per-cpu,task-owned --schedules 300 --seed 1 --threads 5",
        ),
        (
            "invalidation --backends slots,locked --schedules 300 --threads 5",
            "invalidation --backends slots,locked --schedules 300 --seed 1 --threads 5",
        ),
    ] {
        let text = done(&format!("explore {line}"));
        let first = text.lines().next().unwrap();
        assert!(
            first.starts_with(&format!("kinlock-lab explore {echo}")),
            "{text}"
        );
        // The command is echoed at the beginning and at the end.
        let echoes = text.lines().filter(|&line| line == first);
        assert_eq!(echoes.count(), 2, "{text}");
        assert_eq!(text.lines().last(), Some("End of test: SUCCESS"), "{text}");
    }
}

#[test]
fn broken_ones_are_caught_and_can_be_replayed() {
    // It takes several schedules. Up to ten times as many as asked for are played.
    for (name, schedules, least) in [("busted-ticket", 1, 2), ("busted-wakeup", 10_000, 1)] {
        let line = format!("explore invalidation --backends {name} --schedules {schedules}");
        let report = json_with(&line, 1);
        assert_eq!(report["parameters"]["primitive"], "invalidation");
        let checks = report["checks"].as_array().expect("checks");
        let mut catches = checks.iter().filter(|check| check["property"] == "catch");
        let caught = catches.next().is_some_and(|check| check["passed"] == true);
        assert!(caught && catches.next().is_none(), "{report:#}");
        let found = &report["found"][name];
        assert!(found["schedules"].as_u64() >= Some(least), "{found}");
        let word = found["shrunk"].as_str().expect("a word");
        let again = ends(1, &format!("explore invalidation --replay {word}"));
        let property = found["property"].as_str().unwrap();
        assert!(again.contains(&format!("{property}: ")), "{again}");
    }
}

#[test]
fn a_broken_one_that_gets_away_is_no_success() {
    // It takes two threads with sections, and a third one that waits.
    let line = "explore invalidation --backends busted-erasure --threads 2 --schedules 6";
    let text = ends(3, line);
    assert!(text.contains("NOT CAUGHT"), "{text}");
}

#[test]
fn a_schedule_that_passes_can_be_replayed() {
    done("explore --replay cna:timed:*:5:*");
}

#[test]
fn bad_input_is_one_line_and_status_2() {
    for (flags, named) in [
        ("--locks no-such-lock", "cna-count"),
        ("--schedules 0", "--schedules"),
        ("--threads 1", "--threads"),
        ("--host-threads 0", "--host-threads"),
        ("--replay cna:timed", "DISRUPTIONS"),
        ("--replay cna:timed:*:1:* --seed 2", "--seed"),
        (
            "--json /no/such/directory/report.json",
            "/no/such/directory",
        ),
        ("mutexes", "mutexes"),
        ("ids --policies no-such-policy", "task-owned"),
        ("ids --replay cna:timed:*:1:*", "no such policy"),
        ("ids --replay per-cpu:timed:*:1:*", "mixed"),
        ("invalidation --backends packed", "slots"),
        (
            "invalidation --backends slots --replay slots:mixed:*:1:*",
            "--backends",
        ),
    ] {
        refused(&format!("explore {flags}"), named);
    }
}
