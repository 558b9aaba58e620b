//! The effect of the environment, which is read once per process. So each check runs this test
//! program again: the child does one task and reports on standard output.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::process::Command;

use kinlock_core::config::tuning_of_wait;
use kinlock_linux::Native;
use kinlock_linux::config::{self, LocalLimit, Numa, Quantum, TooLate};
use kinlock_linux::topology::{self, DomainKind};

/// The variable that names the task of a child, one of [`TASKS`].
const TASK: &str = "KINLOCK_TEST_TASK";

const TASKS: [(&str, fn()); 7] = [
    ("report", report),
    ("override", override_everything),
    ("first-use", first_use),
    ("race", race),
    ("late", late),
    ("patience", patience),
    ("other-stderr", other_stderr),
];

/// Not a check of its own: what children run.
#[test]
fn child_task() {
    let Ok(name) = std::env::var(TASK) else {
        return;
    };
    let (_, task) = TASKS
        .iter()
        .find(|(known, _)| *known == name)
        .expect("a known task");
    task();
}

/// Runs a task in a child with the given `KINLOCK_*` variables and no others. Returns its standard
/// output and standard error.
fn child(task: &str, variables: &[(&str, &str)]) -> (String, String) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([
        "--exact",
        "child::child_task",
        "--nocapture",
        "--test-threads=1",
    ]);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("KINLOCK_") {
            command.env_remove(name);
        }
    }
    command.env(TASK, task).envs(variables.iter().copied());
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (stdout, stderr) = (text(output.stdout), text(output.stderr));
    assert!(output.status.success(), "{stdout}\n{stderr}");
    (stdout, stderr)
}

/// The value in the line of `report` that begins with `name`.
fn field<'a>(report: &'a str, name: &str) -> &'a str {
    let mut lines = report
        .lines()
        .filter_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    lines
        .next()
        .unwrap_or_else(|| panic!("no {name} in {report}"))
}

// ---- tasks ------------------------------------------------------------------------------------

fn report() {
    println!();
    for _ in 0..3 {
        let tuning = config::tuning();
        println!("reorder: {}", tuning.reorder);
        println!("quantum: {}", tuning.quantum);
        println!("limit: {}", tuning.limit);
        println!("stealing: {}", tuning.stealing);
    }
    println!("reason: {}", config::decision().reason);
    println!("domains: {}", topology::domain_count());
    println!("kind: {:?}", topology::domain_kind_in_use());
    println!(
        "verbose: {}, stats: {}",
        config::verbose(),
        config::show_stats()
    );
    for cpu in allowed_cpus() {
        pin(cpu);
        let domain = topology::current_domain();
        println!("cpu {cpu}: {domain}");
        assert_eq!(domain, topology::domain_of_cpu(cpu));
    }
}

fn override_everything() {
    config::set_numa(Numa::Off);
    assert_eq!(config::set_domain_kind(DomainKind::Socket), Ok(()));
    assert_eq!(config::set_domain_kind(DomainKind::LastLevelCache), Ok(()));
    assert!(!config::tuning().reorder);
    assert_eq!(
        topology::domain_kind_in_use(),
        Some(DomainKind::LastLevelCache)
    );
    assert_eq!(config::set_domain_kind(DomainKind::Node), Err(TooLate));

    config::set_local_limit(LocalLimit::count(5).unwrap());
    config::set_stealing(true);
    config::set_quantum(Quantum::FAIR);
    config::set_slice_extension(false);
    assert!(!config::tuning().slice_extension);
    report();
}

/// The program has closed standard error, and a file with its data has got the descriptor.
fn other_stderr() {
    // SAFETY: these calls take numbers and a constant.
    let (data, moved) = unsafe {
        let data = libc::memfd_create(c"data".as_ptr(), 0);
        (data, libc::dup2(data, libc::STDERR_FILENO))
    };
    assert_eq!(moved, libc::STDERR_FILENO);
    config::tuning();
    // SAFETY: as above.
    println!("\nwritten: {}", unsafe {
        libc::lseek(data, 0, libc::SEEK_END)
    });
}

