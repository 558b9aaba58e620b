//! `kinlock compare`: its reports on programs whose behaviour is known.

mod support;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use support::{
    Bare, LINE, compiled, has_numbers, heeding_ctrl_c, kinlock, list, names, pipe_at, says_wrapped,
    script, send, until, without_knobs,
};

/// Prints a different number under each lock.
const SPEEDS: &str = "case $KINLOCK_LOCK in
    kinlock-mutex) echo 'speed: 7'; echo 'speed: 1,210' ;;
    kinlock-spin) echo 'speed: 800' ;;
    *) echo 'speed: 1000' >&2 ;;
esac
";

impl Bare {
    /// With a program `./program`.
    fn new(program: &str) -> Self {
        let place = Bare::of("compare");
        script(place.path(), "program", program);
        place
    }

    /// Runs the command, which has to succeed without output on stderr. Returns its stdout.
    fn says(&self, words: &[&str]) -> String {
        let output = self.run(words);
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && message.is_empty(), "{message}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn json(&self, words: &[&str]) -> Value {
        let text = self.says(&[&["--json", "-"], words].concat());
        serde_json::from_str(&text).expect("stdout is JSON")
    }
}

fn contains(text: &str, expected: &str) {
    says_wrapped(text, &[expected]);
}

const SPEED: [&str; 2] = ["--metric", "speed: ([0-9,]+)"];

#[test]
fn numbers_that_a_program_prints_are_compared_within_rounds() {
    let place = Bare::new(SPEEDS);
    let other = format!("other={}", place.library.display());
    let words = ["--locks", "kinlock-spin,kinlock-mutex,other", "--rounds=6"];
    let words = [&SPEED[..], &words, &["--preload", &other], &["./program"]].concat();
    let report = place.json(&words);
    assert_eq!(report["kind"], "measured");
    let locks = names(&report, "lock");
    // Of equal locks, the one that was named first comes first.
    assert_eq!(locks, ["kinlock-mutex", "other", "pthread", "kinlock-spin"]);
    let verdicts = ["better", "no_difference", "reference", "worse"];
    assert_eq!(names(&report, "verdict"), verdicts);
    let results = list(&report["results"]);
    let wins = results.iter().map(|entry| entry["ratio"]["wins"].as_u64());
    assert_eq!(wins.flatten().collect::<Vec<_>>(), [6, 0, 0, 0]);
    for entry in results {
        let numbers = "value.median ratio.median ratio.low ratio.high ratio.confidence cpu_s.max";
        has_numbers(entry, numbers);
        let rounds = list(&entry["rounds"]);
        assert_eq!(rounds.len(), 6);
        let numbers = "place value ratio status wall_s user_s system_s voluntary_switches";
        rounds.iter().for_each(|round| has_numbers(round, numbers));
    }
    assert_eq!(results[0]["ratio"]["median"], 1.21);
    // The order differs from round to round: no lock is always at the same place.
    for entry in results {
        let places = list(&entry["rounds"]).iter().map(|round| &round["place"]);
        let places: Vec<_> = places.collect();
        assert!(places.iter().any(|place| *place != places[0]), "{places:?}");
    }

    let less = place.says(&[&["--lower-is-better"], &words[..]].concat());
    contains(
        &less,
        "kinlock-mutex is 1.21x [1.21, 1.21] worse than pthread (6 of 6 rounds)",
    );
    contains(
        &less,
        "kinlock-spin is 1.25x [1.25, 1.25] better than pthread",
    );
}

#[test]
fn a_lock_below_a_ratio_is_told_by_the_status() {
    let place = Bare::new(SPEEDS);
    let run = |least: &str, rounds: &str| {
        let words = ["--locks", "kinlock-spin,kinlock-mutex", "--rounds", rounds];
        let gate = ["--fail-below", least];
        let output = place.run(&[&SPEED[..], &words, &gate, &["./program"]].concat());
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(message.lines().count() <= 1, "{message}");
        // There is a report in either case.
        assert!(!output.stdout.is_empty());
        (output.status.code(), message)
    };
    assert_eq!(run("0.8", "6"), (Some(0), String::new()));
    let one = "kinlock: --fail-below 0.97: kinlock-spin is 0.80x [0.80, 0.80] of pthread\n";
    assert_eq!(run("0.97", "6"), (Some(1), one.to_owned()));
    let (status, both) = run("1.3", "6");
    assert_eq!(status, Some(1));
    contains(
        &both,
        "kinlock-mutex is 1.21x [1.21, 1.21] of pthread; kinlock-spin is 0.80x",
    );
    // With few rounds nothing is claimed, but a lock may still be below the limit.
    assert_eq!(run("0.97", "1").0, Some(1));
}

