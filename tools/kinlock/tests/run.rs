//! `kinlock run`: except for the library, the program runs as it would without the command.

mod support;

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use support::{
    ALL, Bare, compiled, is_refusal, kinlock, number, says, script, text, without_knobs,
};

impl Bare {
    fn new() -> Self {
        Bare::of("run")
    }

    fn program(&self, name: &str, flags: &str) -> String {
        compiled(self.path(), name, flags, "int main() { return 7; }");
        format!("./{name}")
    }

    fn script(&self, name: &str, text: impl AsRef<[u8]>) -> String {
        script(self.path(), name, text);
        format!("./{name}")
    }
}

#[test]
fn status_signal_input_and_output_are_those_of_the_program() {
    let place = Bare::new();
    let own = place.program("own", "");
    assert_eq!(place.run(&[&own]).status.code(), Some(7));
    let killed = place.run(&["--", "sh", "-c", "kill -USR1 $$"]);
    assert_eq!(killed.status.signal(), Some(libc::SIGUSR1));
    let mut command = place.command(&["--quantum", "100us", "cat", "-u", "-"]);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let stdin = child.stdin.take();
    stdin.unwrap().write_all(b"to and fro").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.stdout, b"to and fro");
    let arguments = place.run(&["--", "printf", "%s|", "a b", "--help", "", "*"]);
    assert_eq!(text(&arguments.stdout), "a b|--help||*|");
    assert!(arguments.stderr.is_empty());
    let name = place.script("name", "echo $0\n");
    assert_eq!(text(&place.run(&[&name]).stdout), "./name\n");
}

const SHOW: &str =
    "env | grep -E '^(KINLOCK|LD_PRELOAD)' | grep -vE 'KINLOCK_(PRELOAD|WARN)' | sort";

#[test]
fn the_library_is_told_what_was_asked_for() {
    let place = Bare::new();
    let library = place.library.display();
    let mut command = place.command(&["--quantum=fair", "--numa=off", "--no-children"]);
    let command = command.args(["--lock", "kinlock-spin", "--local-limit", "2^5"]);
    let command = command.args(["--domain", "llc", "--", "sh", "-c", SHOW]);
    // A library that was preloaded already is kept, and comes first.
    let output = command.env("LD_PRELOAD", "libc.so.6").output().unwrap();
    let expected = format!(
        "KINLOCK_DOMAIN=llc\nKINLOCK_LOCAL_LIMIT=2^5\nKINLOCK_LOCK=kinlock-spin\n\
         KINLOCK_NO_CHILDREN=1\nKINLOCK_NUMA=off\nKINLOCK_QUANTUM=fair\n\
         LD_PRELOAD=libc.so.6:{library}\n"
    );
    assert_eq!(text(&output.stdout), expected);
    let without = place.run(&["--lock", "pthread", "--", "sh", "-c", SHOW]);
    assert_eq!(text(&without.stdout), "");
    let shared = [
        "--lock", "pthread", "--rwlock", "ours", "--", "sh", "-c", SHOW,
    ];
    let expected = format!("KINLOCK_LOCK=pthread\nKINLOCK_RWLOCK=ours\nLD_PRELOAD={library}\n");
    assert_eq!(text(&place.run(&shared).stdout), expected);
}

#[test]
fn a_shell_can_do_the_same_by_hand() {
    let mut place = Bare::new();
    let name = place.path().join("it's`id`\"*\\.so");
    fs::rename(&place.library, &name).unwrap();
    place.library = name;
    let flags = ["--lock", "kinlock-spin", "--quantum", "0us"];
    let by_command = place.run(&[&flags[..], &["sh", "-c", SHOW]].concat());
    let printed = place.run(&[&flags[..], &["--print-env"]].concat());
    assert!(printed.status.success() && printed.stderr.is_empty());
    let lines = format!("{}{SHOW}", text(&printed.stdout));
    let mut shell = without_knobs(Command::new("sh"));
    let shell = shell.arg("-c").arg(lines).output().unwrap();
    assert_eq!(text(&shell.stdout), text(&by_command.stdout));
    assert_eq!(text(&shell.stdout).lines().count(), 3);
}

