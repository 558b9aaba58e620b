//! `kinlock run --report`: reader-writer locks, and objects that are waited for and are not locks,
//! in a program whose waits can be counted on paper.

mod support;

use std::fs;

use serde_json::Value;
use support::{ALL, Place, has, list, named, number, says, says_wrapped, sum, text};

const SOURCE: &str = concat!(
    include_str!("../../preload/tests/c/common.h"),
    include_str!("programs/waits.c")
);

/// The report on a run: the text, and the process in JSON.
struct Said {
    text: String,
    process: Value,
}

impl Place {
    fn new() -> Self {
        Place::of("waits", "-O1 -g -pthread", SOURCE)
    }

    fn run(&self, flags: &[&str], mode: &[&str]) -> Said {
        let output = self.reported(flags, mode).output().unwrap();
        let is_killed = mode == ["waiting"];
        assert!(output.status.success() != is_killed, "{output:?}");
        let expected: &[u8] = if is_killed { b"" } else { b"done\n" };
        assert_eq!(output.stdout, expected, "{flags:?} {mode:?}");
        let report = self.json();
        let process = report["processes"][0].clone();
        assert_eq!(list(&report["processes"]).len(), 1, "{report:#}");
        // The program is correct.
        assert!(
            list(&process["misuses"]).is_empty(),
            "{flags:?} {mode:?}: {process:#}"
        );
        Said {
            text: String::from_utf8(output.stderr).unwrap(),
            process,
        }
    }
}

impl Said {
    /// One side of the lock `cache`.
    fn cache(&self, side: &str) -> &Value {
        let mut locks = list(&self.process["locks"]).iter();
        let found = locks.find(|lock| lock["name"] == "cache" && lock["side"] == side);
        found.unwrap_or_else(|| panic!("no {side} of cache: {:#}", self.process))
    }

    /// An object that is not a lock.
    fn waited(&self, name: &str) -> &Value {
        named(&self.process["waits"], name)
    }

    /// How long threads waited for objects of this kind, which is not a lock, in ms.
    fn other_ms(&self, kind: &str) -> u64 {
        let threads = list(&self.process["threads"]).iter();
        let all = threads.chain([&self.process["ended_threads"]]);
        all.map(|thread| number(&thread["other_waits"][format!("{kind}_ns")]))
            .sum::<u64>()
            / 1_000_000
    }
}

fn total_ms(of: &Value) -> u64 {
    number(&of["wait"]["total_ns"]) / 1_000_000
}

/// The function of the program that waited longest for a lock or object.
fn waiter(of: &Value) -> &str {
    let frames = list(&list(&of["callers"])[0]["frames"]);
    frames[0]["function"].as_str().unwrap()
}

#[test]
fn readers_and_writers_are_told_apart() {
    let place = Place::new();
    for lock in ALL {
        let said = place.run(&["--lock", lock], &["rwlock"]);
        let (reads, writes) = (said.cache("read"), said.cache("write"));
        // Three reads that waited, two by the main thread, and five that are one hold.
        has(reads, &[("locked", 10), ("contended", 3)], lock);
        has(reads, &[("threads", 2), ("changed_owner", 0)], lock);
        has(
            writes,
            &[("locked", 5), ("contended", 2), ("threads", 2)],
            lock,
        );
        has(writes, &[("tries", 1), ("failed_tries", 1)], lock);
        has(&reads["behind_writers"], &[("count", 3)], lock);
        has(&reads["behind_readers"], &[("count", 0)], lock);
        has(&writes["behind_readers"], &[("count", 2)], lock);
        has(&writes["behind_writers"], &[("count", 0)], lock);
        assert!(total_ms(reads) >= 90, "{lock}: {reads:#}");
        assert!(total_ms(writes) >= 60, "{lock}: {writes:#}");
        assert_eq!(
            [waiter(reads), waiter(writes)],
            ["looks_up", "updates"],
            "{lock}"
        );
        // One hold of 20 ms by five acquisitions, not five holds.
        assert_eq!(reads["hold"]["count"], 6, "{lock}: {reads:#}");
        assert!(list(&reads["holders"]).is_empty(), "{lock}");
        assert_eq!(reads["kind"], "rwlock", "{lock}");
        let expected = [
            "cache to read",
            "cache to write",
            "took 1 lock 15 times",
            "behind a writer (3 times)",
            "behind readers (2 times)",
        ];
        says_wrapped(&said.text, &expected);
    }
}

