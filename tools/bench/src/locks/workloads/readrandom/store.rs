//! The database that the command fills for itself, once, and keeps in the user's cache folder.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use kinlock_measure::interrupt;
use kinlock_measure::random::Random;
use rusty_leveldb::{DB, Options};

pub const ENTRIES: u64 = 100_000;
/// Bytes of a value; keys are 16 bytes.
pub const VALUE_BYTES: usize = 100;

/// The name describes the content, so that a version of the command that needs another database
/// does not use this one.
const NAME: &str = "readrandom-100000x100-1";

/// The folder of the database, which is filled now if it does not exist yet.
///
/// # Errors
/// If it can be written neither to the cache folder nor to the folder for temporary files, or if a
/// signal comes during that.
pub fn filled() -> anyhow::Result<PathBuf> {
    let folders = [cache_folder(), Some(std::env::temp_dir().join("kinlock"))];
    let mut last_error = None;
    for folder in folders.into_iter().flatten() {
        match filled_in(&folder) {
            Ok(database) => return Ok(database),
            Err(error) => last_error = Some(error),
        }
    }
    Err(last_error.expect("there is always a folder for temporary files"))
}

fn cache_folder() -> Option<PathBuf> {
    let from = |variable| {
        std::env::var_os(variable)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let base = from("XDG_CACHE_HOME").or_else(|| from("HOME").map(|home| home.join(".cache")))?;
    Some(base.join("kinlock"))
}

fn filled_in(folder: &Path) -> anyhow::Result<PathBuf> {
    let database = folder.join(NAME);
    if super::check(&database).is_ok() {
        return Ok(database);
    }
    let cannot = || format!("cannot fill a database in {}", folder.display());
    go_on()?;
    std::fs::create_dir_all(folder).with_context(cannot)?;
    // It has another name until it is complete, since other runs may do the same.
    let unfinished = folder.join(format!("{NAME}.{}", std::process::id()));
    let done = fill(&unfinished).and_then(|()| match std::fs::rename(&unfinished, &database) {
        // Another run was faster.
        Err(_) if super::check(&database).is_ok() => Ok(std::fs::remove_dir_all(&unfinished)?),
        renamed => Ok(renamed?),
    });
    if done.is_err() {
        let _ = std::fs::remove_dir_all(&unfinished);
    }
    done.with_context(cannot)?;
    Ok(database)
}

/// Gives up after a signal: a second one would end the process and leave an unfinished folder.
fn go_on() -> anyhow::Result<()> {
    ensure!(interrupt::noted().is_none(), "interrupted");
    Ok(())
}

fn fill(folder: &Path) -> anyhow::Result<()> {
    let mut db = DB::open(folder, Options::default())?;
    let mut rng = Random::stream(0, 1);
    let mut value = [0; VALUE_BYTES];
    for entry in 0..ENTRIES {
        go_on()?;
        for byte in &mut value {
            *byte = rng.next() as u8;
        }
        db.put(&key(entry), &value)?;
    }
    go_on()?;
    // With one sorted level, the cost of a read does not depend on the order of writing, and no
    // read starts a compaction.
    db.compact_range(&key(0), &key(ENTRIES - 1))?;
    db.close()?;
    Ok(())
}

fn key(entry: u64) -> Vec<u8> {
    format!("{entry:016}").into_bytes()
}