/// Sets the variables that an outer command, of another version, may have left.
fn left(place: &Bare, command: &mut Command) {
    let names = "LOCK RWLOCK COUNTS REPORT RECORD ORDER STANDBY WARN NO_CHILDREN";
    for name in names.split_whitespace() {
        command.env(format!("KINLOCK_{name}"), "outer");
    }
    let copy = place.path().join("copy.so");
    fs::copy(&place.library, &copy).unwrap();
    let outer = "/usr/$LIB/libkinlock_preload.so";
    let all = format!("{outer} {}:libc.so.6:{outer}", copy.display());
    command.env("LD_PRELOAD", all);
}

#[test]
fn what_an_outer_command_left_is_not_passed_on() {
    let place = Bare::new();
    let library = place.library.display();
    let ours = format!("KINLOCK_LOCK=kinlock-mutex\nLD_PRELOAD=libc.so.6:{library}\n");
    let without = "LD_PRELOAD=libc.so.6\n".to_owned();
    let warning = "test -z \"$KINLOCK_WARN\" || test $KINLOCK_WARN = $$ || echo warns; ";
    let show = format!("{warning}{SHOW}");
    for (flags, expected) in [(&[][..], &ours), (&["--lock", "pthread"], &without)] {
        let mut command = place.command(&[flags, &["--", "sh", "-c", &show]].concat());
        left(&place, &mut command);
        // The knobs are the user's.
        let output = command.env("KINLOCK_NUMA", "off").output().unwrap();
        let expected = expected.replace("LD_PRELOAD", "KINLOCK_NUMA=off\nLD_PRELOAD");
        assert_eq!(text(&output.stdout), expected, "{flags:?}");
    }
    // A shell that evaluates the output still has the outer command's variables.
    for (flags, expected) in [(&[][..], ours), (&["--lock", "pthread"], without)] {
        let mut command = place.command(&[flags, &["--print-env"]].concat());
        left(&place, &mut command);
        let printed = command.output().unwrap();
        let mut shell = without_knobs(Command::new("sh"));
        let script = format!("{}{SHOW}", text(&printed.stdout));
        left(&place, shell.arg("-c").arg(script));
        let output = shell.env_remove("LD_PRELOAD").output().unwrap();
        let found = text(&output.stdout);
        assert_eq!(found, expected, "{flags:?}: {}", text(&printed.stdout));
    }
}

#[test]
fn counts_go_to_a_new_file_wherever_the_program_goes() {
    let place = Bare::new();
    let counts = place.path().join("counts");
    fs::write(&counts, "old\n").unwrap();
    let line = "cd / && /bin/true";
    let words = ["--counts", "counts", "--lock", "pthread", "sh", "-c", line];
    let output = place.command(&words).env("LINE", "{}").output().unwrap();
    assert!(output.status.success());
    assert_eq!(fs::read_to_string(&counts).unwrap(), "{}\n");
    place.refuses(2, &["--counts", "-", "true"], "stdout is the program's");
    place.refuses(2, &["--counts", "no/file", "true"], "cannot write no/file");
}

