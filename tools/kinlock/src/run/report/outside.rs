//! A process seen from outside: its memory, the shared objects in it, and its threads.
//!
//! Nothing in it is stopped, so it may change while it is read. Whatever changes did not hang.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use anyhow::{Context, bail};
use kinlock_cli::report::text;
use kinlock_core::platform::Platform;
use kinlock_linux::Native;
use kinlock_report::unwind::{Registers, Rule};
use kinlock_report::{FRAMES, MAGIC, now};
use object::Endianness;
use object::elf::{
    ELF_NOTE_GNU, FileHeader64, NT_GNU_BUILD_ID, PF_X, PT_GNU_EH_FRAME, PT_LOAD, PT_NOTE,
    ProgramHeader64,
};
use object::pod::{from_bytes, slice_from_bytes};
use object::read::elf::{FileHeader, NoteIterator, ProgramHeader};
use rustix::time::ClockId;

use super::others::{Mapping, mappings, of_process, seen_from_here, stat};
use super::symbols::{Module, Symbols};

pub struct Outside {
    pid: u32,
    memory: File,
    objects: Vec<Object>,
    rules: RefCell<HashMap<u64, Rule>>,
    /// For each thread, its number in the process's own PID namespace, and its number here.
    threads: HashMap<u32, u32>,
}

/// A program or a library in the memory.
struct Object {
    start: u64,
    end: u64,
    bias: u64,
    path: PathBuf,
    build_id: Vec<u8>,
    /// The address of the index of its call frame information.
    index: Option<u64>,
    /// The end of the mapping that contains the index. The information itself lies in between.
    end_of_index: u64,
    bytes: OnceCell<Option<Vec<u8>>>,
    /// The address at which it keeps what threads wait for and hold now.
    now: Option<u64>,
}

/// What threads wait for and hold, as one object of the process has noted it.
pub struct Known {
    pub are_posix: bool,
    /// See [`now::Now::number_at`].
    pub number_at: u64,
    pub dropped: u64,
    pub facts: Vec<Fact>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fact {
    pub what: u64,
    pub kind: u32,
    /// The thread's number in its own PID namespace.
    pub thread: u32,
    pub since: u64,
    pub registers: Registers,
}

impl Outside {
    /// Looks at a process. An error, of one line, if there is no such process or it may not be
    /// looked at. `None` if kinlock's library is not loaded in it.
    pub fn look(pid: u32) -> anyhow::Result<Option<Self>> {
        let mappings = mappings(pid)?;
        let memory = File::open(format!("/proc/{pid}/mem")).with_context(|| {
            format!(
                "cannot read the memory of process {pid} (that takes its user, if \
                 kernel.yama.ptrace_scope is 0, or root)"
            )
        })?;
        let mut outside = Outside {
            pid,
            memory,
            objects: Vec::new(),
            rules: RefCell::default(),
            threads: threads(pid),
        };
        let mut is_of_another_version = false;
        for mapping in mappings
            .iter()
            .filter(|m| m.offset == 0 && m.rights[0] == b'r')
        {
            let object = outside.object(mapping, &mappings, &mut is_of_another_version);
            outside.objects.extend(object);
        }
        let has_any = outside.objects.iter().any(|object| object.now.is_some());
        if is_of_another_version && !has_any {
            bail!("process {pid} runs with the library of another version of kinlock");
        }
        Ok(has_any.then_some(outside))
    }

    /// A process without memory, with these threads.
    #[cfg(test)]
    pub fn of_threads(pid: u32, threads: &[u32]) -> Self {
        Outside {
            pid,
            memory: File::open("/dev/null").unwrap(),
            objects: Vec::new(),
            rules: RefCell::default(),
            threads: threads.iter().map(|&thread| (thread, thread)).collect(),
        }
    }

    /// Updates the list of threads.
    pub fn look_for_threads(&mut self) {
        self.threads = threads(self.pid);
    }

