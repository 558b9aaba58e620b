//! Machine files: those that come with the crate, wrong ones, and writing them.

use super::*;
use std::fs::File;

const SMALL: &str = include_str!("../../machines/laptop.toml");
const LARGE: &str = include_str!("../../machines/westmere-ex-8s.toml");

/// The error of `text` with `from` replaced by `to`, which has to be one line that names the file.
fn error(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "`{from}` is not there");
    message(&text.replacen(from, to, 1))
}

/// The same has to contain `parts`, and the line on which `at` first stands in `text`.
fn assert_error(text: &str, from: &str, to: &str, at: &str, parts: &[&str]) {
    let error = error(text, from, to);
    assert_names(&error, parts);
    assert_names(&error, &[&line_of(text, at)]);
}

fn message(text: &str) -> String {
    let error = Machine::parse("some.toml", text).unwrap_err().to_string();
    assert!(!error.contains(char::is_control), "{error:?}");
    assert!(error.starts_with("some.toml: line "), "{error}");
    error
}

/// The line on which `part` first stands.
fn line_of(text: &str, part: &str) -> String {
    let at = text.find(part).unwrap();
    format!("line {}:", text[..at].matches('\n').count() + 1)
}

fn assert_names(error: &str, parts: &[&str]) {
    for part in parts {
        assert!(error.contains(part), "no `{part}` in: {error}");
    }
}

#[test]
fn built_in_machines_are_in_order() {
    let mut cpus = Vec::new();
    for (name, text) in BUILT_IN {
        let m = load(name).unwrap();
        assert_eq!(m.name, *name);
        let c = &m.costs;
        assert!(
            c.own_cache > 0 && c.own_cache < c.last_level && c.last_level <= c.modified[0],
            "{name}"
        );
        for table in [&c.modified, &c.shared, &c.invalidate] {
            let present: Vec<u64> = table.iter().copied().filter(|&c| c > 0).collect();
            assert!(present.is_sorted(), "{name}: {table:?}");
        }
        assert!(c.memory[0] > c.last_level, "{name}");
        assert!(m.parameters.iter().all(|p| p.source.len() > 4), "{name}");
        assert_eq!(m.parameters.len(), text.matches("origin = ").count());
        cpus.push((*name, m.shape.cpus()));
    }
    let expected = [
        ("haswell-ex-4s", 144),
        ("westmere-ex-8s", 80),
        ("ivybridge-2s", 32),
        ("epyc-9654-2s", 384),
        ("graviton4-2s", 192),
        ("laptop", 16),
    ];
    assert_eq!(cpus, expected);
}

#[test]
fn westmere_has_two_quads() {
    let shape = load("westmere-ex-8s").unwrap().shape;
    for (at, &hops) in shape.hops.iter().enumerate() {
        let (a, b) = (at / 8, at % 8);
        let expected = if a == b {
            0
        } else {
            1 + (a / 4 != b / 4) as u8
        };
        assert_eq!(hops, expected, "{a} {b}");
    }
}

#[test]
fn machines_survive_being_written() {
    for (name, _) in BUILT_IN {
        let mut m = load(name).unwrap();
        m.about += "; quotes \" and\nlines \\ too";
        let again = Machine::parse("again", &m.to_toml()).unwrap();
        assert_eq!((&again.name, &again.about), (&m.name, &m.about));
        assert_eq!((&again.shape, &again.costs), (&m.shape, &m.costs));
        assert_eq!(again.parameters.len(), m.parameters.len());
        for p in &m.parameters {
            assert!(again.parameters.contains(p), "{name}: {p:?}");
        }
    }
}

#[test]
fn a_misspelt_field_is_named() {
    for (right, wrong, name) in [
        ("last_level = {", "last_levl = {", "last_levl"),
        ("sockets = 1", "sokets = 1", "shape.sokets"),
    ] {
        assert_error(SMALL, right, wrong, right, &[name]);
    }
    assert_names(&error(SMALL, "[system]", "[sistem]"), &["sistem"]);
}

