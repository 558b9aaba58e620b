//! Each sequence alone, on an area and memory made by hand. The kernel does not take part.

use core::ptr::NonNull;

use super::*;
use crate::area::{Area, at};
use crate::probe::Sound;

/// An area with an ID that the test chooses.
#[repr(C, align(32))]
struct FakeArea([u32; 8]);

impl FakeArea {
    fn with_id(id: u32) -> Self {
        let mut words = [0; 8];
        words[at::MM_CID / 4] = id;
        FakeArea(words)
    }

    fn area(&mut self) -> Area {
        Area::at(NonNull::from(&mut self.0).cast()).unwrap()
    }

    /// The descriptor that the kernel would read.
    fn descriptor(&self) -> *const Descriptor {
        let word = at::SEQUENCE / 4;
        let address = u64::from(self.0[word]) | u64::from(self.0[word + 1]) << 32;
        core::ptr::with_exposed_provenance(address as usize)
    }
}

/// The kernel's layout of a descriptor.
#[repr(C)]
struct Descriptor {
    version: u32,
    flags: u32,
    begin: usize,
    length: usize,
    abort: usize,
}

const WORDS: usize = STRETCH / 8;

/// The slots of four IDs, near each other.
struct Memory(Vec<[u64; WORDS]>);

impl Memory {
    fn new() -> Self {
        Memory(vec![[0; WORDS]; 4])
    }

    fn slots(&mut self) -> Slots {
        Slots {
            base: NonNull::from(&mut *self.0).cast(),
            shift: STRETCH.ilog2(),
            limit: 4,
        }
    }
}

/// The words of an array that the linker has put together.
macro_rules! linked {
    ($start:ident, $stop:ident) => {{
        unsafe extern "C" {
            static $start: usize;
            static $stop: usize;
        }
        let (start, stop) = (&raw const $start, &raw const $stop);
        // SAFETY: the linker sets the two symbols around the words that the assembly put there.
        unsafe { core::slice::from_raw_parts(start, stop.offset_from_unsigned(start)) }
    }};
}

#[test]
fn debuggers_find_the_sequences() {
    let (mut area, mut memory) = (FakeArea::with_id(2), Memory::new());
    // SAFETY: memory and area made for this.
    assert!(unsafe { add::<Sound, 0>(area.area(), &memory.slots(), 0, 1) });
    let used = area.descriptor();
    let all = linked!(__start___rseq_cs_ptr_array, __stop___rseq_cs_ptr_array);
    assert!(all.contains(&used.addr()));
    // SAFETY: the sequence has just stored it.
    let used = unsafe { &*used };
    let exits = linked!(
        __start___rseq_exit_point_array,
        __stop___rseq_exit_point_array
    );
    assert_eq!(exits.len(), 2 * all.len());
    let own = [used.begin, used.begin + used.length];
    assert!(exits.chunks(2).any(|pair| pair == own));
}

#[derive(Clone, Copy, Debug)]
struct Slow;

// SAFETY: it restarts.
unsafe impl Probe for Slow {
    const DELAY: u16 = 100;
}

fn adds<P: Probe, const NEAR: usize>() {
    let (mut area, mut memory) = (FakeArea::with_id(2), Memory::new());
    let slots = memory.slots();
    for value in [5, u64::MAX, 1] {
        // SAFETY: memory and area made for this.
        assert!(unsafe { add::<P, NEAR>(area.area(), &slots, 8, value) });
    }
    assert_eq!(memory.0[2][..3], [0, 5, 0]);
    assert!([0, 1, 3].iter().all(|&id| memory.0[id] == [0; WORDS]));
}

#[test]
fn add_adds_to_the_slot_of_the_id() {
    adds::<Sound, 0>();
    adds::<Sound, 1>();
    adds::<Slow, 1>();
}

/// Checks that all sequences do nothing.
fn nothing_is_done<P: Probe>(area: &mut FakeArea) {
    let mut memory = Memory::new();
    let (area, slots) = (area.area(), memory.slots());
    let mut node = Node {
        next: core::ptr::null_mut(),
        depth: 7,
    };
    // SAFETY: memory and area made for this.
    unsafe {
        assert!(!add::<P, 0>(area, &slots, 0, 1));
        assert!(!add::<P, 1>(area, &slots, 0, 1));
        assert_eq!(store_if_zero::<P, 0>(area, &slots, 0, 1), None);
        assert_eq!(pop::<P>(area, &slots), None);
        let pushed = push::<P>(area, &slots, NonNull::from(&mut node), 9);
        assert_eq!(pushed, Pushed::Refused);
    }
    assert!(memory.0.iter().flatten().all(|&word| word == 0));
    assert_eq!(node.depth, 7);
}

