//! The environment by which the command talks to the preloaded library.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::bail;
use kinlock_cli::args::Named;
use kinlock_cli::names;
use kinlock_core::config::{LocalLimit, Numa, Quantum};
use kinlock_linux::topology::DomainKind;

names! {
    /// The locks that a program's locks are replaced by.
    Lock, "lock":
    Mutex = "kinlock-mutex", "our mutex";
    Spin = "kinlock-spin", "our queued spinlock";
    Pthread = "pthread", "the C library's own locks";
}

names! {
    /// The locks that a program's reader-writer locks are replaced by.
    RwLocks, "kind of reader-writer lock":
    Ours = "ours", "our reader-writer lock";
    Glibc = "glibc", "the C library's own";
}

pub type Variable = (&'static str, OsString);

/// The flags that become variables.
#[derive(clap::Args)]
#[command(next_help_heading = "How our locks behave")]
pub struct Knobs {
    /// How long a mutex stays with threads that keep taking it: fair, 0us to 1000us, throughput
    /// [default: 1000us]
    #[arg(long, value_name = "TIME", value_parser = valid::<Quantum>)]
    quantum: Option<String>,
    /// Local waiters first: auto (with more than one locality domain), on, off [default: auto]
    #[arg(long, value_name = "auto|on|off", value_parser = valid::<Numa>)]
    numa: Option<String>,
    /// How long a lock may stay in a locality domain while others wait: 1ms to 100ms, or 2^0 to
    /// 2^31 hand-offs
    #[arg(long, value_name = "LIMIT", value_parser = valid::<LocalLimit>)]
    local_limit: Option<String>,
    /// What a locality domain is
    #[arg(long, value_name = "node|llc|socket", value_parser = valid::<DomainKind>)]
    domain: Option<String>,
    /// Child processes run on the C library's locks
    #[arg(long, help_heading = None)]
    no_children: bool,
    /// Run a program that would be refused, for the programs that it starts
    #[arg(long, help_heading = None)]
    pub force: bool,
}

/// The text of a knob, if the library accepts it.
fn valid<T: FromStr<Err: ToString>>(text: &str) -> Result<String, String> {
    let parsed = text.parse::<T>();
    parsed.map_err(|error| error.to_string())?;
    Ok(text.to_owned())
}

impl Knobs {
    pub fn variables(&self) -> Vec<Variable> {
        let knobs = [
            ("KINLOCK_QUANTUM", &self.quantum),
            ("KINLOCK_NUMA", &self.numa),
            ("KINLOCK_LOCAL_LIMIT", &self.local_limit),
            ("KINLOCK_DOMAIN", &self.domain),
        ];
        let set = knobs.into_iter();
        let set = set.filter_map(|(name, value)| Some((name, value.as_ref()?.into())));
        let children = self
            .no_children
            .then(|| ("KINLOCK_NO_CHILDREN", "1".into()));
        set.chain(children).collect()
    }
}

/// The variables that make a program run on this lock.
pub fn of_lock(lock: Lock, library: &Path) -> Vec<Variable> {
    vec![
        ("KINLOCK_LOCK", lock.name().into()),
        ("LD_PRELOAD", preloaded(library)),
    ]
}

/// Refuses a path that `LD_PRELOAD` cannot name. Loaders end the name of a library at a separator,
/// and expand `$LIB` and the like.
pub fn is_preloadable(path: PathBuf) -> anyhow::Result<PathBuf> {
    let is_special = |byte: &u8| b" :\t\n\r\x0b\x0c$".contains(byte);
    if path.as_os_str().as_bytes().iter().any(is_special) {
        bail!(
            "{:?}: LD_PRELOAD cannot name a file with a space or a colon in its path, or with a $, \
             which loaders expand: put it in another folder",
            path
        );
    }
    Ok(path)
}

/// `LD_PRELOAD` with a library appended. A library that wraps functions of locks is then called
/// first, and calls the functions of this library as it would call the C library's.
pub fn preloaded(library: &Path) -> OsString {
    let mut all = env::var_os("LD_PRELOAD").unwrap_or_default();
    if !all.is_empty() {
        all.push(":");
    }
    all.push(library);
    all
}

/// `export NAME='value'` and a newline.
pub fn quoted(name: &str, value: &OsStr) -> Vec<u8> {
    let mut line = format!("export {name}='").into_bytes();
    for &byte in value.as_bytes() {
        match byte {
            b'\'' => line.extend(br"'\''"),
            _ => line.push(byte),
        }
    }
    line.extend(b"'\n");
    line
}
