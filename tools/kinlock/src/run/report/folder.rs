//! The folder in which processes have their tables.
//!
//! A table takes memory of `/dev/shm`, which containers limit, and which programs may need. So a
//! table is taken out of the folder as soon as its process has ended or has become another program.
//! The kernel reports that as the close of a file that was open for writing: a mapping keeps the
//! file open.
//!
//! A command that is killed leaves its folder behind, and the next command removes it: each command
//! holds a lock on its own folder for as long as it runs.
//!
//! # Invariant cited by `SAFETY` comments
//!
//! 1. All values are valid for the fields of a table, which are atomics, and for bytes.

use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::slice;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context;
use kinlock_cli::report::text;
use kinlock_core::platform::Platform;
use kinlock_linux::Native;
use kinlock_report::{MAGIC, PAGE, SHARED, SWITCH, Shared, Table};
use rustix::fs::{FlockOperation, SeekFrom, flock, fstatfs, inotify, seek};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use serde::Serialize;
use tempfile::TempDir;

use super::others;
use crate::inherited::{self, LAST};

const NAME: &str = "kinlock-report-";
/// The prefix of the name of the folder for processes that stand by.
const STANDBY: &str = "kinlock-standby-";
pub(super) const TABLES: &str = "process";
/// A folder without a lock that is younger than this may be one that is being made.
const OLD: Duration = Duration::from_secs(60);

/// Processes that have no table.
#[derive(Default, Serialize)]
pub struct WithoutTable {
    /// How many could not make one.
    #[serde(rename = "without_table")]
    pub count: u32,
    /// The reason, as the last of them says. A reason with a count of 0 means that no process could
    /// make a table.
    #[serde(rename = "without_table_reason")]
    pub reason: Option<String>,
    /// How many had the library, took no lock, and ended of their own accord.
    #[serde(skip)]
    pub idle: u32,
}

/// A process that still runs when the report at the end is made.
#[derive(Serialize, PartialEq, Eq, PartialOrd, Ord)]
pub struct Running {
    pub pid: u32,
    pub program: String,
}

pub struct Folder {
    place: TempDir,
    /// The lock on the folder, held for as long as this exists.
    lock: File,
    /// The tables of processes that have ended.
    ended: Arc<Mutex<Snapshot>>,
}

impl Folder {
    /// Makes a folder, in memory if possible.
    pub fn new() -> anyhow::Result<Self> {
        let place = new_place(NAME)?;
        let cannot = || format!("cannot use {}", place.path().display());
        let lock = File::open(place.path()).with_context(cannot)?;
        lock_at_once(&lock);
        // Processes say in this file why they have no table.
        make_shared(&place.path().join(format!("{TABLES}{SHARED}"))).with_context(cannot)?;
        let folder = Folder {
            place,
            lock,
            ended: Arc::default(),
        };
        if knows_mappings(&folder.lock) {
            folder.watch();
        }
        Ok(folder)
    }

    pub fn path(&self) -> &Path {
        self.place.path()
    }

    /// The prefix of the names of all tables.
    pub fn prefix(&self) -> PathBuf {
        self.place.path().join(TABLES)
    }

    fn shared_path(&self) -> PathBuf {
        self.place.path().join(format!("{TABLES}{SHARED}"))
    }

    pub fn without_table(&self) -> WithoutTable {
        let page = match fs::read(self.shared_path()) {
            Ok(page) => page,
            Err(error) => {
                let error = match largest_file() < PAGE as u64 {
                    true => io::Error::from_raw_os_error(libc::EFBIG),
                    false => error,
                };
                return WithoutTable {
                    reason: Some(error.to_string()),
                    ..WithoutTable::default()
                };
            }
        };
        let number = |at: usize| {
            let bytes = page.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
            bytes.map_or(0, u32::from_ne_bytes)
        };
        let count = number(std::mem::offset_of!(Shared, without_table));
        let error = number(std::mem::offset_of!(Shared, errno));
        let why = (count > 0).then(|| io::Error::from_raw_os_error(error as i32).to_string());
        WithoutTable {
            count,
            reason: why,
            idle: number(std::mem::offset_of!(Shared, idle)),
        }
    }

