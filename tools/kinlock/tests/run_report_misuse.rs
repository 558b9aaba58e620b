//! `kinlock run --report` on programs that misuse a lock, or take locks in orders that could
//! deadlock, and on correct ones, which must raise no alarm.

mod support;

use std::process::Command;

use serde_json::Value;
use support::{Place, list, says, says_wrapped, with_library};

const SOURCE: &str = concat!(
    include_str!("../../preload/tests/c/common.h"),
    include_str!("programs/misused.c")
);

/// The report on a run: the text, and each process in JSON.
struct Said {
    text: String,
    processes: Vec<Value>,
}

impl Place {
    fn new() -> Self {
        Place::of("misused", "-O1 -g -w -pthread", SOURCE)
    }

    fn run(&self, lock: &str, flags: &[&str], mode: &str) -> Said {
        // With a timeout: a program that deadlocks would make the test hang.
        let reported = self.reported(&[&["--lock", lock], flags].concat(), &[mode]);
        let mut command = with_library(Command::new("timeout"));
        command.arg("300").arg(reported.get_program());
        let output = command.args(reported.get_args()).output().unwrap();
        assert!(output.status.success(), "{lock}, {mode}: {output:?}");
        assert_eq!(output.stdout, b"done\n", "{lock}, {mode}");
        let report = self.json();
        Said {
            text: String::from_utf8(output.stderr).unwrap(),
            processes: list(&report["processes"]).to_vec(),
        }
    }
}

impl Said {
    /// Each misuse with its lock and the function of the program that made it.
    fn misuses(&self) -> Vec<String> {
        let all = self.processes.iter().flat_map(|p| list(&p["misuses"]));
        all.map(|misuse| {
            let what = misuse["what"].as_str().unwrap();
            let lock = misuse["lock"].as_str().unwrap();
            format!("{what} of {lock} by {}", function(&misuse["frames"]))
        })
        .collect()
    }

    fn cycles(&self) -> Vec<&Value> {
        let all = self.processes.iter().filter(|p| !p["order"].is_null());
        all.flat_map(|p| list(&p["order"]["cycles"])).collect()
    }
}

fn function(frames: &Value) -> &str {
    list(frames)
        .first()
        .map_or("", |frame| frame["function"].as_str().unwrap())
}

const ALL: &[&str] = &support::ALL;
/// The locks that show whether they are held: of the C library's spinlocks and reader-writer locks
/// that is not known.
const OURS: &[&str] = &["kinlock-mutex"];

/// A test on our mutex, and the same on the other locks, which takes some minutes.
macro_rules! on_locks {
    ($($test:ident, $on_others:ident: $body:ident;)*) => {$(
        #[test]
        fn $test() {
            $body(OURS);
        }

        #[test]
        #[ignore = "deep: the same on other locks"]
        fn $on_others() {
            $body(&ALL[1..]);
        }
    )*};
}

on_locks! {
    each_misuse_is_told_with_its_lock_and_its_callers, deep_misuses: misuses;
    circles_that_never_deadlocked_are_told_with_both_stacks, deep_circles: circles;
    correct_programs_raise_no_alarm, deep_correct_programs: correct_programs;
}

fn misuses(chosen: &[&str]) {
    let place = Place::new();
    for (mode, locks, expected) in [
        ("foreign", ALL, "foreign of a by releases_a"),
        ("twice", ALL, "not-held of a by releases_a"),
        ("destroyed", ALL, "destroyed-held of a by destroys_a"),
        ("awaited", ALL, "destroyed-awaited of a by destroys_a"),
        (
            "awaited condvar",
            ALL,
            "destroyed-awaited of condvar by destroys_condvar",
        ),
        ("again", ALL, "relocked of a by takes_a_again"),
        (
            "careful foreign",
            ALL,
            "foreign of careful by releases_careful",
        ),
        (
            "careful twice",
            ALL,
            "not-held of careful by releases_careful",
        ),
        (
            "careful again",
            ALL,
            "relocked of careful by takes_careful_again",
        ),
        (
            "robust foreign",
            ALL,
            "foreign of robust by releases_robust",
        ),
        ("robust twice", ALL, "not-held of robust by releases_robust"),
        (
            "inheriting foreign",
            ALL,
            "foreign of robust by releases_robust",
        ),
        ("rw let go", OURS, "foreign of rw by releases_rw"),
        ("spin twice", OURS, "not-held of spin by releases_spin"),
        ("rw twice", OURS, "not-held of rw by releases_rw"),
        ("rw foreign", OURS, "foreign of rw by releases_rw"),
        ("rw destroyed", OURS, "destroyed-held of rw by destroys_rw"),
        ("rw upgraded", ALL, "relocked of rw by writes_what_it_reads"),
        ("read again", ALL, "read-again of polite by reads_again"),
    ] {
        for lock in locks.iter().filter(|lock| chosen.contains(lock)) {
            let both: &[&[&str]] = &[&[], &["--order"]];
            let some = if *lock == OURS[0] { both } else { &both[..1] };
            for &flags in some {
                let said = place.run(lock, flags, mode);
                let about = format!("{lock}, {mode}, {flags:?}: {}", said.text);
                assert_eq!(said.misuses(), [expected], "{about}");
                let counts = said.processes.iter().flat_map(|p| list(&p["misuses"]));
                let counts: Vec<_> = counts.map(|misuse| &misuse["count"]).collect();
                assert_eq!(counts, [1], "{about}");
                assert!(said.cycles().is_empty(), "{about}");
                let (misuse, function) = expected.split_once(" by ").unwrap();
                let (_, name) = misuse.split_once(" of ").unwrap();
                says(&said.text, &[&format!("misuse of {name} ("), function]);
            }
        }
    }
}

