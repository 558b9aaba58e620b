//! Reads the `KINLOCK_*` variables and reports each bad value once.
//!
//! It may run on a lock's slow path: nothing here allocates, locks or panics.
//!
//! # Invariants
//!
//! 1. `getenv` returns null, or a zero-terminated string that is valid until the environment
//!    changes. A program must not change it while other threads run; that is the C library's rule.
//! 2. The names of the variables are zero-terminated.

use core::ffi::CStr;
use core::fmt::Write;
use core::str::FromStr;
use core::sync::atomic::{AtomicU16, Ordering};

use crate::sys::{KeepErrno, Text, write_stderr};
use crate::tuning::ParseError;

/// A variable that kinlock reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variable {
    Numa,
    Scan,
    LocalLimit,
    Stealing,
    Quantum,
    Domain,
    Topology,
    Verbose,
    ShowStats,
}

impl Variable {
    const fn name(self) -> &'static CStr {
        match self {
            Variable::Numa => c"KINLOCK_NUMA",
            Variable::Scan => c"KINLOCK_SCAN",
            Variable::LocalLimit => c"KINLOCK_LOCAL_LIMIT",
            Variable::Stealing => c"KINLOCK_STEALING",
            Variable::Quantum => c"KINLOCK_QUANTUM",
            Variable::Domain => c"KINLOCK_DOMAIN",
            Variable::Topology => c"KINLOCK_TOPOLOGY",
            Variable::Verbose => c"KINLOCK_VERBOSE",
            Variable::ShowStats => c"KINLOCK_SHOW_STATS",
        }
    }
}

/// Whether `variable` is `on` or `off`; `None` if it is unset, empty or bad.
pub(crate) fn read_on_off(variable: Variable) -> Option<bool> {
    read(variable, |text| match text {
        b"on" => Ok(true),
        b"off" => Ok(false),
        _ => Err(ParseError::new("on or off")),
    })
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
    // SAFETY: invariant 2.
    let value = unsafe { libc::getenv(variable.name().as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: invariant 1.
    let value = unsafe { CStr::from_ptr(value) }.to_bytes();
    if value.is_empty() {
        return None;
    }
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
    let name = variable.name().to_str().unwrap_or_default();
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