#[test]
fn a_missing_field_is_named_with_the_line_of_its_table() {
    let rmw = SMALL.lines().find(|line| line.starts_with("rmw")).unwrap();
    let rmw = &format!("{rmw}\n");
    assert_error(SMALL, rmw, "", "[latency]", &["`latency`", "`rmw`"]);
    let cores = "cores_per_cache = 8\n";
    assert_error(
        SMALL,
        cores,
        "",
        "[shape]",
        &["`shape`", "`cores_per_cache`"],
    );
    let e = error(SMALL, "clock_mhz = 4000\n", "");
    assert_names(&e, &["`clock_mhz`"]);
    let (pause, without) = (
        "pause = { cycles = 65, origin = \"assumed\",",
        "pause = { cycles = 65,",
    );
    assert_error(
        SMALL,
        pause,
        without,
        "pause = {",
        &["`latency.pause`", "`origin`"],
    );
}

#[test]
fn a_number_that_is_none_is_named() {
    let rmw =
        |to: &str, name: &str| assert_error(SMALL, "rmw = { ns = 6.8", to, "rmw = {", &[name]);
    for wrong in ["-1", "nan", "inf", "-inf", "1e10"] {
        rmw(&format!("rmw = {{ ns = {wrong}"), "`rmw`");
    }
    for (wrong, field) in [
        ("ns = \"6\"", "`latency.rmw.ns`"),
        ("ns = true", "`latency.rmw.ns`"),
        ("us = 6", "`latency.rmw.us`"),
        ("ns = 1, cycles = 4", "`rmw`"),
        ("percent = 140", "`rmw`"),
    ] {
        rmw(&format!("rmw = {{ {wrong}"), field);
    }
    let no_table = &["`latency.rmw`", "a table such as"];
    assert_error(SMALL, "rmw = {", "rmw = 7 # {", "rmw = {", no_table);
    assert_error(
        SMALL,
        "rmw = { ns = 6.8, ",
        "rmw = { ",
        "rmw = {",
        &["`rmw`"],
    );
    let sibling = "sibling_spins = { percent = 115";
    for wrong in ["percent = 99", "ns = 140", "percent = nan"] {
        let wrong = format!("sibling_spins = {{ {wrong}");
        assert_error(
            SMALL,
            sibling,
            &wrong,
            "sibling_spins",
            &["`sibling_spins`"],
        );
    }
    let (origin, guessed) = ("origin = \"assumed\"", "origin = \"guessed\"");
    let names = &["`latency.own_cache.origin`", "guessed"];
    assert_error(SMALL, origin, guessed, "own_cache = {", names);
}

#[test]
fn a_clock_that_stands_still_is_named() {
    for wrong in [
        "0",
        "-4000",
        "99999999999",
        "2.4",
        "99999999999999999999999",
    ] {
        let wrong = format!("clock_mhz = {wrong}");
        assert_error(
            SMALL,
            "clock_mhz = 4000",
            &wrong,
            "clock_mhz",
            &["`clock_mhz`"],
        );
    }
}

#[test]
fn what_is_not_toml_is_named_with_its_line() {
    assert_error(
        SMALL,
        "clock_mhz = 4000",
        "clock_mhz = ",
        "clock_mhz",
        &["clock_mhz"],
    );
    let two = "rmw = { ns = 6.8 6.9";
    assert_error(SMALL, "rmw = { ns = 6.8", two, "rmw = {", &["rmw"]);
    let e = error(
        SMALL,
        "clock_mhz = 4000",
        "clock_mhz = 4000\nclock_mhz = 4000",
    );
    assert_names(&e, &["`clock_mhz`", "duplicate", "line 8:"]);
    for text in [
        "",
        "hello, world",
        "\u{0}\u{1}",
        "{\"name\": 1}",
        "[[[[",
        "a = [",
        "é = é",
    ] {
        message(text);
    }
}

#[test]
fn a_file_that_breaks_off_or_has_a_wrong_character_gives_one_line() {
    let end = SMALL.trim_end().len();
    for at in (0..end).step_by(5) {
        message(&SMALL[..at]);
        // Most of these are wrong; those within comments and texts are not.
        for wrong in ["\u{7}", "é", "=", "\"", "\n"] {
            let text = format!("{}{wrong}{}", &SMALL[..at], &SMALL[at..]);
            if Machine::parse("some.toml", &text).is_err() {
                message(&text);
            }
        }
    }
}