/// Most acquisitions are only counted. None of them is lost, and no lock seems held afterwards.
#[test]
fn what_is_free_each_time_is_counted() {
    let place = Place::new();
    for lock in ALL {
        let said = place.run(&["--lock", lock], &["often"]);
        let row = |name| named(&said.process["locks"], name);
        // Changes of the owner are counted except for readers.
        for (row, locked, changed) in [
            (said.cache("read"), 4500, 0),
            (said.cache("write"), 2000, 1),
            (row("other"), 2000, 0),
            (row("usual"), 2000, 1),
            (row("deep"), 2000, 1),
            (row("strict"), 2000, 1),
            (row("tried"), 2000, 1),
        ] {
            has(row, &[("locked", locked), ("contended", 0)], lock);
            has(row, &[("threads", 2), ("changed_owner", changed)], lock);
            assert!(list(&row["holders"]).is_empty(), "{lock}: {row:#}");
            // An estimate from those that are measured.
            let held = number(&row["hold"]["count"]);
            assert!((locked / 4..4 * locked).contains(&held), "{lock}: {row:#}");
        }
        has(row("deep"), &[("nested", 2000)], lock);
        let tried = [("tries", 2000), ("failed_tries", 0)];
        has(row("tried"), &tried, lock);
    }
}

#[test]
fn a_starved_writer_is_seen() {
    let place = Place::new();
    // The C library lets all of these readers overtake the writer.
    let said = place.run(&["--rwlock", "glibc"], &["starved", "40"]);
    let (reads, writes) = (said.cache("read"), said.cache("write"));
    has(reads, &[("locked", 41), ("contended", 0)], "glibc");
    has(writes, &[("locked", 1), ("contended", 1)], "glibc");
    has(&writes["behind_readers"], &[("count", 1)], "glibc");
    assert!(
        number(&writes["wait"]["max_ns"]) >= 80_000_000,
        "{writes:#}"
    );
    assert_eq!(waiter(writes), "updates");
    // With ours, each reader first waits for the writer.
    let said = place.run(&[], &["starved", "3"]);
    let (reads, writes) = (said.cache("read"), said.cache("write"));
    has(reads, &[("locked", 4), ("contended", 3)], "ours");
    has(&reads["behind_readers"], &[("count", 3)], "ours");
    has(&writes["behind_readers"], &[("count", 1)], "ours");
    // A writer that gives up has its row, though it never had the lock.
    for kind in ["ours", "glibc"] {
        let said = place.run(&["--rwlock", kind], &["gives-up"]);
        let writes = said.cache("write");
        has(writes, &[("locked", 0), ("contended", 1)], kind);
        has(writes, &[("timeouts", 1)], kind);
        assert!(total_ms(writes) >= 20, "{kind}: {writes:#}");
    }
}

#[test]
fn waits_for_work_are_no_waits_for_locks() {
    let place = Place::new();
    for lock in ALL {
        let said = place.run(&["--lock", lock], &["condvar"]);
        let jobs = said.waited("jobs");
        // Five for work, three with a limit, and one that was cancelled; a wait may end for no
        // reason.
        let waited = number(&jobs["waited"]);
        let cancelled = u64::from(lock != "pthread");
        assert!(waited >= 8 + cancelled, "{lock}: {jobs:#}");
        has(jobs, &[("timeouts", 3), ("calls", waited)], lock);
        assert_eq!(jobs["kind"], "condition variable", "{lock}");
        assert_eq!(jobs["is_ended"], true, "{lock}");
        assert_eq!(waiter(jobs), "idles", "{lock}");
        assert!(total_ms(jobs) >= 100, "{lock}: {jobs:#}");
        assert!(said.other_ms("condvar") >= 100, "{lock}");
        // Locks have a list of their own.
        let locks = list(&said.process["locks"]);
        let names: Vec<_> = locks.iter().map(|lock| &lock["name"]).collect();
        assert_eq!(names, ["jobs_lock"], "{lock}");
        let for_locks = sum(list(&said.process["threads"]), "wait_ns");
        assert!(for_locks <= number(&locks[0]["wait"]["total_ns"]), "{lock}");
        let at = |what: &str| {
            let found = said.text.find(what);
            found.unwrap_or_else(|| panic!("{lock}: no {what}: {}", said.text))
        };
        assert!(at("1 jobs_lock") < at("no lock, but waited for"), "{lock}");
        assert!(
            at("no lock, but waited for") < at("1 jobs (ended)"),
            "{lock}"
        );
        says_wrapped(&said.text, &["Threads also waited"]);
    }
}