#[test]
fn programs_are_found_as_shells_do() {
    let place = Bare::new();
    for (folder, mode) in [("first", 0o644), ("second", 0o755)] {
        fs::create_dir(place.path().join(folder)).unwrap();
        let path = script(&place.path().join(folder), "prog", "echo $0\n");
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
    let run = |path: &str| {
        let mut command = place.command(&["prog"]);
        command.env("PATH", path).output().unwrap()
    };
    // The first file may not be executed; the second may.
    let output = run("nowhere:first:second:/bin");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(run("nowhere:first").status.code(), Some(126));
    assert_eq!(run("nowhere").status.code(), Some(127));
    place.refuses(127, &["nowhere/prog"], "nowhere/prog: not found");
    place.refuses(127, &["no-such-program"], "no-such-program: not found");
    place.refuses(127, &["--", ""], ": not found");
    place.refuses(126, &["first/prog"], "may not be executed");
    place.refuses(126, &["/bin"], "it is a folder");
}

#[test]
fn programs_that_the_library_does_not_reach_are_refused() {
    let place = Bare::new();
    let own = place.program("own", "");
    for (name, flags, expected) in [
        ("static", "-static", "statically linked"),
        ("static-pie", "-static-pie", "statically linked"),
        ("tsan", "-fsanitize=thread", "ThreadSanitizer"),
        ("asan", "-fsanitize=address", "AddressSanitizer"),
    ] {
        place.refuses(126, &[&place.program(name, flags)], expected);
    }
    let bytes = fs::read(place.path().join("own")).unwrap();
    let changed = |at: usize, value: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = value;
        bytes
    };
    // Checkers of threads and sanitizers that are used in other ways are refused, too.
    place.script("valgrind", "exit 5\n");
    for (tool, status) in [("drd", 126), ("helgrind", 126), ("memcheck", 5)] {
        let words = ["./valgrind", &format!("--tool={tool}"), &own, "--tool=none"];
        assert_eq!(place.run(&words).status.code(), Some(status), "{tool}");
        let mut command = place.command(&["./valgrind", &own, "--tool=drd"]);
        let command = command.env("VALGRIND_OPTS", format!("-q --tool={tool}"));
        assert_eq!(command.status().unwrap().code(), Some(status), "{tool}");
    }
    let mut command = place.command(&[&own]);
    let output = command.env("LD_PRELOAD", "libtsan.so.2").output().unwrap();
    assert_eq!(output.status.code(), Some(126));
    assert!(text(&output.stderr).contains("ThreadSanitizer"));
    let foreign = "another architecture (64-bit, ELF machine 243)";
    for (name, bytes, expected) in [
        ("foreign", changed(18, 243), foreign),
        ("narrow", changed(4, 1), "another architecture (32-bit"),
        ("torn", bytes[..70].to_vec(), "damaged"),
        ("garbage", b"\0\x01\x02".to_vec(), "neither an ELF program"),
    ] {
        place.refuses(126, &[&place.script(name, bytes)], expected);
    }
    // With --force they run.
    let forced = place.run(&["--force", "./static"]);
    assert_eq!(forced.status.code(), Some(7), "{forced:?}");
    assert!(text(&forced.stderr).contains("statically linked"));
    // Without a library there is nothing to refuse.
    let status = place.run(&["--lock", "pthread", "./static"]).status;
    assert_eq!(
        (status.code(), place.run(&[&own]).status.code()),
        (Some(7), Some(7))
    );
}

#[test]
fn scripts_are_as_good_as_their_interpreters() {
    let place = Bare::new();
    place.program("static", "-static");
    let text = place.script("text", "exit 5\n");
    let shell = place.script("shell", "#! /bin/sh -e\nexit 6\n");
    let nested = place.script("nested", format!("#!{shell} x\n"));
    for (name, status) in [(&text, 5), (&shell, 6), (&nested, 6)] {
        assert_eq!(place.run(&[name]).status.code(), Some(status), "{name}");
    }
    let bad = "./bad: its interpreter ./static: it is statically";
    for (name, interpreter, expected) in [
        ("bad", "./static", bad),
        ("gone", "/no/such", "its interpreter /no/such: not found"),
        ("circle", "./circle", "too many in a row"),
    ] {
        let script = place.script(name, format!("#!{interpreter}\n"));
        place.refuses(126, &[&script], expected);
    }
}

