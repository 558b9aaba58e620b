//! Several copies of this crate in one process that share locks: shared libraries that each link
//! their own. See the example `copy`.
//!
//! Each scenario runs in a process of its own, since copies meet once. A signal ends a process that
//! hangs.
//!
//! # Invariants cited by `SAFETY` comments
//!
//! 1. Strings end with a zero byte. The library has the function, with this type.
//! 2. These system calls get numbers, or addresses of live variables.
//! 3. Memory is mapped where nothing is.
#![cfg(all(feature = "std", not(miri), not(loom)))]

#[path = "../examples/copy.rs"]
mod copy;
mod support;

use copy::{Functions, Kind, Locks};
use std::ffi::{CString, c_void};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering::*};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

// ---- copies -----------------------------------------------------------------------------------

/// A copy, by its functions.
type Copy = &'static Functions;

/// Loads copy `number`.
fn load(number: u32) -> Copy {
    let (_, copy) = open(number);
    copy
}

/// Like [`load`], but also returns the handle of the library.
fn open(number: u32) -> (*mut c_void, Copy) {
    let path = CString::new(path_of(number).to_str().unwrap()).unwrap();
    // SAFETY: invariant 1.
    let (handle, functions) = unsafe {
        let handle = libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
        assert!(!handle.is_null(), "{path:?} does not load");
        let functions = libc::dlsym(handle, c"functions".as_ptr());
        assert!(!functions.is_null(), "{path:?} has no functions");
        let functions = std::mem::transmute::<*mut c_void, extern "C" fn() -> Copy>(functions);
        (handle, functions())
    };
    (functions.decide)();
    (handle, functions)
}

/// Where copy `number` is: a file of its own, since the loader loads each file once.
fn path_of(number: u32) -> PathBuf {
    let folder = std::env::var_os(COPIES).expect("the parent sets it");
    Path::new(&folder).join(format!("copy-{number}.so"))
}

fn locks() -> &'static Locks {
    Box::leak(Box::default())
}

/// Whether `condition` holds within a time that is long enough on any machine.
fn soon(condition: impl Fn() -> bool) -> bool {
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(300) {
        if condition() {
            return true;
        }
        sleep(Duration::from_millis(1));
    }
    false
}

// ---- scenarios --------------------------------------------------------------------------------

/// Threads of several copies queue for a lock, one after the other, and get it.
fn queue(copies: &[Copy], kind: fn(Copy) -> Kind) {
    let memory = locks();
    let taken = &AtomicU32::new(0);
    let held = kind(copies[0]);
    (held.lock)(memory);
    scope(|s| {
        for turn in 0..6 {
            let Kind { word, lock, unlock } = kind(copies[turn % copies.len()]);
            let before = word(memory);
            s.spawn(move || {
                lock(memory);
                taken.fetch_add(1, Relaxed);
                unlock(memory);
            });
            // Waits until the thread has left its name or its mark in the word. A thread that waits
            // without a queue may leave neither.
            let begin = Instant::now();
            while word(memory) == before && begin.elapsed() < Duration::from_millis(100) {
                sleep(Duration::from_millis(1));
            }
        }
        assert_eq!(taken.load(Relaxed), 0, "the lock is held");
        (held.unlock)(memory);
    });
    assert_eq!(taken.load(Relaxed), 6);
}

fn queues(copies: &[Copy]) {
    queue(copies, |copy| copy.mutex);
    queue(copies, |copy| copy.spin);
    queue(copies, |copy| copy.write);
}

/// A reader of one copy, and writers of others.
fn readers(one: Copy, others: &[Copy]) {
    let memory = locks();
    (one.bias)(memory);
    (one.read_lock)(memory);
    for &other in others {
        assert!(
            !(other.write_try)(memory),
            "it is read through another copy"
        );
        assert!(!(one.write_try)(memory));
        // Releases may be mixed, too.
        (other.read_lock)(memory);
        (one.read_unlock)(memory);
        assert!(!(one.write_try)(memory), "it is read through another copy");
        assert!(!(other.write_try)(memory));
        (one.read_lock)(memory);
        (other.read_unlock)(memory);
    }
    let written = &AtomicU32::new(0);
    scope(|s| {
        for &other in others {
            s.spawn(move || {
                (other.write.lock)(memory);
                written.fetch_add(1, Relaxed);
                (other.write.unlock)(memory);
            });
        }
        sleep(Duration::from_millis(20));
        assert_eq!(written.load(Relaxed), 0, "it is read through another copy");
        (one.read_unlock)(memory);
    });
    assert!((one.write_try)(memory));
    (one.write.unlock)(memory);
}

