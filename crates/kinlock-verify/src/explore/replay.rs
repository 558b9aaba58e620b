//! A schedule in one word, so that it can be played again.

use super::{locks, scenarios};
use kinlock_sim::Spot;
use std::fmt;
use std::str::FromStr;

/// Names a schedule: `lock:scenario:threads:seed:disruptions`.
///
/// `disruptions` are those that happen: `*` for all that the seed picks, `-` for none, or a list of `thread.access`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replay {
    /// The lock.
    pub lock: &'static str,
    /// The scenario.
    pub scenario: &'static str,
    /// The number of threads; `None`: the seed says.
    pub threads: Option<usize>,
    /// The seed.
    pub seed: u64,
    /// The only disruptions; `None`: all that the seed picks.
    pub only: Option<Vec<Spot>>,
}

impl fmt::Display for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:", self.lock, self.scenario)?;
        match self.threads {
            Some(n) => write!(f, "{n}")?,
            None => f.write_str("*")?,
        }
        write!(f, ":{}:", self.seed)?;
        match self.only.as_deref() {
            None => f.write_str("*"),
            Some([]) => f.write_str("-"),
            Some(spots) => {
                let words = spots.iter().map(|s| format!("{}.{}", s.thread, s.access));
                f.write_str(&words.collect::<Vec<_>>().join(","))
            }
        }
    }
}

impl FromStr for Replay {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split(':').collect();
        let &[lock, scenario, threads, seed, only] = parts.as_slice() else {
            return Err("it has to be LOCK:SCENARIO:THREADS:SEED:DISRUPTIONS".to_owned());
        };
        let known = locks::ALL.iter().find(|known| known.name == lock);
        let lock = known.ok_or_else(|| format!("no such lock: {lock}"))?.name;
        let known = scenarios::ALL.iter().find(|known| known.name == scenario);
        let scenario = known
            .ok_or_else(|| format!("no such scenario: {scenario}"))?
            .name;
        let threads = match threads {
            "*" => None,
            n => Some(super::threads(n)?),
        };
        let seed = seed.parse().map_err(|_| format!("not a seed: {seed}"))?;
        let only = match only {
            "*" => None,
            "-" => Some(Vec::new()),
            list => Some(list.split(',').map(spot).collect::<Result<_, _>>()?),
        };
        Ok(Replay {
            lock,
            scenario,
            threads,
            seed,
            only,
        })
    }
}

fn spot(text: &str) -> Result<Spot, String> {
    let wrong = || format!("not a disruption, THREAD.ACCESS: {text}");
    let (thread, access) = text.split_once('.').ok_or_else(wrong)?;
    Ok(Spot {
        thread: thread.parse().map_err(|_| wrong())?,
        access: access.parse().map_err(|_| wrong())?,
    })
}

#[cfg(test)]
mod tests {
    use super::Replay;

    #[test]
    fn what_is_written_can_be_read() {
        for text in [
            "cna:plain:*:7:*",
            "busted-splice:timed:8:0:-",
            "fifo:order:2:1:0.17,3.88",
        ] {
            assert_eq!(text.parse::<Replay>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            "cna",
            "nix:plain:*:7:*",
            "cna:nix:*:7:*",
            "cna:plain:0:7:*",
            "cna:plain:*:x:*",
            "cna:plain:*:7:1",
            "cna:plain:*:7:1.x",
        ] {
            assert!(text.parse::<Replay>().is_err(), "{text}");
        }
    }
}