#[test]
fn privileged_programs_are_refused() {
    let place = Bare::new();
    // SAFETY: it has no preconditions.
    if unsafe { libc::getuid() } != 0 {
        // Only root can make a program that another user owns.
        place.refuses(126, &["su"], "set-uid");
        return;
    }
    for (name, uid, gid, mode) in [("su", 65534, 0, 0o4755), ("sg", 0, 65534, 0o2755)] {
        let program = place.program(name, "");
        let path = place.path().join(name);
        chown(&path, Some(uid), Some(gid)).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        place.refuses(126, &[&program], "so that nothing is preloaded");
        // The program gives its own user no privilege.
        chown(&path, Some(0), Some(0)).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        assert_eq!(place.run(&[&program]).status.code(), Some(7));
    }
}

#[test]
fn bad_input_is_one_line() {
    let place = Bare::new();
    place.refuses(2, &[], "required");
    place.refuses(2, &["--lok", "x", "true"], "--lok");
    let known = "known: kinlock-mutex, kinlock-spin, pthread";
    place.refuses(2, &["--lock", "std-mutex", "true"], known);
    place.refuses(2, &["--quantum", "1s", "true"], "0us to 1000us");
    place.refuses(2, &["--numa", "maybe", "true"], "auto, on or off");
    let missing = Bare {
        library: "no/library.so".into(),
        ..Bare::new()
    };
    missing.refuses(2, &["true"], "KINLOCK_PRELOAD=no/library.so: No such file");
    // Characters at which the loader would end the name, or which it would expand.
    for name in [
        "a b.so",
        "a:b.so",
        "a\tb.so",
        "a\nb.so",
        "$LIB",
        "${ORIGIN}",
        "a$b",
    ] {
        let folder = place.path().join(name);
        fs::create_dir_all(&folder).unwrap();
        let odd = Bare {
            library: folder.join("libkinlock_preload.so"),
            ..Bare::new()
        };
        fs::copy(&place.library, &odd.library).unwrap();
        for words in [&["true"][..], &["--print-env"], &["--report", "true"]] {
            odd.refuses(2, words, "a space or a colon in its path, or with a $");
        }
        // No folder for each platform is made there.
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "{name}");
    }
}

#[test]
fn an_installed_command_finds_the_installed_library() {
    // On the file system of the command, so that it can be linked.
    let tree = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let [bin, lib] = ["bin", "lib/kinlock"].map(|folder| tree.path().join(folder));
    fs::create_dir_all(&bin).unwrap();
    fs::create_dir_all(&lib).unwrap();
    let command = bin.join("kinlock");
    fs::hard_link(env!("CARGO_BIN_EXE_kinlock"), &command).unwrap();
    let print = || {
        let mut command = without_knobs(Command::new(&command));
        command.args(["run", "--print-env"]).output().unwrap()
    };
    let output = print();
    is_refusal(&output, 2, "lib/kinlock/libkinlock_preload.so nor");
    // The message says how to install the library where the command finds it.
    let prefix = tree.path().canonicalize().unwrap();
    let remedy = format!("make install-preload PREFIX={}", prefix.display());
    says(text(&output.stderr), &[&remedy]);
    for folder in [&bin, &lib] {
        let library = folder.join("libkinlock_preload.so");
        fs::write(&library, "").unwrap();
        let expected = format!("export LD_PRELOAD='{}", library.display());
        let output = print();
        assert!(text(&output.stdout).contains(&expected), "{output:?}");
    }
}

/// A command where cargo has put it has cargo build the library in the same folder, once.
#[test]
fn in_a_checkout_the_library_is_built() {
    let tree = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let target = tree.path().canonicalize().unwrap().join("target");
    let folder = target.join("debug");
    fs::create_dir_all(&folder).unwrap();
    fs::write(target.join("CACHEDIR.TAG"), "").unwrap();
    let command = folder.join("kinlock");
    fs::hard_link(env!("CARGO_BIN_EXE_kinlock"), &command).unwrap();
    let (library, said) = (support::library(), tree.path().join("said"));
    let text_of_cargo = format!(
        "#!/bin/sh\necho \"$@\" >>'{}'; cp '{}' '{}'\n",
        said.display(),
        library.display(),
        folder.display()
    );
    let cargo = script(tree.path(), "cargo", text_of_cargo);
    let run = || {
        let mut command = without_knobs(Command::new(&command));
        let output = command.env("CARGO", &cargo).args(["run", "true"]).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{output:?}");
        text(&output.stderr).contains("kinlock: building ")
    };
    assert!(run());
    assert!(!run());
    let expected = format!(
        "build --quiet --package kinlock-preload --profile dev --target-dir {}\n",
        target.display()
    );
    assert_eq!(fs::read_to_string(said).unwrap(), expected);
}

