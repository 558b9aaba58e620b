//! `kinlock run --report`: its report on a program whose locks can be counted on paper.

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Output, Stdio};
use std::time::Instant;

use serde_json::Value;
use support::{
    ALL, Place, Running, has, kinlock, list, number, refused, says, says_wrapped, send, sum, text,
};

const SOURCE: &str = concat!(
    include_str!("../../preload/tests/c/common.h"),
    include_str!("programs/watched.c")
);

impl Place {
    fn new() -> Self {
        Place::of("watched", "-O1 -g -pthread", SOURCE)
    }

    fn run(&self, flags: &[&str], mode: &str) -> Output {
        self.reported(flags, &[mode]).output().unwrap()
    }
}

/// The locks of the process that waited longest.
fn locks(report: &Value) -> &[Value] {
    list(&report["processes"][0]["locks"])
}

fn lock<'a>(report: &'a Value, name: &str) -> &'a Value {
    let mut found = locks(report)
        .iter()
        .filter(|l| l["name"] == name && l["is_ended"] == false);
    found
        .next()
        .unwrap_or_else(|| panic!("no lock {name}: {report:#}"))
}

fn line_of(mark: &str) -> u64 {
    let mark = format!("MARK {mark} ");
    let at = SOURCE.lines().position(|line| line.contains(&mark));
    at.unwrap() as u64 + 1
}

/// The page contains what the other forms contain, and shows names unchanged.
#[test]
fn the_page_has_the_rows_of_the_report() {
    let place = Place::new();
    let page = place.file("page.html");
    let flags = ["--html", page.to_str().unwrap()];
    let mut command = place.reported(&flags, &["", "<script>alert(1)</script>"]);
    assert_eq!(command.output().unwrap().status.code(), Some(7));
    let page = fs::read_to_string(page).unwrap();
    assert!(!page.contains("<script"), "{page}");
    let report = place.json();
    for lock in locks(&report).iter().take(10) {
        says(&page, &[&format!(" {}", lock["name"].as_str().unwrap())]);
    }
    let expected = [
        "&lt;script&gt;alert(1)",
        "<h1>Locks of watched</h1>",
        "Who waits for whom",
        "Waits and holds",
        "scope=\"colgroup\" colspan=\"4\" class=\"g\">wait</th>",
        "worker_takes",
    ];
    says(&page, &expected);
    // A histogram has all waits of its lock.
    let waits = &lock(&report, "busy")["wait"]["histogram"];
    let counts = list(waits).iter().map(|class| number(&class[2]));
    assert_eq!(counts.sum::<u64>(), 5);
    for class in list(waits) {
        assert!(class[0].as_u64() < class[1].as_u64());
    }
}

#[test]
fn limits_are_told_by_the_status() {
    let place = Place::new();
    let watched = place.file("watched").display().to_string();
    // The program is run by a shell that ends with this status.
    let run = |limits: &[&str], status: i32| {
        let mut command = kinlock();
        command.args(["run", "--report=/dev/null"]);
        for limit in limits {
            command.args(["--fail-if", limit]);
        }
        let line = format!("{watched} >/dev/null; exit {status}");
        let output = command.args(["--", "sh", "-c", &line]).output().unwrap();
        let lines = text(&output.stderr).lines().map(str::to_owned);
        (output.status.code(), lines.collect::<Vec<_>>())
    };
    let kept = [
        "contended > 100 %",
        "wait > 100 %",
        "wait > 1000 s",
        "hold > 1000 s",
    ];
    assert_eq!(run(&kept, 0), (Some(0), Vec::new()));
    let exceeded = ["contended > 0 %", "wait > 0%", "wait > 1 us", "hold > 1 us"];
    let (status, lines) = run(&exceeded, 0);
    assert_eq!(status, Some(1), "{lines:?}");
    assert_eq!(lines.len(), exceeded.len(), "{lines:?}");
    for (limit, line) in exceeded.iter().zip(&lines) {
        let begin = format!("kinlock: --fail-if '{limit}': it is ");
        assert!(line.starts_with(&begin), "{line}");
    }
    // The program's own status has priority.
    let (status, lines) = run(&exceeded[..1], 7);
    assert_eq!((status, lines.len()), (Some(7), 1), "{lines:?}");
}

