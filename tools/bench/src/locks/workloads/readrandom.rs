//! Random reads from an on-disk database in LevelDB's format, all through one lock.
//!
//! The database library is single-threaded, like a program under one big lock: block cache, table
//! files, memory table and statistics are all behind the lock under test.

mod store;

use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use kinlock_measure::random::Random;
use rusty_leveldb::{DB, LdbIterator, Options};
use tempfile::TempDir;

use super::Request;
use crate::locks::round::Workload;

/// The most keys to ask for.
const SAMPLE: usize = 100_000;
/// The most entries among which keys are chosen: searching a big database must not take minutes.
const LOOKED_AT: u64 = 1_000_000;
/// LevelDB's own default.
const BLOCK_CACHE_BYTES: usize = 8 << 20;

pub struct ReadRandom {
    folder: PathBuf,
    keys: Vec<Box<[u8]>>,
}

impl ReadRandom {
    /// Opens the database in `folder`, or else the one that the command fills for itself, and
    /// chooses keys.
    ///
    /// # Errors
    /// If there is no such database, it cannot be read, or it is empty. Nothing has been created in
    /// `folder` then.
    pub fn open(folder: Option<&Path>) -> anyhow::Result<Self> {
        match folder {
            Some(folder) => Self::open_existing(folder),
            None => Self::open_existing(&store::filled()?),
        }
    }

    fn open_existing(folder: &Path) -> anyhow::Result<Self> {
        check(folder)?;
        let keys = quietly(|| sample_keys(folder))
            .unwrap_or_else(|| Err(anyhow!("it is damaged")))
            .with_context(|| format!("cannot read the database {}", folder.display()))?;
        if keys.is_empty() {
            bail!("the database {} is empty", folder.display());
        }
        Ok(Self {
            folder: folder.to_owned(),
            keys,
        })
    }
}

impl Workload for ReadRandom {
    type Shared = Opened;
    type Local = Request;

    fn shared(&self) -> Opened {
        open_unchanged(&self.folder).expect("it could be opened a moment ago")
    }

    fn local(&self, rng: Random) -> Request {
        Request::new(rng)
    }

    #[inline(always)]
    fn think(&self, request: &mut Request) {
        request.key = request.rng.below(self.keys.len() as u64);
    }

    /// Not inlined: one copy for all locks takes the same time under each, and is compiled once.
    #[inline(never)]
    fn section(&self, opened: &mut Opened, request: &mut Request) {
        let value = opened.db.get(&self.keys[request.key as usize]);
        // The library turns read errors into "not found". The speed of failing is of no use.
        assert!(
            value.is_some(),
            "a key of the database has vanished, or cannot be read any more"
        );
        black_box(value);
    }
}

/// Whether `folder` looks like a database; the library itself would create one.
fn check(folder: &Path) -> anyhow::Result<()> {
    let nothing = |why: String| anyhow!("{} is no LevelDB database: {why}", folder.display());
    let current = std::fs::read_to_string(folder.join("CURRENT"))
        .map_err(|error| nothing(format!("CURRENT: {error}")))?;
    let manifest = current.trim_end();
    if !manifest.starts_with("MANIFEST-") || !current.ends_with('\n') {
        return Err(nothing("CURRENT does not name a manifest".to_owned()));
    }
    if !folder.join(manifest).is_file() {
        return Err(nothing(format!("{manifest} is missing")));
    }
    Ok(())
}

/// An open database, which the library sees through links in a folder of its own.
pub struct Opened {
    db: DB,
    /// Removed after the database has been closed.
    _links: TempDir,
}

/// Opens the database without changing it. The library writes even if it is only used to read: it
/// begins a new manifest and log, takes a lock file, and may compact. So it gets a folder with
/// links to the tables, which are never written again, and with copies of the small files.
fn open_unchanged(folder: &Path) -> anyhow::Result<Opened> {
    let links = tempfile::tempdir()?;
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = Path::new(path.file_name().unwrap_or_default());
        match name.extension().and_then(|extension| extension.to_str()) {
            // Tables were called .sst before LevelDB 1.14.
            Some("ldb" | "sst") => {
                let link = links.path().join(name.with_extension("ldb"));
                std::os::unix::fs::symlink(path.canonicalize()?, link)?;
            }
            _ if name != Path::new("LOCK") && path.is_file() => {
                std::fs::copy(&path, links.path().join(name))?;
            }
            _ => {}
        }
    }
    let options = Options {
        create_if_missing: false,
        block_cache_capacity_bytes: BLOCK_CACHE_BYTES,
        ..Options::default()
    };
    Ok(Opened {
        db: DB::open(links.path(), options)?,
        _links: links,
    })
}

/// Chooses keys evenly from the first entries of the database.
fn sample_keys(folder: &Path) -> anyhow::Result<Vec<Box<[u8]>>> {
    let mut opened = open_unchanged(folder)?;
    let mut entries = opened.db.new_iter()?;
    let mut keys: Vec<Box<[u8]>> = Vec::new();
    let mut rng = Random::stream(0, 0);
    let mut seen = 0;
    while seen < LOOKED_AT && entries.advance() {
        let Some((key, _)) = entries.current() else {
            break;
        };
        seen += 1;
        if keys.len() < SAMPLE {
            keys.push(key[..].into());
        } else {
            let place = rng.below(seen) as usize;
            if let Some(chosen) = keys.get_mut(place) {
                *chosen = key[..].into();
            }
        }
    }
    Ok(keys)
}

/// Runs `work`; `None` if it panicked, which the library does on some kinds of damage. The panic is
/// not reported.
fn quietly<T>(work: impl FnOnce() -> T) -> Option<T> {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| ()));
    let result = catch_unwind(AssertUnwindSafe(work)).ok();
    std::panic::set_hook(hook);
    result
}
