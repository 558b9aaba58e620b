//! Finding a program as a shell does, and telling whether a preloaded library reaches it.
//!
//! # Invariant cited by `SAFETY` comments
//!
//! 1. `memmem` only reads the two slices whose addresses and lengths it gets.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use kinlock_cli::outcome::{Failure, tell};
#[cfg(target_arch = "aarch64")]
use object::elf::EM_AARCH64;
#[cfg(target_arch = "x86_64")]
use object::elf::EM_X86_64;
use object::elf::{FileHeader64, PT_INTERP, SHT_DYNSYM, SHT_SYMTAB};
use object::read::SectionIndex;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader, SectionTable};
use object::{Endianness, ReadCache};
use rustix::fs::{Access, AtFlags, CWD, accessat, getxattr};
use rustix::process::{getgid, getuid};

use super::image::Image;
use super::variables::Variable;

/// The exit statuses of shells for these errors.
pub const CANNOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;

/// A program that can be executed, with its arguments.
pub struct Program {
    /// Its name, which is also its argument 0.
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
                // An error about the first existing file says more than "not found".
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

    /// Refuses a program that a preloaded library does not reach, or that the library would break.
    /// With `force`, prints a warning instead. `is_reported`: a program that records by itself is
    /// not refused.
    pub fn check(&self, force: bool, is_reported: bool) -> Result<(), Failure> {
        match self.obstacle() {
            Ok(None) => {}
            Ok(Some(Obstacle { records: true, .. })) if is_reported => {}
            // The programs that it starts inherit its environment, so they may be reached.
            Ok(Some(Obstacle {
                what, passes: true, ..
            })) => tell(&format!(
                "kinlock: {}: {what}; programs that it starts get the library",
                self.name()
            )),
            Ok(Some(obstacle)) if force => tell(&format!(
                "kinlock: {}: {}; run all the same",
                self.name(),
                obstacle.what
            )),
            Ok(Some(obstacle)) => return Err(failed(CANNOT_RUN, &self.name, &obstacle.what)),
            Err(failure) => return Err(failure),
        }
        Ok(())
    }

    /// Why the program should not run with the library.
    fn obstacle(&self) -> Result<Option<Obstacle>, Failure> {
        let file = self.path.file_name();
        if env::var_os("RUNNING_UNDER_RR").is_some() || file == Some("rr".as_ref()) {
            let what = "rr runs one thread at a time, so that those that wait would spin in vain";
            return Ok(Some(Obstacle::new(what)));
        }
        let checker = (file == Some("valgrind".as_ref())).then(|| self.thread_checker());
        if let Some(tool) = checker.flatten() {
            let what = format!("Valgrind's {tool} has to see the C library's locks");
            return Ok(Some(Obstacle::new(what)));
        }
        if let Some(sanitizer) = preloaded_sanitizer() {
            let what =
                format!("LD_PRELOAD has {sanitizer}, which has to see the C library's locks");
            return Ok(Some(Obstacle::new(what)));
        }
        let mut path = self.path.clone();
        let mut said = String::new();
        // As many scripts in a row as the kernel accepts.
        for _ in 0..=5 {
            let interpreter = match look(&path) {
                // Such a file may be executable but not readable: the kernel decides.
                Err(_) => return Ok(None),
                Ok(Kind::Elf) => {
                    let found = obstacle(&path);
                    return Ok(found.map(|found| Obstacle {
                        what: format!("{said}{}", found.what),
                        ..found
                    }));
                }
                Ok(Kind::Script(interpreter)) => interpreter,
                Ok(Kind::Other) => {
                    let what = format!("{said}it is neither an ELF program nor a script");
                    return Ok(Some(Obstacle::new(what)));
                }
            };
            if let Err(failure) = is_executable(&interpreter) {
                return Err(self.refused(format!("its interpreter {failure}")));
            }
            said = format!("its interpreter {}: ", interpreter.display());
            path = interpreter;
        }
        Err(self.refused("its interpreters are scripts, too many in a row".to_owned()))
    }

