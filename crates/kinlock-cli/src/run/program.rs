//! Finding a program as a shell does, and telling whether a preloaded library reaches it.
//!
//! # Invariants cited by `SAFETY` comments
//!
//! 1. The C library only reads the zero-terminated strings that it is given, which live until it
//!    returns; a null buffer of length 0 is not written.

use std::env;
use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::elf::{FileHeader32, FileHeader64, PT_INTERP, SHT_DYNSYM, SHT_SYMTAB};
use object::read::elf::{FileHeader, ProgramHeader, Sym};
use object::{Endianness, ReadCache};

use super::image::Image;
use super::variables::Variable;
use crate::outcome::Failure;

/// The statuses of shells.
pub const CANNOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;

/// A program that can be executed, with its arguments.
pub struct Program {
    /// What it is called, by itself too.
    name: OsString,
    path: PathBuf,
    args: Vec<OsString>,
}

impl Program {
    /// Looks for it: along `PATH` unless its name has a slash.
    pub fn find(name: &OsStr, args: &[OsString]) -> Result<Self, Failure> {
        let found = |path| Program {
            name: name.to_owned(),
            path,
            args: args.to_vec(),
        };
        if name.as_bytes().contains(&b'/') {
            let path = PathBuf::from(name);
            return is_executable(&path).map(|()| found(path));
        }
        let folders = env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
        let folders: Vec<_> = env::split_paths(&folders).collect();
        let candidates = folders.iter().map(|folder| match folder {
            here if here.as_os_str().is_empty() => Path::new(".").join(name),
            folder => folder.join(name),
        });
        let mut failure = failed(NOT_FOUND, name, "not found");
        // An empty name would be a folder.
        for path in candidates.filter(|path| !path.is_dir()) {
            match is_executable(&path) {
                Ok(()) => return Ok(found(path)),
                // The first one that is there tells more than those that are not.
                Err(other) if failure.status == NOT_FOUND && other.status != NOT_FOUND => {
                    failure = other;
                }
                Err(_) => {}
            }
        }
        Err(failure)
    }

    /// A line for a shell.
    pub fn shell(line: &OsStr) -> Result<Self, Failure> {
        Self::find("sh".as_ref(), &["-c".into(), line.to_owned()])
    }

    pub fn name(&self) -> String {
        self.name.display().to_string()
    }

    /// The program as it is executed, with the command's environment and these variables.
    pub fn image(&self, variables: &[Variable]) -> Result<Image, Failure> {
        let image = Image::new(&self.path, &self.name, &self.args, variables);
        image.map_err(|error| self.refused(error.to_string()))
    }

    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.arg0(&self.name).args(&self.args);
        command
    }

    /// Refuses a program that a preloaded library does not reach, or that it would break.
    pub fn check(&self) -> Result<(), Failure> {
        if env::var_os("RUNNING_UNDER_RR").is_some() || self.path.file_name() == Some("rr".as_ref())
        {
            let what = "rr runs one thread at a time, so that those that wait would spin in vain";
            return Err(self.refused(what.to_owned()));
        }
        let mut path = self.path.clone();
        let mut said = String::new();
        // As many scripts in a row as the kernel accepts.
        for _ in 0..=5 {
            let what = match look(&path) {
                // What may be executed but not read, for example: the kernel will tell.
                Err(_) => return Ok(()),
                Ok(Kind::Elf) => match obstacle(&path) {
                    None => return Ok(()),
                    Some(obstacle) => obstacle,
                },
                Ok(Kind::Script(interpreter)) => {
                    if let Err(failure) = is_executable(&interpreter) {
                        return Err(self.refused(format!("its interpreter {failure}")));
                    }
                    said = format!("its interpreter {}: ", interpreter.display());
                    path = interpreter;
                    continue;
                }
                Ok(Kind::Other) => "it is neither an ELF program nor a script".to_owned(),
            };
            return Err(self.refused(said + &what));
        }
        Err(self.refused("its interpreters are scripts, too many in a row".to_owned()))
    }

    fn refused(&self, what: String) -> Failure {
        failed(CANNOT_RUN, &self.name, &what)
    }
}

fn failed(status: u8, name: &OsStr, what: &str) -> Failure {
    let what = format!("{}: {what}", name.display());
    Failure { status, what }
}

fn is_executable(path: &Path) -> Result<(), Failure> {
    let refused = |status, what: &str| Err(failed(status, path.as_os_str(), what));
    match fs::metadata(path) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            refused(NOT_FOUND, "not found")
        }
        Err(error) => refused(CANNOT_RUN, &error.to_string()),
        Ok(data) if data.is_dir() => refused(CANNOT_RUN, "it is a folder"),
        Ok(_) if !may_execute(path) => refused(CANNOT_RUN, "it may not be executed"),
        Ok(_) => Ok(()),
    }
}

fn may_execute(path: &Path) -> bool {
    let path = CString::new(path.as_os_str().as_bytes());
    path.is_ok_and(|path| {
        let flags = libc::AT_EACCESS;
        // SAFETY: invariant 1.
        unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::X_OK, flags) == 0 }
    })
}

enum Kind {
    Elf,
    /// With what runs it.
    Script(PathBuf),
    Other,
}