/// Notifications and functions that run once, through several copies.
fn conditions(one: Copy, other: Copy) {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let memory = locks();
    scope(|s| {
        let waiter = |copy: Copy, least| s.spawn(move || (copy.await_count)(memory, least));
        let waits = waiter(one, 1);
        assert!(soon(|| (one.is_awaited)(memory)));
        (other.add_to_count)(memory, false);
        waits.join().unwrap();
        let waiters = [one, other, one, other].map(|copy| waiter(copy, 2));
        assert!(soon(|| (other.is_awaited)(memory)));
        (other.add_to_count)(memory, true);
        waiters.into_iter().for_each(|waits| waits.join().unwrap());
    });
    scope(|s| {
        for copy in [one, other, one, other] {
            s.spawn(move || {
                (copy.call_once)(memory, || {
                    CALLS.fetch_add(1, Relaxed);
                    sleep(Duration::from_millis(10));
                })
            });
        }
    });
    assert_eq!(CALLS.load(Relaxed), 1);
}

/// A thread that has a reentrant mutex has it in all copies.
fn reentrance(one: Copy, other: Copy) {
    let memory = locks();
    assert!((one.lock_again)(memory) && (other.lock_again)(memory));
    (one.unlock_again)(memory);
    let elsewhere = || scope(|s| s.spawn(|| (one.lock_again)(memory)).join().unwrap());
    assert!(!elsewhere());
    (one.unlock_again)(memory);
    assert!(elsewhere());
}

fn sharing() {
    let (one, two) = (load(1), load(2));
    readers(one, &[two]);
    readers(two, &[one]);
    queues(&[one, two]);
    conditions(one, two);
    reentrance(one, two);
    assert!((one.has_table)() && (two.has_table)());
    assert_eq!((one.slots)(), (two.slots)());
    // A copy that comes late.
    let three = load(3);
    readers(three, &[one, two]);
    queues(&[one, two, three]);
}

/// Runs `body` in a forked child. Fails if a check of the child fails.
fn in_a_child(body: impl FnOnce()) {
    let body = || {
        body();
        0
    };
    assert_eq!(support::in_a_child(body), Some(0), "the child failed");
}

fn forking() {
    let (one, two) = (load(1), load(2));
    // The forking thread has a slot and a row in each copy, and so has another thread.
    queues(&[one, two]);
    let (mine, too, theirs) = (locks(), locks(), locks());
    for memory in [mine, too, theirs] {
        (one.bias)(memory);
    }
    (one.read_lock)(mine);
    (two.read_lock)(too);
    let ready = &std::sync::Barrier::new(2);
    scope(|s| {
        s.spawn(|| {
            (two.read_lock)(theirs);
            ready.wait();
            ready.wait();
            (two.read_unlock)(theirs);
        });
        ready.wait();
        assert_eq!(((one.forks)(), (two.forks)()), (0, 0));
        in_a_child(|| {
            assert_eq!(
                ((one.forks)(), (two.forks)()),
                (1, 1),
                "each fork counts once"
            );
            for (reader, writer, memory) in [(one, two, mine), (two, one, too)] {
                assert!(!(writer.write_try)(memory), "this thread reads it");
                (reader.read_unlock)(memory);
                assert!((writer.write_try)(memory));
                (writer.write.unlock)(memory);
            }
            // The lock's reader does not exist here.
            assert!((one.write_try)(theirs));
            (one.write.unlock)(theirs);
            let three = load(3);
            assert_eq!((three.forks)(), 1);
            queues(&[one, two, three]);
            readers(three, &[two, one]);
            in_a_child(|| {
                assert_eq!([one, two, three].map(|copy| (copy.forks)()), [2; 3]);
                queues(&[three, two, one]);
            });
        });
        assert!(
            !(one.write_try)(theirs),
            "the parent's readers are still there"
        );
        ready.wait();
    });
    assert_eq!(((one.forks)(), (two.forks)()), (0, 0));
    (one.read_unlock)(mine);
    (two.read_unlock)(too);
    queues(&[two, one]);
}

