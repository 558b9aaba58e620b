//! The `KINLOCK_*` variables as they were when the program began. Each bad value is reported once.
//!
//! They are copied before `main`: later another thread may change the environment, or the program
//! may overwrite it with its title. Reading the copy may happen on a lock's slow path: nothing here
//! allocates, locks or panics.
//!
//! # Invariants
//!
//! 1. `environ` is null or an array of zero-terminated strings that ends with a null pointer. No
//!    other thread changes it while the constructor of this library runs.
//! 2. `SNAPSHOT` is written by the thread that has put `COPYING` into `STATE`, and read by threads
//!    that have seen `COPIED`. In the child of a fork at that moment the writing thread does not
//!    exist.
//! 3. `getauxval` has no preconditions.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char};
use core::fmt::Write;
use core::str::FromStr;
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, Ordering};

use crate::sys::{KeepErrno, Text, write_stderr};
use kinlock_core::tuning::ParseError;

/// A variable that kinlock reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variable {
    Numa,
    LocalLimit,
    Stealing,
    Quantum,
    SliceExtension,
    Domain,
    Topology,
    Verbose,
    ShowStats,
    SystemCalls,
}

impl Variable {
    const NAMES: [&str; 10] = [
        "KINLOCK_NUMA",
        "KINLOCK_LOCAL_LIMIT",
        "KINLOCK_STEALING",
        "KINLOCK_QUANTUM",
        "KINLOCK_SLICE_EXTENSION",
        "KINLOCK_DOMAIN",
        "KINLOCK_TOPOLOGY",
        "KINLOCK_VERBOSE",
        "KINLOCK_SHOW_STATS",
        "KINLOCK_SYSTEM_CALLS",
    ];

    const fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

/// Values one after the other, and where each begins and ends.
struct Snapshot {
    text: [u8; ROOM],
    used: usize,
    places: [Option<(usize, usize)>; Variable::NAMES.len()],
}

/// Bytes for all values: enough for a topology that names each of 3000 CPUs.
const ROOM: usize = 16 << 10;

struct Shared(UnsafeCell<Snapshot>);

// SAFETY: invariant 2.
unsafe impl Sync for Shared {}

static SNAPSHOT: Shared = Shared(UnsafeCell::new(Snapshot {
    text: [0; ROOM],
    used: 0,
    places: [None; Variable::NAMES.len()],
}));

static STATE: AtomicU32 = AtomicU32::new(UNTOUCHED);
const UNTOUCHED: u32 = 0;
/// A thread is copying the variables.
const COPYING: u32 = 1;
const COPIED: u32 = 2;

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// Copies the variables, unless that has been done. Call it before the program has threads.
pub(crate) fn take_snapshot() {
    let claimed = STATE.compare_exchange(UNTOUCHED, COPYING, Ordering::Relaxed, Ordering::Relaxed);
    if claimed.is_err() {
        return;
    }
    // SAFETY: invariant 2.
    let copy = unsafe { &mut *SNAPSHOT.0.get() };
    // A thread of the parent process may have begun to copy before a fork.
    copy.used = 0;
    copy.places = [None; Variable::NAMES.len()];
    // A program with more rights than its user ignores the variables: that user must not choose
    // what it does or prints. Miri knows no such programs. SAFETY: invariants 1 and 3.
    let mut entry = unsafe {
        match !cfg!(miri) && libc::getauxval(libc::AT_SECURE) != 0 {
            false => environ,
            true => core::ptr::null(),
        }
    };
    // SAFETY: invariant 1, for this block.
    unsafe {
        while !entry.is_null() && !(*entry).is_null() {
            copy.keep(CStr::from_ptr(*entry).to_bytes());
            entry = entry.add(1);
        }
    }
    // Release: pairs with the acquire in `value_of`.
    STATE.store(COPIED, Ordering::Release);
}

/// In the child of a fork: the thread that was copying does not exist here.
pub(crate) fn reset_in_child() {
    let copying = (COPYING, UNTOUCHED);
    let _ = STATE.compare_exchange(copying.0, copying.1, Ordering::Relaxed, Ordering::Relaxed);
}

impl Snapshot {
    /// Keeps the value of an entry `NAME=value` if it is one of ours and the first of its name.
    fn keep(&mut self, entry: &[u8]) {
        let mut parts = entry.splitn(2, |&byte| byte == b'=');
        let (Some(name), Some(value)) = (parts.next(), parts.next()) else {
            return;
        };
        let known = Variable::NAMES.iter().zip(&mut self.places);
        for (_, place) in known.filter(|(known, _)| known.as_bytes() == name) {
            if place.is_some() {
                continue;
            }
            let end = self.used + value.len();
            match self.text.get_mut(self.used..end) {
                Some(free) => free.copy_from_slice(value),
                None => {
                    return write_stderr(
                        b"kinlock: ignoring a KINLOCK variable that is too long\n",
                    );
                }
            }
            *place = Some((self.used, end));
            self.used = end;
        }
    }
}

/// Whether any variable is set. If none is, only a process that cannot go on writes to standard
/// error.
pub(crate) fn is_any_set() -> bool {
    (0..Variable::NAMES.len()).any(|place| value_at(place).is_some())
}

/// The value of `variable`; `None` if it is unset or empty.
fn value_of(variable: Variable) -> Option<&'static [u8]> {
    value_at(variable as usize)
}