    fn read(&self, address: u64, length: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.memory.read_exact_at(&mut bytes, address).ok()?;
        Some(bytes)
    }

    pub fn word(&self, address: u64) -> Option<u64> {
        word_in(&self.read(address, 8)?, 0)
    }

    pub fn half(&self, address: u64) -> Option<u32> {
        half_in(&self.read(address, 4)?, 0)
    }

    /// The program or library of 64 bits that begins at a mapping, if one is loaded there. If the
    /// code is not executable, the process has mapped the file only to read it.
    fn object(
        &self,
        mapping: &Mapping,
        all: &[Mapping],
        is_of_another_version: &mut bool,
    ) -> Option<Object> {
        let path = mapping.path.as_ref()?;
        let bytes = self.read(mapping.start, size_of::<FileHeader64<Endianness>>())?;
        let (header, _) = from_bytes::<FileHeader64<Endianness>>(&bytes).ok()?;
        let endian = header.endian().ok()?;
        let count = usize::from(header.e_phnum(endian));
        let at = mapping.start.checked_add(header.e_phoff(endian))?;
        let bytes = self.read(at, count * size_of::<ProgramHeader64<Endianness>>())?;
        let (segments, _) = slice_from_bytes::<ProgramHeader64<Endianness>>(&bytes, count).ok()?;
        let loaded = || segments.iter().filter(|s| s.p_type(endian) == PT_LOAD);
        let first = loaded().find(|segment| segment.p_offset(endian) == 0)?;
        let bias = mapping.start.wrapping_sub(first.p_vaddr(endian) & !0xfff);
        let ends = loaded().map(|s| s.p_vaddr(endian).saturating_add(s.p_memsz(endian)));
        let is_there = |at: u64, right: u8| {
            let mapping = all.iter().find(|m| (m.start..m.end).contains(&at));
            mapping.is_some_and(|mapping| mapping.rights.contains(&right))
        };
        let mut code = loaded().filter(|s| s.p_flags(endian) & PF_X != 0);
        if !code.all(|s| is_there(bias.wrapping_add(s.p_vaddr(endian)), b'x')) {
            return None;
        }
        let mut object = Object {
            start: mapping.start,
            end: bias.wrapping_add(ends.max()?),
            bias,
            path: seen_from_here(self.pid, path, mapping.file),
            build_id: Vec::new(),
            index: None,
            end_of_index: 0,
            bytes: OnceCell::new(),
            now: None,
        };
        for segment in segments {
            let address = bias.wrapping_add(segment.p_vaddr(endian));
            match segment.p_type(endian) {
                PT_NOTE => {
                    let length = segment.p_memsz(endian).min(LONGEST) as usize;
                    let bytes = self.read(address, length).unwrap_or_default();
                    let align = segment.p_align(endian);
                    let notes = NoteIterator::<FileHeader64<_>>::new(endian, align, &bytes);
                    let mut notes = notes.ok()?;
                    while let Ok(Some(note)) = notes.next() {
                        let says = note.desc();
                        if note.name() == ELF_NOTE_GNU && note.n_type(endian) == NT_GNU_BUILD_ID {
                            object.build_id = says.to_vec();
                        }
                        if note.name_bytes() == now::NOTE {
                            let is_known = word_in(says, 0) == Some(MAGIC);
                            *is_of_another_version |= !is_known;
                            let place = says.as_ptr().addr() - bytes.as_ptr().addr() + 8;
                            let distance = word_in(says, 8).filter(|_| is_known);
                            let place = address.wrapping_add(place as u64);
                            let now = distance.map(|distance| place.wrapping_add(distance));
                            object.now = now.filter(|&now| is_there(now, b'w'));
                        }
                    }
                }
                PT_GNU_EH_FRAME => {
                    object.index = Some(address);
                    let mapping = all.iter().find(|m| (m.start..m.end).contains(&address));
                    object.end_of_index = mapping.map_or(address, |mapping| mapping.end);
                }
                _ => {}
            }
        }
        Some(object)
    }

