//! A scan over parameters of the program: locks are compared at each of their values, which replace
//! `{NAME}` in the command line.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::str::FromStr;

use anyhow::{bail, ensure};
use serde::{Serialize, Serializer};

/// A parameter with its values.
#[derive(Clone, Debug, Serialize)]
pub struct Scan {
    pub name: String,
    pub values: Vec<String>,
}

/// The most points of a scan: each takes as long as a comparison.
const MOST_POINTS: usize = 256;

impl FromStr for Scan {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, values) = text.split_once('=').ok_or("write NAME=VALUE,VALUE")?;
        let is_known = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
        if name.is_empty() || !name.chars().all(is_known) {
            return Err("a name is made of letters, digits, - and _".to_owned());
        }
        let values: Vec<_> = values.split(',').map(str::to_owned).collect();
        if values == [""] {
            return Err(format!("{name} has no values: write {name}=VALUE,VALUE"));
        }
        if values.iter().any(String::is_empty) {
            return Err(format!("a value of {name} is empty"));
        }
        if values.iter().any(|value| value.contains(char::is_control)) {
            return Err(format!("a value of {name} has a control character"));
        }
        let mut before = values.iter().enumerate();
        if let Some((_, value)) = before.find(|(at, value)| values[..*at].contains(value)) {
            return Err(format!("{name} has the value {value} twice"));
        }
        Ok(Scan {
            name: name.to_owned(),
            values,
        })
    }
}

/// The values of all parameters at a point; none without a scan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct At(pub Vec<(String, String)>);

impl At {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// `threads=4, size=10`.
    pub fn words(&self) -> String {
        let values = self.0.iter();
        let values: Vec<_> = values
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        values.join(", ")
    }

    /// A sentence, prefixed with the point that it is about.
    pub fn about(&self, sentence: String) -> String {
        match self.is_empty() {
            true => sentence,
            false => format!("{}: {sentence}", self.words()),
        }
    }

    /// The value of a parameter.
    pub fn value(&self, name: &str) -> &str {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value)
    }

    /// A word of a command line with its placeholders replaced by the values. Placeholders in a
    /// value are not replaced.
    pub fn fill(&self, word: &OsStr) -> OsString {
        let mut rest = word.as_bytes();
        let mut filled = Vec::new();
        while let Some((&first, after)) = rest.split_first() {
            let value = self.0.iter().find_map(|(name, value)| {
                let left = rest.strip_prefix(format!("{{{name}}}").as_bytes())?;
                Some((value, left))
            });
            match value {
                Some((value, left)) => {
                    filled.extend_from_slice(value.as_bytes());
                    rest = left;
                }
                None => {
                    filled.push(first);
                    rest = after;
                }
            }
        }
        OsString::from_vec(filled)
    }
}

impl Serialize for At {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

/// All points, ordered by the values of the first parameter, then by those of the next. Without a
/// scan there is one point.
///
/// # Errors
/// If two parameters have the same name, there are too many points, or no word has the placeholder
/// of a parameter.
pub fn points<'a>(
    scans: &[Scan],
    words: impl Iterator<Item = &'a OsStr> + Clone,
) -> anyhow::Result<Vec<At>> {
    for (index, scan) in scans.iter().enumerate() {
        let name = &scan.name;
        ensure!(
            scans[..index].iter().all(|other| other.name != *name),
            "two of --scan have the name {name}"
        );
        let placeholder = format!("{{{name}}}");
        let is_in = |word: &OsStr| {
            let mut places = word.as_bytes().windows(placeholder.len());
            places.any(|place| place == placeholder.as_bytes())
        };
        if !words.clone().any(is_in) {
            bail!(
                "--scan {name}: {placeholder} is neither in the program's command line nor in \
                 --prepare: each run would be the same"
            );
        }
    }
    let count = scans
        .iter()
        .try_fold(1, |count: usize, scan| count.checked_mul(scan.values.len()));
    ensure!(
        count.is_some_and(|count| count <= MOST_POINTS),
        "--scan: the values make more than {MOST_POINTS} points"
    );
    let mut points = vec![At::default()];
    for scan in scans {
        let longer = points.iter().flat_map(|point| {
            scan.values.iter().map(|value| {
                let own = (scan.name.clone(), value.clone());
                At([&point.0[..], &[own]].concat())
            })
        });
        points = longer.collect();
    }
    Ok(points)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(scans: &[&str], words: &[&str]) -> anyhow::Result<Vec<String>> {
        let scans: Vec<Scan> = scans.iter().map(|scan| scan.parse().unwrap()).collect();
        let points = points(&scans, words.iter().map(OsStr::new))?;
        Ok(points.iter().map(At::words).collect())
    }

    #[test]
    fn points_are_all_combinations() {
        assert_eq!(at(&[], &["x"]).unwrap(), [""]);
        let both = at(&["t=1,2", "s=a,b"], &["-t{t}", "{s}"]).unwrap();
        assert_eq!(both, ["t=1, s=a", "t=1, s=b", "t=2, s=a", "t=2, s=b"]);
    }

    #[test]
    fn what_is_no_scan_is_named() {
        for (text, expected) in [
            ("threads", "write NAME=VALUE"),
            ("=1", "a name is made of"),
            ("a b=1", "a name is made of"),
            ("threads=", "threads has no values"),
            ("threads=1,,2", "a value of threads is empty"),
            ("threads=1,2,1", "threads has the value 1 twice"),
            ("threads=1,\x1b", "control character"),
        ] {
            let error = text.parse::<Scan>().unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
        let error = |scans: &[&str], words: &[&str]| at(scans, words).unwrap_err().to_string();
        assert!(error(&["t=1", "t=2"], &["{t}"]).contains("two of --scan"));
        assert!(error(&["t=1"], &["-t", "t"]).contains("{t} is neither in"));
        let many: Vec<_> = (0..17).map(|n| n.to_string()).collect();
        let scans = ["a", "b"].map(|name| format!("{name}={}", many.join(",")));
        assert!(error(&[&scans[0], &scans[1]], &["{a}{b}"]).contains("more than 256"));
    }

    #[test]
    fn values_stand_where_their_placeholders_do() {
        let at = At([("t", "4"), ("s", "{t}")]
            .map(|(a, b)| (a.to_owned(), b.to_owned()))
            .to_vec());
        let filled = |word: &[u8]| at.fill(OsStr::from_bytes(word)).into_vec();
        assert_eq!(filled(b"-t={t},{t}"), b"-t=4,4");
        // Neither a value nor another brace is a placeholder.
        assert_eq!(filled(b"{s}{u}{ {{t}}"), b"{t}{u}{ {4}");
        assert_eq!(filled(b"\xff{t}"), b"\xff4");
    }
}