/// A run that crashes is short, so its speed means nothing.
#[test]
fn a_lock_with_a_run_that_fails_is_told_by_the_status() {
    const WORDS: &[&str] = &[
        "--ignore-failure",
        "--rounds",
        "6",
        "--fail-below",
        "0.001",
        "./program",
    ];
    let fails = |lock: &str, when: &str| {
        format!(
            "case ${{KINLOCK_LOCK:-pthread}} in {lock}) echo x >>runs; \
             [ $(wc -l <runs) {when} ] && exit 7 ;; esac; sleep 0.02"
        )
    };
    // Each has a run to warm up, and the C library's locks have the counting run, too.
    for (program, expected) in [
        (
            fails("kinlock-mutex", "-eq 4"),
            "kinlock-mutex failed in 1 of 6 rounds",
        ),
        (fails("pthread", "-gt 2"), "pthread failed in 6 of 6 rounds"),
    ] {
        let place = Bare::new(&program);
        let output = place.run(WORDS);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{program}: {message}");
        assert_eq!(
            message,
            format!("kinlock: --fail-below 0.001: {expected}\n")
        );
    }
    // If the status is the same under each lock, it is the program's own.
    let place = Bare::new("sleep 0.02; exit 7");
    assert_eq!(place.run(WORDS).status.code(), Some(0));
}

#[test]
fn every_form_of_the_report_says_the_same() {
    let place = Bare::new(SPEEDS);
    let files = "--csv r.csv --markdown r.md --plot r.svg --json r.json --html r.html --rounds 5 \
                 --hogs 1";
    let files: Vec<_> = files.split_whitespace().collect();
    let hostile = "<script>alert(1)</script>";
    let text = place.says(&[&SPEED[..], &files, &["--", "./program", hostile]].concat());
    let sentence = "kinlock-mutex is 1.21x [1.21, 1.21] better than pthread (5 of 5 rounds)";
    contains(&text, sentence);
    contains(&text, "beside another busy process");
    contains(&text, "with a confidence of 94 %");
    let read = |name: &str| fs::read_to_string(place.path().join(name)).unwrap();
    contains(&read("r.md"), &format!("- {sentence}"));
    contains(&read("r.md"), "| kinlock-mutex | 1.21 k |");
    assert_eq!(read("r.csv").lines().count(), 3);
    assert!(read("r.csv").contains("kinlock-mutex,5,1210.000000,1210.0"));
    assert!(read("r.svg").trim_end().ends_with("</svg>"));
    contains(&read("r.html"), &format!("<li>{sentence}</li>"));
    contains(
        &read("r.html"),
        "<th scope=\"row\">kinlock-mutex</th><td class=\"n\">1.21 k</td>",
    );
    assert_eq!(read("r.html").matches("<svg").count(), 1);
    contains(&read("r.html"), "&lt;script&gt;alert(1)");
    assert!(!read("r.html").contains("<script"));
    let report: Value = serde_json::from_str(&read("r.json")).unwrap();
    assert_eq!(report["parameters"]["hogs"], 1);
}

/// Prints a number that depends on its arguments and is higher under our mutex.
const SCALES: &str = "case $KINLOCK_LOCK in kinlock-mutex) f=3 ;; *) f=2 ;; esac
echo speed: $((f * $1))
";

