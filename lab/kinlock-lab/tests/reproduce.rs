//! The output of `kinlock-lab reproduce`, and its refusals.

mod support;

use std::fs;

use support::{done, json, refused};
use tempfile::TempDir;

/// A short run with two rows of each table.
const SHORT: &str = "reproduce --seconds 0.0005 --threads 1,16 --seeds 1";

fn short(more: &str) -> String {
    format!("{SHORT} {more}")
}

#[test]
fn json_has_the_promised_fields() {
    let report = json(SHORT);
    assert_eq!(report["seconds"], 0.0005);
    let tables = report["tables"].as_array().unwrap();
    let names: Vec<_> = tables.iter().map(|table| &table["table"]).collect();
    let expected = [
        "cna-lock2",
        "cna-locktorture",
        "cna-open1",
        "cna-leveldb-readrandom",
    ];
    assert_eq!(names, expected);
    for table in tables {
        assert_eq!(table["stock"]["name"], "qspinlock");
        assert_eq!(table["cna"]["name"], "cna-v10");
        let rows = table["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 6);
        assert!(table["scale"].as_f64().unwrap() > 0.0);
        for row in rows {
            for field in ["median", "low", "high"] {
                assert!(row["simulated"][field].as_f64().unwrap() > 0.0, "{row}");
            }
            let published = row["published"].as_f64().unwrap();
            let simulated = row["simulated"]["median"].as_f64().unwrap();
            let error = row["error_pct"].as_f64().unwrap();
            assert!((100.0 * (simulated / published - 1.0) - error).abs() < 1e-6);
            let is_forced = row["key"] == 1 && row["column"] == "stock";
            assert_eq!(row["pass"].is_null(), is_forced, "{row}");
            // A row that misses its target says in which direction.
            assert_eq!(row["too_good"].is_boolean(), row["pass"] == false, "{row}");
            assert!(row["note"].is_string());
        }
        assert_eq!(table["targets"], 5);
        // The scale makes the first number fit.
        assert_eq!(rows[0]["column"], "stock");
        assert!(rows[0]["error_pct"].as_f64().unwrap().abs() < 1e-6);
        assert_eq!(rows[2]["column"], "speedup");
    }
    assert_eq!(tables[0]["rows"][3]["published"], 4.152);
    assert_eq!(tables[1]["rows"][5]["published"], 1.216);
}

#[test]
fn results_do_not_depend_on_the_rows_shown() {
    let both = json(&short("cna-lock2"));
    let only = json("reproduce cna-lock2 --seconds 0.0005 --seeds 1 --threads 16");
    let rows = &only["tables"][0]["rows"];
    assert_eq!(rows.as_array().unwrap().len(), 3);
    assert_eq!(rows[0], both["tables"][0]["rows"][3]);
}

#[test]
fn draws_of_assumed_numbers_widen_bands_and_say_what_speedups_hang_on() {
    let table = |more: &str| json(&short(more))["tables"][0].clone();
    let usual = table("cna-lock2 --band 0");
    let drawn = table("cna-lock2 --band 0 --bands 4");
    assert!(usual["hangs_on"].is_null());
    let hangs_on = drawn["hangs_on"].as_array().unwrap();
    let strength = hangs_on
        .iter()
        .map(|on| on["rank_correlation"].as_f64().unwrap().abs());
    let strength: Vec<_> = strength.collect();
    assert!(strength.len() > 10 && strength.is_sorted_by(|a, b| a >= b));
    assert!(strength[0] > 0.0 && strength[0] <= 1.0);
    // The speed-up with 16 threads.
    let of = |table: &serde_json::Value, what: &str| {
        table["rows"][5]["simulated"][what].as_f64().unwrap()
    };
    assert_eq!(of(&drawn, "median"), of(&usual, "median"));
    assert_eq!(of(&usual, "low"), of(&usual, "high"));
    assert!(of(&drawn, "low") < of(&drawn, "high"));
    assert!(done(&short("cna-lock2 --bands 4")).contains("speed-ups hang on"));
}

#[test]
fn tables_say_what_the_simulation_rests_on() {
    let table = done(SHORT);
    for expected in [
        "cna-lock2",
        "speed-up",
        "workload lock2; stock = qspinlock, cna = cna-v10",
        "targets met",
        "parameters of machine haswell-ex-4s",
        "parameters of workload locktorture",
        "published",
        "fitted",
        "assumed",
    ] {
        assert!(table.contains(expected), "{expected}: {table}");
    }
    assert_eq!(table.matches("parameters of machine").count(), 1);
    assert!(done(&short("--markdown -")).contains("### cna-lock2"));
    assert_eq!(done(&short("--csv -")).lines().count(), 1 + 4 * 6);
}

#[test]
fn every_table_gets_a_picture() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("all.svg");
    let plot = format!("--plot {}", file.display());
    done(&short(&plot));
    for table in ["cna-lock2", "cna-locktorture"] {
        let picture = fs::read_to_string(folder.path().join(format!("all-{table}.svg"))).unwrap();
        assert!(picture.contains("published"), "{table}");
    }
    assert!(!file.exists());
    done(&short(&format!("cna-lock2 {plot}")));
    assert!(file.exists());
}