#[test]
fn numbers_are_those_on_paper() {
    let place = Place::new();
    for name in ALL {
        let start = Instant::now();
        let output = place.run(&["--lock", name], "");
        let all = start.elapsed().as_millis() as u64;
        assert_eq!(
            (output.status.code(), text(&output.stdout)),
            (Some(7), "done\n")
        );
        let report = place.json();
        assert_eq!(report["processes"][0]["lock"], name);
        let busy = [("locked", 10), ("contended", 5), ("changed_owner", 9)];
        has(lock(&report, "busy"), &busy, name);
        has(lock(&report, "busy"), &[("threads", 2)], name);
        let in_turn = [("locked", 600), ("contended", 0), ("changed_owner", 599)];
        has(lock(&report, "in_turn"), &in_turn, name);
        has(lock(&report, "in_turn"), &[("threads", 2)], name);
        let quiet = [("locked", 1001), ("contended", 0), ("changed_owner", 0)];
        has(lock(&report, "quiet"), &quiet, name);
        let tries = [("tries", 1), ("failed_tries", 1)];
        has(lock(&report, "quiet"), &tries, name);
        has(
            lock(&report, "nested"),
            &[("locked", 1), ("nested", 2)],
            name,
        );
        let late = [("locked", 1), ("contended", 1), ("timeouts", 1)];
        has(lock(&report, "late"), &late, name);
        has(lock(&report, "again"), &[("locked", 7)], name);
        has(lock(&report, "spin"), &[("locked", 4)], name);
        for (lock_name, kind) in [("busy", "mutex"), ("nested", "recursive"), ("spin", "spin")] {
            assert_eq!(
                lock(&report, lock_name)["kind"],
                kind,
                "{name}: {lock_name}"
            );
        }
        // 2,000 holds of 20 us, few of which are measured. A measured hold that lost its CPU may
        // stand for many.
        let hold = |field: &str| number(&lock(&report, "steady")["hold"][field]);
        let (all_ns, count, max_ns) = (hold("total_ns"), hold("count"), hold("max_ns"));
        let told = format!("{name}: {all_ns} ns, {count} times, at most {max_ns} ns");
        assert!(count < 50_000, "{told}");
        assert!((20_000_000..=count * max_ns).contains(&all_ns), "{told}");
        assert!(
            locks(&report)
                .iter()
                .all(|l| list(&l["waiting"]).is_empty()),
            "{name}"
        );
        let mut ended = locks(&report).iter().filter(|l| l["is_ended"] == true);
        let one = ended.next().expect("one has ended");
        assert_eq!((&one["name"], &one["locked"]), (&"again".into(), &5.into()));
        assert!(ended.next().is_none());
        let busy = lock(&report, "busy");
        let time = |of: &str, what: &str| number(&busy[of][what]) / 1_000_000;
        // One thread waits, and one holds at a time.
        for (of, what, least) in [
            ("wait", "total_ns", 150),
            ("wait", "max_ns", 40),
            ("hold", "total_ns", 200),
            ("hold", "max_ns", 40),
        ] {
            let possible = least..=all;
            assert!(
                possible.contains(&time(of, what)),
                "{name}: {of} {what} {busy:#}"
            );
        }
        assert!(time("wait", "p99_ns") >= 20, "{name}: {busy:#}");
    }
}

