//! Names for addresses: of functions, with those inlined into them, and of variables.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use addr2line::Loader;
use object::read::elf::ElfFile64;
use object::{Object, ObjectSymbol, SymbolKind};
use serde::Serialize;

/// A shared object of the program that was looked at.
pub struct Module {
    pub start: u64,
    pub end: u64,
    /// What is added to addresses in its file.
    pub bias: u64,
    pub path: PathBuf,
    pub build_id: Vec<u8>,
    file: OnceCell<Option<Contents>>,
}

/// What its file says.
struct Contents {
    loader: Option<Loader>,
    symbols: Vec<Symbol>,
}

struct Symbol {
    address: u64,
    size: u64,
    is_function: bool,
    name: String,
}

/// A call.
#[derive(Clone, Debug, Default, Serialize, PartialEq, Eq, Hash)]
pub struct Frame {
    /// `library+0x1234` if it has no name.
    pub function: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// It is a call in the source, but not in the machine code.
    #[serde(skip_serializing_if = "is_false")]
    pub inlined: bool,
}

fn is_false(value: &bool) -> bool {
    !value
}

impl Module {
    pub fn new(range: (u64, u64), bias: u64, path: PathBuf, build_id: Vec<u8>) -> Self {
        let (start, end) = range;
        Module {
            start,
            end,
            bias,
            path,
            build_id,
            file: OnceCell::new(),
        }
    }

    fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or(self.path.as_os_str());
        name.display().to_string()
    }

    fn contents(&self) -> Option<&Contents> {
        let read = || Contents::read(&self.path, &self.build_id);
        self.file.get_or_init(read).as_ref()
    }

    fn symbol(&self, address: u64, is_function: bool) -> Option<&Symbol> {
        let symbols = &self.contents()?.symbols;
        let covers = |s: &&Symbol| (s.address..s.address + s.size.max(1)).contains(&address);
        let fits = |s: &&Symbol| s.is_function == is_function && covers(s);
        symbols.iter().find(fits)
    }
}

impl Contents {
    /// `None` if it is not the file that was loaded.
    fn read(path: &Path, build_id: &[u8]) -> Option<Self> {
        let data = fs::read(path).ok()?;
        let file: ElfFile64 = ElfFile64::parse(&*data).ok()?;
        let has = file.build_id().ok().flatten().unwrap_or_default();
        if has != build_id {
            return None;
        }
        let symbols = file.symbols().chain(file.dynamic_symbols());
        let symbols = symbols.filter(|s| s.is_definition() && s.address() != 0);
        let known = symbols.filter_map(|s| {
            let is_function = match s.kind() {
                SymbolKind::Text => true,
                SymbolKind::Data => false,
                _ => return None,
            };
            Some(Symbol {
                address: s.address(),
                size: s.size(),
                is_function,
                name: s.name().ok()?.to_owned(),
            })
        });
        Some(Contents {
            symbols: known.collect(),
            loader: Loader::new(path).ok(),
        })
    }
}

/// The symbols of a process.
pub struct Symbols {
    modules: Vec<Module>,
    known: HashMap<u64, Vec<Frame>>,
}

impl Symbols {
    pub fn new(modules: Vec<Module>) -> Self {
        Symbols {
            modules,
            known: HashMap::new(),
        }
    }

    fn module(&self, address: u64) -> Option<&Module> {
        let mut modules = self.modules.iter();
        modules.find(|module| (module.start..module.end).contains(&address))
    }

    /// Files that are not those that were loaded.
    pub fn changed_files(&self) -> Vec<String> {
        let changed = self.modules.iter().filter(|m| m.contents().is_none());
        changed.map(|m| m.path.display().to_string()).collect()
    }

    /// The calls that return to an address, innermost first.
    pub fn calls(&mut self, back: u64) -> &[Frame] {
        if !self.known.contains_key(&back) {
            let frames = self.look_up(back);
            self.known.insert(back, frames);
        }
        &self.known[&back]
    }

    fn look_up(&self, back: u64) -> Vec<Frame> {
        // A call may be the last instruction of a function.
        let pc = back - 1;
        let unknown = |function| {
            vec![Frame {
                function,
                ..Frame::default()
            }]
        };
        let Some(module) = self.module(pc) else {
            return unknown(format!("{back:#x}"));
        };
        let address = pc.wrapping_sub(module.bias);
        let mut frames = inlined(module, address);
        let symbol = module.symbol(address, true);
        let outer = symbol.map(|symbol| demangled(&symbol.name));
        match frames.last_mut() {
            Some(last) if last.function.is_empty() => {
                last.function = outer.unwrap_or_else(|| "?".to_owned());
            }
            Some(_) => {}
            None => {
                let nameless = || format!("{}+{:#x}", module.name(), back - module.bias);
                return unknown(outer.unwrap_or_else(nameless));
            }
        }
        frames
    }

