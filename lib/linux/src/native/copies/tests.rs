//! The meeting page: where it is, and which memory passes for it. The tests of the crate `kinlock`
//! have two copies in one process.

use super::*;

/// Maps a page at `address`, if nothing is there.
fn occupy(address: usize, access: i32) -> bool {
    let (_, size) = place();
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: invariant 1.
    let mapped = unsafe {
        let at = ptr::without_provenance_mut(address);
        libc::mmap(at, size, access, flags, -1, 0)
    };
    mapped.addr() == address
}

fn free(address: usize, pages: usize) {
    let (_, size) = place();
    // SAFETY: the test has mapped them.
    unsafe { libc::munmap(ptr::without_provenance_mut(address), pages * size) };
}

#[test]
fn the_page_has_one_address_in_a_process() {
    let (address, size) = place();
    assert_eq!((address, size), place());
    assert_eq!(address % size, 0);
    assert!(
        ADDRESSES.contains(&(address as u64)) && ADDRESSES.contains(&((address + size) as u64))
    );
    let page = meeting_page().expect("it can be mapped");
    assert_eq!(ptr::from_ref(page).addr(), address);
    assert!(is_meeting(address, size), "another copy finds it");
    assert_eq!(map(address, size), Some(false), "it is not mapped again");
}

#[test]
fn what_others_have_mapped_is_no_meeting_page() {
    // Below the addresses at which the page may be, so that no other test uses them.
    let (at, size) = (ADDRESSES.start as usize - (1 << 20), place().1);
    let read_write = libc::PROT_READ | libc::PROT_WRITE;
    assert!(!is_meeting(at, size), "nothing is there");
    assert!(occupy(at, libc::PROT_NONE));
    assert!(!is_meeting(at, size), "it cannot be read");
    free(at, 1);
    assert!(
        occupy(at, read_write) && is_meeting(at, size),
        "just mapped"
    );
    assert!(occupy(at + size, read_write));
    assert!(!is_meeting(at, size), "it is a part of something larger");
    free(at, 2);
    assert!(occupy(at - size, read_write) && occupy(at, read_write));
    assert!(!is_meeting(at, size), "the same");
    // SAFETY: it is mapped, aligned and zero.
    unsafe { &*ptr::with_exposed_provenance::<AtomicU64>(at) }.store(MAGIC + 1, Relaxed);
    free(at - size, 1);
    assert!(!is_meeting(at, size), "it holds something else");
    free(at, 1);
}

/// A test of its own, since a user-mode emulator treats a page that cannot be read as unmapped.
#[test]
fn a_page_beside_one_that_cannot_be_read_is_no_meeting_page() {
    let (at, size) = (ADDRESSES.start as usize - (3 << 20), place().1);
    let read_write = libc::PROT_READ | libc::PROT_WRITE;
    for beside in [at - size, at + size] {
        assert!(occupy(at, read_write) && is_meeting(at, size), "alone");
        assert!(occupy(beside, libc::PROT_NONE));
        assert!(!is_meeting(at, size), "it is a part of something larger");
        free(at, 1);
        free(beside, 1);
    }
}

#[test]
fn a_copy_is_listed_once_and_the_last_is_refused() {
    extern "C" fn other(place: &mut Place) {
        place.slot = 7;
    }
    static TABLES: Tables = Tables::new(TABLE.waiters());
    let listed = || {
        TABLES
            .copies
            .iter()
            .filter(|entry| entry.load(Relaxed) != 0)
    };
    assert!(TABLES.enlist(place_of_thread) && TABLES.enlist(place_of_thread));
    assert_eq!(listed().count(), 1);
    TABLES.copies[1..]
        .iter()
        .for_each(|entry| entry.store(1, Relaxed));
    assert!(!TABLES.enlist(other) && TABLES.enlist(place_of_thread));
    assert_eq!(listed().count(), COPIES);
}

/// The pages next to it are mapped, so that only the thread that mapped it may write the number.
#[test]
fn a_page_whose_maker_is_held_up_is_waited_for() {
    let (at, size) = (ADDRESSES.start as usize - (2 << 20), place().1);
    let access = libc::PROT_READ | libc::PROT_WRITE;
    assert!(map(at, size) == Some(true) && occupy(at - size, access) && occupy(at + size, access));
    // SAFETY: it is mapped, aligned and zero.
    let magic = unsafe { &*ptr::with_exposed_provenance::<AtomicU64>(at) };
    // On a busy machine the thread that writes the number may be held up for too long.
    let is_found = (0..20).any(|_| {
        magic.store(0, Relaxed);
        std::thread::scope(|s| {
            s.spawn(|| {
                std::thread::sleep(std::time::Duration::from_millis(2));
                magic.store(MAGIC, Release);
            });
            is_meeting(at, size)
        })
    });
    assert!(is_found);
    free(at - size, 3);
}

#[test]
fn copies_with_other_meanings_are_of_another_kind() {
    assert_eq!(kind(MEANING), KIND);
    assert_ne!(kind(MEANING + 1), KIND);
}

#[test]
fn a_thread_has_one_number_and_each_has_another() {
    let page = Meeting::NEW;
    let first = page.number_of_thread();
    assert_eq!((first, page.number_of_thread()), (1, 1));
    // The threads run one after the other, so that they may reuse the same memory.
    let number = || std::thread::scope(|s| s.spawn(|| page.number_of_thread()).join());
    let others = [(); 3].map(|()| number().expect("it has a number"));
    assert_eq!(others, [3, 5, 7]);
    // SAFETY: invariant 7, and no copy uses this page.
    unsafe { libc::pthread_key_delete(page.key().expect("a test has few keys")) };
}