fn look(path: &Path) -> io::Result<Kind> {
    let mut begin = Vec::new();
    File::open(path)?.take(256).read_to_end(&mut begin)?;
    if begin.starts_with(b"\x7fELF") {
        return Ok(Kind::Elf);
    }
    let line = begin.split(|&byte| byte == b'\n').next().unwrap_or(&[]);
    let Some(words) = line.strip_prefix(b"#!") else {
        // A shell runs what the kernel does not know, unless it is no text.
        return Ok(match line.contains(&0) {
            true => Kind::Other,
            false => Kind::Script("/bin/sh".into()),
        });
    };
    let mut words = words.split(|byte| b" \t\r".contains(byte));
    let interpreter = words.find(|word| !word.is_empty()).unwrap_or(b"/bin/sh");
    let interpreter = OsString::from_vec(interpreter.to_vec());
    Ok(Kind::Script(interpreter.into()))
}

/// Why nothing can be preloaded into an ELF program.
fn obstacle(path: &Path) -> Option<String> {
    let (Ok(form), Ok(own)) = (Form::read(path), Form::read(Path::new("/proc/self/exe"))) else {
        return Some("it is damaged".to_owned());
    };
    if form != own {
        let (is, needs) = (form.words(), own.words());
        return Some(format!(
            "it is for another architecture ({is}) than the library ({needs})"
        ));
    }
    let parts = match form.class {
        1 => Parts::read::<FileHeader32<Endianness>>(path),
        _ => Parts::read::<FileHeader64<Endianness>>(path),
    };
    let Ok(Parts { linker, sanitizer }) = parts else {
        return Some("it is damaged".to_owned());
    };
    let Some(linker) = linker else {
        return Some("it is statically linked, so that nothing can be preloaded".to_owned());
    };
    if linker.windows(7).any(|part| part == b"ld-musl") {
        return Some("it is linked with musl, and the library with glibc".to_owned());
    }
    if let Some(sanitizer) = sanitizer {
        return Some(format!(
            "it was built with {sanitizer}, which has to see the C library's locks"
        ));
    }
    let privilege = privilege(path)?;
    Some(format!("it {privilege}, so that nothing is preloaded"))
}

/// Bits, byte order and processor, as an ELF file begins.
#[derive(PartialEq)]
struct Form {
    class: u8,
    order: u8,
    machine: [u8; 2],
}

impl Form {
    fn read(path: &Path) -> io::Result<Self> {
        let mut begin = [0; 20];
        File::open(path)?.read_exact(&mut begin)?;
        Ok(Form {
            class: begin[4],
            order: begin[5],
            machine: [begin[18], begin[19]],
        })
    }

    /// `64-bit, ELF machine 62`.
    fn words(&self) -> String {
        let bits = if self.class == 1 { 32 } else { 64 };
        let machine = match self.order {
            2 => u16::from_be_bytes(self.machine),
            _ => u16::from_le_bytes(self.machine),
        };
        format!("{bits}-bit, ELF machine {machine}")
    }
}

/// What else matters of an ELF program.
struct Parts {
    /// The program that links it at its start.
    linker: Option<Vec<u8>>,
    sanitizer: Option<&'static str>,
}

/// Functions that only programs under a sanitizer have.
const SANITIZERS: [(&[u8], &str); 4] = [
    (b"__tsan_init", "ThreadSanitizer"),
    (b"__asan_init", "AddressSanitizer"),
    (b"__msan_init", "MemorySanitizer"),
    (b"__hwasan_init", "HWAddressSanitizer"),
];

impl Parts {
    fn read<H: FileHeader<Endian = Endianness>>(path: &Path) -> anyhow::Result<Self> {
        let data = &ReadCache::new(File::open(path)?);
        let header = H::parse(data)?;
        let endian = header.endian()?;
        let mut linker = None;
        for segment in header.program_headers(endian, data)? {
            if segment.p_type(endian) == PT_INTERP {
                linker = segment.data(endian, data).ok().map(<[u8]>::to_vec);
            }
        }
        Ok(Parts {
            linker,
            // The kernel does without sections, and so do programs.
            sanitizer: sanitizer(header, endian, data).ok().flatten(),
        })
    }
}

fn sanitizer<'a, H: FileHeader<Endian = Endianness>>(
    header: &H,
    endian: Endianness,
    data: &'a ReadCache<File>,
) -> object::Result<Option<&'static str>> {
    let sections = header.sections(endian, data)?;
    let mut found = None;
    for table in [SHT_DYNSYM, SHT_SYMTAB] {
        let symbols = sections.symbols(endian, data, table)?;
        let names = symbols
            .iter()
            .map(|symbol| symbol.name(endian, symbols.strings()));
        let known = |name: &'a [u8]| SANITIZERS.iter().find(|(known, _)| *known == name);
        let mut names = names.flatten().filter_map(known);
        found = found.or_else(|| names.next().map(|&(_, name)| name));
    }
    Ok(found)
}

/// What the program gets that its user has not: the loader then ignores `LD_PRELOAD`.
fn privilege(path: &Path) -> Option<&'static str> {
    let data = fs::metadata(path).ok()?;
    let mode = data.mode();
    // SAFETY: they have no preconditions.
    let (user, group) = unsafe { (libc::getuid(), libc::getgid()) };
    if mode & libc::S_ISUID != 0 && data.uid() != user {
        Some("is set-uid")
    } else if mode & libc::S_ISGID != 0 && mode & libc::S_IXGRP != 0 && data.gid() != group {
        Some("is set-gid")
    } else if user != 0 && has_capabilities(path) {
        Some("has capabilities")
    } else {
        None
    }
}

fn has_capabilities(path: &Path) -> bool {
    let name = c"security.capability".as_ptr();
    let path = CString::new(path.as_os_str().as_bytes());
    path.is_ok_and(|path| {
        // SAFETY: invariant 1.
        unsafe { libc::getxattr(path.as_ptr(), name, std::ptr::null_mut(), 0) > 0 }
    })
}