#[test]
fn a_shape_that_cannot_be_is_named() {
    for (field, wrong) in [
        ("sockets = 8", "sockets = 0"),
        ("sockets = 8", "sockets = -1"),
        ("sockets = 8", "sockets = 65"),
        ("cores_per_cache = 10", "cores_per_cache = 257"),
        ("threads_per_core = 1", "threads_per_core = 9"),
    ] {
        let name = field.split(' ').next().unwrap();
        assert_error(LARGE, field, wrong, field, &[name]);
    }
    let (cores, too_many) = ("cores_per_cache = 10", "cores_per_cache = 33");
    assert_error(LARGE, cores, too_many, "[shape]", &["`shape`", "cores"]);
    let row = "    [0, 1, 1, 1, 2, 2, 2, 2],\n";
    for wrong in [
        "",
        "    [0, 1, 1, 1, 2, 2, 2],\n",
        "    [1, 1, 1, 1, 2, 2, 2, 2],\n",
        "    [0, 2, 1, 1, 2, 2, 2, 2],\n",
        "    [0, 3, 1, 1, 2, 2, 2, 2],\n",
    ] {
        assert_error(LARGE, row, wrong, "hops = [", &["`hops`"]);
    }
}

#[test]
fn a_latency_that_the_shape_needs_is_named_if_it_is_missing() {
    let without = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        let needed = format!("`{name}`");
        assert_error(text, &format!("{line}\n"), "", "[latency]", &[&needed]);
    };
    for name in [
        "modified_2_hops",
        "shared_2_hops",
        "invalidate_2_hops",
        "modified_1_hop",
        "memory_remote",
    ] {
        without(LARGE, name);
    }
    let genoa = include_str!("../../machines/epyc-9654-2s.toml");
    without(genoa, "shared_other_cache");
}

#[test]
fn a_file_that_cannot_be_read_gives_one_line() {
    let folder = std::env::temp_dir().join(format!("kinlock-machines-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    std::fs::write(path("huge"), vec![b'#'; Machine::MAX_FILE as usize + 1]).unwrap();
    std::fs::write(path("binary"), [0xFF, 0xFE, 0x00]).unwrap();
    std::fs::write(path("good"), SMALL).unwrap();
    let error = |name: &str| {
        let text = load(name).unwrap_err().to_string();
        assert!(!text.contains(char::is_control), "{text:?}");
        text
    };
    assert_names(&error(folder.to_str().unwrap()), &["a directory"]);
    assert_names(&error(&path("huge")), &["more than 1048576 bytes"]);
    assert_names(&error(&path("binary")), &["UTF-8"]);
    assert_names(&error(&path("good/below")), &["good/below"]);
    assert_eq!(load(&path("good")).unwrap().name, "laptop");
    for name in ["no-such\nmachine", "", "haswell"] {
        let known = "haswell-ex-4s, westmere-ex-8s";
        assert_names(&error(name), &["no machine", known, "laptop, this"]);
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
#[cfg(unix)]
fn an_unreadable_file_gives_one_line() {
    use std::os::unix::fs::PermissionsExt;
    let path = std::env::temp_dir().join(format!("kinlock-machine-{}", std::process::id()));
    std::fs::write(&path, SMALL).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o000)).unwrap();
    let name = path.to_str().unwrap();
    // The superuser can read it.
    if File::open(&path).is_err() {
        let e = load(name).unwrap_err().to_string();
        assert_names(&e, &[name, "ermission"]);
        assert!(!e.contains('\n'));
    }
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn cycles_are_rounded_to_the_nearest() {
    let costs = Costs {
        clock_mhz: 1000,
        ..load("laptop").unwrap().costs
    };
    for (nanos, cycles) in [
        (0.0, 0),
        (0.499, 0),
        (0.5, 1),
        (1.4999, 1),
        (2.5, 3),
        (0.49999999999999994, 0),
        (4503599627370497.5, 4503599627370498),
        (-3.0, 0),
        (1e30, u64::MAX),
    ] {
        assert_eq!(costs.cycles(nanos), cycles, "{nanos} ns");
    }
}
