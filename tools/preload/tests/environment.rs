//! The environment variables that the library reads, and the counts.

mod support;

use std::fs;
use std::process::Command;
use std::time::Instant;
use support::{Program, library, run, scratch, text};

const WARNING: &str = "kinlock: the program called no function of pthread mutexes, condition \
                       variables, spinlocks or reader-writer locks\n";

/// The number after `"name":` in a line.
fn number(line: &str, name: &str) -> u64 {
    let key = format!("\"{name}\":");
    let rest = line
        .split(&key)
        .nth(1)
        .unwrap_or_else(|| panic!("no {name} in {line}"));
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next();
    digits
        .and_then(|d| d.parse().ok())
        .unwrap_or_else(|| panic!("no number {name} in {line}"))
}

#[test]
fn counts_are_those_on_paper() {
    let program = Program::of("known.c");
    for lock in ["kinlock-mutex", "kinlock-spin", "pthread"] {
        let path = scratch("counts");
        let mut command = program.command();
        let start = Instant::now();
        let output = run(command
            .env("KINLOCK_COUNTS", &path)
            .env("KINLOCK_LOCK", lock));
        assert!(output.status.success(), "{output:?}");
        let counts = fs::read_to_string(&path).expect("counts");
        assert_eq!(counts.lines().count(), 1, "{counts}");
        assert!(
            counts.ends_with("}\n") && counts.starts_with("{\"pid\":"),
            "{counts}"
        );
        assert!(counts.contains(&format!("\"lock\":\"{lock}\"")), "{counts}");
        assert!(counts.contains("known\""), "{counts}");
        let expected = [
            // Two of `mutex` that wait, one that tries, three shared, one robust, the spinlock,
            // three of the reader-writer lock.
            ("locked", 11),
            ("contended", 2),
            ("tries", 3),
            ("rw_reads", 2),
            ("rw_writes", 1),
            ("robust", 2),
            ("pi", 0),
            ("protect", 0),
            ("shared", 6),
            ("cond_waits", 1),
            ("cond_signals", 2),
            ("threads", 2),
            // 2 and 2 of `mutex` by lock and unlock, 2 tries and an unlock, 3 of the condition
            // variable, 2 inits, 6 and 2 of the delegated ones, 3 of the spinlock, 9 of the
            // reader-writer lock.
            ("calls", 32),
        ];
        for (name, value) in expected {
            assert_eq!(number(&counts, name), value, "{lock}: {name} in {counts}");
        }
        let waited = u128::from(number(&counts, "wait_ns"));
        assert!(
            (10_000_000..start.elapsed().as_nanos()).contains(&waited),
            "{counts}"
        );
    }
}

/// A copy of the library that does not know that it stays loaded gives no thread a place in a
/// queue. Its waits still work, but slowly.
#[test]
fn waiting_threads_queue() {
    let output = run(&mut Program::of("places.c").command());
    assert!(output.status.success(), "{output:?}");
    assert_eq!(text(&output.stdout), "1 1\n");
}

/// The program looks for the reader count where the C library keeps it. A lock of ours has nothing
/// there.
#[test]
fn rwlocks_are_whose_was_asked_for() {
    let program = Program::of("whose.c");
    for (lock, rwlock, expected) in [
        (None, None, "ours\n"),
        (None, Some("glibc"), "the C library's\n"),
        (Some("kinlock-spin"), None, "ours\n"),
        (Some("pthread"), None, "the C library's\n"),
        (Some("pthread"), Some("ours"), "ours\n"),
    ] {
        let mut command = program.command();
        let set = [("KINLOCK_LOCK", lock), ("KINLOCK_RWLOCK", rwlock)];
        command.envs(
            set.into_iter()
                .filter_map(|(name, value)| Some((name, value?))),
        );
        assert_eq!(
            text(&run(&mut command).stdout),
            expected,
            "{lock:?} {rwlock:?}"
        );
    }
}

#[test]
fn children_count_for_themselves() {
    let path = scratch("counts");
    let program = Program::of("known.c").with(&["fork"]);
    let output = run(program.command().env("KINLOCK_COUNTS", &path));
    assert!(output.status.success(), "{output:?}");
    let counts = fs::read_to_string(&path).expect("counts");
    let lines: Vec<_> = counts.lines().collect();
    assert_eq!(lines.len(), 2, "{counts}");
    assert_eq!(
        (number(lines[0], "calls"), number(lines[0], "threads")),
        (2, 1),
        "{counts}"
    );
    assert_eq!(number(lines[1], "calls"), 32, "{counts}");
    assert_ne!(number(lines[0], "pid"), number(lines[1], "pid"));
}