    /// The tool of Valgrind that the options choose, if it watches locks.
    fn thread_checker(&self) -> Option<&'static str> {
        let options = env::var_os("VALGRIND_OPTS").unwrap_or_default();
        let options = options.as_bytes().split(u8::is_ascii_whitespace);
        let words = self.args.iter().map(|word| word.as_bytes());
        // Options after the name of a program belong to the program.
        let words = words.take_while(|word| word.starts_with(b"-"));
        let tools = options
            .chain(words)
            .filter_map(|word| word.strip_prefix(b"--tool="));
        let known = |tool: &[u8]| {
            ["drd", "helgrind"]
                .into_iter()
                .find(|k| k.as_bytes() == tool)
        };
        // The last option is in effect.
        tools.last().and_then(known)
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
        // Checked first: opening a pipe would wait for its writer.
        Ok(data) if !data.is_file() => refused(CANNOT_RUN, "it is no file"),
        Ok(_) if !may_execute(path) => refused(CANNOT_RUN, "it may not be executed"),
        Ok(_) => Ok(()),
    }
}

fn may_execute(path: &Path) -> bool {
    accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS).is_ok()
}

/// Why a program should not run with the library.
struct Obstacle {
    what: String,
    /// Whether only the program itself is affected, and not the programs that it may start.
    passes: bool,
    /// Whether the program needs no library for a report, since it records what its locks do.
    records: bool,
}

impl Obstacle {
    fn new(what: impl Into<String>) -> Self {
        Obstacle {
            what: what.into(),
            passes: false,
            records: false,
        }
    }
}

/// A sanitizer's library in `LD_PRELOAD`. A program that was not built with the sanitizer may need
/// it.
fn preloaded_sanitizer() -> Option<&'static str> {
    let preloaded = env::var_os("LD_PRELOAD")?;
    let has = |name: &str| {
        let mut parts = preloaded.as_bytes().windows(name.len());
        parts.any(|part| part == name.as_bytes())
    };
    let all = [
        ("libtsan.so", "ThreadSanitizer"),
        ("libasan.so", "AddressSanitizer"),
        ("libhwasan.so", "HWAddressSanitizer"),
    ];
    all.into_iter()
        .find_map(|(file, name)| has(file).then_some(name))
}

enum Kind {
    Elf,
    /// A script, with its interpreter.
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
        // A shell runs a file of a format that the kernel does not know, if it is a text.
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
fn obstacle(path: &Path) -> Option<Obstacle> {
    let Ok(form) = form(path) else {
        return Some(Obstacle::new("it is damaged"));
    };
    if form != OWN {
        let [is, needs] = [form, OWN].map(words);
        let what = format!("it is for another architecture ({is}) than the library ({needs})");
        return Some(Obstacle::new(what));
    }
    let Ok(parts) = Parts::read(path) else {
        return Some(Obstacle::new("it is damaged"));
    };
    if let Some(privilege) = privilege(path) {
        let what = format!("it {privilege}, so that nothing is preloaded");
        return Some(Obstacle::new(what));
    }
    let Some(linker) = parts.linker else {
        return Some(Obstacle {
            what: "it is statically linked, so that nothing can be preloaded".to_owned(),
            passes: !parts.starts_none,
            records: parts.records,
        });
    };
    if let Some(library) = other_c_library(&linker) {
        let what = format!("it is linked with {library}, and the library with glibc");
        return Some(Obstacle {
            records: parts.records,
            ..Obstacle::new(what)
        });
    }
    let sanitizer = parts.sanitizer?;
    let what = format!("it was built with {sanitizer}, which has to see the C library's locks");
    Some(Obstacle::new(what))
}

/// The C library that a loader belongs to, if it is known not to be glibc.
fn other_c_library(linker: &[u8]) -> Option<&'static str> {
    let file = linker.rsplit(|&byte| byte == b'/').next()?;
    let has = |part: &str| {
        file.windows(part.len())
            .any(|found| found == part.as_bytes())
    };
    let known = [
        ("ld-musl", "musl"),
        ("uClibc", "uClibc"),
        ("ld-uclibc", "uClibc"),
        ("linker", "Android's C library"),
        ("ld-elf", "a BSD's C library"),
    ];
    let found = known.into_iter().find(|&(part, _)| has(part));
    found.map(|(_, library)| library)
}

/// Word size, byte order, and the two bytes for the processor from the header of an ELF file.
type Form = [u8; 4];

/// The form of the command, and so of the library. It is not read from `/proc`, which may be
/// missing.
const OWN: Form = {
    let [low, high] = match () {
        #[cfg(target_arch = "x86_64")]
        () => EM_X86_64,
        #[cfg(target_arch = "aarch64")]
        () => EM_AARCH64,
        // There is no library for other processors (`real.rs`).
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        () => object::elf::EM_NONE,
    }
    .to_le_bytes();
    [2, 1, low, high]
};

fn form(path: &Path) -> io::Result<Form> {
    let mut begin = [0; 20];
    File::open(path)?.read_exact(&mut begin)?;
    Ok([begin[4], begin[5], begin[18], begin[19]])
}