#[test]
fn an_id_beyond_the_limit_touches_nothing() {
    nothing_is_done::<Sound>(&mut FakeArea::with_id(4));
    nothing_is_done::<Slow>(&mut FakeArea::with_id(u32::MAX));
}

#[test]
fn a_thread_that_is_not_registered_touches_nothing() {
    let mut area = FakeArea::with_id(1);
    for cpu in [-1i32, -2] {
        area.0[at::CPU_ID / 4] = cpu as u32;
        nothing_is_done::<Sound>(&mut area);
        nothing_is_done::<Slow>(&mut area);
        assert_eq!(area.area().momentary_id(), None);
    }
}

fn stores<P: Probe>() {
    let (mut area, mut memory) = (FakeArea::with_id(1), Memory::new());
    let slots = memory.slots();
    let mut store = |offset, new| {
        // SAFETY: memory and area made for this.
        let stored = unsafe { store_if_zero::<P, 0>(area.area(), &slots, offset, new) };
        assert!(stored.is_none_or(|slot| slot == slots.of(1)));
        stored.is_some()
    };
    assert!(store(24, 9));
    assert!(!store(24, 8));
    // This store closes the gate.
    assert!(store(0, 1));
    // SAFETY: as above.
    let stored = unsafe { store_if_zero::<P, 1>(area.area(), &slots, 8, 7) };
    assert_eq!(stored, None);
    assert_eq!(memory.0[1][..4], [1, 0, 0, 9]);
}

#[test]
fn a_word_is_stored_if_it_was_zero_and_the_gate_is_open() {
    stores::<Sound>();
    stores::<Slow>();
}

fn push_and_pop<P: Probe>() {
    let (mut area, mut memory) = (FakeArea::with_id(3), Memory::new());
    let slots = memory.slots();
    let mut nodes: [Node; 3] = core::array::from_fn(|_| Node {
        next: core::ptr::null_mut(),
        depth: 0,
    });
    let nodes: [NonNull<Node>; 3] = nodes.each_mut().map(NonNull::from);
    let area = area.area();
    // SAFETY: memory, area and nodes made for this.
    unsafe {
        assert_eq!(pop::<P>(area, &slots), None);
        assert_eq!(push::<P>(area, &slots, nodes[0], 2), Pushed::Done);
        assert_eq!(push::<P>(area, &slots, nodes[1], 2), Pushed::Done);
        assert_eq!(push::<P>(area, &slots, nodes[2], 2), Pushed::Full);
        assert_eq!((nodes[0].as_ref().depth, nodes[1].as_ref().depth), (1, 2));
        slots.of(3).cast::<u64>().write(1);
        assert_eq!(pop::<P>(area, &slots), None);
        assert_eq!(push::<P>(area, &slots, nodes[2], 9), Pushed::Refused);
        slots.of(3).cast::<u64>().write(0);
        assert_eq!(pop::<P>(area, &slots), Some(nodes[1]));
        assert_eq!(push::<P>(area, &slots, nodes[2], 2), Pushed::Done);
        assert_eq!(pop::<P>(area, &slots), Some(nodes[2]));
        assert_eq!(pop::<P>(area, &slots), Some(nodes[0]));
        assert_eq!(pop::<P>(area, &slots), None);
    }
}

#[test]
fn a_list_is_last_in_first_out_bounded_and_gated() {
    push_and_pop::<Sound>();
    push_and_pop::<Slow>();
}

#[test]
fn the_kernel_is_told_what_it_accepts() {
    let (mut area, mut memory) = (FakeArea::with_id(0), Memory::new());
    let slots = memory.slots();
    // SAFETY: memory and area made for this.
    assert!(unsafe { add::<Slow, 0>(area.area(), &slots, 0, 1) });
    let descriptor = area.descriptor();
    assert_eq!(descriptor.addr() % 32, 0);
    // SAFETY: a sequence has left its descriptor's address there, which is valid for as long as the
    // program runs.
    let (descriptor, signature) = unsafe {
        let descriptor = &*descriptor;
        let before_abort = core::ptr::with_exposed_provenance::<u32>(descriptor.abort - 4);
        (descriptor, before_abort.read_unaligned())
    };
    assert_eq!((descriptor.version, descriptor.flags), (0, 0));
    assert_eq!(signature, crate::area::SIGNATURE);
    assert!(
        (8..200).contains(&descriptor.length),
        "{}",
        descriptor.length
    );
    let inside = descriptor.begin..descriptor.begin + descriptor.length;
    assert!(!inside.contains(&descriptor.abort));
}
