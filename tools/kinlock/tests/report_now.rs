//! `kinlock report PID` without a measurement: who holds what and who waits for whom, in programs
//! that hang and were never measured.

mod support;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use support::{Place, Running, is_refusal, kinlock, kinlock_of_nobody, list, says, says_wrapped};

const SOURCE: &str = include_str!("programs/hung.c");

/// The ways in which programs are started. In each of them, locks show the same about their
/// holders.
const EACH: &[&[&str]] = &[
    &[],
    &["--lock", "kinlock-spin"],
    &["--standby"],
    &["--report=/dev/null"],
    &["--lock", "pthread", "--standby"],
];
/// The ways in which readers are noted: when the process stands by, or in the table of a report.
const NOTING_READERS: &[&[&str]] = EACH.split_at(2).1;

/// A program that hangs. It ends when this is dropped.
struct Hung {
    running: Running,
    /// Its number. The process is the child, or a child of the child.
    pid: u32,
}

impl Place {
    fn new() -> Self {
        Place::of("hung", "-O1 -g -w -pthread", SOURCE)
    }

    fn start(&self, flags: &[&str], threads: &[&str]) -> Hung {
        Hung::start(self.command(flags, threads))
    }

    /// Starts these threads in each way, and returns the reports on them, once they say `expected`.
    fn each(&self, threads: &[&str], expected: &[&str]) -> Vec<(Hung, Value)> {
        let start = |flags: &&[&str]| {
            let hung = self.start(flags, threads);
            let process = hung.says(expected);
            (hung, process)
        };
        EACH.iter().map(start).collect()
    }
}

impl Hung {
    fn start(mut command: Command) -> Self {
        let (running, first) = Running::start(command.stderr(Stdio::null()));
        let pid = first.parse().unwrap();
        Hung { running, pid }
    }

    fn report(&self, flags: &[&str]) -> Output {
        let mut command = kinlock();
        command.arg("report").arg(self.pid.to_string()).args(flags);
        command.output().unwrap()
    }

    fn text(&self) -> String {
        String::from_utf8(self.report(&[]).stdout).unwrap()
    }