/// `64-bit, ELF machine 62`.
fn words([class, order, machine @ ..]: Form) -> String {
    let bits = if class == 1 { 32 } else { 64 };
    let machine = match order {
        2 => u16::from_be_bytes(machine),
        _ => u16::from_le_bytes(machine),
    };
    format!("{bits}-bit, ELF machine {machine}")
}

/// Other properties of an ELF program.
struct Parts {
    /// The dynamic loader.
    linker: Option<Vec<u8>>,
    sanitizer: Option<&'static str>,
    /// Whether it has symbols, and none of them is a function that starts programs.
    starts_none: bool,
    /// Whether it has the note of the crate `kinlock` with the feature `report`.
    records: bool,
}

/// The section of that note.
const NOTE: &[u8] = b".note.kinlock";

/// Functions that only programs under a sanitizer have.
const SANITIZERS: [(&[u8], &str); 4] = [
    (b"__tsan_init", "ThreadSanitizer"),
    (b"__asan_init", "AddressSanitizer"),
    (b"__msan_init", "MemorySanitizer"),
    (b"__hwasan_init", "HWAddressSanitizer"),
];

/// The common end of these names.
const SANITIZERS_END: &[u8] = b"san_init";

/// Functions that start programs. A program that starts others has at least one of them.
const STARTS: [&[u8]; 6] = [
    b"execve",
    b"execveat",
    b"posix_spawn",
    b"posix_spawnp",
    b"forkExec",
    b"syscall",
];

/// The header of a program that the library may fit.
type Header = FileHeader64<Endianness>;

impl Parts {
    fn read(path: &Path) -> anyhow::Result<Self> {
        let data = &ReadCache::new(File::open(path)?);
        let header = Header::parse(data)?;
        let endian = header.endian()?;
        let mut linker = None;
        for segment in header.program_headers(endian, data)? {
            if segment.p_type(endian) == PT_INTERP {
                linker = segment.data(endian, data).ok().map(<[u8]>::to_vec);
            }
        }
        let mut parts = Parts {
            linker,
            sanitizer: None,
            starts_none: false,
            records: false,
        };
        // Sections are optional: the kernel does not need them.
        if let Ok(sections) = header.sections(endian, data) {
            parts.records = sections.section_by_name(endian, NOTE).is_some();
            parts.note_symbols(&sections, endian, data);
        }
        Ok(parts)
    }

    /// Looks at the names of symbols. Each table of names is read at once: some programs have
    /// hundreds of thousands.
    fn note_symbols<'a>(
        &mut self,
        sections: &SectionTable<'a, Header, &'a ReadCache<File>>,
        endian: Endianness,
        data: &'a ReadCache<File>,
    ) {
        for section in sections.iter() {
            let kind = section.sh_type(endian);
            if ![SHT_DYNSYM, SHT_SYMTAB].contains(&kind) {
                continue;
            }
            let names = sections.section(SectionIndex(section.sh_link(endian) as usize));
            let Ok(names) = names.and_then(|names| names.data(endian, data)) else {
                continue;
            };
            if has_end(names, SANITIZERS_END) {
                let known = SANITIZERS.iter().find(|(known, _)| has_end(names, known));
                self.sanitizer = self.sanitizer.or(known.map(|&(_, sanitizer)| sanitizer));
            }
            if self.linker.is_none() && kind == SHT_SYMTAB {
                self.starts_none = !STARTS.iter().any(|known| has_end(names, known));
            }
        }
    }
}

/// Whether a table contains a name that ends like this. Linkers may store a name as the end of a
/// longer one, so only ends can be looked for. The C library's search is fast in any build of the
/// command.
fn has_end(names: &[u8], end: &[u8]) -> bool {
    let needle = [end, &[0]].concat();
    let (all, part) = (names.as_ptr().cast(), needle.as_ptr().cast());
    // SAFETY: invariant 1.
    unsafe { !libc::memmem(all, names.len(), part, needle.len()).is_null() }
}

/// The privilege that the program gets and its user does not have: then the loader ignores
/// `LD_PRELOAD`.
fn privilege(path: &Path) -> Option<&'static str> {
    let data = fs::metadata(path).ok()?;
    let mode = data.mode();
    let (user, group) = (getuid().as_raw(), getgid().as_raw());
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
    let no_buffer: &mut [u8] = &mut [];
    getxattr(path, "security.capability", no_buffer).is_ok_and(|length| length > 0)
}
