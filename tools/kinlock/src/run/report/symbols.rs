//! Names for addresses: of functions, including inlined ones, and of variables.
//!
//! Many processes of one run load the same files, and the symbol table of a browser has hundreds of
//! megabytes. So each file is mapped, not copied, and read once per command ([`contents`]), and its
//! symbols are sorted once, when the first name is asked for. The names of a stripped file are in
//! another file ([`debug`](super::debug)).

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use addr2line::Loader;
use kinlock_cli::report::text;
use memmap2::Mmap;
use object::read::elf::ElfFile64;
use object::{Object, ObjectSymbol, SymbolKind};
use serde::Serialize;

use super::debug;
use super::others::mapped;

/// A shared object, or the program itself.
pub struct Module {
    pub start: u64,
    pub end: u64,
    /// The difference between its addresses in memory and in its file.
    pub bias: u64,
    pub path: PathBuf,
    pub build_id: Vec<u8>,
    file: OnceCell<Option<Rc<Contents>>>,
}

struct Contents {
    path: PathBuf,
    data: Mmap,
    /// The file with what was stripped from it, if that is on this machine.
    apart: OnceCell<Option<(PathBuf, Mmap)>>,
    /// Its debugging information, if it has any.
    loader: OnceCell<Option<Loader>>,
    functions: OnceCell<SymbolMap>,
    variables: OnceCell<SymbolMap>,
}

/// The symbols of one kind in a file, in the order of their addresses.
struct SymbolMap {
    symbols: Vec<Symbol>,
    /// For each symbol, the highest end of it and its predecessors: none of these covers an address
    /// beyond that.
    ends: Vec<u64>,
}

struct Symbol {
    address: u64,
    size: u64,
    /// The file that has its name: 0 for the object's own file, 1 for what was stripped from it.
    file: usize,
    /// The offset of its name in that file.
    name: usize,
    length: usize,
}

#[derive(Clone, Debug, Default, Serialize, PartialEq, Eq, PartialOrd, Ord)]
pub struct Frame {
    /// The function's name, or `library+0x1234` if it has none.
    pub function: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// Whether this is a call in the source, but not in the machine code.
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
        text::name(name.as_bytes())
    }

    fn contents(&self) -> Option<&Contents> {
        let read = || contents(&self.path, &self.build_id);
        self.file.get_or_init(read).as_deref()
    }

    /// The address and the name of the symbol that covers an address of the file.
    fn symbol(&self, address: u64, kind: SymbolKind) -> Option<(u64, String)> {
        let contents = self.contents()?;
        let symbol = contents.symbols(kind).at(address)?;
        let file = contents.files().nth(symbol.file)?;
        let name = &file[symbol.name..][..symbol.length];
        Some((symbol.address, text::name(name)))
    }

    /// Whether the file was stripped, and what was stripped is not on this machine.
    fn is_stripped(&self) -> bool {
        let contents = self.contents();
        contents.is_some_and(|contents| !contents.files().any(has_symbols))
    }
}

/// The contents of the file at a path, if it is the one that was loaded. It is read at the first
/// call.
fn contents(path: &Path, build_id: &[u8]) -> Option<Rc<Contents>> {
    type Files = HashMap<(PathBuf, Vec<u8>), Option<Rc<Contents>>>;
    thread_local! {
        static FILES: RefCell<Files> = RefCell::default();
    }
    FILES.with_borrow_mut(|files| {
        let key = (path.to_owned(), build_id.to_owned());
        let read = || Contents::read(path, build_id).map(Rc::new);
        files.entry(key).or_insert_with(read).clone()
    })
}

impl Contents {
    /// `None` if it is not the file that was loaded.
    fn read(path: &Path, build_id: &[u8]) -> Option<Self> {
        // A relative path would lead to another file here.
        let data = mapped(Some(path).filter(|path| path.is_absolute())?)?;
        let has = parse(&data)?.build_id().ok().flatten().unwrap_or_default();
        // A file whose ID the program could not read is taken for the one that was loaded.
        if !build_id.is_empty() && has != build_id {
            return None;
        }
        Some(Contents {
            path: path.to_owned(),
            data,
            apart: OnceCell::new(),
            loader: OnceCell::new(),
            functions: OnceCell::new(),
            variables: OnceCell::new(),
        })
    }