    /// Processes that still run, and their names. They need not have a table: a forked process has
    /// none until it takes a lock.
    pub fn running(&self) -> Vec<Running> {
        let shared = self.shared_path();
        if is_unused(&shared) {
            return Vec::new();
        }
        let maps = |process: &u32| {
            let maps = others::of_process(*process, "maps").unwrap_or_default();
            let name = shared.as_os_str().as_bytes();
            maps.windows(name.len()).any(|part| part == name)
        };
        let named = |pid: u32| {
            let name = others::of_process(pid, "comm").unwrap_or_default();
            let program = text::name(name.trim_ascii_end());
            Running { pid, program }
        };
        let running = others::all_processes().filter(maps).map(named);
        let mut running: Vec<_> = running.collect();
        running.sort_unstable();
        running
    }

    /// Tells processes that still run not to make any more tables.
    pub fn is_over(&self) {
        if let Ok(file) = File::options().write(true).open(self.shared_path()) {
            let at = std::mem::offset_of!(Shared, is_over) as u64;
            let _ = file.write_at(&1_u32.to_ne_bytes(), at);
        }
    }

    /// Calls `with` with each table: of processes that have ended, and of those that run.
    pub fn for_each(&self, mut with: impl FnMut(&Table, Seen)) -> anyhow::Result<()> {
        // The guard keeps the other thread from taking out tables while they are read.
        let ended = locked(&self.ended);
        let files = fs::read_dir(self.place.path()).context("the report is gone")?;
        let mut others = Snapshot::default();
        for file in files.flatten().filter(|file| is_table(&file.file_name())) {
            others.add(&file.path());
        }
        ended.for_each(&mut with);
        others.for_each(with);
        Ok(())
    }

    /// Takes tables out of the folder when their processes have ended, which is when their files
    /// are no longer open for writing. If the kernel does not report that, the tables stay until
    /// the report is made.
    fn watch(&self) {
        let path = self.place.path().to_owned();
        let ended = Arc::clone(&self.ended);
        let Ok(closed) = inotify::init(inotify::CreateFlags::CLOEXEC) else {
            return;
        };
        if inotify::add_watch(&closed, &path, inotify::WatchFlags::CLOSE_WRITE).is_err() {
            return;
        }
        let watch = move || {
            let mut buffer = [MaybeUninit::uninit(); 4096];
            let mut events = inotify::Reader::new(&closed, &mut buffer);
            loop {
                let event = match events.next() {
                    Err(Errno::INTR) => continue,
                    // The folder is gone.
                    Ok(event) if event.events().contains(inotify::ReadFlags::IGNORED) => return,
                    Ok(event) => event,
                    Err(_) => return,
                };
                let name = OsStr::from_bytes(event.file_name().unwrap_or_default().to_bytes());
                if is_table(name) {
                    take(&path.join(name), &ended);
                }
            }
        };
        // Only the main thread handles signals: a new thread inherits the blocked signals.
        let before = inherited::block(1..=LAST);
        let _ = std::thread::Builder::new()
            .name("tables".to_owned())
            .spawn(watch);
        inherited::set_blocked(&before);
    }
}

/// Makes a folder for processes that stand by, and returns the prefix of the names of their files.
/// The folder stays when this process becomes the program.
pub fn for_standby() -> anyhow::Result<PathBuf> {
    let mut place = new_place(STANDBY)?;
    place.disable_cleanup(true);
    Ok(place.path().join(TABLES))
}

/// Makes a folder: in memory, unless that is full or not writable.
fn new_place(prefix: &str) -> anyhow::Result<TempDir> {
    let (memory, others) = (Path::new("/dev/shm"), std::env::temp_dir());
    for parent in [memory, &others] {
        remove_left(parent);
    }
    let within = |parent: &Path| {
        let place = tempfile::Builder::new().prefix(prefix).tempdir_in(parent)?;
        // Tested with a file, since a folder takes no memory.
        let page = place.path().join("page");
        make_shared(&page)?;
        let _ = fs::remove_file(&page);
        io::Result::Ok(place)
    };
    let place = within(memory).or_else(|_| within(&others));
    place.with_context(|| {
        format!(
            "cannot make a folder for the report in {}",
            others.display()
        )
    })
}