#[test]
fn a_scan_compares_at_each_value() {
    let place = Bare::new(&format!("[ -e made-$1 ] || exit 9\n{SCALES}"));
    let files = "--rounds 5 --csv r.csv --plot r.svg --html r.html --markdown r.md --json r.json";
    let files: Vec<_> = files.split(' ').collect();
    let scan = [
        "--scan",
        "threads=1,2,16",
        "--prepare",
        "touch made-{threads}",
    ];
    let words = [&SPEED[..], &files, &scan, &["--", "./program", "{threads}"]].concat();
    let text = place.says(&words);
    contains(&text, "15 rounds in all, at 3 points");
    contains(
        &text,
        "threads=16: kinlock-mutex is 1.50x [1.50, 1.50] better than pthread (5 of 5 rounds)",
    );
    // A note that is the same for all points appears once and names none.
    let once = "no call of the program was intercepted";
    contains(&text, &format!("note: {once}"));
    assert_eq!(text.matches(once).count(), 1);
    let read = |name: &str| fs::read_to_string(place.path().join(name)).unwrap();
    let report: Value = serde_json::from_str(&read("r.json")).unwrap();
    let values: Vec<_> = list(&report["results"])
        .iter()
        .map(|entry| {
            (
                &entry["at"]["threads"],
                &entry["lock"],
                &entry["value"]["median"],
            )
        })
        .map(|(at, lock, value)| format!("{at} {lock} {value}"))
        .collect();
    assert_eq!(values[0], r#""1" "kinlock-mutex" 3.0"#);
    assert_eq!(values[5], r#""16" "pthread" 32.0"#);
    assert_eq!(list(&report["points"]).len(), 3);
    assert!(report["counting"].is_null());
    assert!(read("r.csv").starts_with("threads,lock,rounds,value"));
    assert!(read("r.csv").contains("\n16,pthread,5,32.0"));
    assert!(read("r.md").contains("| 16 | pthread | 32.0 |"));
    // One picture for all points, with their values on its axis.
    for name in ["r.svg", "r.html"] {
        assert_eq!(read(name).matches("<svg").count(), 1);
        assert!(read(name).contains("times as good"), "{name}");
    }
}

#[test]
fn rounds_go_on_until_the_interval_is_narrow() {
    // An early run of our mutex is an outlier: after ten rounds the interval leaves it out.
    let odd = "case $KINLOCK_LOCK in
        kinlock-mutex) echo x >>ours; [ $(wc -l <ours) = 3 ] && echo speed: 900 || echo speed: 15 ;;
        *) echo speed: 10 ;;
    esac";
    let place = Bare::new(odd);
    let words = ["--until", "2%", "--warmup", "0", "./program"];
    let report = place.json(&[&SPEED[..], &words].concat());
    assert_eq!(report["extent"]["rounds_done"], 10);
    assert_eq!(report["extent"]["rounds_asked"], 10);
    assert_eq!(report["points"][0]["until"]["reached"], true);
    let ratio = &report["results"][0]["ratio"];
    assert_eq!((&ratio["low"], &ratio["high"]), (&1.5.into(), &1.5.into()));
    assert!(ratio["confidence"].as_f64() >= Some(0.95));

    // The interval never becomes narrow, and the time is up after the first look.
    let wild = "echo x >>all; echo speed: $((10 + $(wc -l <all) * 37 % 11))";
    let place = Bare::new(wild);
    let words = ["--until", "1%", "--time-limit", "0.001", "./program"];
    let text = place.says(&[&SPEED[..], &words].concat());
    contains(&text, "not as narrow as --until 1%: after 8 rounds in");
    contains(&text, "at all looks together");
}

/// Uses memory and CPU time, and sleeps, for a shorter time on our mutex.
const PROGRAM: &str = r#"
    #include <stdlib.h>
    #include <string.h>
    #include <time.h>
    #include <unistd.h>
    int main() {
        const char *lock = getenv("KINLOCK_LOCK");
        volatile char *memory = malloc(64 << 20);
        memset((void *)memory, 1, 64 << 20);
        while (clock() < CLOCKS_PER_SEC / 50) memory[0]++;
        usleep(lock && !strcmp(lock, "kinlock-mutex") ? 1000 : 100000);
        return 0;
    }
"#;