    /// What threads wait for and hold now. Facts about threads that do not exist are left out.
    pub fn known(&self) -> Vec<Known> {
        let places = self.objects.iter().filter_map(|object| object.now);
        places.filter_map(|place| self.known_at(place)).collect()
    }

    fn known_at(&self, place: u64) -> Option<Known> {
        use std::mem::offset_of;
        let bytes = self.read(place, size_of::<now::Now>())?;
        let facts = bytes[offset_of!(now::Now, facts)..].chunks_exact(size_of::<now::Fact>());
        let facts = facts.filter_map(|fact| {
            let registers = offset_of!(now::Fact, registers);
            let fact = Fact {
                what: word_in(fact, offset_of!(now::Fact, what))?,
                kind: half_in(fact, offset_of!(now::Fact, kind))?,
                thread: half_in(fact, offset_of!(now::Fact, thread))?,
                since: word_in(fact, offset_of!(now::Fact, since))?,
                registers: Registers {
                    pc: word_in(fact, registers)?,
                    stack: word_in(fact, registers + 8)?,
                    frame: word_in(fact, registers + 16)?,
                },
            };
            let is_one = !matches!(fact.what, 0 | now::BUSY);
            (is_one && self.threads.contains_key(&fact.thread)).then_some(fact)
        });
        Some(Known {
            are_posix: half_in(&bytes, offset_of!(now::Now, are_posix))? != 0,
            number_at: half_in(&bytes, offset_of!(now::Now, number_at))?.into(),
            dropped: word_in(&bytes, offset_of!(now::Now, dropped))?,
            facts: facts.collect(),
        })
    }

    /// The number here of a thread, by its own process's number; 0: it does not exist.
    pub fn number(&self, thread: u32) -> u32 {
        self.threads.get(&thread).copied().unwrap_or(0)
    }

    /// Whether there is a thread with this number here.
    pub fn has(&self, thread: u32) -> bool {
        self.threads.values().any(|&known| known == thread)
    }

    /// Whether a thread, by its own process's number, belongs to another process. In a container,
    /// where that number means nothing here, each unknown thread does.
    pub fn is_elsewhere(&self, thread: u32) -> bool {
        let is_contained = self.threads.iter().any(|(own, here)| own != here);
        let exists = || of_process(thread, "comm").is_ok();
        !self.has(thread) && (is_contained || exists())
    }

    /// When a thread began, in ns of the monotonic clock, or up to a tick earlier; 0: not known.
    /// `thread`: its number here.
    pub fn began(&self, thread: u32) -> u64 {
        /// The kernel gives the time since boot in hundredths of a second.
        const TICK_NS: u64 = 10_000_000;
        const FIELD: usize = 22;
        // In a time namespace, waits are noted by another clock.
        let clock =
            |pid: &dyn std::fmt::Display| fs::read_link(format!("/proc/{pid}/ns/time")).ok();
        if clock(&self.pid) != clock(&"self") {
            return 0;
        }
        let ticks = stat(self.pid, &format!("task/{thread}/stat"), FIELD).unwrap_or(0);
        // Read in this order, so that the result is too early rather than too late.
        let now = Native::now();
        let since_boot = rustix::time::clock_gettime(ClockId::Boottime);
        let since_boot = since_boot.tv_sec as u64 * 1_000_000_000 + since_boot.tv_nsec as u64;
        (ticks * TICK_NS).saturating_sub(since_boot.saturating_sub(now))
    }

    /// The name of a thread. `thread`: its number here.
    pub fn name(&self, thread: u32) -> String {
        let name = of_process(self.pid, &format!("task/{thread}/comm")).unwrap_or_default();
        text::name(name.trim_ascii_end())
    }