/// The first use allocates nothing, leaves `errno` as it was and no file open. It finds a single
/// domain or the right one.
fn first_use() {
    let files = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let files_before = files();
    assert!(ALLOCATIONS.get() > 0, "allocations are not counted");
    // SAFETY: `__errno_location` points to this thread's `errno`.
    unsafe { *libc::__errno_location() = libc::EXDEV };
    let before = ALLOCATIONS.get();
    let domain = topology::current_domain();
    let tuning = config::tuning();
    let decision = config::decision();
    let allocations = ALLOCATIONS.get() - before;
    // SAFETY: as above.
    let errno = unsafe { *libc::__errno_location() };
    assert_eq!(allocations, 0);
    assert_eq!(errno, libc::EXDEV);
    assert_eq!(files(), files_before);
    assert!(usize::from(domain) < topology::domain_count());
    assert_eq!(tuning.reorder, decision.reorder);
}

/// Many threads use the knobs at once. All get an answer, which is the right one once the map is
/// filled.
fn race() {
    let barrier = std::sync::Barrier::new(32);
    std::thread::scope(|scope| {
        for _ in 0..32 {
            scope.spawn(|| {
                barrier.wait();
                let tuning = config::tuning();
                assert!(usize::from(topology::current_domain()) < 2);
                assert!(tuning.stealing);
            });
        }
    });
    report();
}

/// Changes the environment after the program has begun.
fn late() {
    // SAFETY: no other thread of this child touches the environment.
    unsafe {
        std::env::set_var("KINLOCK_STEALING", "on");
        std::env::set_var("KINLOCK_QUANTUM", "fair");
    }
    report();
}

/// The first slow paths do not determine the locality domains, a later one does.
fn patience() {
    let decided = || topology::automatic_decision_if_known().is_some();
    let waits = (0..1000).take_while(|_| {
        let tuning = tuning_of_wait::<Native>();
        assert!(tuning.quantum.micros() == 77 && (decided() || !tuning.reorder));
        !decided()
    });
    println!();
    println!("waits: {}", waits.count());
}

// ---- checks -----------------------------------------------------------------------------------

#[test]
fn defaults() {
    let empty = [("KINLOCK_NUMA", ""), ("KINLOCK_TOPOLOGY", "")];
    for variables in [&[][..], &[("KINLOCK_DOMAIN", "auto")], &empty] {
        let (report, notes) = child("report", variables);
        assert_eq!(notes, "");
        assert_eq!(field(&report, "limit"), default_limit());
        assert_eq!(field(&report, "stealing"), "true");
        assert_eq!(field(&report, "kind"), automatic_kind());
        assert_eq!(field(&report, "verbose"), "false, stats: false");
    }
}

/// What `auto` means here.
fn automatic_kind() -> String {
    format!(
        "{:?}",
        Some(topology::Topology::current().automatic_kind().0)
    )
}

fn default_limit() -> &'static str {
    match topology::Topology::current().automatic_kind().0 {
        DomainKind::LastLevelCache => "1ms",
        _ => "10ms",
    }
}

#[test]
fn every_variable_has_its_effect() {
    let (report, notes) = child(
        "report",
        &[
            ("KINLOCK_NUMA", "on"),
            ("KINLOCK_LOCAL_LIMIT", "2^7"),
            ("KINLOCK_STEALING", "off"),
            ("KINLOCK_DOMAIN", "socket"),
            ("KINLOCK_SHOW_STATS", "1"),
        ],
    );
    assert_eq!(notes, "");
    assert_eq!(field(&report, "reorder"), "true");
    assert_eq!(field(&report, "reason"), "asked for");
    assert_eq!(field(&report, "limit"), "2^7");
    assert_eq!(field(&report, "stealing"), "false");
    assert_eq!(field(&report, "kind"), "Some(Socket)");
    assert_eq!(field(&report, "verbose"), "false, stats: true");
    let caches = child("report", &[("KINLOCK_DOMAIN", "llc")]).0;
    assert_eq!(field(&caches, "limit"), "1ms");
}

#[test]
fn the_environment_is_that_of_the_start() {
    let (report, notes) = child("late", &[("KINLOCK_STEALING", "off")]);
    assert_eq!(notes, "");
    assert_eq!(field(&report, "quantum"), "1000us");
    assert_eq!(field(&report, "stealing"), "false");
}

