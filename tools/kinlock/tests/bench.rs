//! What `kinlock bench` reports. Nothing here depends on how fast anything is.

#![cfg(feature = "bench")]

mod support;

use std::fs;

use serde_json::Value;
use support::{done, ends, has_numbers, json, list, names, run};
use tempfile::TempDir;

/// The shortest run of two rounds.
const SHORT: &str = "bench --seconds 0.002 --rounds 2";

#[test]
fn every_lock_does_every_workload() {
    let workloads = "empty,counter,long,saturated,kv,lru,readrandom,bursts,objects";
    let line = format!("--workload {workloads} --threads 1,3 --rounds 1 --seconds 0.002");
    let report = json(&format!("bench {line}"));
    let variants = "kinlock-spin-fifo,kinlock-spin-cna,kinlock-mutex-joined,kinlock-fair";
    let of_variants = json(&format!("bench {line} --locks {variants}"));
    let locks = 10 - list(&report["unavailable"]).len();
    for workload in workloads.split(',') {
        let [main, variants] = [&report, &of_variants].map(|report| {
            let all = list(&report["results"]).iter();
            all.filter(|r| r["workload"] == workload)
                .collect::<Vec<_>>()
        });
        // The baseline is added to the locks that were asked for.
        assert_eq!(
            (main.len(), variants.len()),
            (2 * locks, 2 * 5),
            "{workload}"
        );
        let mut results = main.into_iter().chain(variants);
        for result in results.clone() {
            let ops = list(&result["rounds"][0]["ops_per_thread"]).len();
            assert_eq!(Some(ops as u64), result["threads"].as_u64());
        }
        // On a busy machine a short run may time no acquisition of a lock, or none that waits.
        let longest = |result: &Value| result["acquire_ns"]["max"].as_u64() > Some(0);
        assert!(results.any(longest), "{workload}");
    }
}

#[test]
fn json_has_the_promised_fields() {
    let line = "--workload counter --threads 2 --locks tas,kinlock-spin";
    let report = json(&format!("{SHORT} {line}"));
    assert_eq!(report["kind"], "measured");
    assert_eq!(report["command"][1], "bench");
    let machine = &report["machine"];
    for field in ["cpu", "virtual", "kernel", "libc", "version"] {
        assert!(!machine[field].is_null(), "{field}");
    }
    has_numbers(
        machine,
        "cpus usable_cpus sockets nodes domains timer_resolution_ns timer_cost_ns load_average",
    );
    has_numbers(
        &report["parameters"],
        "seconds rounds seed instrumented_seconds warm_up_seconds work_loop_ns",
    );
    let extent = &report["extent"];
    assert_eq!([&extent["rounds_done"], &extent["rounds_asked"]], [2, 2]);
    assert!(extent["interrupted_by"].is_null());
    let cpus = list(&report["parameters"]["cpus_by_threads"]["2"]);
    assert_eq!(cpus.len() % 2, 0);
    // The baseline is added to the locks that were asked for.
    assert_eq!(names(&report, "lock"), ["tas", "kinlock-spin", "std-mutex"]);
    let results = list(&report["results"]);
    for result in results {
        assert_eq!(result["suite"], "locks");
        assert_eq!(result["threads"], 2);
        for summary in ["ops_per_s", "ns_per_op", "ratio", "cpu_ns_per_op"] {
            has_numbers(&result[summary], "median min max");
        }
        has_numbers(&result["fairness"], "jain min_over_mean");
        has_numbers(&result["acquire_ns"], "p50 p99 p999 max");
        has_numbers(
            &result["handoffs"],
            "local remote retaken longest_remote_wait_ns longest_local_run_ns",
        );
        assert!(result["flags"].is_array());
        let rounds = list(&result["rounds"]);
        assert_eq!(rounds.len(), 2);
        for round in rounds {
            has_numbers(
                round,
                "place seconds ops_per_s ratio cpu_ns_per_op acquire_p999_ns acquire_p999_ratio \
                 acquire_max_ns",
            );
        }
        let has_events = !result["events"].as_object().unwrap().is_empty();
        assert_eq!(has_events, result["lock"] == "kinlock-spin");
        for ratio in ["ratio", "acquire_p999_ratio"] {
            assert_eq!(result[ratio]["to"], "std-mutex");
        }
        // Tails are compared round by round.
        for (round, baseline) in rounds.iter().zip(list(&results[2]["rounds"])) {
            let number = |round: &Value, field: &str| round[field].as_f64().unwrap();
            let tail = |round| number(round, "acquire_p999_ns").max(1.0);
            let ratio = tail(round) / tail(baseline);
            assert!((number(round, "acquire_p999_ratio") - ratio).abs() < 1e-9);
        }
    }
    for ratio in ["ratio", "acquire_p999_ratio"] {
        assert_eq!(results[2][ratio]["median"], 1.0);
    }
    // All locks of a round have a place of their own.
    for round in 0..2 {
        let places = results
            .iter()
            .map(|result| &result["rounds"][round]["place"]);
        let mut places: Vec<_> = places.map(|place| place.as_u64().unwrap()).collect();
        places.sort_unstable();
        assert_eq!(places, [0, 1, 2]);
    }
}

