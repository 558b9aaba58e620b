//! `kinlock run --report` stays behind: the program must not notice, and nothing may be lost.

mod support;

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;
use support::{Place, compiled, kinlock, list, silent_library, text, until};

const SOURCE: &str = include_str!("programs/staying.c");

impl Place {
    fn new() -> Self {
        Place::of("staying", "-O1 -g -w -pthread", SOURCE)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = kinlock();
        command.args(["run", "--report", "--json"]);
        command.arg(self.file("json")).arg("--");
        command.arg(self.file("staying")).args(words);
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        let output = self.command(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {output:?}");
        output
    }

    /// Of each process, how often it took locks.
    fn locked(&self) -> Vec<u64> {
        let report = self.json();
        let processes = list(&report["processes"]).iter();
        let mut all: Vec<_> = processes
            .map(|process| sum(list(&process["locks"]), "locked"))
            .collect();
        all.sort_unstable();
        all
    }
}

fn sum(all: &[Value], field: &str) -> u64 {
    all.iter().map(|one| one[field].as_u64().unwrap()).sum()
}

#[test]
fn threads_that_lock_first_together_are_all_counted() {
    let place = Place::new();
    for (threads, locked) in [(2, 2000), (4, 4000), (16, 16_000)] {
        for _ in 0..5 {
            let output = place.run(&["together", &threads.to_string()]);
            assert_eq!(text(&output.stdout), format!("{locked}\n"));
            assert_eq!(place.locked(), [locked]);
            let report = place.json();
            let process = &report["processes"][0];
            // And the one that waits for their ends.
            assert_eq!(process["threads_seen"], threads + 1);
            // What callers waited is estimated, but no more than what is known.
            let lock = &process["locks"][0];
            let callers = list(&lock["callers"]);
            assert!(sum(callers, "wait_ns") <= lock["wait"]["total_ns"].as_u64().unwrap());
            assert!(sum(callers, "contended") <= lock["contended"].as_u64().unwrap());
        }
    }
}

#[test]
fn a_child_without_fork_handlers_counts_for_itself() {
    let place = Place::new();
    place.run(&["cloned"]);
    assert_eq!(place.locked(), [1000, 1001]);
    let report = place.json();
    let processes = list(&report["processes"]);
    let parents = [&processes[0]["parent"], &processes[1]["parent"]];
    let pids = [&processes[0]["pid"], &processes[1]["pid"]];
    assert!(
        parents[0] == pids[1] || parents[1] == pids[0],
        "{parents:?}"
    );
}

#[test]
fn what_threads_did_that_ended_is_kept() {
    let place = Place::new();
    let mut command = kinlock();
    command.args(["run", "--report", "--by", "thread", "--json"]);
    command.arg(place.file("json")).arg("--");
    command.arg(place.file("staying")).args(["churn", "3000"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let report = place.json();
    let process = &report["processes"][0];
    assert_eq!(process["threads_seen"], 3001);
    let ended = &process["ended_threads"];
    let threads = list(&process["threads"]);
    assert_eq!(
        sum(threads, "contended") + ended["contended"].as_u64().unwrap(),
        3000
    );
    assert_eq!(
        threads.len() as u64 + ended["count"].as_u64().unwrap(),
        3001
    );
    let table = text(&output.stderr);
    assert!(table.contains(" that ended)"), "{table}");
    // All but the first acquisition waited, and ran out of time.
    let line = table.replace('\n', " ");
    assert!(line.contains("; 100 % were found taken"), "{table}");
    assert!(
        table.contains("3,001 threads took 1 lock 1 time in"),
        "{table}"
    );
}

/// Two hundred threads waited for half a second each; all others lived for less than that.
#[test]
fn threads_that_ended_count_in_a_limit() {
    let place = Place::new();
    let mut command = kinlock();
    command.args([
        "run",
        "--report=/dev/null",
        "--fail-if",
        "wait > 10 %",
        "--",
    ]);
    let output = command
        .arg(place.file("staying"))
        .arg("waited-before")
        .output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = text(&output.stderr);
    assert!(
        said.starts_with("kinlock: --fail-if 'wait > 10 %': it is "),
        "{said}"
    );
}

/// A program may forbid all but root to look at it.
#[test]
fn alarms_that_cannot_be_are_told() {
    let place = Place::new();
    let command = place.file("kinlock");
    fs::copy(kinlock().get_program(), &command).unwrap();
    let library = silent_library(place.0.path());
    fs::set_permissions(place.0.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = support::without_knobs(Command::new(command));
    command.args(["run", "--report=/dev/null", "--alarm-wait", "1s", "--"]);
    command.arg(place.file("staying")).arg("hidden");
    command.env("KINLOCK_PRELOAD", library);
    // SAFETY: it has no preconditions.
    if unsafe { libc::getuid() } == 0 {
        command.uid(65534).gid(65534);
    }
    command.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    let line = said.next().unwrap().unwrap();
    assert!(
        line.starts_with("kinlock: no alarms: cannot look at process "),
        "{line}"
    );
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    assert!(said.next().is_none());
}

/// No limit is kept by what was not measured.
#[test]
fn what_was_not_measured_exceeds_each_limit() {
    let place = Place::new();
    let program = place.file("staying").display().to_string();
    let run = |line: &str, words: &[&str]| {
        let mut command = support::without_knobs(Command::new("sh"));
        command.args(["-c", line]).arg(kinlock().get_program());
        command.args([
            "run",
            "--report=/dev/null",
            "--fail-if",
            "hold > 1000 s",
            "--",
        ]);
        let output = command.args(words).output().unwrap();
        (output.status.code(), text(&output.stderr).to_owned())
    };
    const EXEC: &str = "exec \"$0\" \"$@\"";
    let begin = "kinlock: --fail-if 'hold > 1000 s': not measured: ";
    for (line, words, expected) in [
        (
            EXEC,
            &["env", "-i", &program, "once"][..],
            "the program: it ended without",
        ),
        (
            EXEC,
            &["sh", "-c", "rm -r \"${KINLOCK_REPORT%/*}\""],
            "nothing: the report could not be made\n",
        ),
        (
            EXEC,
            &["sh", "-c", "rm \"${KINLOCK_REPORT%/*}\"/*"],
            "all processes: No such file or directory",
        ),
        (
            "ulimit -f 1; exec \"$0\" \"$@\"",
            &[&program, "once"],
            "all processes: File too large",
        ),
        (
            EXEC,
            &["sh", "-c", "ulimit -f 1; exec \"$0\" once", &program],
            "1 process: File too large",
        ),
    ] {
        let (status, said) = run(line, words);
        assert_eq!(status, Some(1), "{words:?}: {said}");
        let expected = format!("{begin}{expected}");
        assert!(said.contains(&expected), "{words:?}: {said}");
    }
    // A program that takes no lock has been measured.
    for words in [&["true"][..], &["sh", "-c", "exit 0"], &[&program, "none"]] {
        assert_eq!(run(EXEC, words), (Some(0), String::new()), "{words:?}");
    }
}

#[test]
fn each_acquisition_of_a_reader_writer_lock_counts() {
    let place = Place::new();
    place.run(&["rwlocks"]);
    let report = place.json();
    let locks = list(&report["processes"][0]["locks"]).iter();
    let sides = locks.filter(|lock| lock["kind"] == "rwlock");
    let mut sides: Vec<_> = sides.map(|l| (&l["side"], &l["locked"])).collect();
    sides.sort_by_key(|side| side.0.as_str());
    let expected = [(&"read".into(), &21.into()), (&"write".into(), &3.into())];
    assert_eq!(sides, expected, "{report:#}");
}

#[test]
fn a_process_without_locks_is_a_line() {
    let place = Place::new();
    let table = text(&place.run(&["none"]).stderr).to_owned();
    assert!(table.contains("took no pthread lock in "), "{table}");
    let unseen = "; locks of Rust's std and of Go are not seen, those of the crate kinlock only \
                  with its feature report\n";
    assert!(table.ends_with(unseen), "{table}");
    assert_eq!(table.trim().lines().count(), 1, "{table}");
}

#[test]
fn a_process_is_called_by_its_last_title() {
    let place = Place::new();
    place.run(&["renamed"]);
    let program = place.json()["processes"][0]["program"].clone();
    assert!(program.as_str().unwrap().contains("title"), "{program}");
}

/// Servers end their processes by signals.
#[test]
fn a_killed_process_is_called_by_the_title_of_its_last_new_lock() {
    let place = Place::new();
    let output = place.command(&["killed"]).output().unwrap();
    assert_eq!(output.status.signal(), Some(libc::SIGKILL));
    let program = place.json()["processes"][0]["program"].clone();
    assert!(program.as_str().unwrap().contains("title"), "{program}");
}

#[test]
fn a_program_that_was_replaced_has_ended() {
    let place = Place::new();
    let begin = Instant::now();
    place.run(&["replaced"]);
    let all = begin.elapsed().as_secs_f64();
    let report = place.json();
    let processes = list(&report["processes"]);
    let seconds = |locked: u64| {
        let mut found = processes
            .iter()
            .filter(|p| sum(list(&p["locks"]), "locked") == locked);
        found.next().unwrap()["seconds"].as_f64().unwrap()
    };
    // The second program slept for three seconds, in which the first one did not exist.
    assert!(
        seconds(2) >= 3.0 && seconds(1) + seconds(2) <= all,
        "{report:#}"
    );
}

/// A command that runs in a file system for tables of that size. `None` if that is not permitted.
fn in_memory_of(size: &str, command: &Command) -> Option<Command> {
    let script = format!("mount -t tmpfs -o size={size} tmpfs /dev/shm && exec \"$@\"");
    let mut inner = Command::new("unshare");
    inner.args(["-m", "sh", "-c"]);
    let may = inner.arg(format!("mount -t tmpfs -o size={size} tmpfs /dev/shm"));
    if !may.output().is_ok_and(|output| output.status.success()) {
        eprintln!("WARNING: no mount is permitted: a small /dev/shm is NOT tested");
        return None;
    }
    let mut outer = support::with_library(Command::new("unshare"));
    outer.args(["-m", "sh", "-c"]).arg(script).arg("sh");
    outer.arg(command.get_program()).args(command.get_args());
    Some(outer)
}

#[test]
fn two_hundred_children_fit_in_64_mib() {
    let place = Place::new();
    let command = place.command(&["at-once", "200"]);
    let Some(mut command) = in_memory_of("64m", &command) else {
        return;
    };
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(text(&output.stdout), "over\n");
    let locked = place.locked();
    assert_eq!((locked.len(), locked.iter().sum()), (201, 2001));
    assert_eq!(place.json()["without_table"], 0);
}

/// Where another file has filled the memory before the command starts.
#[test]
fn a_file_system_that_is_full_already_is_not_used() {
    let place = Place::new();
    let command = place.command(&["together", "2"]);
    let mut full = Command::new("sh");
    let fill = "head -c 100000 /dev/zero >/dev/shm/fill 2>&1; exec \"$0\" \"$@\"";
    full.args(["-c", fill])
        .arg(command.get_program())
        .args(command.get_args());
    let Some(mut command) = in_memory_of("64k", &full) else {
        return;
    };
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(place.locked(), [2000]);
}

/// As in a build root.
#[test]
fn there_may_be_no_proc() {
    let place = Place::new();
    let without = |words: &[&str]| {
        let script = "mount -t tmpfs tmpfs /proc && exec \"$@\"";
        let mut command = support::without_knobs(Command::new("unshare"));
        command.args(["-m", "sh", "-c", script, "sh"]);
        command.args(words).output().unwrap()
    };
    if !without(&["true"]).status.success() {
        eprintln!("WARNING: no mount is permitted: a system without /proc is NOT tested");
        return;
    }
    // It has to find its library, as an installed one does.
    let tree = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let [command, library] =
        ["bin/kinlock", "lib/kinlock/libkinlock_preload.so"].map(|name| tree.path().join(name));
    for (from, to) in [
        (Path::new(env!("CARGO_BIN_EXE_kinlock")), &command),
        (&support::library(), &library),
    ] {
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::hard_link(from, to).unwrap();
    }
    let command = command.to_str().unwrap();
    let program = place.file("staying");
    let json = place.file("json");
    let (program, file) = (program.to_str().unwrap(), json.to_str().unwrap());
    for words in [
        &["run"][..],
        &["run", "--standby"],
        &["run", "--counts", "/dev/stdout"],
        &["record", "-o", "/dev/null"],
        &["run", "--report", "--json", file],
    ] {
        let all = [&[command][..], words, &["--", program, "together", "2"]].concat();
        let output = without(&all);
        assert!(output.status.success(), "{words:?}: {output:?}");
        assert_eq!(text(&output.stdout), "2000\n", "{words:?}: {output:?}");
    }
    assert_eq!(place.locked(), [2000]);
    // Names are there, too: the program's file is found.
    let name = &place.json()["processes"][0]["locks"][0]["name"];
    assert!(!name.as_str().unwrap().contains("0x"), "{name}");
    let output = without(&[command, "report", "1"]);
    assert!(
        text(&output.stderr).contains("there is no /proc"),
        "{output:?}"
    );
}

/// As in a container without `/dev/shm`: a mapping there is not seen as a use of the file.
#[test]
fn tables_in_an_overlay_are_kept_until_the_report() {
    let place = Place::new();
    let command = place.command(&["renamed"]);
    let script =
        "mount -t tmpfs tmpfs \"$TMPDIR\" && cd \"$TMPDIR\" && mkdir below above work all &&
        mount -t overlay -o lowerdir=below,upperdir=above,workdir=work overlay all &&
        cd / && exec \"$@\"";
    let folder = place.file("folder");
    fs::create_dir(&folder).unwrap();
    let mut outer = support::with_library(Command::new("unshare"));
    outer
        .args(["-m", "sh", "-c", script, "sh"])
        .env("TMPDIR", &folder);
    let Some(mut outer) = in_memory_of("0,ro", &outer) else {
        return;
    };
    outer.args([
        "env".as_ref(),
        "-C".as_ref(),
        folder.join("all").as_os_str(),
    ]);
    outer.arg(format!("TMPDIR={}", folder.join("all").display()));
    outer.arg(command.get_program()).args(command.get_args());
    let output = outer.env("TMPDIR", &folder).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(list(&place.json()["processes"]).len(), 1, "{output:?}");
}

#[test]
fn a_full_file_system_is_a_line_in_the_report() {
    let place = Place::new();
    for size in ["4k", "64k", "200k"] {
        let command = place.command(&["at-once", "20"]);
        let Some(mut command) = in_memory_of(size, &command) else {
            return;
        };
        let output = command.output().unwrap();
        assert!(output.status.success(), "{size}: {output:?}");
        assert_eq!(text(&output.stdout), "over\n", "{size}");
        let errors = text(&output.stderr);
        assert_eq!(
            errors.matches("no table could be made").count(),
            1,
            "{errors}"
        );
        let report = place.json();
        let processes = list(&report["processes"]).len() as u64;
        if size != "4k" {
            assert_eq!(processes + report["without_table"].as_u64().unwrap(), 21);
        }
    }
}

/// Memory ends in the middle of anything: of a thread's tallies, of a lock, of a path.
#[test]
fn a_full_file_system_ends_no_process() {
    let place = Place::new();
    for size in ["8m", "16m", "24m"] {
        let command = place.command(&["crowded", "80"]);
        let Some(mut command) = in_memory_of(size, &command) else {
            return;
        };
        let output = command.output().unwrap();
        assert_eq!(text(&output.stdout), "over\n", "{size}: {output:?}");
        assert!(output.status.success(), "{size}: {output:?}");
        // All children are there, or the report says how many are not.
        let report = place.json();
        let processes = list(&report["processes"]).len() as u64;
        assert_eq!(processes + report["without_table"].as_u64().unwrap(), 80);
    }
}

#[test]
fn a_limit_on_file_sizes_is_a_line_in_the_report() {
    let place = Place::new();
    let mut command = place.command(&["at-once", "3"]);
    let limit = libc::rlimit {
        rlim_cur: 1 << 20,
        rlim_max: 1 << 20,
    };
    // SAFETY: a system call with a copy.
    unsafe {
        command.pre_exec(move || {
            libc::setrlimit(libc::RLIMIT_FSIZE, &limit);
            Ok(())
        })
    };
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(text(&output.stdout), "over\n");
    // Its children have not tried.
    let errors = text(&output.stderr).trim();
    assert!(
        errors.contains("1 process is not in this report: no table could be made"),
        "{errors}"
    );
    assert_eq!(errors.lines().count(), 1, "{errors}");
}

/// Where the tables of a running program are.
fn folder_of(program: u32) -> Option<PathBuf> {
    let environment = fs::read(format!("/proc/{program}/environ")).ok()?;
    let mut entries = environment.split(|&byte| byte == 0);
    let prefix = entries.find_map(|entry| entry.strip_prefix(b"KINLOCK_REPORT="))?;
    Some(Path::new(text(prefix)).parent()?.to_owned())
}

/// A command and the program that it runs, which has written a line.
fn ready(mut command: Command) -> (Child, PathBuf, BufReader<ChildStdout>) {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    let program = fs::read_to_string(children).unwrap();
    // One of them is the command's own.
    let mut children = program.split_whitespace().map(|pid| pid.parse().unwrap());
    let folder = children.find_map(folder_of).unwrap();
    (child, folder, lines)
}

#[test]
fn tables_go_when_their_processes_end() {
    let place = Place::new();
    let (mut child, folder, _lines) = ready(place.command(&["in-turn", "50"]));
    let names = || support::files(&folder);
    // That of the parent, and what all share.
    until("50 tables stay", || names().len() == 2);
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    assert!(!folder.exists());
    let locked = place.locked();
    assert_eq!((locked.len(), locked.iter().sum()), (51, 501));
}

#[test]
fn what_a_killed_command_left_is_removed_by_the_next() {
    let place = Place::new();
    let (mut killed, left, _lines) = ready(place.command(&["in-turn", "1"]));
    let (mut running, kept, _lines) = ready(place.command(&["in-turn", "1"]));
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(left.exists() && kept.exists());
    let long_ago = SystemTime::now() - Duration::from_secs(3600);
    for folder in [&left, &kept] {
        File::open(folder).unwrap().set_modified(long_ago).unwrap();
    }
    let output = kinlock().args(["run", "--report", "true"]).output();
    assert!(output.unwrap().status.success());
    assert!(!left.exists() && kept.exists());
    drop(running.stdin.take());
    assert!(running.wait().unwrap().success());
}

#[test]
fn a_daemon_is_named_and_left_in_peace() {
    let place = Place::new();
    // One that has locked, and one that has not.
    for (locks, expected) in [("600", vec![1, 600]), ("0", vec![1])] {
        let errors = place.file("errors");
        let mut command = place.command(&["daemon", locks]);
        let mut child = command
            .stdin(Stdio::piped())
            .stderr(File::create(&errors).unwrap())
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        assert!(child.wait().unwrap().success());
        let said = fs::read_to_string(&errors).unwrap();
        assert!(
            said.contains("(staying) still runs: what it does from now on is not in this report"),
            "{said}"
        );
        assert_eq!(place.locked(), expected);
        assert_eq!(list(&place.json()["still_running"]).len(), 1);
        drop(input);
        let read = || fs::read_to_string(&errors).unwrap();
        until("the daemon stays", || read().contains("the daemon ends"));
        assert_eq!(read(), said + "the daemon ends\n");
    }
}

/// Where its segments are far apart, the loader knows a program by several ranges of addresses.
#[test]
fn a_program_with_gaps_has_names() {
    let folder = tempfile::tempdir().unwrap();
    let source = r#"
        #include <pthread.h>
        pthread_mutex_t lock_of_it = PTHREAD_MUTEX_INITIALIZER;
        char large[1 << 20];
        __attribute__((noinline)) void takes_it(void) {
            pthread_mutex_lock(&lock_of_it), pthread_mutex_unlock(&lock_of_it);
            __asm__ volatile("");
        }
        int main(void) { for (int i = 0; i < 100; i++) takes_it(); }
    "#;
    for flags in ["", "-Wl,-z,max-page-size=0x200000", "-Wl,--build-id=none"] {
        let flags = format!("-O1 -g -pthread {flags}");
        let program = compiled(folder.path(), "gap", &flags, source);
        let mut command = kinlock();
        let output = command
            .args(["run", "--report", "--"])
            .arg(program)
            .output();
        let output = output.unwrap();
        let table = text(&output.stderr);
        assert!(output.status.success(), "{output:?}");
        assert!(
            table.contains("lock_of_it") && table.contains("takes_it (gap.c:"),
            "{table}"
        );
        assert!(!table.contains("no names from"), "{table}");
    }
}

/// The program headers of a library may be anywhere in its file, at another distance from its
/// beginning than in memory.
#[test]
fn a_library_with_moved_headers_is_survived() {
    let folder = tempfile::tempdir().unwrap();
    let library = r#"
        #include <pthread.h>
        static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
        int take(void) { return !pthread_mutex_lock(&lock) && !pthread_mutex_unlock(&lock); }
    "#;
    let flags = "-O1 -w -shared -fPIC -pthread -Wl,-z,max-page-size=0x200000";
    let library = compiled(folder.path(), "libtake.so", flags, library);
    let program = r#"
        #include <stdio.h>
        int take(void);
        int main(void) { int n = 0; for (int i = 0; i < 100; i++) n += take(); printf("%d\n", n); }
    "#;
    let place = folder.path().display();
    let flags = format!("-O1 -w -L{place} -Wl,-rpath,{place}");
    let source = folder.path().join("main.c");
    fs::write(&source, program).unwrap();
    let main = folder.path().join("main");
    let mut compiler = Command::new("cc");
    compiler
        .args(flags.split_whitespace())
        .arg(&source)
        .arg("-ltake");
    assert!(compiler.arg("-o").arg(&main).status().unwrap().success());
    let moved = with_moved_headers(fs::read(&library).unwrap());
    fs::remove_file(&library).unwrap();
    fs::write(&library, moved).unwrap();
    let alone = Command::new(&main).output().unwrap();
    assert_eq!(
        text(&alone.stdout),
        "100\n",
        "the loader takes it: {alone:?}"
    );
    let mut command = kinlock();
    let output = command.args(["run", "--report", "--"]).arg(main).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(text(&output.stdout), "100\n");
}

/// An ELF file with the program headers at its end, and a segment that loads them. A segment that
/// is not needed makes room for that one.
fn with_moved_headers(mut file: Vec<u8>) -> Vec<u8> {
    const ENTRY: usize = 56;
    const LOAD: u32 = 1;
    const NOT_NEEDED: [u32; 2] = [4, 0x6474_e553];
    let number =
        |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let kind = |entry: &[u8]| u32::from_le_bytes(entry[..4].try_into().unwrap());
    let begin = number(&file, 32) as usize;
    let count = usize::from(u16::from_le_bytes([file[56], file[57]]));
    let mut entries: Vec<Vec<u8>> = file[begin..begin + count * ENTRY]
        .chunks(ENTRY)
        .map(<[u8]>::to_vec)
        .collect();
    let spare = entries
        .iter()
        .position(|entry| NOT_NEEDED.contains(&kind(entry)));
    entries.remove(spare.expect("a segment that is not needed"));
    file.resize(file.len().next_multiple_of(4096), 0);
    let at = file.len() as u64;
    let loaded = entries.iter().filter(|entry| kind(entry) == LOAD);
    let ends = loaded.map(|entry| number(entry, 16) + number(entry, 40));
    let address = ends.max().unwrap().next_multiple_of(4096);
    let size = (count * ENTRY) as u64;
    let mut new = Vec::new();
    new.extend(LOAD.to_le_bytes());
    new.extend(4_u32.to_le_bytes());
    for word in [at, address, address, size, size, 4096] {
        new.extend(word.to_le_bytes());
    }
    let last = entries.iter().rposition(|entry| kind(entry) == LOAD);
    entries.insert(last.unwrap() + 1, new);
    file.extend(entries.concat());
    file[32..40].copy_from_slice(&at.to_le_bytes());
    file
}