#[test]
fn barriers_semaphores_and_joins_are_there() {
    let place = Place::new();
    for lock in ALL {
        let said = place.run(&["--lock", lock], &["barrier"]);
        let barrier = said.waited("round_end");
        // In each of ten rounds the last of three threads does not wait.
        has(
            barrier,
            &[("calls", 30), ("waited", 20), ("threads", 3)],
            lock,
        );
        assert_eq!(barrier["kind"], "barrier", "{lock}");
        assert_eq!(waiter(barrier), "rounds", "{lock}");

        let said = place.run(&["--lock", lock], &["semaphore"]);
        let tickets = said.waited("tickets");
        // Six calls found it free, four waited, one gave up, and one was cancelled.
        has(
            tickets,
            &[("calls", 12), ("waited", 6), ("timeouts", 1)],
            lock,
        );
        assert_eq!(waiter(tickets), "takes_a_ticket", "{lock}");
        assert!(total_ms(tickets) >= 40, "{lock}: {tickets:#}");
        assert!(said.other_ms("semaphore") >= 40, "{lock}");

        let said = place.run(&["--lock", lock], &["join"]);
        let joins = said.waited("pthread_join");
        has(
            joins,
            &[("calls", 4), ("waited", 4), ("address", 0), ("threads", 1)],
            lock,
        );
        assert_eq!(joins["kind"], "join", "{lock}");
        assert_eq!(waiter(joins), "waits_for_ends", "{lock}");
        says_wrapped(
            &said.text,
            &[": 1 thread took no pthread lock; not seen are "],
        );
        assert!(!said.text.contains("\n\n\n"), "{}", said.text);
    }
}

/// The text of the picture of who waits for whom.
fn picture(page: &str) -> &str {
    let begin = page.find("<b>Who waits for whom.</b>").expect(page);
    let end = page[begin..].find("</figure>").unwrap();
    &page[begin..begin + end]
}

#[test]
fn the_page_has_all_that_threads_wait_for() {
    let place = Place::new();
    let page = |flags: &[&str], mode: &[&str]| {
        let file = place.file("page.html");
        let all = [&["--html", file.to_str().unwrap()], flags].concat();
        place.run(&all, mode);
        fs::read_to_string(file).unwrap()
    };
    let text = page(&[], &["rwlock"]);
    says(
        &text,
        &[
            " cache to read</th>",
            " cache to write</th>",
            "behind a writer (3 times)",
            "behind readers (2 times)",
        ],
    );
    says(picture(&text), &["cache to read", "cache to write"]);
    // Writers that wait behind readers are shown as waiting for the functions that read.
    let text = page(&["--rwlock", "glibc"], &["starved", "40"]);
    says(picture(&text), &["updates (", "cache to write", "starve ("]);
    let text = page(&[], &["condvar"]);
    says(
        &text,
        &[
            "<h3>Other waits</h3>",
            "1 jobs (ended)</th><td class=\"n\">condvar</td>",
            "<h4>1 jobs (ended)</h4>",
            "idles (waits.c:",
            "<b>Waits.</b>",
            "class=\"g\">other waits</th>",
            ">condvars</th>",
            ">joins</th>",
        ],
    );
    // Without a lock.
    let text = page(&[], &["join"]);
    says(&text, &["took no pthread lock; not", "1 pthread_join</th>"]);
    // A wait that has not ended.
    let text = page(&[], &["waiting"]);
    says(&text, &["<h4>1 tickets</h4>", "waiting: ", "tickets</td>"]);
}