fn value_at(place: usize) -> Option<&'static [u8]> {
    // The constructor of another library may call this before this library's constructor has run.
    take_snapshot();
    // Acquire: pairs with the release in `take_snapshot`.
    if STATE.load(Ordering::Acquire) != COPIED {
        return None;
    }
    // SAFETY: invariant 2.
    let copy = unsafe { &*SNAPSHOT.0.get() };
    let (from, to) = (*copy.places.get(place)?)?;
    copy.text.get(from..to).filter(|value| !value.is_empty())
}

/// Whether `variable` is `on` or `off`; `None` if it is unset, empty or bad.
pub(crate) fn read_on_off(variable: Variable) -> Option<bool> {
    read(variable, |text| match text {
        b"on" => Ok(true),
        b"off" => Ok(false),
        _ => Err(ParseError::new("on or off")),
    })
}

/// Whether locks make no system call other than `futex`.
#[inline]
pub fn futex_alone() -> bool {
    static ANSWER: AtomicU8 = AtomicU8::new(UNKNOWN);
    const UNKNOWN: u8 = 2;

    #[cold]
    fn ask() -> bool {
        let asked = read(Variable::SystemCalls, |text| match text {
            b"all" => Ok(false),
            b"futex" => Ok(true),
            _ => Err(ParseError::new("all or futex")),
        });
        let alone = asked.unwrap_or(false);
        if STATE.load(Ordering::Relaxed) == COPIED {
            ANSWER.store(alone.into(), Ordering::Relaxed);
        }
        alone
    }

    match ANSWER.load(Ordering::Relaxed) {
        UNKNOWN => ask(),
        answer => answer != 0,
    }
}

/// Whether `variable` is `1`; `0` and unset mean no.
pub(crate) fn read_switch(variable: Variable) -> bool {
    let value = read(variable, |text| match text {
        b"0" => Ok(false),
        b"1" => Ok(true),
        _ => Err(ParseError::new("0 or 1")),
    });
    value.unwrap_or(false)
}

/// The value of `variable` as `T`; `None` if it is unset, empty or bad.
pub(crate) fn read_from_str<T: FromStr<Err = ParseError>>(variable: Variable) -> Option<T> {
    // Bytes that are not UTF-8 are a bad value; the parser then reports what it expected.
    read(variable, |text| {
        core::str::from_utf8(text).unwrap_or("\u{FFFD}").parse()
    })
}

/// The value of `variable`, read by `parse`; `None` if it is unset, empty or bad. A bad value is
/// reported on standard error the first time.
pub(crate) fn read<T>(
    variable: Variable,
    parse: impl FnOnce(&[u8]) -> Result<T, ParseError>,
) -> Option<T> {
    let value = value_of(variable)?;
    parse(value)
        .map_err(|error| report_once(variable, value, error))
        .ok()
}

fn report_once(variable: Variable, value: &[u8], error: ParseError) {
    static REPORTED: AtomicU16 = AtomicU16::new(0);
    let bit = 1 << variable as u16;
    if REPORTED.fetch_or(bit, Ordering::Relaxed) & bit != 0 {
        return;
    }
    let _errno = KeepErrno::hold();
    let mut line = Text::<320>::empty();
    let name = variable.name();
    let _ = write!(line, "kinlock: ignoring {name}='");
    for &byte in value.iter().take(MOST_SHOWN) {
        line.push(if byte == b' ' || byte.is_ascii_graphic() {
            byte
        } else {
            b'?'
        });
    }
    let more = if value.len() > MOST_SHOWN { "..." } else { "" };
    let _ = writeln!(line, "'{more}: {error}");
    write_stderr(line.as_bytes());
}

/// How many bytes of a bad value are shown.
const MOST_SHOWN: usize = 60;
