//! C and C++ programs must print the same with and without the library.

mod support;

use support::{Program, compile, library, run, scratch, text};

macro_rules! same_answers {
    ($($name:ident: $($argument:expr),*;)*) => {
        $(
            #[test]
            fn $name() {
                answers_the_same($($argument),*);
            }
        )*
    };
}

fn answers_the_same(file: &str, locks: &[&str]) {
    Program::of(file).answers_the_same(locks);
}

const ALL: &[&str] = &["kinlock-mutex", "kinlock-spin", "pthread"];
const OURS: &[&str] = &["kinlock-mutex", "kinlock-spin"];

same_answers! {
    return_codes_of_mutexes: "codes.c", ALL;
    return_codes_of_rwlocks: "rwcodes.c", ALL;
    readers_and_writers: "rwlocks.c", &["kinlock-mutex", "pthread"];
    depth_of_recursion: "depth.c", ALL;
    keys_of_the_program: "keys.c", ALL;
    waits_with_mutexes_of_every_kind: "waits.c", ALL;
    a_bounded_buffer: "bounded.c", ALL;
    mutexes_destroyed_during_a_wait: "destroyed.c", ALL;
    notified_with_the_mutex_held: "held.c", ALL;
    cancelled_waits: "cancel.c", ALL;
    cancelled_at_any_instruction: "asynchronous.c", ALL;
    attributes_and_clocks: "attributes.c", ALL;
    processes_without_the_library: "peers.c", ALL;
    owners_for_debuggers: "owners.c", ALL;
    // It takes seconds, and the condition variables of both locks are the same.
    one_sleep_per_wait: "wakeups.c", &["kinlock-mutex"];
    children_of_clone: "clones.c", ALL;
    waiters_of_the_parent_of_a_clone: "cloned.c", OURS;
    children_of_fork: "forks.c", &["kinlock-mutex", "pthread"];
    spinlocks: "spin.c", ALL;
    threads_of_c11: "c11.c", ALL;
    barriers_semaphores_and_joins: "awaited.c", ALL;
    old_versions_of_symbols: "versions.c", ALL;
    unlocked_by_another_thread: "foreign.c", ALL;
    read_locks_unlocked_by_another_thread_or_by_nobody:
        "rwforeign.c", &["kinlock-mutex", "pthread"];
    threads_of_cxx: "cxx.cc", ALL;
    // The spinlock reads its word after the release.
    memory_that_goes_at_once: "gone.c", &["kinlock-mutex", "pthread"];
}

/// The same under a report, from the start or standing by.
mod reported {
    use super::{ALL, Program, scratch};

    const SOME: &[&str] = &["kinlock-mutex", "pthread"];

    same_answers! {
        // These functions are replaced only for the report.
        barriers_semaphores_and_joins: "awaited.c", ALL, &["0", "1"];
        children_of_clone: "clones.c", ALL, &["0", "1"];
        keys_of_the_program: "keys.c", ALL, &["0", "1"];
        waiters_of_the_parent_of_a_clone: "cloned.c", ALL, &["0", "1"];
        return_codes: "codes.c", SOME, &["0"];
        waits: "waits.c", SOME, &["0"];
        cancelled_waits: "cancel.c", SOME, &["0"];
        cancelled_threads: "cancelled.c", SOME, &["0"];
        children_of_fork: "forks.c", SOME, &["0"];
        memory_that_goes_at_once: "gone.c", SOME, &["0"];
        spinlocks: "spin.c", SOME, &["0"];
    }

    fn answers_the_same(file: &str, locks: &[&str], standby: &[&str]) {
        let program = Program::of(file);
        let ways = locks
            .iter()
            .flat_map(|lock| standby.iter().map(move |by| [*lock, *by]));
        program.answers_the_same_as(ways.map(|[lock, standby]| {
            let mut command = program.command();
            command
                .env("KINLOCK_LOCK", lock)
                .env("KINLOCK_STANDBY", standby)
                .env("KINLOCK_REPORT", scratch("report"));
            (format!("{lock}, {standby}"), command)
        }));
    }
}

#[test]
fn thousands_of_threads() {
    let program = Program::of("threads.c").with(&["10000"]);
    program.answers_the_same(&["kinlock-mutex"]);
}

#[test]
#[ignore = "deep: takes long"]
fn deep_a_hundred_thousand_threads() {
    Program::of("threads.c").answers_the_same(&["kinlock-mutex"]);
}

#[test]
fn before_main_and_in_plugins_and_after_main() {
    let plugin = support::compile("plugin.c", &["-shared", "-fPIC"]);
    let plugin = plugin.to_str().expect("a path");
    Program::of("early.c").with(&[plugin]).answers_the_same(ALL);
}

/// Two plugins have the crate `kinlock` linked into them. With the library, the process has three
/// copies of the same code.
#[test]
fn with_plugins_that_have_copies_of_the_crate() {
    let plugin = support::plugin_with_the_crate();
    let copies = [1, 2].map(|number| {
        let copy = support::scratch(&format!("copy-{number}.so"));
        std::fs::copy(&plugin, &copy).expect("it is copied");
        copy.to_str().expect("a path").to_owned()
    });
    let copies = [&*copies[0], &*copies[1]];
    Program::of("copies.c").with(&copies).answers_the_same(ALL);
}