/// A hold ends with the release, by whichever thread, or with the end of the thread.
#[test]
fn what_another_thread_ends_is_held_by_none() {
    let place = Place::new();
    for lock in ALL {
        let said = place.run(&["--lock", lock], &["left"]);
        let left = named(&said.process["locks"], "left");
        for ended in [left, said.cache("read")] {
            assert_eq!(list(&ended["holders"]).len(), 0, "{lock}: {ended:#}");
        }
        has(left, &[("locked", 2)], lock);
        has(said.cache("read"), &[("locked", 1)], lock);
        assert_eq!(said.cache("read")["hold"]["count"], 1, "{lock}");
    }
}

/// Waits and holds that have not ended count until now: for the lock, for the thread and for a
/// limit.
#[test]
fn what_lasts_counts() {
    let place = Place::new();
    for lock in ALL {
        let said = place.run(&["--lock", lock], &["lasting"]);
        let usual = named(&said.process["locks"], "usual");
        let mut of_locks = 0;
        for waited in [usual, said.cache("read")] {
            has(waited, &[("contended", 1)], lock);
            assert_eq!(list(&waited["waiting"]).len(), 1, "{lock}: {waited:#}");
            let wait = &waited["wait"];
            assert!(number(&wait["max_ns"]) >= 50_000_000, "{lock}: {waited:#}");
            assert_eq!(wait["total_ns"], wait["max_ns"], "{lock}");
            let counts = list(&wait["histogram"])
                .iter()
                .map(|class| number(&class[2]));
            assert_eq!(counts.sum::<u64>(), 1, "{lock}: {waited:#}");
            of_locks += number(&wait["total_ns"]);
        }
        for held in [usual, said.cache("write")] {
            let hold = &held["hold"];
            assert!(number(&hold["max_ns"]) >= 50_000_000, "{lock}: {held:#}");
            assert_eq!(hold["total_ns"], hold["max_ns"], "{lock}");
            has(hold, &[("count", 1)], lock);
            has(held, &[("hold_samples", 1), ("locked", 1)], lock);
        }
        let threads = list(&said.process["threads"]);
        let sums = ["contended", "wait_ns"].map(|field| sum(threads, field));
        assert_eq!(sums, [2, of_locks], "{lock}");
        let limits = ["wait > 49 ms", "hold > 49 ms", "contended > 49 %"];
        let mut flags = vec!["--report=/dev/null", "--lock", lock];
        flags.extend(limits.iter().flat_map(|limit| ["--fail-if", limit]));
        let output = place.command(&flags, &["lasting"]).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{lock}: {output:?}");
        let told = text(&output.stderr);
        says(told, &["contended > 49 %': it is 50 %"]);
        assert_eq!(told.lines().count(), limits.len(), "{lock}: {told}");
    }
}

#[test]
fn threads_have_a_column_for_each_kind_of_wait() {
    let place = Place::new();
    let said = place.run(&["--by", "thread"], &["semaphore"]);
    let columns = ["other waits", "semaphores", "joins", "waits for"];
    says(&said.text, &columns);
    assert!(!said.text.contains("barriers"), "{}", said.text);
    // The object that a thread waits for when the process is killed.
    let said = place.run(&[], &["waiting"]);
    let tickets = said.waited("tickets");
    has(tickets, &[("waited", 0)], "waiting");
    assert_eq!(list(&tickets["waiting"]).len(), 1);
    let threads = list(&said.process["threads"]).iter();
    let waiting: Vec<_> = threads.filter(|thread| thread["waits_for"] != 0).collect();
    assert_eq!(waiting.len(), 1, "{:#}", said.process);
    assert!(number(&waiting[0]["waits_for_ns"]) > 0, "{waiting:#?}");
}
