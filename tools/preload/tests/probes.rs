//! The probes of the library, as tools find them: by notes in its file.

mod support;

use std::collections::BTreeSet;
use std::fs;
use support::library;

fn number(bytes: &[u8], at: usize, size: usize) -> usize {
    let bytes = bytes[at..at + size].iter().rev();
    bytes.fold(0, |number, &byte| number << 8 | usize::from(byte))
}

fn text(bytes: &[u8]) -> &str {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap();
    std::str::from_utf8(&bytes[..end]).unwrap()
}

/// The name, the address and the bytes of each section.
fn sections(file: &[u8]) -> Vec<(&str, usize, &[u8])> {
    let (at, size) = (number(file, 40, 8), number(file, 58, 2));
    let headers: Vec<&[u8]> = file[at..]
        .chunks_exact(size)
        .take(number(file, 60, 2))
        .collect();
    let names = number(headers[number(file, 62, 2)], 24, 8);
    let sections = headers.iter().map(|header| {
        let name = text(&file[names + number(header, 0, 4)..]);
        // A section of zeros has no bytes in the file.
        let length = if number(header, 4, 4) == 8 {
            0
        } else {
            number(header, 32, 8)
        };
        let bytes = &file[number(header, 24, 8)..][..length];
        (name, number(header, 16, 8), bytes)
    });
    sections.collect()
}

#[test]
fn probes_have_the_names_of_the_c_librarys() {
    let file = fs::read(library()).unwrap();
    let all = sections(&file);
    let named = |name: &str| all.iter().find(|section| section.0 == name).copied();
    let (_, _, mut notes) = named(".note.stapsdt").unwrap();
    let (_, base, _) = named(".stapsdt.base").unwrap();
    let nop = if cfg!(target_arch = "x86_64") {
        &[0x90][..]
    } else {
        &[0x1f, 0x20, 0x03, 0xd5]
    };
    let mut names = BTreeSet::new();
    while !notes.is_empty() {
        let (size, rest) = (number(notes, 4, 4), &notes[20..]);
        assert_eq!((text(&notes[12..]), number(notes, 8, 4)), ("stapsdt", 3));
        let place = number(rest, 0, 8);
        assert_eq!(number(rest, 8, 8), base);
        let strings: Vec<&str> = rest[24..size]
            .splitn(4, |&byte| byte == 0)
            .map(|part| std::str::from_utf8(part).unwrap().trim_end_matches('\0'))
            .collect();
        let [provider, name, arguments, _] = strings[..] else {
            panic!("{strings:?}");
        };
        assert_eq!(provider, "libpthread");
        let count = if name == "cond_wait" { 2 } else { 1 };
        assert_eq!(
            arguments
                .split(' ')
                .filter(|one| one.starts_with("8@"))
                .count(),
            count,
            "{name}"
        );
        let code = all
            .iter()
            .find(|(_, start, bytes)| (*start..start + bytes.len()).contains(&place));
        let (_, start, bytes) = code.unwrap_or_else(|| panic!("{name} is nowhere: {place:#x}"));
        assert!(
            bytes[place - start..].starts_with(nop),
            "{name}: {place:#x}"
        );
        names.insert(name);
        notes = &rest[size.next_multiple_of(4)..];
    }
    let expected = "cond_broadcast cond_destroy cond_init cond_signal cond_wait mutex_acquired \
        mutex_clocklock_entry mutex_destroy mutex_entry mutex_init mutex_release \
        mutex_timedlock_acquired mutex_timedlock_entry rdlock_acquire_read rdlock_entry \
        rwlock_destroy rwlock_unlock wrlock_acquire_write wrlock_entry";
    assert_eq!(names, expected.split_whitespace().collect());
}