#[test]
fn the_first_slow_paths_read_no_topology() {
    let quantum = ("KINLOCK_QUANTUM", "77us");
    let domains = ("KINLOCK_TOPOLOGY", "0;1");
    let (report, _) = child("patience", &[quantum, domains]);
    assert_eq!(field(&report, "waits"), "16");
    // A process that reports determines the domains on its first slow path.
    let (report, notes) = child("patience", &[quantum, ("KINLOCK_VERBOSE", "1")]);
    assert_eq!(field(&report, "waits"), "0");
    assert!(notes.starts_with("kinlock: reordering"), "{notes}");
}

#[test]
fn variables_that_are_too_long_are_reported() {
    let (report, notes) = child("report", &[("KINLOCK_TOPOLOGY", &"0,".repeat(9000))]);
    assert_eq!(
        notes,
        "kinlock: ignoring a KINLOCK variable that is too long\n"
    );
    assert_eq!(field(&report, "kind"), "Some(Node)");
}

#[test]
fn bad_values_are_reported_once_and_ignored() {
    let long = "x".repeat(100);
    let (report, notes) = child(
        "report",
        &[
            ("KINLOCK_NUMA", "maybe"),
            ("KINLOCK_LOCAL_LIMIT", "0ms"),
            ("KINLOCK_STEALING", "\u{1b}[31mon\n"),
            ("KINLOCK_DOMAIN", &long),
            ("KINLOCK_TOPOLOGY", "0;0"),
            ("KINLOCK_VERBOSE", "yes"),
            ("KINLOCK_SHOW_STATS", "2"),
        ],
    );
    let mut notes: Vec<_> = notes.lines().collect();
    notes.sort_unstable();
    let cut = "x".repeat(60);
    assert_eq!(
        notes,
        [
            &*format!(
                "kinlock: ignoring KINLOCK_DOMAIN='{cut}'...: expected auto, node, llc or socket"
            ),
            "kinlock: ignoring KINLOCK_LOCAL_LIMIT='0ms': expected 1ms to 100ms",
            "kinlock: ignoring KINLOCK_NUMA='maybe': expected auto, on or off",
            "kinlock: ignoring KINLOCK_SHOW_STATS='2': expected 0 or 1",
            "kinlock: ignoring KINLOCK_STEALING='?[31mon?': expected on or off",
            "kinlock: ignoring KINLOCK_TOPOLOGY='0;0': expected every CPU in one domain only",
            "kinlock: ignoring KINLOCK_VERBOSE='yes': expected 0 or 1",
        ]
    );
    assert_eq!(field(&report, "limit"), default_limit());
    assert_eq!(field(&report, "kind"), automatic_kind());
}

#[test]
fn pretended_domains_are_those_of_pinned_threads() {
    let cpus = allowed_cpus();
    let lists: Vec<_> = cpus.iter().map(usize::to_string).collect();
    let (report, notes) = child("report", &[("KINLOCK_TOPOLOGY", &lists.join(";"))]);
    assert_eq!(notes, "");
    assert_eq!(field(&report, "domains"), cpus.len().to_string());
    assert_eq!(field(&report, "kind"), "None");
    assert_eq!(field(&report, "reorder"), (cpus.len() > 1).to_string());
    for (domain, cpu) in cpus.iter().enumerate() {
        assert_eq!(field(&report, &format!("cpu {cpu}")), domain.to_string());
    }
}

#[test]
fn pretended_domains_count_wherever_the_process_may_run() {
    let (report, _) = child("report", &[("KINLOCK_TOPOLOGY", "0-3;4-7")]);
    assert_eq!(field(&report, "domains"), "2");
    assert_eq!(field(&report, "reorder"), "true");
    assert_eq!(
        field(&report, "reason"),
        "KINLOCK_TOPOLOGY names more than one domain"
    );
    let off = [("KINLOCK_TOPOLOGY", "0-3;4-7"), ("KINLOCK_NUMA", "off")];
    assert_eq!(field(&child("report", &off).0, "reorder"), "false");
}

