//! Machine files: those that come with the crate, wrong ones, and writing them.

use super::*;

const SMALL: &str = include_str!("../../machines/laptop.toml");
const LARGE: &str = include_str!("../../machines/westmere-ex-8s.toml");

/// Asserts that `text` with `from` replaced by `to` is refused in one line that names the file,
/// `parts`, and the line on which `at` first occurs in `text`.
fn assert_error(text: &str, from: &str, to: &str, at: &str, parts: &[&str]) {
    assert!(text.contains(from), "`{from}` is not there");
    let error = message(&text.replacen(from, to, 1));
    let before = &text[..text.find(at).unwrap()];
    let line = format!("line {}:", before.matches('\n').count() + 1);
    assert_names(&error, parts);
    assert_names(&error, &[&line]);
}

fn message(text: &str) -> String {
    let error = Machine::parse("some.toml", text).unwrap_err().to_string();
    assert!(!error.contains(char::is_control), "{error:?}");
    assert!(error.starts_with("some.toml: line "), "{error}");
    error
}

fn assert_names(error: &str, parts: &[&str]) {
    for part in parts {
        assert!(error.contains(part), "no `{part}` in: {error}");
    }
}

#[test]
fn built_in_machines_are_in_order() {
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
fn what_is_wrong_is_named_with_its_line() {
    for (right, wrong, at, part) in [
        (
            "last_level = {",
            "last_levl = {",
            "last_level = {",
            "last_levl",
        ),
        ("sockets = 1", "sokets = 1", "sockets = 1", "shape.sokets"),
        ("[system]", "[sistem]", "[system]", "sistem"),
        // A missing field is reported at the line of its table.
        ("rmw = { ns", "# { ns", "[latency]", "`rmw`"),
        ("cores_per_cache = 8", "", "[shape]", "`cores_per_cache`"),
        (" origin = \"assumed\",", "", "own_cache = {", "`origin`"),
        // Numbers.
        ("ns = 6.8", "ns = -1", "rmw = {", "`rmw`"),
        ("ns = 6.8", "ns = nan", "rmw = {", "`rmw`"),
        ("ns = 6.8", "ns = 1e10", "rmw = {", "`rmw`"),
        ("ns = 6.8", "ns = \"6\"", "rmw = {", "`latency.rmw.ns`"),
        ("ns = 6.8", "us = 6", "rmw = {", "`latency.rmw.us`"),
        ("ns = 6.8", "ns = 1, cycles = 4", "rmw = {", "`rmw`"),
        ("ns = 6.8", "percent = 140", "rmw = {", "`rmw`"),
        ("ns = 6.8, ", "", "rmw = {", "`rmw`"),
        ("rmw = {", "rmw = 7 # {", "rmw = {", "a table such as"),
        (
            "percent = 115",
            "percent = 99",
            "sibling_spins",
            "`sibling_spins`",
        ),
        (
            "percent = 115",
            "ns = 140",
            "sibling_spins",
            "`sibling_spins`",
        ),
        ("\"assumed\"", "\"guessed\"", "own_cache = {", "guessed"),
        // The clock.
        (
            "clock_mhz = 4000",
            "clock_mhz = 0",
            "clock_mhz",
            "`clock_mhz`",
        ),
        (
            "clock_mhz = 4000",
            "clock_mhz = 2.4",
            "clock_mhz",
            "`clock_mhz`",
        ),
        // Not TOML.
        ("clock_mhz = 4000", "clock_mhz = ", "clock_mhz", "clock_mhz"),
        ("ns = 6.8", "ns = 6.8 6.9", "rmw = {", "rmw"),
    ] {
        assert_error(SMALL, right, wrong, at, &[part]);
    }
    let row = "    [0, 1, 1, 1, 2, 2, 2, 2],\n";
    for (right, wrong, at, part) in [
        ("sockets = 8", "sockets = 0", "sockets = 8", "sockets"),
        ("sockets = 8", "sockets = 65", "sockets = 8", "sockets"),
        (
            "cores_per_cache = 10",
            "cores_per_cache = 257",
            "cores_per_cache",
            "cores_per_cache",
        ),
        (
            "threads_per_core = 1",
            "threads_per_core = 9",
            "threads_per_core",
            "threads_per_core",
        ),
        (
            "cores_per_cache = 10",
            "cores_per_cache = 33",
            "[shape]",
            "`shape`",
        ),
        (row, "", "hops = [", "`hops`"),
        (row, "    [0, 1, 1, 1, 2, 2, 2],\n", "hops = [", "`hops`"),
        (row, "    [1, 1, 1, 1, 2, 2, 2, 2],\n", "hops = [", "`hops`"),
        (row, "    [0, 2, 1, 1, 2, 2, 2, 2],\n", "hops = [", "`hops`"),
        (row, "    [0, 3, 1, 1, 2, 2, 2, 2],\n", "hops = [", "`hops`"),
        // A latency that the shape needs.
        ("modified_2_hops", "# ", "[latency]", "`modified_2_hops`"),
        ("modified_1_hop", "# ", "[latency]", "`modified_1_hop`"),
        ("memory_remote", "# ", "[latency]", "`memory_remote`"),
    ] {
        assert_error(LARGE, right, wrong, at, &[part]);
    }
    let genoa = include_str!("../../machines/epyc-9654-2s.toml");
    let needed = "shared_other_cache";
    assert_error(genoa, needed, "# ", "[latency]", &[needed]);
}

#[test]
fn a_file_that_breaks_off_or_has_a_wrong_character_gives_one_line() {
    let end = SMALL.trim_end().len();
    for at in (0..end).step_by(5) {
        message(&SMALL[..at]);
        // Most of these changes are errors; changes within comments and strings are not.
        for wrong in ["\u{7}", "é", "=", "\"", "\n"] {
            let text = format!("{}{wrong}{}", &SMALL[..at], &SMALL[at..]);
            if Machine::parse("some.toml", &text).is_err() {
                message(&text);
            }
        }
    }
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