/// The mutex is not held while a thread waits with it for a condition. The holds and the wait
/// follow each other, so together they are not longer than the run, however busy the machine is.
#[test]
fn a_wait_for_a_condition_is_no_hold() {
    let place = Place::new();
    for name in ALL {
        assert!(place.run(&["--lock", name], "condvar").status.success());
        let report = place.json();
        let (process, held) = (&report["processes"][0], lock(&report, "waited_with"));
        assert_eq!(held["locked"], 2, "{name}: {held:#}");
        let seconds = |times: &Value| times["total_ns"].as_f64().unwrap() / 1e9;
        let waited = seconds(&process["waits"][0]["wait"]);
        let all = process["seconds"].as_f64().unwrap();
        assert!(
            seconds(&held["hold"]) + waited <= all,
            "{name}: {process:#}"
        );
    }
}

#[test]
fn callers_have_names_and_lines() {
    let place = Place::new();
    let folded = place.file("folded");
    let output = place.run(&["--folded", folded.to_str().unwrap()], "");
    let report = place.json();
    let callers = list(&lock(&report, "busy")["callers"]);
    let worker = callers
        .iter()
        .find(|caller| caller["contended"] == 5)
        .unwrap();
    let frames = list(&worker["frames"]);
    let inlined = (
        &frames[0]["function"],
        &frames[0]["line"],
        &frames[0]["inlined"],
    );
    assert_eq!(
        inlined,
        (
            &"inlined_take".into(),
            &line_of("inlined").into(),
            &true.into()
        )
    );
    let outer = (&frames[1]["function"], &frames[1]["line"]);
    assert_eq!(outer, (&"worker_takes".into(), &line_of("worker").into()));
    assert_eq!(frames[2]["function"], "work");
    assert!(frames[0]["file"].as_str().unwrap().ends_with("watched.c"));
    // The folded stacks say the same, and their sum is the time of all waits.
    let folded = fs::read_to_string(folded).unwrap();
    let line = folded
        .lines()
        .find(|l| l.contains(";work;worker_takes;inlined_take;[busy] "));
    assert!(
        line.is_some_and(|line| line.starts_with("watched;")),
        "{folded}"
    );
    let nanos = folded
        .lines()
        .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap());
    let waits = locks(&report)
        .iter()
        .map(|lock| number(&lock["wait"]["total_ns"]));
    assert_eq!(nanos.sum::<u64>(), waits.sum::<u64>());
    let expected = [
        "busy",
        "1,001",
        "inlined_take (watched.c:",
        "worker_takes",
        "waits 100 %",
    ];
    says(text(&output.stderr), &expected);
}

#[test]
fn other_views_and_limits() {
    let place = Place::new();
    let by = |flags: &[&str]| text(&place.run(flags, "").stderr).to_owned();
    let callers = by(&["--by", "caller", "--max", "1"]);
    says(&callers, &["more callers; --max"]);
    let threads = by(&["--by", "thread"]);
    says(&threads, &["waits for", " watched "]);
    let some = by(&["--min-contended", "5"]);
    assert!(some.contains("busy") && !some.contains("quiet"), "{some}");
    // Without rows there is no heading, and no explanation.
    for view in ["lock", "caller"] {
        let none = by(&["--by", view, "--min-contended", "100"]);
        let expected = [
            "no lock was found taken 100 times or more (--min-contended 100)",
            "the most was 5 times",
        ];
        says_wrapped(&none, &expected);
        assert!(!none.contains("total"), "{none}");
    }
    let headless = by(&["--max", "0"]);
    assert!(!headless.contains("total"), "{headless}");
    let file = place.file("text");
    let flag = format!("--report={}", file.display());
    let output = place.command(&[&flag], &[]).output().unwrap();
    assert_eq!(output.status.code(), Some(7));
    assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
    assert!(fs::read_to_string(file).unwrap().contains("busy"));
}

