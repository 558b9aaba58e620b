//! The contenders: locks, each with the environment variables that make a program use it.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, bail};
use kinlock_cli::args::{Named, keep_first};

use crate::run::variables::{Lock, Variable, is_preloadable, of_lock, preloaded};

pub struct Contender {
    pub name: String,
    pub variables: Vec<Variable>,
}

/// A library that is not ours.
#[derive(Clone)]
pub struct Preload {
    name: String,
    file: PathBuf,
}

impl FromStr for Preload {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, file) = text.split_once('=').ok_or("write NAME=FILE")?;
        let is_known = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if name.is_empty() || !name.chars().all(is_known) {
            return Err("a name is made of letters, digits, dots, - and _".to_owned());
        }
        if Lock::find(name).is_some() {
            return Err(format!("{name} is the name of a lock of the command"));
        }
        let found = Path::new(file).canonicalize();
        let found = found.map_err(|error| format!("{file}: {error}"))?;
        Ok(Preload {
            name: name.to_owned(),
            file: is_preloadable(found).map_err(|error| error.to_string())?,
        })
    }
}

/// The locks asked for, or the usual ones, followed by the reference.
pub fn chosen(
    asked: &[String],
    reference: &str,
    preloads: &[Preload],
    library: &Path,
) -> anyhow::Result<Vec<Contender>> {
    let mut others: Vec<_> = preloads
        .iter()
        .map(|preload| preload.name.clone())
        .collect();
    keep_first(&mut others, String::clone);
    if others.len() < preloads.len() {
        bail!("two of --preload have the same name");
    }
    let mut names = match asked {
        [] => [Lock::Mutex, Lock::Pthread]
            .map(|lock| lock.name().to_owned())
            .to_vec(),
        asked => asked.to_vec(),
    };
    names.extend(others.iter().cloned());
    names.retain(|name| name != reference);
    names.push(reference.to_owned());
    keep_first(&mut names, String::clone);
    if names.len() < 2 {
        bail!("there is nothing to compare {reference} with: name another lock");
    }
    let contender = |name: String| {
        let variables = match Lock::find(&name) {
            Some(Lock::Pthread) => Vec::new(),
            Some(lock) => of_lock(lock, library),
            None => {
                let preload = preloads.iter().find(|preload| preload.name == name);
                let preload = preload.with_context(|| {
                    let known = Lock::all().into_iter().map(|lock| lock.name().to_owned());
                    let known: Vec<_> = known.chain(others.iter().cloned()).collect();
                    format!("no such lock: {name}; known: {}", known.join(", "))
                })?;
                vec![("LD_PRELOAD", preloaded(&preload.file))]
            }
        };
        Ok(Contender { name, variables })
    };
    names.into_iter().map(contender).collect()
}