#[test]
fn time_memory_and_switches_are_those_of_the_program() {
    let place = Bare::new("");
    compiled(place.path(), "own", "-O1", PROGRAM);
    let report = place.json(&["--rounds", "5", "--warmup", "0", "--", "./own"]);
    // The test does not check which lock is better: while other programs run, the shorter run may
    // take longer.
    for entry in list(&report["results"]) {
        let least = if entry["lock"] == "kinlock-mutex" {
            0.021
        } else {
            0.12
        };
        assert!(entry["value"]["min"].as_f64() >= Some(least), "{entry}");
        assert!(entry["peak_kib"]["min"].as_f64() > Some(65536.0));
        assert!(entry["switches"]["min"].as_f64() >= Some(1.0));
        let cpu = entry["cpu_s"]["median"].as_f64().unwrap();
        assert!((0.019..entry["value"]["max"].as_f64().unwrap()).contains(&cpu));
    }
}

#[test]
fn a_counting_run_says_how_much_there_is_to_win() {
    let place = Bare::new("i=0; while [ $i -lt 60000 ]; do i=$((i + 1)); done; /bin/true");
    let says = |line| {
        let mut command = place.command(&["--rounds", "1", "--warmup", "0", "./program"]);
        let output = command.env("LINE", line).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    contains(
        &says(LINE),
        "0.03 % of 10,000 acquisitions found the lock taken: no lock can change this program \
         (threads waited 500 ns",
    );
    // Two processes, each of which waited for a minute.
    let much = r#"{"calls":9,"locked":500,"contended":250,"wait_ns":60000000000}
{"calls":1,"locked":500,"contended":0,"wait_ns":60000000000}"#;
    contains(
        &says(much),
        "25 % of 1,000 acquisitions found the lock taken: waits are few and long, 480 ms on \
         average",
    );
    let none = says(r#"{"calls":0}"#);
    contains(
        &none,
        "note: no call of the program was intercepted: it takes no locks, or they do not go \
         through pthread (Go, Rust's std, the crate kinlock, CPython's own), or",
    );
    contains(&says(""), "note: no call of the program was intercepted");
    contains(&none, "1 round is too few to tell that from chance");
    contains(&none, "note: fewer than 5 rounds");
}

/// A program that counts its runs in a file, and does something else in one of them. The first run
/// is the counting run, the next two are the warm-up round.
fn with_run(number: usize, what: &str) -> String {
    format!("echo x >>runs; [ $(wc -l <runs) = {number} ] && {{ {what}; }}; echo speed: 3")
}

/// The file that a message names.
fn kept(message: &str) -> String {
    let (_, file) = message.trim_end().rsplit_once("its output is in ").unwrap();
    fs::read_to_string(file).unwrap()
}

#[test]
fn a_run_that_fails_is_named_and_what_it_wrote_is_kept() {
    for (number, what, expected) in [
        (
            1,
            "exit 3",
            "kinlock: the counting run: the program ended with exit status: 3;",
        ),
        (2, "exit 3", "kinlock: warm-up round 1, "),
        (6, "exit 3", "kinlock: round 2, "),
        (
            7,
            "kill -SEGV $$",
            ": the program ended with signal: 11 (SIGSEGV)",
        ),
    ] {
        let place = Bare::new(&with_run(number, &format!("echo why; {what}")));
        let message = place.refuses(1, &["./program"], expected);
        assert_eq!(kept(&message), "why\n");
    }
    let place = Bare::new(&with_run(6, "exit 3"));
    let text = place.says(&["--ignore-failure", "./program"]);
    contains(&text, "1 of 10 runs failed, with status 3");
    let place = Bare::new(&with_run(6, "echo speed: 0; exit 0"));
    let words = [&SPEED[..], &["./program"]].concat();
    let message = place.refuses(1, &words, "--metric found no number above 0");
    assert_eq!(kept(&message), "speed: 0\n");
}

/// A lock under which the program always fails has no ratio, unless the program fails in the same
/// way under each lock.
#[test]
fn a_lock_under_which_all_runs_fail_is_not_compared() {
    let fails = "case $KINLOCK_LOCK in kinlock-mutex) exit 7 ;; esac; sleep 0.05";
    let place = Bare::new(fails);
    let words = ["--ignore-failure", "--rounds", "3", "./program"];
    let text = place.says(&words);
    contains(&text, "kinlock-mutex and pthread: not compared");
    contains(&text, "3 of 3 runs failed, with status 7, 7, 7");
    let row = text.lines().find(|line| line.starts_with("kinlock-mutex "));
    assert!(row.is_some_and(|row| row.contains("failed")), "{text}");
    assert!(!row.unwrap().contains("x ["), "{text}");
    let report = place.json(&words);
    let failed = list(&report["results"]).last().unwrap();
    assert_eq!(failed["lock"], "kinlock-mutex");
    assert_eq!(failed["verdict"], "failed");
    assert!(failed["ratio"]["median"].is_null(), "{failed}");
    let place = Bare::new("sleep 0.05; exit 7");
    let text = place.says(&words);
    assert!(!text.contains("not compared"), "{text}");
}

/// Run in a terminal: a program that reads from the terminal would be stopped forever, since it is
/// in the background.
#[test]
fn a_program_that_reads_from_the_terminal_is_named() {
    let place = Bare::new("read line </dev/tty");
    let line = concat!(env!("CARGO_BIN_EXE_kinlock"), " compare --quiet ./program");
    // `script` passes on the status of the command in the terminal, and its output.
    let words = [
        "300",
        "script",
        "--quiet",
        "--return",
        "--command",
        line,
        "/dev/null",
    ];
    let mut command = without_knobs(Command::new("timeout"));
    command.args(words).current_dir(place.path());
    command.env("KINLOCK_PRELOAD", &place.library);
    command.env("TMPDIR", place.path()).stdin(Stdio::null());
    let output = command.output().unwrap();
    let message = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{message}");
    contains(&message, "the program wants to use the terminal");
}

/// Each lock has the environment that its name implies, also in a shell under another `kinlock`.
#[test]
fn what_an_outer_command_left_reaches_no_lock() {
    // The environment of a program on the library's locks.
    let program = "case $LD_PRELOAD,$KINLOCK_LOCK,$KINLOCK_RWLOCK$KINLOCK_REPORT$KINLOCK_COUNTS in
        *silent.so*,kinlock-mutex,) echo 'speed: 1300' ;;
        *other.so,,) echo 'speed: 1100' ;;
        ,,) echo 'speed: 1000' ;;
        *silent.so*,pthread,*counts*|*silent.so*,pthread,/*) echo 'speed: 1' ;;
        *) echo \"LD_PRELOAD=$LD_PRELOAD, KINLOCK_LOCK=$KINLOCK_LOCK\"; exit 9 ;;
    esac";
    let place = Bare::new(program);
    let other = compiled(place.path(), "other.so", "-shared -fPIC", "int other;");
    let other = format!("other={}", other.display());
    let words = ["--rounds=7", "--warmup=0", "--preload", &other, "--json=-"];
    let words = [&SPEED[..], &words, &["./program"]].concat();
    let mut command = place.command(&words);
    for name in ["LOCK", "RWLOCK", "REPORT", "COUNTS", "STANDBY", "ORDER"] {
        command.env(format!("KINLOCK_{name}"), "kinlock-spin");
    }
    command.env("LD_PRELOAD", &place.library);
    let output = command.env("KINLOCK_QUANTUM", "fair").output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{message}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        names(&report, "lock"),
        ["kinlock-mutex", "other", "pthread"]
    );
    assert_eq!(
        names(&report, "verdict"),
        ["better", "better", "reference"],
        "{report}"
    );
    let warnings = report["warnings"].to_string();
    contains(&warnings, "the environment has KINLOCK_QUANTUM=fair");
}

#[test]
fn too_few_rounds_for_several_locks_are_told() {
    let place = Bare::new(SPEEDS);
    let locks = ["--rounds=6", "--locks=kinlock-mutex,kinlock-spin,pthread"];
    let words = [&SPEED[..], &locks, &["./program"]].concat();
    // Each interval misses the true median with probability 2/64, and one of the two with at most
    // 4/64.
    let confidence = &place.json(&words)["points"][0]["confidence"];
    assert_eq!(*confidence, 1.0 - 4.0 / 64.0);
    let text = place.says(&words);
    contains(&text, "with a confidence of 94 %, for all locks together");
    contains(&text, "not enough for a confidence of 95 %");
    contains(&text, "try --rounds 7");
}

#[test]
fn each_run_reads_its_input_from_the_beginning() {
    let place = Bare::new("echo \"bytes: $(cat | wc -c)\"");
    fs::write(place.path().join("input"), "seven !").unwrap();
    let words = ["--metric", "bytes: ([0-9]+)", "--rounds=5"];
    let with = |more: &[&'static str]| [&words[..], more, &["./program"]].concat();
    let report = place.json(&with(&["--input", "input", "--prepare", "cat"]));
    assert_eq!(report["parameters"]["input"], "input");
    for entry in list(&report["results"]) {
        let value = &entry["value"];
        assert_eq!([&value["min"], &value["max"]], [7.0, 7.0], "{entry}");
    }
    place.refuses(2, &with(&["--input", "none"]), "No such file");
    place.refuses(2, &with(&["--input", "."]), "only a file");
    // Opening the pipe would wait for a writer.
    pipe_at(&place.path().join("pipe"));
    place.refuses(2, &with(&["--input", "pipe"]), "only a file");
}

#[test]
fn a_program_that_does_not_get_what_the_command_was_given_is_told() {
    let place = Bare::new("wc -c");
    fs::write(place.path().join("input"), "seven !").unwrap();
    let note = "the program's stdin is empty";
    let says = |stdin: Stdio, more: &[&str]| {
        let words = [more, &["--rounds=1", "--warmup=0", "./program"]].concat();
        let output = place.command(&words).stdin(stdin).output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap().contains(note)
    };
    let open = || fs::File::open(place.path().join("input")).unwrap();
    assert!(says(open().into(), &[]));
    assert!(says(Stdio::piped(), &[]));
    assert!(!says(Stdio::null(), &[]));
    assert!(!says(open().into(), &["--input", "input"]));
}

#[test]
fn what_prepares_a_run_comes_before_each() {
    let place = Bare::new("rm here && echo run >>runs");
    let words = ["--rounds", "2", "--prepare", "[ ! -e here ] && touch here"];
    let report = place.json(&[&words[..], &["--shell", "./program; true"]].concat());
    let runs = fs::read_to_string(place.path().join("runs")).unwrap();
    // If the kernel gives users counters, each lock has one more run.
    let entries = list(&report["results"]).iter();
    let counted = entries.filter(|entry| !entry["counters"].is_null()).count();
    // The counting run, and for two locks a warm-up round and two rounds.
    assert_eq!(runs.lines().count(), 1 + 2 * (1 + 2) + counted);
    let refused = report["warnings"]
        .to_string()
        .contains("no hardware counters");
    assert_eq!(
        (counted, refused),
        if refused { (0, true) } else { (2, false) }
    );
    let words = ["--prepare", "echo no; exit 9", "./program"];
    let expected = "the counting run: --prepare ended with exit status: 9";
    let message = place.refuses(1, &words, expected);
    assert_eq!(kept(&message), "no\n");
}

#[test]
fn drift_and_outliers_are_told() {
    let rising = "echo x >>runs; n=$(wc -l <runs); echo speed: $((100 + 20 * n))";
    let place = Bare::new(rising);
    let words = [&SPEED[..], &["--rounds", "8", "./program"]].concat();
    contains(&place.says(&words), "runs get better by a factor of");
    let place = Bare::new("echo x >>runs; n=$(wc -l <runs); echo speed: $((n == 9 ? 10 : 100))");
    contains(
        &place.says(&words),
        "1 of 8 runs are far from the others, the worst by a factor of 10",
    );
}

/// Wrong arguments, each with the message for them.
const BAD: &str = "\
--locks std-mutex ./program | no such lock: std-mutex; known: kinlock-mutex, kinlock-spin, pthread
--locks pthread ./program | nothing to compare pthread with
--metric ( ./program | found open group without closing
--lower-is-better ./program | --metric
--fail-below 0 ./program | it has to be a ratio
--fail-below 97% ./program | it has to be a ratio
--rounds 0 ./program | 0 is not in 1..=1000
--preload x ./program | write NAME=FILE
--preload x=none ./program | none: No such file
--preload pthread=silent.so ./program | is the name of a lock
--preload a,b=silent.so ./program | a name is made of
--shell ./program x | takes one line
--json no/file ./program | cannot write no/file
--scan t=1,2 ./program | {t} is neither in the program's command line
--until 2 ./program | write a percentage
--until 2% --rounds 9 ./program | cannot be used with
--time-limit 9 ./program | --until
 | required";

#[test]
fn bad_input_is_one_line() {
    let place = Bare::new("touch ran");
    for (line, expected) in BAD.lines().filter_map(|row| row.split_once(" | ")) {
        let words: Vec<_> = line.split_whitespace().collect();
        place.refuses(2, &words, expected);
    }
    assert!(!place.path().join("ran").exists());
    fs::copy(&place.library, place.path().join("$LIB.so")).unwrap();
    let words = ["--preload", "x=$LIB.so", "./program"];
    place.refuses(2, &words, "or with a $, which loaders expand");
    place.refuses(126, &["/bin"], "it is a folder");
    place.refuses(127, &["no-such-program"], "not found");
}

/// Whether the process that wrote its number to `file` has ended.
fn has_ended(file: &Path) -> bool {
    let pid = fs::read_to_string(file).unwrap();
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
    stat.map_or(true, |stat| stat.contains(") Z "))
}

/// Starts the command, and waits until a run of the program has written `pid`.
fn started(place: &Bare) -> Child {
    let mut command = place.command(&["--json", "r.json", "--rounds", "20", "./program"]);
    let command = heeding_ctrl_c(&mut command).stdout(Stdio::null());
    let child = command.stderr(Stdio::piped()).spawn();
    let file = place.path().join("pid");
    until("the run that waits", || {
        fs::read_to_string(&file).is_ok_and(|pid| pid.ends_with('\n'))
    });
    child.unwrap()
}

#[test]
fn ctrl_c_ends_the_program_and_reports_complete_rounds() {
    // In the third round the program ignores SIGTERM.
    let place = Bare::new(&with_run(
        8,
        "trap '' TERM; echo $$ >pid; sleep 1000; sleep 1000",
    ));
    let child = started(&place);
    send(&child, libc::SIGINT);
    let output = child.wait_with_output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{message}");
    contains(&message, "interrupted by SIGINT after 2 of 20 rounds");
    assert!(has_ended(&place.path().join("pid")));
    let report = fs::read_to_string(place.path().join("r.json")).unwrap();
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["extent"]["rounds_done"], 2);
    assert_eq!(list(&report["results"][0]["rounds"]).len(), 2);

    let place = Bare::new(&with_run(1, "echo $$ >pid; sleep 1000"));
    let child = started(&place);
    send(&child, libc::SIGTERM);
    let output = child.wait_with_output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(143), "{message}");
    contains(&message, "after 0 of 20 rounds: nothing to report");
    assert!(!place.path().join("r.json").exists());
}

#[test]
fn a_program_does_not_outlive_the_command() {
    let place = Bare::new(&with_run(2, "echo $$ >pid; exec sleep 1000"));
    let mut child = started(&place);
    child.kill().unwrap();
    child.wait().unwrap();
    until("the program ended", || has_ended(&place.path().join("pid")));
}

#[test]
fn a_real_program_is_compared_on_all_locks() {
    let folder = tempfile::tempdir().unwrap();
    let threads = include_str!("programs/threads.c");
    let program = compiled(folder.path(), "threads", "-O1 -pthread", threads);
    let mut command = kinlock();
    let words = "compare --locks kinlock-mutex,kinlock-spin --rounds 3 --json -";
    let output = command
        .args(words.split(' '))
        .arg(program)
        .output()
        .unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{message}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(list(&report["results"]).len(), 3);
    assert!(
        report["counting"]["locked"].as_u64() >= Some(40_000),
        "{}",
        report["counting"]
    );
    assert!(report["counting"]["threads"].as_u64() >= Some(4));
}
