//! `kinlock report PID` without a measurement: who holds what and who waits for whom, in programs
//! that hang and were never measured.

mod support;

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use support::{Place, is_refusal, kinlock, list};

const SOURCE: &str = include_str!("programs/hung.c");

/// How programs are started. What the locks of each tell of their holders is the same.
const EACH: &[&[&str]] = &[
    &[],
    &["--standby"],
    &["--report=/dev/null"],
    &["--lock", "kinlock-spin"],
    &["--lock", "pthread", "--standby"],
];

/// A program that hangs. It ends with this.
struct Hung {
    child: Child,
    /// Its own number: that of the child, or of a child of that.
    pid: u32,
}

impl Drop for Hung {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

impl Place {
    fn new() -> Self {
        Place::of("hung", "-O1 -g -w -pthread", SOURCE)
    }

    fn start(&self, flags: &[&str], threads: &[&str]) -> Hung {
        start(&self.file("hung"), flags, threads)
    }
}

fn start(program: &Path, flags: &[&str], words: &[&str]) -> Hung {
    let mut command = kinlock();
    command.arg("run").args(flags).arg("--");
    command.arg(program).args(words).stderr(Stdio::null());
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
    let pid = output.next().unwrap().unwrap().parse().unwrap();
    Hung { child, pid }
}

impl Hung {
    fn report(&self, flags: &[&str]) -> Output {
        let mut command = kinlock();
        command.arg("report").arg(self.pid.to_string()).args(flags);
        command.output().unwrap()
    }