#[test]
fn pretended_domains_are_told_apart() {
    let is_remote = |_| {
        let mut command = support::kinlock();
        command.env("KINLOCK_TOPOLOGY", "0;1");
        let line = "bench --locks kinlock-spin-fifo --workload counter --threads 4 --seconds 0.1 \
            --rounds 1 --json -";
        let output = command.args(line.split_whitespace()).output().unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let machine = &report["machine"];
        assert_eq!(machine["domains"], 2);
        let remote = &report["results"][0]["handoffs"]["remote"];
        machine["usable_cpus"] == 1 || remote.as_u64() > Some(0)
    };
    // On a busy machine the threads of one domain may get no CPU in the time that is recorded.
    assert!((0..20).any(is_remote));
}

#[test]
fn people_get_one_screen_or_all_tables() {
    let line = format!("{SHORT} --workload empty --threads 1,2 --locks tas,kinlock-mutex");
    let text = |line: &str| {
        // Without a terminal there are no notes and no colours.
        let text = done(line);
        assert!(!text.contains('\u{1b}'), "{text}");
        text
    };
    let has = |text: &str, words: &[&str]| {
        let mut missing = words.iter().filter(|word| !text.contains(**word));
        assert_eq!(missing.next(), None, "{text}");
    };
    let details = text(&format!("{line} --details"));
    has(
        &details,
        &[
            "std-mutex: Rust's `std::sync::Mutex`",
            "empty, 1 thread ",
            "empty, 2 threads ",
            "x std-mutex",
            "p99.9",
            "tas",
        ],
    );
    let short = text(&line);
    assert!(details.contains("times as fast") && !short.contains("p99.9"));
    assert!(!short.contains("std::sync::Mutex"));
    has(
        &short,
        &[
            "CPU",
            "empty       1",
            "On this machine kinlock-mutex is",
            "cpu/op",
        ],
    );
    has(&short, &["fastest", "Alone (empty 1)"]);
}

#[test]
fn the_whole_report_fits_on_a_screen() {
    // All workloads but those that take long to prepare; the most rows that are ever shown.
    let workloads = "empty,counter,long,saturated,pingpong,broadcast";
    let text = ends(
        0,
        &format!("{SHORT} --workload {workloads} --threads 1,2,3,4,5,6"),
    );
    assert!(text.lines().count() <= 40, "{text}");
    let widest = text.lines().map(|line| line.chars().count()).max();
    assert!(widest <= Some(110), "{text}");
}

#[test]
fn files_of_all_kinds() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let line = format!("{SHORT} --workload empty,counter --threads 1,2 --locks tas --plot");
    let [json, csv, markdown, svg] = ["f.json", "f.csv", "f.md", "f.svg"].map(path);
    // Nothing of an old, longer file may remain.
    fs::write(&csv, "x".repeat(100_000)).unwrap();
    let files = format!("{svg} --json {json} --csv {csv} --markdown {markdown}");
    let text = ends(0, &format!("{line} {files}"));
    assert!(!text.is_empty(), "the table still goes to stdout");

    let report: Value = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    assert_eq!(list(&report["results"]).len(), 8);
    let csv = fs::read_to_string(csv).unwrap();
    let widths: Vec<_> = csv.lines().map(|line| line.split(',').count()).collect();
    assert_eq!(widths.len(), 9);
    assert!(widths.iter().all(|&width| width == widths[0]), "{csv}");
    let markdown = fs::read_to_string(markdown).unwrap();
    assert_eq!(markdown.matches("| tas |").count(), 4);

    let svg = fs::read_to_string(svg).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("counter") && svg.contains("std-mutex"));
}