    /// The name of a variable, with an offset into it.
    pub fn variable(&self, address: u64) -> Option<String> {
        let module = self.module(address)?;
        let at = address.wrapping_sub(module.bias);
        let Some(symbol) = module.symbol(at, false) else {
            return Some(format!("{}+{at:#x}", module.name()));
        };
        let name = short(&demangled(&symbol.name));
        Some(match at - symbol.address {
            0 => name,
            offset => format!("{name}+{offset:#x}"),
        })
    }
}

/// What the debugging information says of an address.
fn inlined(module: &Module, address: u64) -> Vec<Frame> {
    let mut found = Vec::new();
    let loader = module.contents().and_then(|file| file.loader.as_ref());
    let Some(Ok(mut frames)) = loader.map(|loader| loader.find_frames(address)) else {
        return found;
    };
    while let Ok(Some(frame)) = frames.next() {
        let place = frame.location.as_ref();
        let name = frame.function.as_ref().map(|f| f.demangle());
        let function = name.and_then(|name| Some(name.ok()?.into_owned()));
        found.push(Frame {
            function: function.unwrap_or_default(),
            file: place.and_then(|place| Some(place.file?.to_owned())),
            line: place.and_then(|place| place.line),
            inlined: true,
        });
    }
    if let Some(last) = found.last_mut() {
        last.inlined = false;
    }
    // Nothing is known of the function or the line.
    if found.len() == 1 && found[0].function.is_empty() && found[0].file.is_none() {
        found.clear();
    }
    found
}

/// A name as its language has it. One of C stays: `m` alone would be read as a type of C++.
fn demangled(name: &str) -> String {
    match name.starts_with("_Z") || name.starts_with("_R") {
        true => addr2line::demangle_auto(name.into(), None).into_owned(),
        false => name.to_owned(),
    }
}

/// A name without parameters, template arguments and result.
pub fn short(name: &str) -> String {
    // Rust's `<T as Trait>::function`.
    if name.starts_with('<') {
        return name.to_owned();
    }
    let name = name.replace("(anonymous namespace)", "{anonymous}");
    let name = match name.find("operator") {
        // Its symbols may be brackets.
        Some(at) => return name[..at].replace(' ', "") + "operator",
        None => name,
    };
    let (mut text, mut depth) = (String::new(), 0);
    for c in name.chars() {
        match c {
            '<' | '(' | '[' => depth += 1,
            '>' | ')' | ']' => depth -= 1,
            c if depth == 0 => text.push(c),
            _ => {}
        }
    }
    let text = text.trim_end_matches(" const").trim();
    let last = text.rsplit(' ').next().unwrap_or(text);
    last.trim_start_matches(['*', '&']).to_owned()
}

/// Whether a function only takes a lock for its caller.
pub fn is_wrapper(function: &str) -> bool {
    let name = short(function).to_lowercase();
    let mut parts = name.rsplit("::");
    let (last, class) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
    let is_of_lock = |text: &str| {
        ["lock", "mutex", "guard", "condition", "condvar", "latch"]
            .iter()
            .any(|word| text.contains(word))
    };
    let takes = [
        "lock",
        "trylock",
        "try_lock",
        "acquire",
        "enter",
        "wait",
        "timedwait",
        "wait_for",
        "wait_until",
        "lockinternal",
        "waitinternal",
        "timedwaitinternal",
        "lock_timed",
    ];
    if class.is_empty() {
        let ends = ["mutex_lock", "spin_lock", "cond_wait", "cond_timedwait"];
        return last.starts_with("__gthread") || ends.iter().any(|end| last.ends_with(end));
    }
    (last == class || takes.contains(&last)) && is_of_lock(class)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_without_what_makes_them_long() {
        for (long, expected) in [
            ("main", "main"),
            ("a::b<c<d>, e>::f(g (*)(h)) const", "a::b::f"),
            ("void std::x<int>::y<z>(int)", "std::x::y"),
            ("(anonymous namespace)::f(int)", "{anonymous}::f"),
            ("<a::B as c::D>::e", "<a::B as c::D>::e"),
        ] {
            assert_eq!(short(long), expected);
        }
    }

    #[test]
    fn names_of_c_stay() {
        for name in ["m", "i", "St", "main"] {
            assert_eq!(demangled(name), name);
        }
        assert_eq!(demangled("_ZN1a1bEv"), "a::b()");
    }

    #[test]
    fn callers_of_wrappers_are_meant() {
        for wrapper in [
            "std::mutex::lock()",
            "kyotocabinet::Mutex::lock()",
            "std::lock_guard<std::mutex>::lock_guard(std::mutex&)",
            "rocksdb::MutexLock::MutexLock(rocksdb::port::Mutex*)",
            "__gthread_mutex_lock",
            "my_mutex_lock",
        ] {
            assert!(is_wrapper(wrapper), "{wrapper}");
        }
        for other in [
            "main",
            "Cache::lookup(int)",
            "Deadlock::check()",
            "block",
            "take_lock",
        ] {
            assert!(!is_wrapper(other), "{other}");
        }
    }
}