/// Becomes the program that its arguments name.
const LAUNCHER: &str = r#"
    #include <unistd.h>
    int main(int count, char **words) {
        return count < 2 || execv(words[1], words + 1);
    }
"#;

/// A program that the library does not reach may start programs that it reaches.
#[test]
fn a_static_program_may_start_others() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), "threads", "-pthread", THREADS);
    for (name, flags) in [("launcher", "-static"), ("stripped", "-static -s")] {
        let launcher = compiled(folder.path(), name, flags, LAUNCHER);
        let counts = folder.path().join(format!("{name}.counts"));
        let mut command = kinlock();
        let command = command.args(["run", "--counts"]).arg(&counts).arg("--");
        let output = command.arg(&launcher).arg(&program).output().unwrap();
        assert_eq!(text(&output.stdout), "40000\n", "{output:?}");
        let note = "programs that it starts get the library";
        says(text(&output.stderr), &[note]);
        let counts = fs::read_to_string(counts).unwrap();
        assert_eq!(counts.lines().count(), 2, "{counts}");
    }
}

/// A program with many symbols starts as fast as others: symbols are not read one by one.
#[test]
fn many_symbols_are_few_reads() {
    let folder = tempfile::tempdir().unwrap();
    let variables: String = (0..20_000).map(|n| format!("char v{n};")).collect();
    let main = r#"
        #include <stdio.h>
        int main() {
            FILE *file = fopen("/proc/self/io", "r");
            long calls;
            if (!file || fscanf(file, "rchar: %*d wchar: %*d syscr: %ld", &calls) != 1) calls = -1;
            return !printf("%ld", calls);
        }
    "#;
    let program = compiled(folder.path(), "many", "", &format!("{variables}{main}"));
    let output = kinlock().arg("run").arg(program).output().unwrap();
    // Calls before the command became the program count, too.
    let calls: i64 = text(&output.stdout).parse().unwrap();
    if calls < 0 {
        eprintln!("WARNING: the kernel does not count reads: NOT tested");
    }
    assert!(calls < 2000, "{calls} reads");
}

/// Children in which the library cannot work run as they do without it, and print nothing more.
#[test]
fn children_of_another_c_library_run_as_without() {
    const CHILD: &str = r#"
        #include <pthread.h>
        #include <stdio.h>
        int main() {
            static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
            pthread_mutex_lock(&lock);
            puts("child");
            fputs("errors\n", stderr);
            return pthread_mutex_unlock(&lock) + 5;
        }
    "#;
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("child.c");
    fs::write(&source, CHILD).unwrap();
    let folder = folder.path();
    let mut tried = 0;
    for (name, compiler, flags) in [
        ("musl", "musl-gcc", [].as_slice()),
        ("narrow", "cc", &["-m32", "-pthread"]),
        ("static", "cc", &["-static", "-pthread"]),
    ] {
        let child = folder.join(name);
        let mut compile = Command::new(compiler);
        let compile = compile.args(flags).arg(&source).arg("-o").arg(&child);
        if !compile.output().is_ok_and(|output| output.status.success()) {
            eprintln!("WARNING: no compiler for {name}: its children are NOT tested");
            continue;
        }
        tried += 1;
        let script = "\"$0\"; echo $?; \"$0\" >&2; echo $?";
        let line = ["sh", "-c", script, child.to_str().unwrap()];
        let without = Command::new(line[0]).args(&line[1..]).output().unwrap();
        assert_eq!(text(&without.stdout), "child\n5\n5\n", "{without:?}");
        for flags in [
            [].as_slice(),
            &["--lock", "kinlock-spin"],
            &["--no-children"],
        ] {
            let mut command = kinlock();
            let with = command.arg("run").args(flags).arg("--").args(line);
            // The library says so if a shell takes no lock and has not forked.
            let with = with.output().unwrap();
            let errors = text(&with.stderr);
            let errors: Vec<_> = errors
                .lines()
                .filter(|line| !line.contains("called no function"))
                .collect();
            assert_eq!(text(&with.stdout), text(&without.stdout), "{name}");
            let expected: Vec<_> = text(&without.stderr).lines().collect();
            assert_eq!(errors, expected, "{name}");
            assert_eq!(with.status.code(), without.status.code());
        }
    }
    assert_ne!(tried, 0);
}