#[test]
fn the_grid_says_where_our_lock_stands() {
    let folder = TempDir::new().unwrap();
    let svg = folder.path().join("grid.svg");
    let plot = svg.to_str().unwrap();
    let line = "bench --seconds 0.002 --rounds 1 --workload grid-core --quick --hogs 1";
    let report = json(&format!("{line} --threads 2,3 --plot {plot}"));
    assert_eq!(report["parameters"]["hogs"], 1);
    // Twelve cells with two numbers of threads and the five mutexes.
    assert_eq!(list(&report["results"]).len(), 12 * 2 * 5);
    assert!(names(&report, "workload").contains(&"grid:0/100ns/2"));
    let by_threads = list(&report["grid"]);
    assert_eq!(by_threads.len(), 2);
    for (standings, threads) in by_threads.iter().zip([2, 3]) {
        assert_eq!(standings["threads"], threads);
        assert_eq!(standings["lock"], "kinlock-mutex");
        assert_eq!(standings["part"], "core");
        let fields = "ratio cpu_ratio costly_cells p99_ratio too_long_waits \
                      least_min_over_mean ratio_to.std-mutex ratio_to.usync";
        has_numbers(standings, fields);
        let cells = list(&standings["cells"]);
        assert_eq!(cells.len(), 12);
        let fields = "section_ns private_ns lines ratio cpu_ratio cpu_over_least \
                      cpu_ns_per_op longest_wait_ns parking_lot_longest_wait_ns min_over_mean \
                      p99_wait_ns p99_over_least peer_cpu_ns_per_op peer_p99_wait_ns \
                      peer_longest_wait_ns peer_min_over_mean";
        cells.iter().for_each(|cell| has_numbers(cell, fields));
    }
    let svg = fs::read_to_string(svg).unwrap();
    assert!(svg.contains("1 other busy process") && svg.contains("128 cache lines"));
    assert!(svg.contains("core grid, 3 threads: kinlock-mutex over the best peer"));
}

#[test]
fn the_wide_grid_has_threads_and_a_map_of_its_own() {
    let folder = TempDir::new().unwrap();
    let svg = folder.path().join("grid.svg");
    let plot = svg.to_str().unwrap();
    let line = "bench --seconds 0.002 --rounds 1 --workload grid-wide --quick";
    let report = json(&format!(
        "{line} --locks kinlock-mutex,std-mutex --plot {plot}"
    ));
    // Six cells with three numbers of threads and two mutexes.
    assert_eq!(list(&report["results"]).len(), 6 * 3 * 2);
    let by_threads = list(&report["grid"]).iter();
    let threads = by_threads.map(|standings| {
        assert_eq!(standings["part"], "wide");
        let cells = list(&standings["cells"]);
        for length in ["constant", "exponential", "asleep"] {
            assert!(
                cells.iter().any(|cell| cell["length"] == length),
                "{length}"
            );
        }
        standings["threads"].as_u64().unwrap()
    });
    assert_eq!(threads.collect::<Vec<_>>(), [2, 4, 16]);
    let svg = fs::read_to_string(svg).unwrap();
    assert!(svg.contains("wide grid, 16 threads") && svg.contains("200us-sleep"));
    assert!(!svg.contains("128 cache lines"));
}

