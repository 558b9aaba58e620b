//! A file system view that reads from disk and writes to memory.
//!
//! The database library writes even when it is only asked to read: it begins a new manifest and log, takes a lock file,
//! and may compact. Somebody else's database must not be changed by measuring it, and two runs of the command must be
//! able to share one. So everything written lives in memory, in front of the files on disk.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{self, Cursor, Read, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rusty_leveldb::env::{Env, FileLock, Logger, RandomAccess};
use rusty_leveldb::{PosixDiskEnv, Result, Status, StatusCode};

/// The view. Everything that is not in memory comes from disk.
#[derive(Default)]
pub struct Overlay {
    /// What was written, or `None` for what was deleted.
    changed: RefCell<HashMap<PathBuf, Option<Contents>>>,
    disk: Disk,
}

type Contents = Rc<RefCell<Vec<u8>>>;

struct Disk(PosixDiskEnv);

impl Default for Disk {
    fn default() -> Self {
        Self(PosixDiskEnv::new())
    }
}

impl Overlay {
    /// What memory says about a file: `None` if it says nothing.
    fn changed(&self, path: &Path) -> Option<Option<Contents>> {
        self.changed.borrow().get(path).cloned()
    }

    fn change(&self, path: &Path, contents: Option<Contents>) {
        self.changed.borrow_mut().insert(path.to_owned(), contents);
    }
}

impl Env for Overlay {
    fn open_sequential_file(&self, path: &Path) -> Result<Box<dyn Read>> {
        match self.changed(path) {
            Some(Some(contents)) => Ok(Box::new(Cursor::new(contents.borrow().clone()))),
            Some(None) => Err(deleted(path)),
            None => self.disk.0.open_sequential_file(path),
        }
    }

    fn open_random_access_file(&self, path: &Path) -> Result<Box<dyn RandomAccess>> {
        match self.changed(path) {
            Some(Some(contents)) => Ok(Box::new(InMemory(contents))),
            Some(None) => Err(deleted(path)),
            // Tables were called .sst before LevelDB 1.14.
            None => self.disk.0.open_random_access_file(path).or_else(|error| {
                let old_name = path.with_extension("sst");
                self.disk
                    .0
                    .open_random_access_file(&old_name)
                    .map_err(|_| error)
            }),
        }
    }

    fn open_writable_file(&self, path: &Path) -> Result<Box<dyn Write>> {
        let contents = Contents::default();
        self.change(path, Some(contents.clone()));
        Ok(Box::new(InMemory(contents)))
    }

    fn open_appendable_file(&self, path: &Path) -> Result<Box<dyn Write>> {
        let contents = match self.changed(path) {
            Some(contents) => contents.unwrap_or_default(),
            None => Rc::new(RefCell::new(std::fs::read(path).unwrap_or_default())),
        };
        self.change(path, Some(contents.clone()));
        Ok(Box::new(InMemory(contents)))
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        match self.changed(path) {
            Some(contents) => Ok(contents.is_some()),
            None => self.disk.0.exists(path),
        }
    }

    fn children(&self, folder: &Path) -> Result<Vec<PathBuf>> {
        let mut names = self.disk.0.children(folder)?;
        for (path, contents) in &*self.changed.borrow() {
            let inside = path.parent() == Some(folder);
            if let Some(name) = path.file_name().filter(|_| inside) {
                names.retain(|known| known.as_os_str() != name);
                names.extend(contents.is_some().then(|| PathBuf::from(name)));
            }
        }
        Ok(names)
    }

    fn size_of(&self, path: &Path) -> Result<usize> {
        match self.changed(path) {
            Some(Some(contents)) => Ok(contents.borrow().len()),
            Some(None) => Err(deleted(path)),
            None => self.disk.0.size_of(path),
        }
    }

    fn delete(&self, path: &Path) -> Result<()> {
        self.change(path, None);
        Ok(())
    }

    /// Succeeds: the database's folder exists, and the library makes no other.
    fn mkdir(&self, _: &Path) -> Result<()> {
        Ok(())
    }

    fn rmdir(&self, path: &Path) -> Result<()> {
        Err(Status::new(
            StatusCode::NotSupported,
            &path.display().to_string(),
        ))
    }

    fn rename(&self, old: &Path, new: &Path) -> Result<()> {
        let contents = match self.changed(old) {
            Some(Some(contents)) => contents,
            Some(None) => return Err(deleted(old)),
            None => Rc::new(RefCell::new(std::fs::read(old)?)),
        };
        self.change(old, None);
        self.change(new, Some(contents));
        Ok(())
    }

    /// Succeeds: nobody else sees what is written.
    fn lock(&self, path: &Path) -> Result<FileLock> {
        Ok(FileLock {
            id: path.display().to_string(),
        })
    }

    fn unlock(&self, _: FileLock) -> Result<()> {
        Ok(())
    }

    /// The library's log messages go nowhere.
    fn new_logger(&self, _: &Path) -> Result<Logger> {
        Ok(Logger::new(Box::new(io::sink())))
    }

    fn micros(&self) -> u64 {
        self.disk.0.micros()
    }

    fn sleep_for(&self, micros: u32) {
        self.disk.0.sleep_for(micros);
    }
}

struct InMemory(Contents);

impl Write for InMemory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl RandomAccess for InMemory {
    fn read_at(&self, offset: usize, to: &mut [u8]) -> Result<usize> {
        let contents = self.0.borrow();
        let from = contents.get(offset..).unwrap_or_default();
        let length = from.len().min(to.len());
        to[..length].copy_from_slice(&from[..length]);
        Ok(length)
    }
}

fn deleted(path: &Path) -> Status {
    Status::new(StatusCode::NotFound, &path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_seen_and_the_disk_is_not_touched() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("a"), "disk").unwrap();
        std::fs::write(path("b"), "disk").unwrap();
        let view = Overlay::default();

        view.open_appendable_file(&path("a"))
            .unwrap()
            .write_all(b"+")
            .unwrap();
        view.open_writable_file(&path("c"))
            .unwrap()
            .write_all(b"new")
            .unwrap();
        view.rename(&path("c"), &path("d")).unwrap();
        view.delete(&path("b")).unwrap();

        let mut text = String::new();
        view.open_sequential_file(&path("a"))
            .unwrap()
            .read_to_string(&mut text)
            .unwrap();
        assert_eq!(text, "disk+");
        assert_eq!(view.size_of(&path("d")).unwrap(), 3);
        assert!(!view.exists(&path("b")).unwrap());
        assert!(view.open_sequential_file(&path("b")).is_err());
        let mut seen = view.children(folder.path()).unwrap();
        seen.sort();
        assert_eq!(seen, [PathBuf::from("a"), PathBuf::from("d")]);

        assert_eq!(std::fs::read_to_string(path("a")).unwrap(), "disk");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn reads_at_an_offset_end_with_the_file() {
        let view = Overlay::default();
        let path = Path::new("/nowhere/x");
        view.open_writable_file(path)
            .unwrap()
            .write_all(b"01234")
            .unwrap();
        let file = view.open_random_access_file(path).unwrap();
        let mut buffer = [0; 4];
        assert_eq!(file.read_at(3, &mut buffer).unwrap(), 2);
        assert_eq!(&buffer[..2], b"34");
        assert_eq!(file.read_at(9, &mut buffer).unwrap(), 0);
    }
}