const THREADS: &str = include_str!("programs/threads.c");

/// Runs a program on the library of this checkout, which the command finds. Returns the counts of
/// its processes.
fn counted(flags: &[&str]) -> Vec<serde_json::Value> {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), "threads", "-pthread", THREADS);
    let counts = folder.path().join("counts");
    let mut command = kinlock();
    let command = command.arg("run").args(flags).arg("--counts").arg(&counts);
    let output = command.arg("--").arg(program).output().unwrap();
    assert_eq!(text(&output.stdout), "40000\n", "{output:?}");
    let counts = fs::read_to_string(counts).unwrap();
    let lines = counts.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn a_real_program_runs_on_each_lock() {
    for lock in ALL {
        let all = counted(&["--lock", lock]);
        let locked = |index: usize| number(&all[index]["locked"]);
        // The child ends first.
        assert_eq!(all.len(), 2, "{all:?}");
        assert!(
            (1..100).contains(&locked(0)) && locked(1) >= 40_000,
            "{all:?}"
        );
        assert!(all.iter().all(|line| line["lock"] == lock), "{all:?}");
    }
    let alone = counted(&["--no-children"]);
    assert_eq!(alone.len(), 1, "{alone:?}");
}

#[test]
fn a_program_without_locks_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), "none", "", "int main() { return 0; }");
    let output = kinlock().arg("run").arg(program).output().unwrap();
    says(text(&output.stderr), &["called no function"]);
    assert!(output.status.success() && output.stdout.is_empty());
    // Its children need not call any such function.
    let mut command = kinlock();
    let script = "/bin/true; /bin/true; exec \"$0\" child";
    let program = compiled(folder.path(), "threads", "-pthread", THREADS);
    let command = command.args(["run", "sh", "-c", script]).arg(program);
    assert!(command.output().unwrap().stderr.is_empty());
}

#[test]
fn counts_of_before_survive_a_program_that_cannot_be_run() {
    let place = Bare::new();
    let file = place.path().join("counts");
    fs::write(&file, "before\n").unwrap();
    // The kernel refuses the program, and the command cannot know that.
    let broken = place.program("broken", "");
    let mut bytes = fs::read(place.path().join("broken")).unwrap();
    // The size of an entry of the table of program headers.
    bytes[54] = 1;
    fs::write(place.path().join("broken"), &bytes).unwrap();
    for words in [
        &["--counts", "counts", "--", "no-such-program"][..],
        &["--counts", "counts", "--", &broken],
        &["--report", "--counts", "counts", "--", &broken],
    ] {
        let output = place.run(words);
        assert!([126, 127].contains(&output.status.code().unwrap()));
        assert_eq!(fs::read_to_string(&file).unwrap(), "before\n", "{words:?}");
    }
    assert_eq!(
        place.run(&["--counts", "counts", "true"]).status.code(),
        Some(0)
    );
    assert!(!fs::read_to_string(&file).unwrap().contains("before"));
}