    /// The file with what was stripped from this one, which is only looked for if something was.
    fn apart(&self) -> Option<&(PathBuf, Mmap)> {
        let find = || {
            let file = parse(&self.data)?;
            if has_lines(&file) && file.symbol_table().is_some() {
                return None;
            }
            let path = debug::apart(&self.path, &file)?;
            let data = mapped(&path)?;
            parse(&data).is_some().then_some((path, data))
        };
        self.apart.get_or_init(find).as_ref()
    }

    /// The data of the file, and of the one with what was stripped from it.
    fn files(&self) -> impl Iterator<Item = &[u8]> {
        let apart = self.apart().map(|(_, data)| &data[..]);
        [&self.data[..]].into_iter().chain(apart)
    }

    fn loader(&self) -> Option<&Loader> {
        let load = || {
            let (path, data) = match self.apart() {
                Some((path, data)) if !has_lines(&parse(&self.data)?) => (path, data),
                _ => (&self.path, &self.data),
            };
            let common = parse(data).and_then(|file| debug::common(path, &file));
            Loader::new_with_sup(path, common).ok()
        };
        self.loader.get_or_init(load).as_ref()
    }

    fn symbols(&self, kind: SymbolKind) -> &SymbolMap {
        let map = match kind {
            SymbolKind::Text => &self.functions,
            _ => &self.variables,
        };
        map.get_or_init(|| SymbolMap::read(self.files(), kind))
    }
}

fn parse(data: &[u8]) -> Option<ElfFile64<'_>> {
    ElfFile64::parse(data).ok()
}

/// Whether a file has line numbers.
fn has_lines(file: &ElfFile64<'_>) -> bool {
    file.section_by_name(".debug_info").is_some()
}

fn has_symbols(data: &[u8]) -> bool {
    parse(data).is_some_and(|file| file.symbol_table().is_some())
}

impl SymbolMap {
    fn read<'a>(files: impl Iterator<Item = &'a [u8]>, kind: SymbolKind) -> Self {
        let mut symbols = Vec::new();
        for (number, data) in files.enumerate() {
            let file = parse(data);
            let all = file
                .iter()
                .flat_map(|f| f.symbols().chain(f.dynamic_symbols()));
            let fitting = all.filter(|s| s.kind() == kind && s.is_definition() && s.address() != 0);
            symbols.extend(fitting.filter_map(|s| {
                let name = s.name_bytes().ok()?;
                Some(Symbol {
                    address: s.address(),
                    size: s.size(),
                    file: number,
                    // A name is a part of the data.
                    name: name.as_ptr().addr().checked_sub(data.as_ptr().addr())?,
                    length: name.len(),
                })
            }));
        }
        Self::new(symbols)
    }

    fn new(mut symbols: Vec<Symbol>) -> Self {
        // The sort is stable, so that of several aliases the first one in the file is found.
        symbols.sort_by_key(|symbol| symbol.address);
        let mut end = 0;
        let ends = symbols.iter().map(|symbol| {
            end = symbol.end().max(end);
            end
        });
        let ends = ends.collect();
        SymbolMap { symbols, ends }
    }

    /// The innermost symbol that covers an address: the one that starts last.
    fn at(&self, address: u64) -> Option<&Symbol> {
        let after = self.symbols.partition_point(|s| s.address <= address);
        let mut found: Option<&Symbol> = None;
        for index in (0..after).rev() {
            let symbol = &self.symbols[index];
            // Only an alias of the found symbol can be better.
            if found.is_some_and(|found| found.address != symbol.address) {
                break;
            }
            if address < symbol.end() {
                found = Some(symbol);
            } else if found.is_none() && self.ends[index] <= address {
                break;
            }
        }
        found
    }
}

impl Symbol {
    /// A symbol without a size covers its own address.
    fn end(&self) -> u64 {
        self.address.saturating_add(self.size.max(1))
    }
}

pub struct Symbols {
    modules: Vec<Module>,
    known: HashMap<u64, Vec<Frame>>,
    /// Stripped files of which a name was asked for.
    stripped: BTreeSet<PathBuf>,
}

impl Symbols {
    pub fn new(modules: Vec<Module>) -> Self {
        Symbols {
            modules,
            known: HashMap::new(),
            stripped: BTreeSet::new(),
        }
    }

    fn module(&self, address: u64) -> Option<&Module> {
        let mut modules = self.modules.iter();
        modules.find(|module| (module.start..module.end).contains(&address))
    }