#[test]
fn a_quick_exit_leaves_its_counts() {
    let path = scratch("counts");
    let output = run(Program::of("quick.c")
        .command()
        .env("KINLOCK_COUNTS", &path));
    assert!(output.status.success(), "{output:?}");
    let counts = std::fs::read_to_string(path).expect("it was written");
    assert_eq!((counts.lines().count(), number(&counts, "locked")), (1, 3));
}

#[test]
fn bad_values_are_reported_once_and_ignored() {
    let program = Program::of("known.c");
    for (name, value, said) in [
        (
            "KINLOCK_LOCK",
            "mcs".to_owned(),
            "kinlock: ignoring KINLOCK_LOCK: expected kinlock-mutex, kinlock-spin or pthread\n",
        ),
        (
            "KINLOCK_RWLOCK",
            "theirs".to_owned(),
            "kinlock: ignoring KINLOCK_RWLOCK: expected ours or glibc\n",
        ),
        (
            "KINLOCK_COUNTS",
            "x".repeat(5000),
            "kinlock: ignoring KINLOCK_COUNTS: the path is too long\n",
        ),
        (
            "KINLOCK_COUNTS",
            "/nonexistent/counts".to_owned(),
            "kinlock: cannot open the file for the counts\n",
        ),
        (
            "KINLOCK_REPORT",
            "x".repeat(5000),
            "kinlock: ignoring KINLOCK_REPORT: the path is too long\n",
        ),
        // The library prints nothing if there is no place for a table: many processes may have
        // none, and the command says it once.
        ("KINLOCK_REPORT", "/nonexistent/report".to_owned(), ""),
    ] {
        let output = run(program.command().env(name, value));
        assert!(output.status.success());
        assert_eq!(text(&output.stderr), said);
    }
}

#[test]
fn a_program_without_locks_is_warned_of() {
    let warned =
        |command: &mut Command| text(&run(command.env("KINLOCK_WARN", "1")).stderr).to_owned();
    assert_eq!(warned(Command::new("true").env("LC_ALL", "C")), WARNING);
    assert_eq!(warned(&mut Program::of("known.c").command()), "");
    let unasked = run(&mut Command::new("true"));
    assert_eq!(text(&unasked.stderr), "");
    // What its child does is not known here.
    assert_eq!(warned(&mut Program::of("afterwards.c").command()), "");
}

/// A program may close stderr, and its data may get the descriptor.
#[test]
fn no_line_gets_into_a_file_of_the_program() {
    let program = |called: &str| {
        let data = scratch("data");
        let program = Program::of("afterwards.c");
        let program = program.with(&[data.to_str().expect("a path"), called]);
        (program, data)
    };
    let (silent, data) = program("");
    let output = run(silent.command().env("KINLOCK_WARN", "1"));
    assert!(output.status.success(), "{output:?}");
    assert_eq!(fs::read_to_string(data).expect("data"), "data\n");
    let wrong = [
        ("KINLOCK_COUNTS", "/nonexistent/counts".to_owned()),
        ("KINLOCK_COUNTS", "x".repeat(5000)),
        ("KINLOCK_LOCK", "mcs".to_owned()),
    ];
    for (name, value) in wrong {
        let (locks, data) = program("locks");
        let output = run(locks.command().env(name, &value));
        assert!(output.status.success(), "{output:?}");
        let data = fs::read_to_string(data).expect("data");
        assert_eq!(data, "data\n", "{name}={value}");
    }
}

/// The library removes itself under whatever name it was preloaded.
#[test]
fn children_are_left_alone_on_demand() {
    let own = library();
    let own = own.to_str().expect("a path");
    let other = scratch("other.so");
    std::os::unix::fs::symlink(own, &other).expect("a link");
    let other = other.to_str().expect("a path");
    let folder = std::path::Path::new(other).parent().expect("a folder");
    let name = other.rsplit('/').next().expect("a name");
    for (preloaded, left) in [
        (format!("{own}:libc.so.6"), "libc.so.6"),
        (format!("{other}:libc.so.6"), "libc.so.6"),
        (format!("libc.so.6 {other}"), "libc.so.6"),
        (name.to_owned(), ""),
        (format!("{other}:x{name}"), &format!("x{name}")),
    ] {
        for (no_children, expected) in [("0", &preloaded[..]), ("1", left)] {
            let mut command = Command::new("env");
            command
                .env("LD_PRELOAD", &preloaded)
                .env("LD_LIBRARY_PATH", folder)
                .env("KINLOCK_NO_CHILDREN", no_children);
            let output = command.output().expect("it starts");
            assert!(output.status.success(), "{output:?}");
            let mut lines = text(&output.stdout).lines();
            let found = lines.find_map(|line| line.strip_prefix("LD_PRELOAD="));
            assert_eq!(found, Some(expected), "{preloaded}");
        }
    }
}
