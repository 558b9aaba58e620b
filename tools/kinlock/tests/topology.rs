//! `kinlock topology` as people and programs call it.

mod support;

use std::process::{Command, Output};

use kinlock_measure::machine::Machine;
use serde_json::Value;
use support::{is_refusal, kinlock, list, refused};

fn topology(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = kinlock();
    let command = command.arg("topology").args(arguments);
    command.envs(variables.iter().copied()).output().unwrap()
}

fn json(variables: &[(&str, &str)]) -> Value {
    let output = topology(&["--json", "-"], variables);
    assert_eq!(output.status.code(), Some(0));
    // Fails if anything else is on standard output.
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn people_get_tables() {
    let output = topology(&[], &[]);
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stderr.is_empty());
    let text = String::from_utf8(output.stdout).unwrap();
    for expected in "CPUs node llc socket auto rseq membarrier futex".split(' ') {
        assert!(text.contains(expected), "no {expected} in {text}");
    }
}

#[test]
fn every_cpu_that_is_online_is_in_one_domain_of_each_kind() {
    let report = json(&[]);
    let cpus = list(&report["cpus"]).iter();
    let online = cpus.filter(|cpu| cpu["online"] == true);
    let online: Vec<u64> = online.map(|cpu| cpu["cpu"].as_u64().unwrap()).collect();
    assert!(!online.is_empty());
    let kinds = list(&report["kinds"]);
    let names = kinds.iter().map(|kind| kind["kind"].as_str().unwrap());
    assert!(names.eq(["node", "llc", "socket"]));
    for kind in kinds {
        let cpus = list(&kind["domains"]).iter().flat_map(list);
        let mut cpus: Vec<u64> = cpus.map(|cpu| cpu.as_u64().unwrap()).collect();
        cpus.sort_unstable();
        assert_eq!(cpus, online);
    }
}

#[test]
fn json_has_the_promised_fields() {
    let report = json(&[]);
    let has = |value: &Value, fields: &str| {
        for field in fields.split(' ') {
            assert!(value.get(field).is_some(), "{field}: {value}");
        }
    };
    has(&report, "cpus nodes virtual kinds in_use features");
    let cpu = &report["cpus"][0];
    has(cpu, "cpu online allowed node socket llc core thread");
    has(&report["nodes"][0], "node cpus has_memory distances");
    has(&report["kinds"][0]["auto"], "reorder reason");
    let in_use = &report["in_use"];
    has(in_use, "auto local_limit");
    has(&in_use["auto_domain"], "kind reason");
    assert_eq!(in_use["auto_domain"]["kind"], in_use["domains_by"]);
    let features = &report["features"];
    has(
        features,
        "rseq rseq_feature_size node_id mm_cid restartable_sequences futex_waitv futex2",
    );
    has(&features["restartable_sequences"], "used reason");
    has(&features["slice_extension"], "offered");
}

#[test]
fn the_environment_is_heeded_and_explained() {
    let report = json(&[
        ("KINLOCK_TOPOLOGY", "0;1;2"),
        ("KINLOCK_LOCAL_LIMIT", "2^7"),
        ("KINLOCK_STEALING", "off"),
        ("KINLOCK_QUANTUM", "25us"),
        ("KINLOCK_SLICE_EXTENSION", "on"),
    ]);
    let in_use = &report["in_use"];
    assert_eq!(in_use["domains_by"], "KINLOCK_TOPOLOGY");
    assert_eq!(in_use["domain_count"], 3);
    assert_eq!(in_use["decision"]["reorder"], true);
    assert_eq!(in_use["local_limit"], "2^7");
    assert_eq!(in_use["stealing"], false);
    assert_eq!(in_use["quantum"], "25us");
    assert_eq!(in_use["slice_extension"], true);

    let off = json(&[("KINLOCK_TOPOLOGY", "0;1;2"), ("KINLOCK_NUMA", "off")]);
    assert_eq!(off["in_use"]["auto"]["reorder"], true);
    assert_eq!(off["in_use"]["decision"]["reorder"], false);
}

#[test]
fn a_bad_variable_is_a_note() {
    let output = topology(&["--json", "-"], &[("KINLOCK_TOPOLOGY", "0;0")]);
    assert_eq!(output.status.code(), Some(0));
    let note = "kinlock: ignoring KINLOCK_TOPOLOGY='0;0': expected every CPU in one domain only\n";
    assert_eq!(String::from_utf8(output.stderr).unwrap(), note);
}

#[test]
fn a_measured_machine_is_written() {
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("my-server.toml");
    let file = file.to_str().unwrap();
    if kinlock_measure::cpus::allowed_cpus().len() < 2 {
        return;
    }
    let output = topology(&["--measure", "--machine-file", file], &[]);
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    for expected in ["own_cache", "last_level", "is assumed"] {
        assert!(text.contains(expected), "no {expected} in {text}");
    }
    let written = Machine::read(file, &[]).unwrap();
    assert_eq!(written.name, "my-server");
    assert!(written.shape.cpus() >= 2);
    let costs = &written.costs;
    assert!(
        costs.own_cache > 0 && costs.rmw > 0 && costs.pause > 0,
        "{costs:?}"
    );
    let least = costs.modified[0].min(costs.last_level);
    assert!(least >= costs.own_cache, "{costs:?}");
    // Only the machine file is on standard output, and the machine is in the report.
    let words = ["--measure", "--machine-file", "-", "--json", file];
    let text = String::from_utf8(topology(&words, &[]).stdout).unwrap();
    assert!(text.starts_with("name = \"this\""), "{text}");
    let report = std::fs::read_to_string(file).unwrap();
    let machine = &serde_json::from_str::<Value>(&report).unwrap()["machine"];
    assert_eq!(machine["name"], "this");
    let measured = list(&machine["parameters"]).iter();
    let measured = measured.filter(|parameter| parameter["origin"] == "measured");
    assert!(measured.count() >= 4, "{machine}");
}

#[test]
fn one_cpu_cannot_be_measured() {
    let mut command = Command::new("taskset");
    let one = kinlock_measure::cpus::allowed_cpus()[0].to_string();
    command.args(["-c", &one, env!("CARGO_BIN_EXE_kinlock"), "topology"]);
    let output = command.arg("--measure").output().unwrap();
    is_refusal(&output, 2, "one CPU only");
}

#[test]
fn bad_input_is_one_line_and_status_2() {
    for line in [
        "--json /nonexistent/folder/file",
        "--bogus",
        "extra",
        "--machine-file file.toml",
        "--measure --machine-file /nonexistent/folder/file.toml",
    ] {
        refused(&format!("topology {line}"), "kinlock: ");
    }
}