    /// Files that are no longer the ones that were loaded.
    pub fn changed_files(&self) -> Vec<String> {
        let changed = self.modules.iter().filter(|m| m.contents().is_none());
        changed
            .map(|m| text::name(m.path.as_os_str().as_bytes()))
            .collect()
    }

    /// Stripped files that had no name for an address that was asked for.
    pub fn stripped_files(&self) -> Vec<String> {
        let paths = self.stripped.iter();
        paths
            .map(|path| text::name(path.as_os_str().as_bytes()))
            .collect()
    }

    /// Notes that an address of a module has no name.
    fn note_nameless(&mut self, address: u64) {
        let module = self.module(address).filter(|module| module.is_stripped());
        if let Some(path) = module.map(|module| module.path.clone()) {
            self.stripped.insert(path);
        }
    }

    /// The calls that return to an address, innermost first.
    pub fn calls(&mut self, back: u64) -> &[Frame] {
        if !self.known.contains_key(&back) {
            let (frames, is_named) = self.look_up(back);
            if !is_named {
                self.note_nameless(back - 1);
            }
            self.known.insert(back, frames);
        }
        &self.known[&back]
    }

    /// The calls that return to an address, and whether they have names.
    fn look_up(&self, back: u64) -> (Vec<Frame>, bool) {
        // A call may be the last instruction of a function.
        let pc = back - 1;
        let one = |function| {
            vec![Frame {
                function,
                ..Frame::default()
            }]
        };
        let Some(module) = self.module(pc) else {
            return (one(format!("{back:#x}")), false);
        };
        let address = pc.wrapping_sub(module.bias);
        let mut frames = inlined(module, address);
        let symbol = module.symbol(address, SymbolKind::Text);
        let outer = symbol.map(|(_, name)| demangled(&name));
        match frames.last_mut() {
            Some(last) if last.function.is_empty() => {
                last.function = outer.unwrap_or_else(|| "?".to_owned());
            }
            Some(_) => {}
            None => {
                let is_named = outer.is_some();
                let nameless = || format!("{}+{:#x}", module.name(), back - module.bias);
                return (one(outer.unwrap_or_else(nameless)), is_named);
            }
        }
        (frames, true)
    }

    /// The name of a variable, with an offset into it.
    pub fn variable(&mut self, address: u64) -> Option<String> {
        let module = self.module(address)?;
        let at = address.wrapping_sub(module.bias);
        let (start, name) = module.symbol(at, SymbolKind::Data)?;
        let name = short(&demangled(&name));
        Some(match at - start {
            0 => name,
            offset => format!("{name}+{offset:#x}"),
        })
    }

    /// The place in its file of a variable without a name.
    pub fn offset(&mut self, address: u64) -> Option<String> {
        let module = self.module(address)?;
        let name = format!("{}+{:#x}", module.name(), address.wrapping_sub(module.bias));
        self.note_nameless(address);
        Some(name)
    }
}

/// The calls at an address according to the debugging information.
fn inlined(module: &Module, address: u64) -> Vec<Frame> {
    let mut found = Vec::new();
    let loader = module.contents().and_then(Contents::loader);
    let Some(Ok(mut frames)) = loader.map(|loader| loader.find_frames(address)) else {
        return found;
    };
    while let Ok(Some(frame)) = frames.next() {
        let place = frame.location.as_ref();
        let name = frame.function.as_ref().map(|f| f.demangle());
        let function = name.and_then(|name| Some(text::name(name.ok()?.as_bytes())));
        found.push(Frame {
            function: function.unwrap_or_default(),
            file: place.and_then(|place| Some(text::name(place.file?.as_bytes()))),
            line: place.and_then(|place| place.line),
            inlined: true,
        });
    }
    if let Some(last) = found.last_mut() {
        last.inlined = false;
    }
    // A frame without a function and a line says nothing.
    if found.len() == 1 && found[0].function.is_empty() && found[0].file.is_none() {
        found.clear();
    }
    found
}