/// A program that only tries never waits. The locks that it finds taken are reported all the same.
#[test]
fn failed_tries_are_told_by_caller_and_rank() {
    let place = Place::new();
    for name in ALL {
        let output = place.run(&["--lock", name, "--min-contended", "1"], "tries");
        let said = text(&output.stderr);
        let by = |share: &str, mark: &str| {
            let line = line_of(mark);
            format!("failed tries {share}: tries_{mark} (watched.c:{line})")
        };
        let expected = [
            " 1 hot ",
            "50 of 51 tries failed",
            &by("80 %", "often"),
            &by("20 %", "seldom"),
            // The holder during these tries.
            "held 100 %: in_vain",
        ];
        says_wrapped(said, &expected);
        assert!(!said.contains("quiet"), "{name}: {said}");
        let report = place.json();
        let failed = |lock: &Value, function: &str| {
            let all = list(&lock["callers"]).iter();
            let own = all.filter(|c| c["frames"][0]["function"] == function);
            own.map(|c| number(&c["failed_tries"])).sum::<u64>()
        };
        let hot = lock(&report, "hot");
        let found = (failed(hot, "tries_often"), failed(hot, "tries_seldom"));
        assert_eq!(found, (40, 10), "{name}: {hot:#}");
        assert_eq!(
            failed(lock(&report, "hot_spin"), "tries_often"),
            40,
            "{name}"
        );
        let sides = locks(&report)
            .iter()
            .filter(|lock| lock["name"] == "hot_rw");
        let sides: Vec<_> = sides
            .map(|side| {
                let found = ["tries_often", "tries_seldom"].map(|name| failed(side, name));
                (side["side"].as_str().unwrap(), found)
            })
            .collect();
        assert!(sides.contains(&("write", [40, 0])), "{name}: {sides:?}");
        assert!(sides.contains(&("read", [0, 10])), "{name}: {sides:?}");
    }
    let callers = place.run(&["--by", "caller"], "tries");
    let callers = text(&callers.stderr).to_owned();
    let rows: Vec<_> = callers
        .lines()
        .filter(|line| line.starts_with("tries_"))
        .collect();
    assert_eq!(rows.len(), 5, "{callers}");
    says(&callers, &["failed"]);
    assert!(rows[0].starts_with("tries_often"), "{callers}");
}

#[test]
fn it_is_there_however_the_program_ends() {
    let place = Place::new();
    let killed = place.run(&[], "killed");
    assert_eq!(killed.status.signal(), Some(libc::SIGKILL));
    says(text(&killed.stderr), &["busy"]);
    assert_eq!(lock(&place.json(), "busy")["locked"], 10);
    assert_eq!(place.json()["processes"][0]["ended"], false);
}

#[test]
fn children_and_what_they_become_have_their_own() {
    let place = Place::new();
    assert_eq!(place.run(&[], "child").status.code(), Some(7));
    let report = place.json();
    let processes = list(&report["processes"]);
    let locked = |n: usize, name: &str| {
        let mut locks = list(&processes[n]["locks"]).iter();
        locks
            .find(|lock| lock["name"] == name)
            .map(|lock| number(&lock["locked"]))
    };
    assert_eq!(processes.len(), 3, "{report:#}");
    assert_eq!(locked(0, "busy"), Some(10));
    let others = [
        (locked(1, "busy"), locked(1, "quiet")),
        (locked(2, "busy"), locked(2, "quiet")),
    ];
    assert!(
        others.contains(&(Some(1), None)) && others.contains(&(None, Some(1))),
        "{report:#}"
    );
    assert_eq!(processes[1]["pid"], processes[2]["pid"]);
}

#[test]
fn a_signal_shows_it_while_the_program_runs() {
    let place = Place::new();
    let mut command = place.reported(&[], &["stays"]);
    let (mut running, first) = Running::start(command.stderr(Stdio::piped()));
    assert_eq!(first, "ready");
    let child = &mut running.child;
    send(child, libc::SIGUSR1);
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let mut seen = String::new();
    while !seen.contains("held by thread") {
        assert_ne!(errors.read_line(&mut seen).unwrap(), 0, "{seen}");
    }
    says(&seen, &["until now", "; waiting: "]);
    send(child, libc::SIGTERM);
    errors.read_to_string(&mut seen).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGTERM));
    assert_eq!(
        seen.matches("kinlock: locks of watched").count(),
        2,
        "{seen}"
    );
}

