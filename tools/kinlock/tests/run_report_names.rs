//! `kinlock run --report` on stripped programs: names from where debuggers find them, and what to
//! install if there are none.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use support::{compiled, kinlock, list, says, says_wrapped, text};
use tempfile::TempDir;

const SOURCE: &str = r#"
    #include <pthread.h>
    static pthread_mutex_t lock_of_it = PTHREAD_MUTEX_INITIALIZER;
    char large[1 << 20];
    __attribute__((noinline)) static void takes_it(void) {
        pthread_mutex_lock(&lock_of_it), pthread_mutex_unlock(&lock_of_it);
        __asm__ volatile("");
    }
    int main(void) { for (int i = 0; i < 100; i++) takes_it(); }
"#;

/// A folder with a stripped program, and with what was stripped from it.
struct Place {
    folder: TempDir,
    program: PathBuf,
    apart: PathBuf,
}

fn done(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
}

impl Place {
    fn new(flags: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let flags = format!("-O1 -g -pthread {flags}");
        let program = compiled(folder.path(), "apart", &flags, SOURCE);
        let apart = folder.path().join("what-was-stripped");
        let mut keep = Command::new("objcopy");
        done(keep.arg("--only-keep-debug").arg(&program).arg(&apart));
        done(Command::new("strip").arg(&program));
        Place {
            folder,
            program,
            apart,
        }
    }

    /// Adds a link to the program that names the file with what was stripped, as it is called now.
    fn link(&self) {
        let link = format!("--add-gnu-debuglink={}", self.apart.display());
        done(Command::new("objcopy").arg(link).arg(&self.program));
    }

    /// The report as text and as JSON, with this folder as the cache of debuginfod.
    fn report(&self, cache: &Path) -> (String, Value) {
        let json = self.folder.path().join("json");
        let mut command = kinlock();
        command.env("DEBUGINFOD_CACHE_PATH", cache);
        command.args(["run", "--report", "--json"]).arg(&json);
        let output = command.arg("--").arg(&self.program).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let report = serde_json::from_str(&fs::read_to_string(json).unwrap());
        (String::from_utf8(output.stderr).unwrap(), report.unwrap())
    }

    fn has_names(&self, cache: &Path) {
        let (table, report) = self.report(cache);
        let mut lines = SOURCE.lines();
        let line = lines.position(|line| line.contains("_lock(&")).unwrap() + 1;
        says(
            &table,
            &["lock_of_it", &format!("takes_it (apart.c:{line})")],
        );
        assert!(!self.is_stripped(&report), "{report:#}");
        assert!(!table.contains("apart+0x"), "{table}");
    }

    fn has_no_names(&self, cache: &Path) {
        let (table, report) = self.report(cache);
        let expected = format!("stripped, so without names: {};", self.program.display());
        says_wrapped(&table, &["apart+0x", &expected]);
        assert!(self.is_stripped(&report), "{report:#}");
    }

    fn is_stripped(&self, report: &Value) -> bool {
        let mut files = list(&report["processes"][0]["stripped_files"]).iter();
        let own = self.program.to_str();
        files.any(|stripped| stripped["file"].as_str() == own)
    }

    fn build_id(&self) -> String {
        let output = Command::new("readelf")
            .arg("-n")
            .arg(&self.program)
            .output();
        let text = String::from_utf8(output.unwrap().stdout).unwrap();
        let id = text.split("Build ID: ").nth(1).expect("it has an ID");
        id.split_whitespace().next().unwrap().to_owned()
    }
}

const NOWHERE: &str = "/nonexistent";

#[test]
fn what_was_stripped_is_found_beside_the_file_and_in_the_folder_for_it() {
    // With a build ID, and with a checksum alone.
    for flags in ["-Wl,--build-id", "-Wl,--build-id=none"] {
        let place = Place::new(flags);
        place.has_no_names(Path::new(NOWHERE));
        place.link();
        place.has_names(Path::new(NOWHERE));
        let folder = place.folder.path().join(".debug");
        fs::create_dir(&folder).unwrap();
        fs::rename(&place.apart, folder.join("what-was-stripped")).unwrap();
        place.has_names(Path::new(NOWHERE));
    }
}

#[test]
fn what_was_stripped_from_another_build_is_not_taken_for_it() {
    for flags in ["-Wl,--build-id", "-Wl,--build-id=none"] {
        let place = Place::new(flags);
        place.link();
        let other = Place::new(&format!("{flags} -DOTHER -O2"));
        let mut changed = fs::read(&other.apart).unwrap();
        changed.push(0);
        fs::write(&place.apart, changed).unwrap();
        if !flags.contains("none") {
            assert_ne!(place.build_id(), other.build_id());
        }
        place.has_no_names(Path::new(NOWHERE));
    }
}

#[test]
fn the_cache_of_debuginfod_is_used_where_it_is() {
    let place = Place::new("-Wl,--build-id");
    let cache = place.folder.path().join("cache");
    let entry = cache.join(place.build_id());
    fs::create_dir_all(&entry).unwrap();
    // An empty file in the cache means that no server has the information. A proxy may have sent a
    // page instead.
    for text in ["", "a page of a proxy"] {
        fs::write(entry.join("debuginfo"), text).unwrap();
        place.has_no_names(&cache);
    }
    fs::copy(&place.apart, entry.join("debuginfo")).unwrap();
    place.has_names(&cache);
    // Such a page does not hide the file next to the program.
    fs::write(entry.join("debuginfo"), "a page of a proxy").unwrap();
    place.link();
    place.has_names(&cache);
}