/// The demangled name. A name of C is left as it is: `m` alone would be read as a type of C++.
fn demangled(name: &str) -> String {
    match name.starts_with("_Z") || name.starts_with("_R") {
        true => text::name(addr2line::demangle_auto(name.into(), None).as_bytes()),
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
        // The symbol of an operator may be a bracket.
        Some(at) => return name[..at].replace(' ', "") + "operator",
        // The arrow in a Rust type is not a closing bracket.
        None => name.replace("->", ""),
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
        "try_lock_for",
        "try_lock_until",
        "lock_shared",
        "try_lock_shared",
        "try_lock_shared_for",
        "try_lock_shared_until",
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
    if ["__gthread", "__glibcxx_rwlock"]
        .iter()
        .any(|begin| last.starts_with(begin))
    {
        return true;
    }
    if class.is_empty() {
        let ends = ["mutex_lock", "spin_lock", "cond_wait", "cond_timedwait"];
        return ends.iter().any(|end| last.ends_with(end));
    }
    (last.trim_start_matches('~') == class || takes.contains(&last)) && is_of_lock(class)
}

/// Whether a function is one of Rust's std that begins a thread or `main`.
pub fn begins_rust(function: &str) -> bool {
    let name = short(function);
    let name = name.trim_start_matches('<');
    name.contains("__rust_begin_short_backtrace")
        || name.starts_with("std::rt::lang_start")
        || name.starts_with("std::sys") && name.ends_with("::thread_start")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_are_found_as_by_a_walk_over_all() {
        let symbol = |(address, size): (u64, u64), name| Symbol {
            address,
            size,
            file: 0,
            name,
            length: 0,
        };
        // Nested, overlapping, aliases, without a size, far apart, up to the last address.
        let ranges = [
            (100, 50),
            (110, 10),
            (100, 50),
            (112, 0),
            (140, 20),
            (300, 4),
            (u64::MAX - 2, 2),
            (0x20, 200),
        ];
        let all = || {
            ranges
                .into_iter()
                .zip(0..)
                .map(|(range, n)| symbol(range, n))
        };
        let map = SymbolMap::new(all().collect());
        for address in (0..400).chain([u64::MAX - 3, u64::MAX - 2, u64::MAX - 1, u64::MAX]) {
            let covering = all().filter(|s| (s.address..s.end()).contains(&address));
            let expected = covering.max_by_key(|s| (s.address, std::cmp::Reverse(s.name)));
            let found = map.at(address).map(|s| s.name);
            assert_eq!(found, expected.map(|s| s.name), "at {address}");
        }
    }

    #[test]
    fn a_file_is_read_once_and_only_with_its_own_id() {
        let path = std::env::current_exe().unwrap();
        let data = std::fs::read(&path).unwrap();
        let id = parse(&data)
            .unwrap()
            .build_id()
            .unwrap()
            .unwrap_or_default()
            .to_owned();
        let first = contents(&path, &id).unwrap();
        assert!(Rc::ptr_eq(&first, &contents(&path, &id).unwrap()));
        assert!(contents(&path, b"another").is_none());
        assert!(contents(Path::new("/nowhere"), &id).is_none());
    }

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
            "std::__glibcxx_rwlock_rdlock(pthread_rwlock_t*)",
            "__glibcxx_rwlock_wrlock",
            "std::__shared_mutex_pthread::lock_shared()",
            "std::shared_mutex::lock_shared()",
            "std::shared_lock<std::shared_mutex>::shared_lock(std::shared_mutex&)",
            "std::shared_timed_mutex::try_lock_shared_until<std::chrono::_V2::steady_clock>()",
            "std::_V2::condition_variable_any::_Unlock<std::mutex>::~_Unlock()",
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
    #[test]
    fn what_begins_programs_in_rust_is_known() {
        for begin in [
            "std::sys::backtrace::__rust_begin_short_backtrace",
            "std::sys_common::backtrace::__rust_begin_short_backtrace",
            "std::sys::backtrace::__rust_begin_short_backtrace::<hot::main::{closure#0}, ()>",
            "std::sys::backtrace::__rust_begin_short_backtrace::<fn() -> a::B, a::B>",
            "test::__rust_begin_short_backtrace",
            "std::rt::lang_start",
            "std::rt::lang_start::<()>::{closure#0}",
            "std::rt::lang_start_internal",
            "std::sys::thread::unix::Thread::new::thread_start",
            "<std::sys::pal::unix::thread::Thread>::new::thread_start",
        ] {
            assert!(begins_rust(begin), "{begin}");
        }
        for other in ["main", "hot::main", "pool::thread_start", "start_thread"] {
            assert!(!begins_rust(other), "{other}");
        }
    }
}