#[test]
fn people_see_the_grid_on_a_screen() {
    let line = "bench --seconds 0.002 --rounds 1 --threads 2 --locks kinlock-mutex,tas --hogs 2";
    let rows = |text: &str| {
        text.lines()
            .filter(|line| line.starts_with("grid:"))
            .count()
    };
    let text = ends(0, &format!("{line} --workload grid --quick"));
    assert!(text.contains("2 other busy processes meanwhile"), "{text}");
    // The five worst of the core, and of the wide cells.
    assert_eq!(rows(&text), 10, "{text}");
    let widest = text.lines().map(|line| line.chars().count()).max();
    assert!(widest <= Some(110), "{text}");
    assert!(!text.contains("ops/s"), "{text}");
    let all = ends(0, &format!("{line} --workload grid-wide --quick --details"));
    // A row for each, and a table for each, with two lines above it.
    assert_eq!(rows(&all), 6 + 2 * 6, "{all}");
    // A cell may be named; other workloads keep their rows.
    let text = ends(0, &format!("{line} --workload grid:0/0/2,empty --details"));
    for expected in ["grid:0/0/2, 2 threads", "empty       2"] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

#[test]
fn a_thread_in_the_background_is_told_and_does_not_count() {
    let line = "--workload counter,readers-90 --threads 1,2 --locks kinlock-mutex,std-mutex";
    for (kind, told) in [("nice", "at nice 19"), ("idle", "under SCHED_IDLE")] {
        let report = json(&format!("{SHORT} {line} --background {kind}"));
        assert_eq!(report["parameters"]["background"], kind);
        assert_eq!(report["parameters"]["hogs"], 0);
        assert_eq!(list(&report["results"]).len(), 2 * 2 * 2);
        for result in list(&report["results"]) {
            let ops = list(&result["rounds"][0]["ops_per_thread"]).len();
            assert_eq!(Some(ops as u64), result["threads"].as_u64());
        }
        let text = ends(0, &format!("{SHORT} {line} --background {kind}"));
        assert!(
            text.contains(&format!("takes the lock, {told} meanwhile")),
            "{text}"
        );
    }
    // Workloads with threads of their own are left out.
    let line = "bench --seconds 0.002 --rounds 1 --threads 1 --locks std-mutex --background idle";
    let report = json(line);
    assert!(names(&report, "workload").contains(&"counter"));
    assert!(!names(&report, "workload").contains(&"pingpong"));
    let report = json(&format!(
        "{SHORT} --workload empty --threads 1 --background busy"
    ));
    assert_eq!(report["parameters"]["hogs"], 1);
    assert_eq!(report["parameters"]["background"], "busy");
}

#[test]
fn more_threads_than_cpus_come_to_an_end() {
    let line = "--locks kinlock-spin,mcslock --workload counter --threads 24";
    let report = json(&format!("{SHORT} {line}"));
    assert_eq!(list(&report["results"]).len(), 3);
}

#[test]
fn meetings_have_their_own_threads_and_need_a_condition_variable() {
    // Long enough for some operations while other tests run.
    let line = "bench --workload pingpong,broadcast,queue --threads 3 --seconds 0.1 --rounds 2";
    let report = json(line);
    for (workload, threads) in [("pingpong", 2), ("broadcast", 17), ("queue", 5)] {
        let of_it = list(&report["results"]).iter();
        let of_it = of_it.filter(|result| result["workload"] == workload);
        for lock in ["std-mutex", "parking-lot", "kinlock-mutex"] {
            assert!(of_it.clone().any(|r| r["lock"] == lock), "{lock}");
        }
        for result in of_it.clone() {
            assert_eq!(result["threads"], threads);
            assert!(result["ops_per_s"]["median"].as_f64() > Some(0.0));
        }
        // On a busy machine a short run may time no acquisition of a lock.
        let median = |result: &Value| result["acquire_ns"]["p50"].as_u64() > Some(0);
        assert!(of_it.clone().any(median), "{workload}");
    }
    let report = json(&format!("{line} --locks tas,parking-lot"));
    let mut notes = list(&report["warnings"]).iter().filter_map(Value::as_str);
    let note =
        "not measured in pingpong, broadcast and queue, for want of a condition variable: tas";
    assert!(notes.any(|found| found == note));
    assert!(!names(&report, "lock").contains(&"tas"));
}

#[test]
fn ids_are_measured_against_the_baseline() {
    let report = json("bench ids --seconds 0.005 --rounds 2 --delay 0.001 --threads 1,3 --quiet");
    assert_eq!(report["kind"], "measured");
    assert!(report["restartable"].is_string());
    assert_eq!(report["parameters"]["delay_seconds"], 0.001);
    let results = list(&report["results"]);
    for workload in [
        "counter",
        "histogram",
        "lease",
        "stack",
        "pool",
        "cache",
        "intermittent",
    ] {
        let of = results.iter().filter(|entry| entry["workload"] == workload);
        let of: Vec<_> = of.collect();
        let mut locks = of.iter().map(|entry| entry["lock"].as_str().unwrap());
        assert!(locks.any(|lock| lock.starts_with("kinlock-")));
        let baseline = of[0]["ratio"]["to"].as_str().unwrap();
        let own = of.iter().find(|entry| entry["lock"] == baseline).unwrap();
        assert_eq!(own["ratio"]["median"], 1.0);
        for entry in of {
            assert_eq!(entry["suite"], "ids");
            assert!(entry["ns_per_op"]["median"].as_f64() > Some(0.0));
            assert!(entry["cpu_ns_per_op"]["median"].is_number() && entry["noisy"].is_boolean());
            assert_eq!(list(&entry["rounds"]).len(), 2);
        }
    }
}

#[test]
fn ids_are_reported_in_every_form() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let [csv, markdown, plot] = ["r.csv", "r.md", "r.svg"].map(path);
    let asked = "--workload counter --threads 1 --quiet";
    let short = "--seconds 0.002 --rounds 1";
    let files = format!("--csv {csv} --markdown {markdown} --plot {plot}");
    ends(0, &format!("bench ids {asked} {short} {files}"));
    for name in [csv, markdown, plot] {
        let text = fs::read_to_string(&name).unwrap();
        assert!(text.contains("kinlock-lease"), "{name}");
    }
}