/// The copy whose tables all copies use is closed.
fn closing() {
    let (handle, one) = open(1);
    queues(&[one]);
    let two = load(2);
    queues(&[two]);
    // SAFETY: invariant 2. No thread is in the library.
    assert_eq!(unsafe { libc::dlclose(handle) }, 0);
    let three = load(3);
    readers(two, &[three]);
    queues(&[two, three]);
}

/// A copy of another version waits without a queue, and counts its readers.
fn other_version() {
    let (one, two) = (load(1), load(2));
    (one.slots)();
    (two.pretend_other_version)();
    queues(&[one]);
    queues(&[two]);
    queues(&[one, two]);
    conditions(one, two);
    assert_eq!((two.slots)(), 0);
    let memory = locks();
    (two.bias)(memory);
    (two.read_lock)(memory);
    assert!(!(one.write_try)(memory));
    (two.read_unlock)(memory);
    // `two` cannot make the lock biased. `one` can, and then readers of `two` count themselves.
    (one.bias)(memory);
    (two.read_lock)(memory);
    assert!(!(one.write_try)(memory));
    (two.read_unlock)(memory);
    assert!((one.write_try)(memory));
    (one.write.unlock)(memory);
    apart_from_readers(one, two);
    forked_apart(one, two);
}

/// A reader is announced where `apart` cannot see it.
fn apart_from_readers(one: Copy, apart: Copy) {
    let memory = locks();
    (one.bias)(memory);
    (one.read_lock)(memory);
    assert!((apart.is_locked)(memory) && !(apart.write_try)(memory));
    let begin = Instant::now();
    assert!(!(apart.write_for)(memory, 20) && !(apart.upgrade_for)(memory, 20));
    assert!(begin.elapsed() >= Duration::from_millis(40));
    (one.read_unlock)(memory);
    // `apart` cannot see that nobody reads any longer, either. A writer of `one` ends the bias.
    assert!(!(apart.write_try)(memory));
    scope(|s| {
        let waits = s.spawn(|| (apart.write_for)(memory, 30_000));
        sleep(Duration::from_millis(5));
        (one.write.lock)(memory);
        (one.write.unlock)(memory);
        assert!(waits.join().unwrap());
    });
    (apart.write.unlock)(memory);
    // One release too many.
    (apart.read_unlock)(memory);
    assert!(!(apart.is_locked)(memory) && (apart.write_try)(memory));
    (apart.write.unlock)(memory);
}

fn forked_apart(one: Copy, two: Copy) {
    in_a_child(|| {
        assert_eq!(((one.forks)(), (two.forks)()), (1, 1));
        queues(&[one, two]);
    });
}

/// A copy of another version refuses to go on if it cannot see who reads.
fn other_version_meets_readers() {
    let (one, two) = (load(1), load(2));
    (one.slots)();
    (two.pretend_other_version)();
    let memory = locks();
    (one.bias)(memory);
    (one.read_lock)(memory);
    eprintln!("the lock is in {memory:p}");
    (two.write.lock)(memory);
    eprintln!("it is written while it is read");
}

/// No page is free for copies to meet on.
fn no_page() {
    let (from, to) = (0x6000_0000_usize, 0x7fe0_0000);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: invariant 3.
    let mapped = unsafe {
        let at = std::ptr::without_provenance_mut(from);
        let flags = flags | libc::MAP_FIXED_NOREPLACE;
        libc::mmap(at, to - from, libc::PROT_NONE, flags, -1, 0)
    };
    assert_eq!(mapped.addr(), from, "the range is free in a test");
    let (one, two) = (load(1), load(2));
    queues(&[one, two]);
    apart(one, two);
}

fn apart(one: Copy, two: Copy) {
    conditions(one, two);
    readers(one, &[two]);
    assert!(!(one.has_table)() && !(two.has_table)());
}

/// The loader may unload the copies, or does not know them. See the example `loader`.
fn not_kept() {
    let (one, two) = (load(1), load(2));
    queues(&[one, two]);
    apart(one, two);
}