/// Makes the page that all processes of a report share, if files may be that large. If not, there
/// are no tables either, and the reason is known.
fn make_shared(path: &Path) -> io::Result<()> {
    if largest_file() < PAGE as u64 {
        return Ok(());
    }
    let mut page = vec![0; PAGE];
    page[..8].copy_from_slice(&MAGIC.to_ne_bytes());
    fs::write(path, page)
}

/// Whether a file belongs to processes that stand by.
pub fn is_for_standby(path: &Path) -> bool {
    is_in(path, STANDBY)
}

/// Whether a file is the table of a process under `run --report`.
pub fn is_of_report(path: &Path) -> bool {
    is_in(path, NAME) && path.file_name().is_some_and(is_table)
}

fn is_in(path: &Path, folder: &str) -> bool {
    let parent = path.parent().and_then(Path::file_name);
    parent.is_some_and(|name| name.as_bytes().starts_with(folder.as_bytes()))
}

/// The contents of tables when they were read.
#[derive(Default)]
pub struct Snapshot {
    images: Vec<Image>,
}

impl Snapshot {
    /// Adds the present content of the table in a file.
    pub fn add(&mut self, path: &Path) {
        self.images.extend(Image::read(path));
    }

    /// Calls `with` with each table.
    pub fn for_each(&self, mut with: impl FnMut(&Table, Seen)) {
        let mut table = zeros();
        for image in &self.images {
            let mut bytes = &image.bytes[..];
            for &(at, length) in &image.runs {
                let (run, rest) = bytes.split_at(length);
                bytes_of(&mut table)[at..at + length].copy_from_slice(run);
                bytes = rest;
            }
            if table.header.magic.load(Relaxed) == MAGIC {
                with(&table, image.seen);
            }
            for &(at, length) in &image.runs {
                bytes_of(&mut table)[at..at + length].fill(0);
            }
        }
    }
}

/// Removes a file of processes that stand by, unless one of them has it mapped.
pub fn remove_unused(path: &Path) {
    if is_unused(path) {
        let _ = fs::remove_file(path);
    }
}

fn locked(ended: &Mutex<Snapshot>) -> MutexGuard<'_, Snapshot> {
    ended.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn is_table(name: &OsStr) -> bool {
    let rest = name.as_bytes().strip_prefix(TABLES.as_bytes());
    rest.is_some_and(|rest| {
        let is_switch = rest.starts_with(SWITCH.as_bytes());
        rest.starts_with(b".") && rest != SHARED.as_bytes() && !is_switch
    })
}

/// Keeps the content of a table, and removes its file.
fn take(path: &Path, ended: &Mutex<Snapshot>) {
    let mut ended = locked(ended);
    let Some(mut image) = Image::read(path) else {
        return;
    };
    image.seen.runs = false;
    if fs::remove_file(path).is_ok() && !image.runs.is_empty() {
        ended.images.push(image);
    }
}