/// Loading libraries with thread-locals makes the C library move a thread's vector of modules at
/// the next look-up of a thread-local.
#[test]
fn nothing_is_allocated_after_libraries_were_loaded() {
    let library = support::compile("local.c", &["-shared", "-fPIC"]);
    let copies: Vec<_> = (0..60)
        .map(|number| {
            let copy = library.with_extension(format!("{number}.so"));
            std::fs::copy(&library, &copy).expect("a copy");
            copy
        })
        .collect();
    let names: Vec<_> = copies.iter().filter_map(|copy| copy.to_str()).collect();
    let program = Program::of("loaded.c").with(&names);
    program.answers_the_same(ALL);
    program.prints_under_reports(ALL, "60 libraries, 0 allocations\n");
    for copy in copies {
        std::fs::remove_file(copy).expect("it is there");
    }
}

#[test]
fn nothing_is_allocated() {
    Program::of("allocations.c").answers_the_same(OURS);
}

/// The program also checks that taking a lock leaves `errno` as it was.
#[test]
fn nothing_is_allocated_for_a_report() {
    Program::of("allocations.c").prints_under_reports(ALL, "begin\n24000 800\n");
}

/// Needs a linker that takes two version scripts.
#[test]
#[cfg_attr(not(kinlock_versions), ignore = "linked without lld")]
fn functions_looked_up_by_version() {
    Program::of("byversion.c").answers_the_same(ALL);
}

/// Our lock counts fewer readers than the C library's, so the answers differ.
#[test]
fn too_many_readers() {
    let program = Program::of("rwfull.c");
    for (choice, expected) in [
        ("ours", "1048575 readers, EAGAIN"),
        ("glibc", "1100000 readers, 0"),
    ] {
        let output = run(program.command().env("KINLOCK_RWLOCK", choice));
        assert!(output.status.success(), "{output:?}");
        assert_eq!(
            text(&output.stdout),
            format!("{expected}\npthread_rwlock_trywrlock(&lock): 0\n")
        );
    }
}

/// The tests of allocations can fail.
#[test]
fn an_allocation_would_be_found() {
    let output = run(Program::of("allocations.c").command().env("ALLOCATES", "1"));
    assert!(!output.status.success());
    assert!(text(&output.stdout).contains("an allocation"));
}

/// ci/preload.sh runs this test with optimisation.
#[test]
#[cfg_attr(debug_assertions, ignore = "without optimisation frames are larger")]
fn the_smallest_stacks() {
    Program::of("small.c").answers_the_same(ALL);
}

/// A report looks up the callers on them, too.
#[test]
#[cfg_attr(debug_assertions, ignore = "without optimisation frames are larger")]
fn the_smallest_stacks_under_a_report() {
    Program::of("small.c").prints_under_reports(ALL, "small stacks suffice\n");
}

/// Another preloaded library wraps what this one might call, and takes locks in its wrappers.
#[test]
fn wrappers_that_lock() {
    let wrapper = compile("wrapper.c", &["-shared", "-fPIC"]);
    let program = Program::of("wrapped.c");
    let (wrapper, library) = (wrapper.display(), library());
    let library = library.display();
    for order in [
        format!("{library}:{wrapper}"),
        format!("{wrapper}:{library}"),
    ] {
        let mode = |variables: &[&str]| {
            let mut command = program.command();
            command.env("LD_PRELOAD", &order);
            for name in variables {
                let value = match *name {
                    "KINLOCK_REPORT" | "KINLOCK_COUNTS" => scratch("report").into_os_string(),
                    _ => "1".into(),
                };
                command.env(name, value);
            }
            let output = command.output().expect("it starts");
            let mode = format!("{order}, {variables:?}");
            assert!(output.status.success(), "{mode}: {output:?}");
            let text = String::from_utf8_lossy(&output.stdout);
            assert_eq!(text, "12000 12000\n", "{mode}");
        };
        mode(&[]);
        mode(&["KINLOCK_COUNTS"]);
        for more in ["KINLOCK_ORDER", "KINLOCK_RECORD", "KINLOCK_STANDBY"] {
            mode(&["KINLOCK_REPORT", more]);
        }
    }
}

/// A filter of system calls allows what the guide lists, and ends the process for all else.
#[test]
fn system_calls_are_those_of_the_list() {
    for (calls, lock) in [
        ("all", "kinlock-mutex"),
        ("all", "kinlock-spin"),
        ("futex", "kinlock-mutex"),
        ("futex", "kinlock-spin"),
    ] {
        for words in [&[calls][..], &[calls, "_exit"]] {
            let mut command = Program::of("filtered.c").with(words).command();
            command.env("KINLOCK_SYSTEM_CALLS", calls);
            let output = run(command.env("KINLOCK_LOCK", lock));
            let text = text(&output.stdout);
            assert_eq!(text, "80000 80000 80000\n", "{words:?}, {lock}: {output:?}");
            assert!(output.status.success(), "{words:?}, {lock}: {output:?}");
        }
    }
}