#[test]
fn what_finds_no_place_is_said() {
    let place = Place::new();
    // The C library's locks have no room for a mark.
    let output = place.run(&["--lock", "pthread", "--max", "2"], "many");
    says(
        text(&output.stderr),
        &["the table is full: ", "of further locks"],
    );
    let report = place.json();
    let dropped = number(&report["processes"][0]["dropped"]["locks"]);
    let locked = sum(locks(&report), "locked");
    assert!(
        dropped > 3600 && locked + dropped == 20_000,
        "{locked} {dropped}"
    );
    // Our locks have one, so they share an entry.
    let output = place.run(&["--max", "2"], "many");
    let expected = ["nobody waited for share rows", " others)"];
    says(text(&output.stderr), &expected);
    let report = place.json();
    assert_eq!(report["processes"][0]["dropped"]["locks"], 0);
    let shared = locks(&report).iter().filter(|l| l["others"] != 0).count() as u64;
    let [locked, others] = ["locked", "others"].map(|field| sum(locks(&report), field));
    assert_eq!((locked, shared), (20_000, 1));
    assert_eq!(others + locks(&report).len() as u64 - shared, 20_000);
    // Locks that end make room.
    place.run(&[], "short-lived");
    let report = place.json();
    assert_eq!(report["processes"][0]["dropped"]["locks"], 0);
    let sums = ["locked", "ended"].map(|field| sum(locks(&report), field));
    assert_eq!(sums, [20_000; 2]);
    assert!(locks(&report).len() < 200);
}

/// Ended locks keep entries of their own for a while, even if all of them had the same address.
#[test]
fn locks_that_follow_each_other_at_one_address_all_count() {
    let place = Place::new();
    for name in ALL {
        place.run(&["--lock", name], "reborn");
        let report = place.json();
        assert_eq!(sum(locks(&report), "locked"), 1000, "{name}");
        assert_eq!(report["processes"][0]["dropped"]["locks"], 0, "{name}");
    }
}

/// How often the program takes its locks without arguments.
const IN_ALL: u64 = 3629;

/// A program may take many locks when it starts. Locks that it waits for later are still found,
/// with their names and callers.
#[test]
fn locks_of_the_start_leave_room_for_what_matters() {
    let place = Place::new();
    for name in ALL {
        let output = place.run(&["--lock", name], "many, and more");
        assert_eq!(output.status.code(), Some(7), "{name}");
        let report = place.json();
        let busy = lock(&report, "busy");
        assert_eq!(busy["contended"], 5, "{name}");
        assert!(busy["locked"].as_u64() >= Some(9), "{name}: {busy:#}");
        let waits = list(&busy["callers"]).iter().find(|c| c["contended"] == 5);
        let frames = list(&waits.unwrap()["frames"]);
        assert_eq!(frames[1]["function"], "worker_takes", "{name}");
        // Acquisitions of our mutexes are never lost. Spinlocks and the C library's locks have no
        // room for a mark.
        let dropped = number(&report["processes"][0]["dropped"]["locks"]);
        let locked = sum(locks(&report), "locked");
        assert_eq!(locked + dropped, 20_000 + IN_ALL, "{name}");
        if name != "pthread" {
            assert_eq!(sum(locks(&report), "timeouts"), 1, "{name}");
            assert!(dropped <= 4, "{name}: {dropped}");
        }
    }
}

/// The first two CPUs that the tests may run on.
fn two_cpus() -> Option<[usize; 2]> {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let mut lines = status.lines();
    let list = lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let mut cpus = list.trim().split(['-', ',']);
    let mut next = || cpus.next()?.parse().ok();
    Some([next()?, next()?])
}