/// Removes folders whose commands were killed.
fn remove_left(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else {
        return;
    };
    for entry in entries.flatten() {
        let names = [NAME, STANDBY];
        let name = entry.file_name();
        let is_named = names
            .iter()
            .any(|named| name.as_bytes().starts_with(named.as_bytes()));
        let is_old = |folder: &fs::Metadata| {
            let age = folder.modified().ok().and_then(|at| at.elapsed().ok());
            age.is_some_and(|age| age > OLD)
        };
        let is_left = || {
            let (lock, folder) = others::own_folder(&entry.path())?;
            let is_left = is_old(&folder) && lock_at_once(&lock);
            // No command holds a lock on the folder for processes that stand by. It is in use while
            // they map its files.
            let mut files = fs::read_dir(entry.path()).ok()?.flatten();
            Some(is_left && files.all(|file| is_unused(&file.path())))
        };
        if is_named && is_left() == Some(true) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Locks the file if it is not locked. Returns whether it was.
fn lock_at_once(file: &File) -> bool {
    flock(file, FlockOperation::NonBlockingLockExclusive).is_ok()
}

/// The largest size of a file: writing beyond it ends in a signal.
fn largest_file() -> u64 {
    getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX)
}

/// Facts about the process of a table that are not in the table.
#[derive(Clone, Copy, Default)]
pub struct Seen {
    /// Whether it still runs the same program.
    pub runs: bool,
    /// When that was checked.
    pub at: u64,
}

/// The content of a table, without its zeros.
struct Image {
    seen: Seen,
    /// The runs of bytes: their offsets in the table, and their lengths.
    runs: Vec<(usize, usize)>,
    bytes: Vec<u8>,
}

/// Runs consist of blocks of this size.
const BLOCK: usize = 64;

impl Image {
    /// `None` if the file no longer exists.
    fn read(path: &Path) -> Option<Self> {
        let file = others::made(path).ok()?;
        let mut image = Image {
            seen: Seen {
                runs: !is_lent(&file),
                at: Native::now(),
            },
            runs: Vec::new(),
            bytes: Vec::new(),
        };
        let mut at = 0;
        let mut buffer = vec![0; 16 * PAGE];
        while let Some((from, to)) = data_from(&file, at) {
            at = from;
            while at < to {
                let wanted = buffer.len().min(to - at);
                let read = file.read_at(&mut buffer[..wanted], at as u64).ok()?;
                if read == 0 {
                    return Some(image);
                }
                image.add(at, &buffer[..read]);
                at += read;
            }
        }
        Some(image)
    }

    fn add(&mut self, at: usize, bytes: &[u8]) {
        for (number, block) in bytes.chunks(BLOCK).enumerate() {
            if block.iter().all(|&byte| byte == 0) {
                continue;
            }
            let begin = at + number * BLOCK;
            match self.runs.last_mut() {
                Some((from, length)) if *from + *length == begin => *length += block.len(),
                _ => self.runs.push((begin, block.len())),
            }
            self.bytes.extend_from_slice(block);
        }
    }
}

/// The next part of a sparse file that is no hole.
fn data_from(file: &File, at: usize) -> Option<(usize, usize)> {
    let found = |from| Some(seek(file, from).ok()?.min(size_of::<Table>() as u64));
    let from = found(SeekFrom::Data(at as u64))?;
    let to = found(SeekFrom::Hole(from))?;
    let (from, to) = (from as usize, to as usize);
    (from < to).then_some((from, to))
}

/// Whether the file exists and certainly no process has it mapped.
pub fn is_unused(path: &Path) -> bool {
    others::made(path).is_ok_and(|file| is_lent(&file))
}

/// Whether the kernel grants a read lease on a file: then no process has it open for writing, as a
/// process that maps it has. A refusal means nothing: the file may be another user's, or the system
/// may have no leases.
fn is_lent(file: &File) -> bool {
    if !knows_mappings(file) {
        return false;
    }
    // SAFETY: numbers only.
    unsafe {
        let granted = libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_RDLCK);
        if granted == 0 {
            libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK);
        }
        granted == 0
    }
}

/// Whether the kernel counts a mapping as a use of the file. In an overlay it counts as a use of
/// the underlying file.
fn knows_mappings(file: &File) -> bool {
    fstatfs(file).map_or(true, |about| about.f_type != libc::OVERLAYFS_SUPER_MAGIC)
}

pub(super) fn zeros() -> Box<Table> {
    let layout = Layout::new::<Table>();
    // SAFETY: invariant 1; memory of the global allocator, of this layout.
    unsafe {
        let table = alloc_zeroed(layout).cast::<Table>();
        if table.is_null() {
            handle_alloc_error(layout);
        }
        Box::from_raw(table)
    }
}

fn bytes_of(table: &mut Table) -> &mut [u8] {
    let bytes = ptr::from_mut(table).cast::<u8>();
    // SAFETY: invariant 1; the bytes are the table's, which is borrowed.
    unsafe { slice::from_raw_parts_mut(bytes, size_of::<Table>()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Devices have no leases.
    #[test]
    fn a_lease_that_is_refused_says_nothing() {
        assert!(!is_lent(&File::open("/dev/null").unwrap()));
    }
}