    fn json(&self) -> Value {
        let output = self.report(&["--json", "-"]);
        assert!(output.status.success(), "{output:?}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        list(&report["processes"])[0].clone()
    }

    /// Waits until the report has these lines, in any order. Returns that report.
    fn says(&self, expected: &[&str]) -> Value {
        let mut expected = expected.to_vec();
        expected.sort_unstable();
        let begin = Instant::now();
        loop {
            let process = self.json();
            let said = lines(&process);
            if said == expected {
                return process;
            }
            let is_late = begin.elapsed() > Duration::from_secs(120);
            assert!(!is_late, "{said:#?}\n{expected:#?}\n{process:#}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The lines of a report on a process, without numbers.
fn lines(process: &Value) -> Vec<String> {
    let threads = list(&process["threads"]);
    let thread = |id: &Value| {
        let thread = threads.iter().find(|thread| &thread["id"] == id);
        thread.unwrap_or_else(|| panic!("{id} in {process:#}"))
    };
    let names = |ids: &Value| {
        let name = |id| match thread(id) {
            thread if thread["ended"] == true => "one that has ended".to_owned(),
            thread if thread["elsewhere"] == true => "another process".to_owned(),
            thread => thread["name"].as_str().unwrap().to_owned(),
        };
        let mut names: Vec<String> = list(ids).iter().map(name).collect();
        names.sort_unstable();
        names.join(" ")
    };
    let all = list(&process["locks"])
        .iter()
        .chain(list(&process["waits"]));
    let locks = all.map(|lock| {
        let sides = list(&lock["waiting"])
            .iter()
            .map(|id| thread(id)["side"].as_str());
        let side = sides.flatten().next();
        let name = lock["name"].as_str().unwrap();
        format!(
            "{}: {} held by {}, awaited{} by {}",
            if name.starts_with("the end") {
                "end"
            } else {
                name
            },
            lock["kind"].as_str().unwrap(),
            names(&lock["holders"]),
            side.map_or(String::new(), |side| format!(" to {side}")),
            names(&lock["waiting"])
        )
    });
    let deadlocks = list(&process["deadlocks"]);
    let circles = deadlocks
        .iter()
        .map(|circle| format!("deadlock of {}", names(circle)));
    let mut lines: Vec<String> = locks.chain(circles).collect();
    lines.sort_unstable();
    lines
}

/// The functions on the stack of a thread.
fn stack(process: &Value, name: &str) -> Vec<String> {
    let threads = list(&process["threads"]).iter();
    let mut threads = threads.filter(|thread| thread["name"] == name);
    let thread = threads.next().unwrap();
    let frames = list(&thread["stack"]).iter();
    let functions = frames.map(|frame| frame["function"].as_str().unwrap().to_owned());
    functions.collect()
}

/// Whether this is the function in which threads idle.
fn is_idle(function: &String) -> bool {
    function == "wait_for_input"
}

#[test]
fn a_circle_of_two_mutexes_and_a_thread_that_waits_for_one() {
    let threads = [
        "teller=lock:accounts meet lock:journal",
        "auditor=lock:journal meet lock:accounts",
        "clerk=meet lock:accounts",
    ];
    let expected = [
        "accounts: mutex held by teller, awaited by auditor clerk",
        "journal: mutex held by auditor, awaited by teller",
        "deadlock of auditor teller",
    ];
    for (hung, process) in Place::new().each(&threads, &expected) {
        for name in ["teller", "auditor", "clerk"] {
            let stack = stack(&process, name);
            assert_eq!(stack[..3], ["take", "step", "run"], "{name}");
        }
        assert_eq!(process["pid"], hung.pid);
        assert_eq!(process["program"], "hung");
        let expected = [
            "now: 3 threads wait for 2 locks",
            "deadlock: 2 threads",
            "(teller) waits for journal, held by thread",
            "(auditor) waits for accounts, held by thread",
            "accounts: mutex, held by thread",
            "(clerk): take (hung.c:",
        ];
        says_wrapped(&hung.text(), &expected);
    }
}

#[test]
fn circles_of_other_locks() {
    let place = Place::new();
    let cases: [(&[&str], &[&str]); 3] = [
        // Mutexes that store their owner.
        (
            &[
                "teller=lock:nested lock:nested meet lock:checked",
                "auditor=lock:checked meet lock:nested",
            ],
            &[
                "nested: recursive held by teller, awaited by auditor",
                "checked: checking held by auditor, awaited by teller",
                "deadlock of auditor teller",
            ],
        ),
        (
            &[
                "teller=write:catalogue meet write:prices",
                "auditor=write:prices meet read:catalogue",
            ],
            &[
                "catalogue: rwlock held by teller, awaited to read by auditor",
                "prices: rwlock held by auditor, awaited to write by teller",
                "deadlock of auditor teller",
            ],
        ),
        (
            &[
                "teller=lock:accounts meet join:auditor",
                "auditor=meet lock:accounts",
            ],
            &[
                "accounts: mutex held by teller, awaited by auditor",
                "end: join held by auditor, awaited by teller",
                "deadlock of auditor teller",
            ],
        ),
    ];
    for (threads, expected) in cases {
        place.each(threads, expected);
    }
}

#[test]
fn a_thread_that_waits_for_itself() {
    let threads = ["teller=lock:accounts lock:accounts"];
    let expected = [
        "accounts: mutex held by teller, awaited by teller",
        "deadlock of teller",
    ];
    for (hung, _) in Place::new().each(&threads, &expected) {
        let expected = "(teller) waits for accounts, which it holds itself";
        says(&hung.text(), &[expected]);
    }
}

#[test]
fn readers_of_reader_writer_locks() {
    let place = Place::new();
    for flags in NOTING_READERS {
        let threads = [
            // A lock that was released is not held.
            "teller=read:prices release:prices read:catalogue read:catalogue meet write:prices",
            "auditor=read:prices meet write:catalogue",
            "clerk=read:prices meet idle",
        ];
        let hung = place.start(flags, &threads);
        let process = hung.says(&[
            "catalogue: rwlock held by teller, awaited to write by auditor",
            "prices: rwlock held by auditor clerk, awaited to write by teller",
            "deadlock of auditor teller",
        ]);
        let clerk = stack(&process, "clerk");
        assert!(clerk.iter().any(is_idle), "{flags:?}: {clerk:?}");
    }
    let hung = place.start(&[], &["teller=read:prices write:prices"]);
    hung.says(&["prices: rwlock held by , awaited to write by teller"]);
    let expected = ["who holds it is not known", "kinlock run --standby"];
    says_wrapped(&hung.text(), &expected);
}

/// A reader does not wait for other readers, but for a writer that waits for them.
#[test]
fn readers_behind_a_writer_that_waits() {
    let place = Place::new();
    for flags in NOTING_READERS {
        for (write, circle) in [
            ("write", Some("deadlock of auditor clerk teller")),
            ("timed_write", None),
        ] {
            let hung = place.start(
                flags,
                &[
                    "teller=read:ledger meet lock:accounts",
                    "auditor=lock:accounts meet behind:ledger read:ledger",
                    &format!("clerk=meet {write}:ledger"),
                ],
            );
            let locks = [
                "accounts: mutex held by auditor, awaited by teller",
                "ledger: rwlock held by teller, awaited to write by auditor clerk",
            ];
            hung.says(&locks.into_iter().chain(circle).collect::<Vec<_>>());
            let text = hung.text();
            let expected = "(auditor) waits for ledger to read, behind thread";
            assert_eq!(
                text.contains(expected),
                circle.is_some(),
                "{flags:?}: {text}"
            );
        }
    }
}

#[test]
fn a_condition_variable_that_is_never_signalled() {
    let threads = [
        "teller=lock:accounts meet wait:ready",
        "auditor=meet lock:accounts",
    ];
    let expected = [
        "accounts: mutex held by teller, awaited by auditor",
        "ready: condition variable held by , awaited by teller",
    ];
    for (hung, process) in Place::new().each(&threads, &expected) {
        assert_eq!(stack(&process, "teller")[..2], ["step", "run"]);
        says(&hung.text(), &[" waits for ready\n"]);
    }
}

#[test]
fn what_is_no_deadlock() {
    let place = Place::new();
    // One of the threads gives up.
    place.each(
        &[
            "teller=lock:accounts meet timed:journal",
            "auditor=lock:journal meet lock:accounts",
        ],
        &[
            "accounts: mutex held by teller, awaited by auditor",
            "journal: mutex held by auditor, awaited by teller",
        ],
    );
    // The holder does something else.
    let threads = [
        "teller=lock:accounts meet idle",
        "auditor=meet lock:accounts",
    ];
    let expected = ["accounts: mutex held by teller, awaited by auditor"];
    for (_, process) in place.each(&threads, &expected) {
        let teller = stack(&process, "teller");
        assert!(teller.iter().any(is_idle), "{teller:?}");
    }
    // The holder has ended.
    place.each(
        &["teller=lock:accounts meet", "auditor=meet lock:accounts"],
        &["accounts: mutex held by one that has ended, awaited by auditor"],
    );
    // Nothing is waited for.
    for (hung, _) in place.each(&["teller=lock:accounts idle"], &[]) {
        let unseen = "\nnot seen are locks that do not go through pthread: ";
        says(&hung.text(), &["no thread waits for a lock", unseen]);
    }
}

/// A program that prints its own call stack maps its file, and so does a debugger.
#[test]
fn a_library_that_is_only_mapped() {
    let place = Place::new();
    for rights in ["r", "rw", "rx"] {
        let steps = format!("teller=map:{rights} lock:accounts lock:accounts");
        let hung = place.start(&["--standby"], &[&steps]);
        let process = hung.says(&[
            "accounts: mutex held by teller, awaited by teller",
            "deadlock of teller",
        ]);
        assert_eq!(process["dropped"], 0, "{rights}");
        assert_eq!(
            stack(&process, "teller")[..3],
            ["take", "step", "run"],
            "{rights}"
        );
    }
}

/// The files of such a process are found by its paths or by ours, whichever exist.
#[test]
fn a_process_with_another_root() {
    // SAFETY: it has no preconditions.
    if unsafe { libc::getuid() } != 0 {
        return;
    }
    let place = Place::new();
    let jail = place.file("jail");
    std::fs::create_dir(&jail).unwrap();
    let steps = format!("teller=jail:{} lock:accounts lock:accounts", jail.display());
    let process = place.start(&[], &[&steps]).says(&[
        "accounts: mutex held by teller, awaited by teller",
        "deadlock of teller",
    ]);
    assert_eq!(stack(&process, "teller")[..3], ["take", "step", "run"]);
}

#[test]
fn locks_that_another_process_holds() {
    let threads = [
        "teller=elsewhere meet lock:shared",
        "auditor=meet read:shared_rwlock",
    ];
    let expected = [
        "shared: shared held by another process, awaited by teller",
        "shared_rwlock: rwlock held by another process, awaited to read by auditor",
    ];
    for (hung, _) in Place::new().each(&threads, &expected) {
        let expected = [
            "shared_rwlock: rwlock, held by thread",
            "of another process waits ",
        ];
        says_wrapped(&hung.text(), &expected);
    }
}

/// Runs a command that prints alarms, and returns the first `count` lines.
fn alarms(command: &mut Command, count: usize) -> (Child, Vec<String>) {
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let lines = lines.take(count).map(|line| line.unwrap()).collect();
    (child, lines)
}

#[test]
fn what_takes_too_long_is_told_once() {
    let place = Place::new();
    let threads = [
        "teller=lock:accounts meet idle",
        "auditor=meet lock:accounts",
    ];
    let expected = |lines: &[String]| {
        let is_held = |line: &&String| line.contains(" has held ");
        let (held, waited): (Vec<_>, Vec<_>) = lines.iter().partition(is_held);
        let ([hold], [wait]) = (&held[..], &waited[..]) else {
            panic!("{lines:?}");
        };
        for line in [hold, wait] {
            assert!(line.starts_with("kinlock: alarm: thread "), "{line}");
        }
        let parts = [
            " (auditor) has waited ",
            " for accounts: take (hung.c:",
            "; held by thread ",
        ];
        says(wait, &parts);
        let parts = [
            " (teller) has held accounts for ",
            "wait_for_input",
            " (auditor) has waited ",
        ];
        says(hold, &parts);
    };
    let flags = ["--alarm-wait", "300ms", "--alarm-hold", "0.2s"];
    for start in [&[][..], &["--standby"], &["--lock", "pthread", "--standby"]] {
        let hung = place.start(start, &threads);
        let mut command = kinlock();
        let command = command.arg("report").arg(hung.pid.to_string()).args(flags);
        let (mut child, lines) = alarms(command.stdout(Stdio::null()), 2);
        expected(&lines);
        // The command ends with the process.
        drop(hung);
        assert!(child.wait().unwrap().success());
    }
    let mut command = place.command(&[&["--report=/dev/null"][..], &flags].concat(), &threads);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::null());
    let (mut child, lines) = alarms(command, 2);
    expected(&lines);
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn bad_input_is_refused() {
    let place = Place::new();
    let refused = |output: Output, expected: &str| drop(is_refusal(&output, 2, expected));
    let hung = place.start(
        &["--lock", "pthread"],
        &["teller=lock:accounts lock:accounts"],
    );
    let locks = "has no locks of kinlock: start the program with `kinlock run";
    refused(hung.report(&[]), locks);
    let none = "nor any that it started has locks of kinlock";
    refused(hung.report(&["--all"]), none);
    let behind = place.start(
        &["--report=/dev/null"],
        &["teller=lock:accounts lock:accounts"],
    );
    let command = behind.running.child.id().to_string();
    refused(
        kinlock().args(["report", &command]).output().unwrap(),
        &format!("but process {}, which it started, has", behind.pid),
    );
    let hung = place.start(&[], &["teller=lock:accounts lock:accounts"]);
    for flag in ["--folded=-", "--html=-", "--by=caller", "--min-contended=1"] {
        refused(hung.report(&[flag]), "--seconds");
    }
    refused(
        hung.report(&["--alarm-wait", "1"]),
        "with its unit, as 100ms",
    );
    refused(hung.report(&["--alarm-hold", "0ms"]), "from 1ms");
    for flags in [
        &["--seconds=1"][..],
        &["--openmetrics=x"],
        &["--follow", "--openmetrics=x"],
        &["--json=x"],
        &["--all"],
        &["--max=3"],
    ] {
        let flags = [&["--alarm-hold", "1s"], flags].concat();
        refused(hung.report(&flags), "cannot be used with");
    }
    let mut without = kinlock();
    let without = without.args(["run", "--alarm-wait", "1s", "true"]).output();
    refused(without.unwrap(), "alarms need --report");
    // SAFETY: it has no preconditions.
    if unsafe { libc::getuid() } == 0 {
        let mut other = kinlock_of_nobody(&place);
        other.args(["report", &hung.pid.to_string()]);
        refused(other.output().unwrap(), "Permission denied");
    }
}