#[test]
fn hand_offs_within_and_between_domains() {
    let Some(cpus) = two_cpus() else {
        return eprintln!("WARNING: one CPU only: domains NOT tested");
    };
    let place = Place::new();
    for name in ALL {
        for (topology, local, remote) in [
            (format!("{};{}", cpus[0], cpus[1]), 4, 5),
            (format!("{},{}", cpus[0], cpus[1]), 9, 0),
        ] {
            let [first, second] = cpus.map(|cpu| cpu.to_string());
            let mut command = place.reported(&["--lock", name], &["domains", &first, &second]);
            let output = command.env("KINLOCK_TOPOLOGY", &topology).output().unwrap();
            assert!(output.status.success(), "{name}: {output:?}");
            let report = place.json();
            let busy = lock(&report, "busy");
            has(busy, &[("locked", 10), ("changed_owner", 9)], name);
            has(busy, &[("local", local), ("remote", remote)], &topology);
            let says = text(&output.stderr).contains("hand-offs 4 local, 5 remote");
            assert_eq!(says, remote > 0, "{}", text(&output.stderr));
        }
    }
}

/// A thread has room for 64 locks, the process for 512 threads at a time.
#[test]
fn crowds_are_counted() {
    let place = Place::new();
    for name in ALL {
        let output = place.run(&["--lock", name], "crowds");
        assert!(output.status.success(), "{name}: {output:?}");
        let report = place.json();
        let others = |l: &&Value| l["name"].as_str().unwrap().starts_with("all");
        let all: Vec<_> = locks(&report).iter().filter(others).collect();
        assert_eq!(all.len(), 200, "{name}");
        for one in all {
            has(one, &[("locked", 3), ("changed_owner", 0)], name);
        }
        // The number of a thread counts modulo 256.
        let (busy, quiet) = (lock(&report, "busy"), lock(&report, "quiet"));
        has(busy, &[("locked", 1200), ("threads", 256)], name);
        assert!(number(&busy["changed_owner"]) >= 599, "{name}: {busy:#}");
        has(quiet, &[("locked", 1500), ("threads", 256)], name);
        has(quiet, &[("changed_owner", 1499)], name);
        assert!(number(&quiet["hold_samples"]) >= 8, "{name}: {quiet:#}");
        // Another thread has released it.
        assert_eq!(lock(&report, "late")["held_by"], Value::Null, "{name}");
        let threads = list(&report["processes"][0]["threads"]);
        // Threads that ended early have made room for others.
        let ended = &report["processes"][0]["ended_threads"];
        assert!(ended["count"].as_u64() >= Some(1500 - 1024), "{name}");
        assert_eq!(report["processes"][0]["threads_seen"], 1 + 600 + 1500);
        let by_threads = sum(threads, "locked") + number(&ended["locked"]);
        let dropped = number(&report["processes"][0]["dropped"]["threads"]);
        assert_eq!(by_threads + dropped, 600 + 1200 + 1500 + 1, "{name}");
    }
}

#[test]
fn bad_input_is_one_line() {
    for (line, expected) in [
        ("--report --json - true", "stdout is the program's"),
        ("--report --html - true", "stdout is the program's"),
        ("--report --folded no/file true", "cannot write no/file"),
        ("--report --html no/file true", "cannot write no/file"),
        ("--json x true", "--report"),
        ("--fail-if hold>1ms true", "--report"),
        ("--report --fail-if hold>1 true", "write 'contended > 5 %'"),
        ("--report --fail-if circles>0 true", "needs --order"),
        ("--report --by what true", "known: lock, caller, thread"),
        ("--report --print-env", "--print-env"),
    ] {
        refused(&format!("run {line}"), expected);
    }
    let without = kinlock().args(["run", "--report", "true"]).output();
    let without = without.unwrap();
    says(text(&without.stderr), &["called no function"]);
    assert_eq!(without.status.code(), Some(0));
}