/// The loader knows a program whose segments are far apart by several ranges of addresses.
#[test]
fn a_program_with_gaps_has_names() {
    let folder = tempfile::tempdir().unwrap();
    for flags in ["", "-Wl,-z,max-page-size=0x200000", "-Wl,--build-id=none"] {
        let flags = format!("-O1 -g -pthread {flags}");
        let program = compiled(folder.path(), "gap", &flags, SOURCE);
        let mut command = kinlock();
        let output = command.args(["run", "--report"]).arg(program).output();
        let output = output.unwrap();
        let table = text(&output.stderr);
        assert!(output.status.success(), "{output:?}");
        says(table, &["lock_of_it", "takes_it (gap.c:"]);
        assert!(!table.contains("no names from"), "{table}");
    }
}

const LIBRARY: &str = r#"
    #include <pthread.h>
    static pthread_mutex_t lock_of_library = PTHREAD_MUTEX_INITIALIZER;
    void takes_it(void) {
        pthread_mutex_lock(&lock_of_library), pthread_mutex_unlock(&lock_of_library);
    }
"#;

/// Loads the library that lies in a folder.
const PROGRAM: &str = r#"
    #include <dlfcn.h>
    #include <unistd.h>
    int main(int count, char **words) {
        void *library = chdir(words[1]) ? 0 : dlopen("./library.so", RTLD_NOW);
        void (*takes_it)(void) = library ? dlsym(library, "takes_it") : 0;
        for (int i = 0; takes_it && i < 10; i++) takes_it();
        return !takes_it;
    }
"#;

/// The loader knows a library by the path by which it was loaded, which may be relative.
#[test]
fn a_library_with_a_relative_path_has_names() {
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let flags = "-shared -fPIC -Wl,--build-id=none -pthread";
    compiled(folder.path(), "library.so", flags, LIBRARY);
    let program = compiled(folder.path(), "program", "-w -pthread -ldl", PROGRAM);
    let json = folder.path().join("json");
    let mut command = kinlock();
    command.current_dir(&other);
    command.args(["run", "--report", "--json"]).arg(&json);
    let output = command.arg(program).arg(folder.path()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    let locks = list(&report["processes"][0]["locks"]).iter();
    let names: Vec<_> = locks.map(|lock| lock["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["lock_of_library"]);
}

/// The program headers of a library may be anywhere in its file, at another distance from its
/// beginning than in memory.
#[test]
fn a_library_with_moved_headers_is_survived() {
    let folder = tempfile::tempdir().unwrap();
    let flags = "-O1 -shared -fPIC -pthread -Wl,-z,max-page-size=0x200000";
    let library = compiled(folder.path(), "library.so", flags, LIBRARY);
    let program = compiled(folder.path(), "program", "-w -pthread -ldl", PROGRAM);
    let moved = with_moved_headers(fs::read(&library).unwrap());
    fs::remove_file(&library).unwrap();
    fs::write(&library, moved).unwrap();
    // The loader accepts the library.
    done(Command::new(&program).arg(folder.path()));
    let mut command = kinlock();
    command.args(["run", "--report"]).arg(program);
    done(command.arg(folder.path()));
}

/// Moves the program headers of an ELF file to its end, with a segment that loads them. That
/// segment replaces one that is not needed.
fn with_moved_headers(mut file: Vec<u8>) -> Vec<u8> {
    const ENTRY: usize = 56;
    const LOAD: u32 = 1;
    const NOT_NEEDED: [u32; 2] = [4, 0x6474_e553];
    let number =
        |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let kind = |entry: &[u8]| u32::from_le_bytes(entry[..4].try_into().unwrap());
    let begin = number(&file, 32) as usize;
    let count = usize::from(u16::from_le_bytes([file[56], file[57]]));
    let mut entries: Vec<Vec<u8>> = file[begin..begin + count * ENTRY]
        .chunks(ENTRY)
        .map(<[u8]>::to_vec)
        .collect();
    let spare = entries
        .iter()
        .position(|entry| NOT_NEEDED.contains(&kind(entry)));
    entries.remove(spare.expect("a segment that is not needed"));
    file.resize(file.len().next_multiple_of(4096), 0);
    let at = file.len() as u64;
    let loaded = entries.iter().filter(|entry| kind(entry) == LOAD);
    let ends = loaded.map(|entry| number(entry, 16) + number(entry, 40));
    let address = ends.max().unwrap().next_multiple_of(4096);
    let size = (count * ENTRY) as u64;
    let mut new = Vec::new();
    new.extend(LOAD.to_le_bytes());
    new.extend(4_u32.to_le_bytes());
    for word in [at, address, address, size, size, 4096] {
        new.extend(word.to_le_bytes());
    }
    let last = entries.iter().rposition(|entry| kind(entry) == LOAD);
    entries.insert(last.unwrap() + 1, new);
    file.extend(entries.concat());
    file[32..40].copy_from_slice(&at.to_le_bytes());
    file
}