const INVALIDATION: &str = "bench invalidation --seconds 0.02 --rounds 2";

#[test]
fn invalidation_has_the_promised_fields() {
    let report = json(&format!("{INVALIDATION} --threads 2"));
    assert_eq!(report["kind"], "measured");
    let results = list(&report["results"]);
    for workload in ["section", "passed", "pages"] {
        for name in ["locked", "slots", "crossbeam-epoch", "seize"] {
            let mut of_it = results.iter().filter(|entry| entry["workload"] == workload);
            let entry = of_it.find(|entry| entry["lock"] == name);
            let entry = entry.unwrap_or_else(|| panic!("{workload} {name}"));
            assert_eq!(entry["suite"], "invalidation");
            assert_eq!(entry["threads"], 2);
            for field in ["ops_per_s", "ns_per_op", "ratio"] {
                for value in ["median", "min", "max"] {
                    assert!(entry[field][value].as_f64() > Some(0.0), "{entry}");
                }
            }
            assert_eq!(list(&entry["rounds"]).len(), 2);
            assert_eq!(entry["lost"], 0);
            let sections = &entry["sections"];
            assert_eq!(sections.is_object(), name == "locked" || name == "slots");
            if sections.is_object() {
                has_numbers(sections, "waits slow_waits longest_queue");
            }
            assert_eq!(entry["verified"].as_u64() > Some(0), workload == "pages");
        }
    }
    let other = results.iter().find(|entry| entry["lock"] == "lock-held");
    assert_eq!(other.unwrap()["ratio"]["to"], "locked");
}

#[test]
fn invalidation_is_drawn_as_it_was_measured() {
    let folder = TempDir::new().unwrap();
    let drawn = |name: &str, more: &str| {
        let picture = folder.path().join(name);
        let output = run(&format!(
            "{INVALIDATION} --plot {} {more}",
            picture.display()
        ));
        assert_eq!(output.status.code(), Some(0));
        fs::read_to_string(picture).unwrap()
    };
    let both = "--backends slots,busy-flag --threads 2";

    let width = |svg: &str| {
        let start = svg.split_once("width=\"").unwrap().1;
        start.split_once('"').unwrap().0.to_owned()
    };
    let one = drawn("b.svg", both);
    let curves = "thousands of operations per second";
    // A bar for each contender and workload, except that the flag has no sections.
    for (text, times) in [("slots", 3), ("locked", 3), ("busy-flag", 2), (curves, 0)] {
        let found = one.lines().filter(|line| line.trim() == text).count();
        assert_eq!(found, times, "{text}");
    }
    let several = drawn("c.svg", "--workload pages --threads 1,3 --backends slots");
    for text in ["slots", "locked", "operations per second", "threads"] {
        assert!(several.contains(text), "{text}");
    }
    assert!(!several.contains("busy-flag") && !several.contains("shorter is better"));
    assert_eq!(width(&one), width(&several));
}