    fn json(&self) -> Value {
        let output = self.report(&["--json", "-"]);
        assert!(output.status.success(), "{output:?}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        list(&report["processes"])[0].clone()
    }

    /// Waits until the report says this, in any order of lines. Returns that report.
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

/// What a report says of a process, without numbers.
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

#[test]
fn a_circle_of_two_mutexes_and_a_thread_that_waits_for_one() {
    let place = Place::new();
    for flags in EACH {
        let hung = place.start(
            flags,
            &[
                "teller=lock:accounts meet lock:journal",
                "auditor=lock:journal meet lock:accounts",
                "clerk=meet lock:accounts",
            ],
        );
        let process = hung.says(&[
            "accounts: mutex held by teller, awaited by auditor clerk",
            "journal: mutex held by auditor, awaited by teller",
            "deadlock of auditor teller",
        ]);
        for name in ["teller", "auditor", "clerk"] {
            let stack = stack(&process, name);
            assert_eq!(stack[..3], ["take", "step", "run"], "{flags:?}: {name}");
        }
        assert_eq!(process["pid"], hung.pid, "{flags:?}");
        assert_eq!(process["program"], "hung", "{flags:?}");
        let text = String::from_utf8(hung.report(&[]).stdout).unwrap();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for expected in [
            "now: 3 threads wait for 2 locks",
            "deadlock: 2 threads",
            "(teller) waits for journal, held by thread",
            "(auditor) waits for accounts, held by thread",
            "accounts: mutex, held by thread",
            "(clerk): take (hung.c:",
        ] {
            assert!(text.contains(expected), "{flags:?}: {expected}: {text}");
        }
    }
}

#[test]
fn mutexes_that_know_their_owner() {
    let place = Place::new();
    for flags in EACH {
        let hung = place.start(
            flags,
            &[
                "teller=lock:nested lock:nested meet lock:checked",
                "auditor=lock:checked meet lock:nested",
            ],
        );
        hung.says(&[
            "nested: recursive held by teller, awaited by auditor",
            "checked: checking held by auditor, awaited by teller",
            "deadlock of auditor teller",
        ]);
    }
}

#[test]
fn a_thread_that_waits_for_itself() {
    let place = Place::new();
    for flags in EACH {
        let hung = place.start(flags, &["teller=lock:accounts lock:accounts"]);
        hung.says(&[
            "accounts: mutex held by teller, awaited by teller",
            "deadlock of teller",
        ]);
        let text = String::from_utf8(hung.report(&[]).stdout).unwrap();
        let expected = "(teller) waits for accounts, which it holds itself";
        assert!(text.contains(expected), "{flags:?}: {text}");
    }
}

#[test]
fn writers_of_reader_writer_locks() {
    let place = Place::new();
    for flags in EACH {
        let hung = place.start(
            flags,
            &[
                "teller=write:catalogue meet write:prices",
                "auditor=write:prices meet read:catalogue",
            ],
        );
        hung.says(&[
            "catalogue: rwlock held by teller, awaited to read by auditor",
            "prices: rwlock held by auditor, awaited to write by teller",
            "deadlock of auditor teller",
        ]);
    }
}

/// Who reads is noted while the process stands by, and in the table of a report.
#[test]
fn readers_of_reader_writer_locks() {
    let place = Place::new();
    for flags in &EACH[1..] {
        let threads = [
            // What was released is not held.
            "teller=read:prices release:prices read:catalogue read:catalogue meet write:prices",
            "auditor=read:prices meet write:catalogue",
            "clerk=read:prices meet idle",
        ];
        if flags.contains(&"kinlock-spin") {
            continue;
        }
        let hung = place.start(flags, &threads);
        let process = hung.says(&[
            "catalogue: rwlock held by teller, awaited to write by auditor",
            "prices: rwlock held by auditor clerk, awaited to write by teller",
            "deadlock of auditor teller",
        ]);
        let clerk = stack(&process, "clerk");
        let is_there = clerk.iter().any(|function| function == "wait_for_input");
        assert!(is_there, "{flags:?}: {clerk:?}");
    }
    let hung = place.start(&[], &["teller=read:prices write:prices"]);
    hung.says(&["prices: rwlock held by , awaited to write by teller"]);
    let text = String::from_utf8(hung.report(&[]).stdout).unwrap();
    assert!(text.contains("who holds it is not known"), "{text}");
    assert!(text.contains("kinlock run --standby"), "{text}");
}

/// A reader does not wait for other readers, but for a writer that waits for them.
#[test]
fn readers_behind_a_writer_that_waits() {
    let place = Place::new();
    for flags in &EACH[1..] {
        if flags.contains(&"kinlock-spin") {
            continue;
        }
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
            let text = String::from_utf8(hung.report(&[]).stdout).unwrap();
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
    let place = Place::new();
    for flags in EACH {
        let hung = place.start(
            flags,
            &[
                "teller=lock:accounts meet wait:ready",
                "auditor=meet lock:accounts",
            ],
        );
        let process = hung.says(&[
            "accounts: mutex held by teller, awaited by auditor",
            "ready: condition variable held by , awaited by teller",
        ]);
        assert_eq!(stack(&process, "teller")[..2], ["step", "run"], "{flags:?}");
        let text = String::from_utf8(hung.report(&[]).stdout).unwrap();
        assert!(text.contains(" waits for ready\n"), "{flags:?}: {text}");
    }
}

#[test]
fn a_thread_whose_end_is_waited_for() {
    let place = Place::new();
    for flags in EACH {
        let hung = place.start(
            flags,
            &[
                "teller=lock:accounts meet join:auditor",
                "auditor=meet lock:accounts",
            ],
        );
        hung.says(&[
            "accounts: mutex held by teller, awaited by auditor",
            "end: join held by auditor, awaited by teller",
            "deadlock of auditor teller",
        ]);
    }
}

#[test]
fn what_is_no_deadlock() {
    let place = Place::new();
    for flags in EACH {
        // One of them gives up.
        let hung = place.start(
            flags,
            &[
                "teller=lock:accounts meet timed:journal",
                "auditor=lock:journal meet lock:accounts",
            ],
        );
        hung.says(&[
            "accounts: mutex held by teller, awaited by auditor",
            "journal: mutex held by auditor, awaited by teller",
        ]);
        // The holder does something else.
        let hung = place.start(
            flags,
            &[
                "teller=lock:accounts meet idle",
                "auditor=meet lock:accounts",
            ],
        );
        let process = hung.says(&["accounts: mutex held by teller, awaited by auditor"]);
        let teller = stack(&process, "teller");
        let is_there = teller.iter().any(|function| function == "wait_for_input");
        assert!(is_there, "{flags:?}: {teller:?}");
        // The holder has ended.
        let hung = place.start(
            flags,
            &["teller=lock:accounts meet", "auditor=meet lock:accounts"],
        );
        hung.says(&["accounts: mutex held by one that has ended, awaited by auditor"]);
        // Nothing is waited for.
        let hung = place.start(flags, &["teller=lock:accounts idle"]);
        hung.says(&[]);
        let text = String::from_utf8(hung.report(&[]).stdout).unwrap();
        assert!(text.contains("no thread waits for a lock"), "{text}");
    }
}

/// A program that prints its own calls maps its file, and so does a debugger.
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

/// Its files are found by its paths or by ours, whichever there are.
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
    let place = Place::new();
    for flags in EACH {
        let threads = [
            "teller=elsewhere meet lock:shared",
            "auditor=meet read:shared_rwlock",
        ];
        let hung = place.start(flags, &threads);
        hung.says(&[
            "shared: shared held by another process, awaited by teller",
            "shared_rwlock: rwlock held by another process, awaited to read by auditor",
        ]);
        let text = String::from_utf8(hung.report(&[]).stdout).unwrap();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let expected = "shared_rwlock: rwlock, held by thread";
        assert!(text.contains(expected), "{flags:?}: {text}");
        assert!(
            text.contains("of another process waits "),
            "{flags:?}: {text}"
        );
    }
}

#[test]
fn threads_of_cxx() {
    let place = Place::new();
    let source = r#"
        #include <condition_variable>
        #include <cstdio>
        #include <latch>
        #include <mutex>
        #include <shared_mutex>
        #include <thread>
        #include <unistd.h>
        std::mutex accounts;
        std::shared_mutex catalogue;
        std::condition_variable ready;
        static std::latch both(2);
        int main() {
            std::thread teller([] {
                std::lock_guard held(accounts);
                both.arrive_and_wait();
                std::shared_lock second(catalogue);
            });
            std::thread auditor([] {
                std::unique_lock held(catalogue);
                both.arrive_and_wait();
                std::scoped_lock second(accounts);
            });
            std::thread clerk([] {
                std::mutex own;
                std::unique_lock held(own);
                ready.wait(held, [] { return false; });
            });
            pthread_setname_np(teller.native_handle(), "teller");
            pthread_setname_np(auditor.native_handle(), "auditor");
            pthread_setname_np(clerk.native_handle(), "clerk");
            std::printf("%d\n", getpid()), std::fflush(stdout);
            while (std::getchar() != EOF);
            _exit(0);
        }
    "#;
    let (text, program) = (place.file("hung.cc"), place.file("cxx"));
    std::fs::write(&text, source).unwrap();
    let mut compiler = Command::new("c++");
    let compiler = compiler.args(["-std=c++20", "-O1", "-g", "-pthread", "-o"]);
    assert!(
        compiler
            .arg(&program)
            .arg(&text)
            .status()
            .unwrap()
            .success()
    );
    for flags in EACH {
        let hung = start(&program, flags, &[]);
        let process = hung.says(&[
            "accounts: mutex held by teller, awaited by auditor",
            "catalogue: rwlock held by auditor, awaited to read by teller",
            "ready: condition variable held by , awaited by clerk",
            "deadlock of auditor teller",
        ]);
        let auditor = stack(&process, "auditor");
        let is_there = auditor
            .iter()
            .any(|function| function == "std::mutex::lock()");
        assert!(is_there, "{flags:?}: {auditor:?}");
    }
}

/// The lines of a command that tells alarms, until it has told as many.
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
        for (line, parts) in [
            (
                wait,
                [
                    " (auditor) has waited ",
                    " for accounts: take (hung.c:",
                    "; held by thread ",
                ],
            ),
            (
                hold,
                [
                    " (teller) has held accounts for ",
                    "wait_for_input",
                    " (auditor) has waited ",
                ],
            ),
        ] {
            assert!(line.starts_with("kinlock: alarm: thread "), "{line}");
            for part in parts {
                assert!(line.contains(part), "{part}: {line}");
            }
        }
    };
    let flags = ["--alarm-wait", "300ms", "--alarm-hold", "0.2s"];
    for start in [&[][..], &["--standby"], &["--lock", "pthread", "--standby"]] {
        let hung = place.start(start, &threads);
        let mut command = kinlock();
        let command = command.arg("report").arg(hung.pid.to_string()).args(flags);
        let (mut child, lines) = alarms(command.stdout(Stdio::null()), 2);
        expected(&lines);
        // It ends with the process.
        drop(hung);
        assert!(child.wait().unwrap().success());
    }
    let mut command = kinlock();
    command.args(["run", "--report=/dev/null"]).args(flags);
    let command = command.arg(place.file("hung")).args(threads);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::null());
    let (mut child, lines) = alarms(command, 2);
    expected(&lines);
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn bad_input_is_refused() {
    let place = Place::new();
    let refused = |output: Output, expected: &str| is_refusal(&output, 2, expected);
    let hung = place.start(
        &["--lock", "pthread"],
        &["teller=lock:accounts lock:accounts"],
    );
    refused(
        hung.report(&[]),
        "has no locks of kinlock: start the program with `kinlock run",
    );
    refused(
        hung.report(&["--all"]),
        "nor any that it started has locks of kinlock",
    );
    let behind = place.start(
        &["--report=/dev/null"],
        &["teller=lock:accounts lock:accounts"],
    );
    let command = behind.child.id().to_string();
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
    let mut none = kinlock();
    let none = none.args(["report", &u32::MAX.to_string()]).output();
    refused(none.unwrap(), "there is no process");
    // SAFETY: it has no preconditions.
    if unsafe { libc::getuid() } == 0 {
        // A user without rights, who can execute the command only where all can look.
        let command = place.file("kinlock");
        std::fs::copy(env!("CARGO_BIN_EXE_kinlock"), &command).unwrap();
        let all = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(place.0.path(), all).unwrap();
        let mut other = Command::new(&command);
        let other = other
            .args(["report", &hung.pid.to_string()])
            .uid(65534)
            .gid(65534);
        refused(other.output().unwrap(), "Permission denied");
    }
}