#[test]
fn bad_input_is_one_line() {
    for (arguments, expected) in [
        ("foo", "cna-locktorture"),
        ("--threads 0", "--threads"),
        ("--threads 7", "no row with 7 threads"),
        ("--machine pdp-11", "haswell-ex-4s"),
        ("--seconds 0", "--seconds"),
        ("--plot x.png", "pictures are SVG"),
        ("--json /nonexistent/x", "cannot write"),
        ("--csv /nonexistent/x", "cannot write"),
        ("--markdown /nonexistent/x", "cannot write"),
        ("--plot /nonexistent/x.svg", "cannot write"),
    ] {
        refused(&format!("reproduce {arguments}"), expected);
    }
}

#[test]
fn tables_of_the_mutex_have_their_own_columns() {
    let short = |table| {
        let line = format!("reproduce {table} --seconds 0.0005 --seeds 1 --band 0");
        json(&line)["tables"][0].clone()
    };
    let spinners = short("mutex-spinners");
    assert_eq!(spinners["columns"][1], "queued");
    let rows = spinners["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 8 * 3);
    // Rows of the same number of threads are one simulation.
    assert_eq!(rows[0]["simulated"], rows[3]["simulated"]);
    assert_eq!(rows[18]["label"], "8 nodes 1100-2000 users");
    assert_eq!(rows[20]["published"], 1.342);
    let osq = short("osq-prev-cpu");
    // Only the change was published, and all eleven rows are one simulation.
    assert!(osq["rows"][0]["published"].is_null() && osq["rows"][0]["pass"].is_null());
    assert!(osq["rows"][2]["pass"].is_boolean());
    assert_eq!(
        (&osq["targets"], &osq["rows"][32]["column"]),
        (&1.into(), &"speedup".into())
    );
}

#[test]
fn what_happened_inside_is_compared_too() {
    let of = |table, threads| {
        let line =
            format!("reproduce {table} --threads {threads} --seconds 0.002 --seeds 1 --band 0");
        json(&line)["tables"][0]["observed"].clone()
    };
    let spinners = of("mutex-spinners", 80);
    assert!((spinners[0]["published"].as_f64().unwrap() - 4.25).abs() < 0.01);
    assert!(spinners[0]["simulated"]["median"].as_f64().unwrap() > 1.0);
    assert_eq!(of("mutex-spinners", 10), serde_json::Value::Null);
    let list = of("invalidation", 32);
    assert_eq!(list[0]["column"], "longest queue");
    assert!(list[0]["simulated"]["median"].as_f64().unwrap() >= 2.0);
    assert!(list[1]["pass"].is_boolean());
}

#[test]
fn deviations_are_shown_of_published_runs_and_over_seeds() {
    let of = |seeds: u32| {
        let line = "reproduce cna-lock2 --seconds 0.0005 --threads 1,16 --band 0 --seeds";
        (
            json(&format!("{line} {seeds}")),
            done(&format!("{line} {seeds}")),
        )
    };
    let (one, shown) = of(1);
    let row = &one["tables"][0]["rows"][3];
    assert_eq!(row["published_sd"], 0.112);
    assert!(row["simulated_sd"].is_null());
    assert!(shown.contains("4.15±0.11") && shown.contains("standard deviations of a published"));
    let (two, _) = of(2);
    let row = &two["tables"][0]["rows"][3];
    let of = |what: &str| row["simulated"][what].as_f64().unwrap();
    // For two numbers, it is their distance divided by the root of two.
    let expected = (of("high") - of("low")) / 2_f64.sqrt();
    assert!((row["simulated_sd"].as_f64().unwrap() - expected).abs() < 1e-9);
}

#[test]
fn rows_are_taken_from_all_tables_that_have_them() {
    let table = done("reproduce --threads 80 --seconds 0.0005 --seeds 1");
    assert!(table.contains("mutex-spinners") && !table.contains("cna-lock2"));
}