    /// The registers of a thread in a system call, except for the frame pointer, which the kernel
    /// does not give. `None`: the thread runs, or the kernel gives nothing.
    pub fn registers(&self, thread: u32) -> Option<Registers> {
        let says = of_process(self.pid, &format!("task/{thread}/syscall")).ok()?;
        let says = String::from_utf8(says).ok()?;
        let mut words = says.split_whitespace().rev();
        let mut next = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
        let (pc, stack) = (next()?, next()?);
        Some(Registers {
            pc,
            stack,
            frame: 0,
        })
    }

    /// The return addresses from a frame on, innermost first.
    pub fn stack(&self, from: Registers) -> Vec<u64> {
        /// How many frames to look at, including those of the preloaded library.
        const MOST: usize = FRAMES + 24;
        let (mut at, mut found) = (from, Vec::new());
        for _ in 0..MOST {
            let object = self.object_at(at.pc.wrapping_sub(1));
            if object.is_some_and(|object| !self.is_left_out(object)) {
                found.push(at.pc);
            }
            let rule = self.rule(at.pc, object);
            let Some(caller) = rule.caller(&at, |address| self.word(address)) else {
                break;
            };
            if found.len() == FRAMES || caller.pc == 0 || caller.stack <= at.stack {
                break;
            }
            at = caller;
        }
        found
    }

    /// Whether functions of this object are not shown as callers. This is read from the process
    /// each time: at the first look the library may have been loaded, but not initialised.
    fn is_left_out(&self, object: &Object) -> bool {
        let are_posix = object.now.and_then(|now| self.half(now));
        are_posix.is_some_and(|are_posix| are_posix != 0)
    }

    fn object_at(&self, address: u64) -> Option<&Object> {
        let mut objects = self.objects.iter();
        objects.find(|object| (object.start..object.end).contains(&address))
    }

    fn rule(&self, pc: u64, object: Option<&Object>) -> Rule {
        let look_up = || {
            let Some(object) = object else {
                return Rule::End;
            };
            let described = object.index.and_then(|index| {
                let length = object.end_of_index.checked_sub(index)? as usize;
                let read = || self.read(index, length);
                let bytes = object.bytes.get_or_init(read).as_deref()?;
                let to_end = |from: u64| bytes.get(from.checked_sub(index)? as usize..);
                Rule::described(pc - 1, index, to_end)
            });
            described.unwrap_or(Rule::FRAME_POINTER)
        };
        *self.rules.borrow_mut().entry(pc).or_insert_with(look_up)
    }

    pub fn symbols(&self) -> Symbols {
        let modules = self.objects.iter().map(|object| {
            let range = (object.start, object.end);
            let (path, build_id) = (object.path.clone(), object.build_id.clone());
            Module::new(range, object.bias, path, build_id)
        });
        Symbols::new(modules.collect())
    }
}

/// Longer notes are not read.
const LONGEST: u64 = 1 << 16;

/// The threads of a process, which in a container have other numbers than here.
fn threads(pid: u32) -> HashMap<u32, u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"));
    let tasks = tasks.into_iter().flatten().flatten();
    let numbers = tasks.filter_map(|task| task.file_name().to_str()?.parse().ok());
    let own = |thread: u32| {
        let says = of_process(pid, &format!("task/{thread}/status")).ok()?;
        let says = String::from_utf8_lossy(&says).into_owned();
        let all = says.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
        all.split_whitespace().last()?.parse().ok()
    };
    let is_contained = own(pid).is_some_and(|own: u32| own != pid);
    let both = numbers.map(|thread: u32| match is_contained {
        true => (own(thread).unwrap_or(thread), thread),
        false => (thread, thread),
    });
    both.collect()
}

fn word_in(bytes: &[u8], at: usize) -> Option<u64> {
    let word = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_ne_bytes(word.try_into().ok()?))
}

fn half_in(bytes: &[u8], at: usize) -> Option<u32> {
    let half = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(half.try_into().ok()?))
}