#[test]
fn without_rseq_the_kernel_is_asked() {
    let cpus = allowed_cpus();
    // CPU 8191 makes a second domain on a machine with one CPU.
    let lists = cpus.iter().map(usize::to_string).chain(["8191".to_owned()]);
    let lists = lists.collect::<Vec<_>>().join(";");
    let variables = [
        ("KINLOCK_TOPOLOGY", &*lists),
        ("GLIBC_TUNABLES", "glibc.pthread.rseq=0"),
    ];
    let (report, _) = child("report", &variables);
    for (domain, cpu) in cpus.iter().enumerate() {
        assert_eq!(field(&report, &format!("cpu {cpu}")), domain.to_string());
    }
}

#[test]
fn functions_win_over_the_environment() {
    let (report, notes) = child(
        "override",
        &[
            ("KINLOCK_NUMA", "on"),
            ("KINLOCK_LOCAL_LIMIT", "2^7"),
            ("KINLOCK_STEALING", "off"),
            ("KINLOCK_QUANTUM", "77us"),
            ("KINLOCK_SLICE_EXTENSION", "on"),
            ("KINLOCK_DOMAIN", "node"),
        ],
    );
    assert_eq!(notes, "");
    assert_eq!(field(&report, "reorder"), "false");
    assert_eq!(field(&report, "limit"), "2^5");
    assert_eq!(field(&report, "stealing"), "true");
    assert_eq!(field(&report, "quantum"), "0us");
}

#[test]
fn verbose_says_once_what_was_decided() {
    let variables = [("KINLOCK_VERBOSE", "1"), ("KINLOCK_TOPOLOGY", "0;1")];
    let (_, notes) = child("report", &variables);
    assert_eq!(
        notes,
        "kinlock: reordering by locality domain on (KINLOCK_TOPOLOGY names more than one domain), \
         domains 2, local limit 10ms, stealing on, quantum 1000us, \
         slice extension off\n"
    );
}

#[test]
fn the_first_use_neither_allocates_nor_leaves_traces() {
    for kind in ["node", "llc", "socket", "nonsense"] {
        child("first-use", &[("KINLOCK_DOMAIN", kind)]);
    }
    child(
        "first-use",
        &[("KINLOCK_TOPOLOGY", "0;1"), ("KINLOCK_VERBOSE", "1")],
    );
}

#[test]
fn threads_that_start_at_once_all_get_an_answer() {
    for _ in 0..5 {
        let (report, notes) = child(
            "race",
            &[("KINLOCK_TOPOLOGY", "0;1"), ("KINLOCK_STEALING", "?")],
        );
        assert_eq!(field(&report, "domains"), "2");
        assert_eq!(
            notes,
            "kinlock: ignoring KINLOCK_STEALING='?': expected on or off\n"
        );
    }
}

#[test]
fn no_line_gets_into_a_file_of_the_program() {
    let variables = [("KINLOCK_VERBOSE", "1"), ("KINLOCK_STEALING", "?")];
    let (report, notes) = child("other-stderr", &variables);
    assert_eq!(field(&report, "written"), "0");
    assert_eq!(notes, "");
}

// ---- tools ------------------------------------------------------------------------------------

type Mask = [u64; 128];

/// The CPUs that this thread may run on.
fn allowed_cpus() -> Vec<usize> {
    let mut mask: Mask = [0; 128];
    // SAFETY: the mask is as long as the size says.
    let found = unsafe { libc::sched_getaffinity(0, size_of::<Mask>(), mask.as_mut_ptr().cast()) };
    assert_eq!(found, 0);
    (0..8192)
        .filter(|cpu| mask[cpu / 64] >> (cpu % 64) & 1 == 1)
        .collect()
}

fn pin(cpu: usize) {
    let mut mask: Mask = [0; 128];
    mask[cpu / 64] = 1 << (cpu % 64);
    // SAFETY: the mask is as long as the size says.
    let pinned = unsafe { libc::sched_setaffinity(0, size_of::<Mask>(), mask.as_ptr().cast()) };
    assert_eq!(pinned, 0);
}

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

/// Counts the allocations of each thread.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: everything is done by the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract of this function, which is also the system
        // allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}
