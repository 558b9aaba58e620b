//! A program with its arguments and its environment, ready to be executed.
//!
//! The standard library's `Command` sorts the environment, drops what is not `NAME=VALUE`, and
//! changes what happens to signals. Here the environment keeps its order and everything in it, and
//! signals are as they were [inherited](crate::inherited).
//!
//! # Invariants cited by `SAFETY` comments
//!
//! 1. The environment is an array of zero-terminated strings that ends with a null pointer. The
//!    command changes its own at its very beginning only.
//! 2. The arrays of pointers end with a null pointer, and point to zero-terminated strings of this
//!    image, which do not move while it lives.

use std::ffi::{CStr, CString, OsStr, OsString, c_char};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use super::variables::Variable;
use crate::inherited;

/// Variables in which a service manager names the process that its descriptors and settings are
/// meant for.
const NAMING_A_PROCESS: [&[u8]; 3] = [b"LISTEN_PID", b"WATCHDOG_PID", b"SYSTEMD_EXEC_PID"];
/// The same by the inode of a pidfd, which is not known before the process exists. Readers do not
/// need it.
const NAMING_ITS_FILE: &[u8] = b"LISTEN_PIDFDID";

pub struct Image {
    path: CString,
    words: Vec<CString>,
    /// `NAME=VALUE` and a zero.
    environment: Vec<Vec<u8>>,
}

unsafe extern "C" {
    static environ: *const *const c_char;
}

impl Image {
    pub fn new(
        path: &Path,
        name: &OsStr,
        args: &[OsString],
        variables: &[Variable],
    ) -> io::Result<Self> {
        let words = [name]
            .into_iter()
            .chain(args.iter().map(OsString::as_os_str));
        let words = words.map(|word| CString::new(word.as_bytes()));
        Ok(Image {
            path: CString::new(path.as_os_str().as_bytes())?,
            words: words.collect::<Result<_, _>>()?,
            environment: changed(own_environment(), variables),
        })
    }

    /// The image for a child to execute: variables that name this process will name the child.
    pub fn for_child(&mut self) -> Arrays {
        let own = std::process::id().to_string();
        let is_own = |entry: &[u8], name: &[u8]| value(entry, name) == Some(own.as_bytes());
        let names_us = |entry: &Vec<u8>| is_own(entry, b"LISTEN_PID");
        if self.environment.iter().any(names_us) {
            let stays = |entry: &Vec<u8>| value(entry, NAMING_ITS_FILE).is_none();
            self.environment.retain(stays);
        }
        let mut pids = Vec::new();
        for name in NAMING_A_PROCESS {
            let mut entries = self.environment.iter_mut();
            if let Some(entry) = entries.find(|entry| is_own(entry, name)) {
                entry.truncate(name.len() + 1);
                entry.resize(name.len() + 1 + DIGITS + 1, 0);
                pids.push(entry[name.len() + 1..].as_mut_ptr());
            }
        }
        Arrays {
            pids,
            ..self.arrays()
        }
    }

    fn arrays(&self) -> Arrays {
        let words = self.words.iter().map(|word| word.as_ptr());
        let environment = self.environment.iter().map(|entry| entry.as_ptr().cast());
        Arrays {
            path: self.path.as_ptr(),
            words: words.chain([ptr::null()]).collect(),
            environment: environment.chain([ptr::null()]).collect(),
            pids: Vec::new(),
        }
    }

    /// Becomes the program; returns if that fails.
    pub fn exec(&self) -> io::Error {
        let arrays = self.arrays();
        inherited::restore();
        arrays.exec()
    }
}

/// Pointers into an image, which must not change as long as they are in use.
pub struct Arrays {
    path: *const c_char,
    words: Vec<*const c_char>,
    environment: Vec<*const c_char>,
    /// Where the number of the process that executes the image is to be written.
    pids: Vec<*mut u8>,
}

/// The digits of that number.
const DIGITS: usize = 10;

impl Arrays {
    /// Becomes the program; returns if that fails. Allocates nothing.
    pub fn exec(&self) -> io::Error {
        self.write_pid();
        // SAFETY: invariant 2. The path has a slash, so it is not searched for. A script without an
        // interpreter is run by a shell.
        unsafe { libc::execvpe(self.path, self.words.as_ptr(), self.environment.as_ptr()) };
        io::Error::last_os_error()
    }

    fn write_pid(&self) {
        let mut digits = [0; DIGITS];
        // Any number of 32 bits fits.
        let _ = write!(&mut digits[..], "{}", std::process::id());
        for &place in &self.pids {
            // SAFETY: invariant 2; the entry has room for the digits and a zero.
            unsafe { ptr::copy_nonoverlapping(digits.as_ptr(), place, DIGITS) };
        }
    }
}

/// The value of an entry of the environment, if it has that name.
fn value<'a>(entry: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let rest = entry.strip_prefix(name)?.strip_prefix(b"=")?;
    Some(rest.strip_suffix(b"\0").unwrap_or(rest))
}

fn own_environment() -> Vec<Vec<u8>> {
    let mut entries = Vec::new();
    // SAFETY: invariant 1.
    unsafe {
        let mut at = environ;
        while !at.is_null() && !(*at).is_null() {
            entries.push(CStr::from_ptr(*at).to_bytes_with_nul().to_vec());
            at = at.add(1);
        }
    }
    entries
}

/// The environment with these variables. Each replaces the one of its name, or is appended.
fn changed(mut entries: Vec<Vec<u8>>, variables: &[Variable]) -> Vec<Vec<u8>> {
    for (name, new) in variables {
        let entry = [name.as_bytes(), b"=", new.as_bytes(), b"\0"].concat();
        let is_old = |old: &Vec<u8>| value(old, name.as_bytes()).is_some();
        match entries.iter().position(is_old) {
            None => entries.push(entry),
            Some(first) => {
                let mut at = 0..;
                entries.retain(|old| at.next() <= Some(first) || !is_old(old));
                entries[first] = entry;
            }
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_environment_keeps_its_order_and_what_is_odd() {
        let old = [&b"B=1\0"[..], b"odd\0", b"A=2\0", b"C=\0", b"A=3\0"];
        let new = [("A", "4".into()), ("D", "5".into()), ("C", "6".into())];
        let found = changed(old.map(<[u8]>::to_vec).to_vec(), &new);
        let expected = [&b"B=1\0"[..], b"odd\0", b"A=4\0", b"C=6\0", b"D=5\0"];
        assert_eq!(found, expected);
    }

    #[test]
    fn variables_that_name_this_process_name_the_other() {
        let own = std::process::id();
        let entry = |text: String| [text.as_bytes(), b"\0"].concat();
        let mut image = Image {
            path: CString::default(),
            words: Vec::new(),
            environment: vec![
                entry(format!("WATCHDOG_PID={}", own + 1)),
                entry(format!("LISTEN_PID={own}")),
                entry("LISTEN_PIDFDID=12".to_owned()),
                entry("X=y".to_owned()),
            ],
        };
        let arrays = image.for_child();
        assert_eq!(image.environment.len(), 3);
        let text = |at: usize| CStr::from_bytes_until_nul(&image.environment[at]).unwrap();
        assert_eq!(text(1).to_bytes(), b"LISTEN_PID=");
        arrays.write_pid();
        assert_eq!(
            text(1).to_bytes(),
            &entry(format!("LISTEN_PID={own}"))[..11 + own.to_string().len()]
        );
        assert_eq!(
            text(0).to_bytes(),
            format!("WATCHDOG_PID={}", own + 1).as_bytes()
        );
    }
}