/// The program has a copy, too, which the compiler has optimised in another way.
fn program() {
    let (own, plugin) = (&copy::FUNCTIONS, load(1));
    (own.decide)();
    readers(own, &[plugin]);
    readers(plugin, &[own]);
    queues(&[own, plugin]);
}

const SCENARIOS: [(&str, fn()); 8] = [
    ("sharing", sharing),
    ("program", program),
    ("forking", forking),
    ("closing", closing),
    ("other_version", other_version),
    ("other_version_meets_readers", other_version_meets_readers),
    ("no_page", no_page),
    ("not_kept", not_kept),
];

// ---- running them -----------------------------------------------------------------------------

/// The variable that names the folder with the copies.
const COPIES: &str = "TEST_OF_COPIES";

/// Runs a scenario in a process of its own.
fn run(scenario: &str) -> Output {
    run_with(scenario, None)
}

/// Like [`run`], with a loader that refuses calls of the function `refused`.
fn run_with(scenario: &str, refused: Option<&str>) -> Output {
    let tests = std::env::current_exe().unwrap();
    let target = tests.ancestors().nth(3).unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    // `cargo test` has built these already, if all default members are tested.
    cargo.args(["build", "--quiet", "--profile", "test"]);
    cargo.args(["--example", "copy", "--example", "loader", "--target-dir"]);
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let built = cargo.arg(target).current_dir(root).status();
    assert!(built.unwrap().success());
    let name = format!(
        "copies-{}-{scenario}-{}",
        std::process::id(),
        refused.unwrap_or_default()
    );
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).unwrap();
    for number in 1..=3 {
        let to = folder.join(format!("copy-{number}.so"));
        std::fs::copy(target.join("debug/examples/libcopy.so"), to).unwrap();
    }
    let mut process = Command::new(&tests);
    if let Some(refused) = refused {
        process.env("TEST_LOADER", refused);
        process.env("LD_PRELOAD", target.join("debug/examples/libloader.so"));
    }
    let output = process
        .args([
            "--ignored",
            "--exact",
            "in_a_process_of_its_own",
            "--nocapture",
        ])
        .env(COPIES, &folder)
        .env("TEST_SCENARIO", scenario)
        .output()
        .unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    output
}

/// Not a test: what [`run`] starts.
#[test]
#[ignore = "a part of other tests"]
fn in_a_process_of_its_own() {
    let Ok(wanted) = std::env::var("TEST_SCENARIO") else {
        return;
    };
    // SAFETY: invariant 2.
    unsafe { libc::alarm(300) };
    let (_, scenario) = SCENARIOS.iter().find(|(name, _)| *name == wanted).unwrap();
    scenario();
}

fn passes(scenario: &str) {
    succeeded(&run(scenario));
}

fn succeeded(output: &Output) {
    let errors = String::from_utf8_lossy(&output.stderr);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{}\n{text}\n{errors}",
        output.status
    );
    assert!(!errors.contains("kinlock"), "{errors}");
}

#[test]
fn copies_share_locks() {
    passes("sharing");
}

#[test]
fn the_program_and_a_copy_share_locks() {
    passes("program");
}

#[test]
fn copies_share_locks_after_a_fork() {
    passes("forking");
}

#[test]
fn copies_share_locks_after_the_first_was_closed() {
    passes("closing");
}

#[test]
fn copies_of_two_versions_share_locks_that_are_not_biased() {
    passes("other_version");
}

#[test]
fn copies_of_two_versions_do_not_write_what_is_read() {
    use std::os::unix::process::ExitStatusExt;
    let output = run("other_version_meets_readers");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{errors}");
    assert!(!errors.contains("while it is read"), "{errors}");
    for part in ["kinlock: fatal", "copy-1.so", "copy-2.so"] {
        assert!(errors.contains(part), "{part} is missing in: {errors}");
    }
}

#[test]
fn copies_that_cannot_meet_share_locks() {
    passes("no_page");
}

#[test]
fn a_copy_that_cannot_be_kept_is_apart_even_if_the_process_forks_meanwhile() {
    succeeded(&run_with("not_kept", Some("dlopen")));
}

#[test]
fn a_copy_that_the_loader_does_not_know_is_apart() {
    succeeded(&run_with("not_kept", Some("dladdr")));
}