#[test]
fn what_finds_no_place_is_counted_and_told() {
    let place = Place::new();
    let said = place.run(OURS[0], &[], "many");
    let process = &said.processes[0];
    let kept = list(&process["misuses"]).len();
    assert_eq!(process["dropped"]["misuses"], 600 - kept, "{}", said.text);
    let line = format!("the table is full: {} misuses were dropped", 600 - kept);
    says(&said.text, &[&line]);

    let said = place.run(OURS[0], &["--order"], "many at once");
    let order = &said.processes[0]["order"];
    assert_eq!(order["untracked"], 4, "{}", said.text);
    says(&said.text, &["lock order: 4 acquisitions were left out"]);
}

#[test]
fn who_holds_a_misused_lock_and_since_where_is_told() {
    let place = Place::new();
    for lock in ALL {
        let said = place.run(lock, &[], "foreign");
        let misuse = &list(&said.processes[0]["misuses"])[0];
        assert_eq!(function(&misuse["taken"]), "takes_a", "{lock}: {misuse:#}");
        assert_eq!(misuse["holder"], said.processes[0]["pid"], "{lock}");
        assert_ne!(misuse["thread"], misuse["holder"], "{lock}");
    }
}

/// The functions of each step of the only circle: the one that took the lock, and the one that
/// asked for the next. They are sorted, since a circle has no beginning.
fn steps(said: &Said) -> Vec<[String; 4]> {
    let cycles = said.cycles();
    let [cycle] = cycles[..] else {
        panic!("not one circle: {}", said.text);
    };
    let mut steps: Vec<_> = list(&cycle["steps"])
        .iter()
        .map(|step| {
            let [held, wanted] =
                [&step["held"], &step["wanted"]].map(|name| name.as_str().unwrap());
            [
                held,
                function(&step["taken"]),
                wanted,
                function(&step["asked"]),
            ]
            .map(str::to_owned)
        })
        .collect();
    steps.sort_unstable();
    steps
}

fn circles(chosen: &[&str]) {
    let place = Place::new();
    let a_b = ["a", "a_then_b", "b", "asks_for_b"];
    let b_a = ["b", "b_then_a", "a", "asks_for_a"];
    let of_three = [
        a_b,
        ["b", "b_then_c", "c", "b_then_c"],
        ["c", "c_then_a", "a", "c_then_a"],
    ];
    let circles: [(&str, &[[&str; 4]]); 7] = [
        ("circle", &[a_b, b_a]),
        // When an order of a hot lock is first seen, its callers are not known. The next time they
        // are.
        ("circle of a hot lock", &[a_b, b_a]),
        ("circle of three", &of_three),
        ("circle of three, two of them by two", &of_three),
        ("circle of a crowd", &[a_b, b_a]),
        (
            "circle of a rwlock",
            &[
                ["a", "a_then_reads", "rw", "a_then_reads"],
                ["rw", "writes_then_a", "a", "writes_then_a"],
            ],
        ),
        (
            "circle of a wait",
            &[
                ["a", "waits_with_b", "b", "waits_with_b"],
                ["b", "waits_with_b", "a", "waits_with_b"],
            ],
        ),
    ];
    for lock in chosen {
        for (mode, expected) in circles {
            let said = place.run(lock, &["--order"], mode);
            assert_eq!(steps(&said), expected, "{lock}, {mode}: {}", said.text);
            assert!(said.misuses().is_empty(), "{lock}, {mode}: {}", said.text);
            says_wrapped(&said.text, &["a deadlock could happen between"]);
            for [_, taken, _, asked] in expected {
                says(&said.text, &[taken, asked]);
            }
        }
        // The order of locks was not asked for.
        assert!(place.run(lock, &[], "circle").cycles().is_empty());
    }
}

#[test]
fn circles_are_told_by_the_status() {
    let place = Place::new();
    for (mode, expected) in [("circle", 1), ("gate", 0)] {
        let flags = ["--report=/dev/null", "--order", "--fail-if", "circles > 0"];
        let output = place.command(&flags, &[mode]).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(expected), "{mode}: {told}");
        let line = "kinlock: --fail-if 'circles > 0': it is 1\n";
        assert_eq!(told, line.repeat(expected as usize), "{mode}");
    }
}

fn correct_programs(chosen: &[&str]) {
    let place = Place::new();
    for lock in chosen {
        for mode in [
            "tries",
            "for a while",
            "gate",
            "gate of two",
            "gate of a crowd",
            "one thread",
            "two threads, three locks",
            "readers",
            "reads around",
            "addresses",
            "hand over hand",
            "reused",
            "constructed",
            "same order",
            "kinds",
            "told",
            "forks",
            "forks with owners",
            "clones with owners",
            "forks and destroys",
        ] {
            // The C library's mutexes have no room for the mark that tells two mutexes at one
            // address apart.
            if *lock == "pthread" && mode == "constructed" {
                continue;
            }
            let said = place.run(lock, &["--order"], mode);
            let mut dropped = said.processes.iter().map(|p| &p["dropped"]["locks"]);
            assert!(
                dropped.all(|dropped| *dropped == 0),
                "{lock}, {mode}: {}",
                said.text
            );
            let is_silent = said.misuses().is_empty() && said.cycles().is_empty();
            assert!(is_silent, "{lock}, {mode}: {}", said.text);
            assert!(
                said.processes.iter().any(|p| !p["order"].is_null()),
                "{lock}, {mode}"
            );
        }
        let said = place.run(lock, &["--order"], "same order");
        says(&said.text, &["lock order: 1 pair of locks, and no circle"]);
    }
}
