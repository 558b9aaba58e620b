//! The sequences in aarch64 assembly. The parent module documents the sequences, the labels and the
//! invariants.
//!
//! Each function does what the function of the same name in `x86_64.rs` does; that file has the
//! contracts.
//!
//! The commit is always one store. The code before it only reads, or writes to a node that no other
//! thread sees yet.

use core::arch::asm;
use core::mem::offset_of;
use core::ptr::{self, NonNull};
use core::sync::atomic::AtomicU32;

use super::{CLOSED, DEPTH, GATE, HEAD, Knobs, NEXT, Node, Pushed, Slots, Trace, popped};
use crate::area::{Area, SIGNATURE, at};
use crate::probe::Probe;

/// A sequence: `$before` and `$commit` between begin and end, with the operands below and its own.
/// The delay of a [`Probe`] comes between `$before` and `$commit`.
///
/// `slot` is the address of the slot when `$before` starts. It is 0 at the end if the ID is not
/// below the limit, or the thread is not registered.
macro_rules! sequence {
    (
        $probe:ty, $area:expr, $slots:expr,
        [$($before:literal),* $(,)?], [$($commit:literal),* $(,)?],
        $slot:ident, $($operands:tt)*
    ) => {
        asm!(
            ".if {restart}",
            ".pushsection __rseq_cs, \"aw\", %progbits",
            ".balign 32",
            "77:",
            ".word 0, 0",
            ".quad 22f, 33f - 22f, 44f",
            ".popsection",
            // For debuggers: where descriptors are, and where sequences begin and are left. `R`:
            // kept by linkers that drop unused sections.
            ".pushsection __rseq_cs_ptr_array, \"awR\", %progbits",
            ".quad 77b",
            ".popsection",
            ".pushsection __rseq_exit_point_array, \"awR\", %progbits",
            ".quad 22f, 33f",
            ".popsection",
            "55:",
            "adrp {slot}, 77b",
            "add {slot}, {slot}, :lo12:77b",
            "str {slot}, [{area}, #{at_sequence}]",
            ".endif",
            "22:",
            "mov {slot}, xzr",
            // No CPU: not registered, and no ID either.
            "ldr {id:w}, [{area}, #{at_cpu_id}]",
            "tbnz {id:w}, #31, 33f",
            // Clears the upper half of `id`.
            "ldr {id:w}, [{area}, #{at_mm_cid}]",
            "cmp {id:w}, {limit:w}",
            "b.hs 33f",
            "lsl {slot}, {id}, {shift}",
            "add {slot}, {slot}, {base}",
            $($before,)*
            ".if {delay}",
            "mov {spin:w}, #{delay}",
            "88:",
            "subs {spin:w}, {spin:w}, #1",
            "b.ne 88b",
            ".endif",
            $($commit,)*
            "33:",
            ".if {restart}",
            ".pushsection __rseq_failure, \"ax\", %progbits",
            ".balign 4",
            // An instruction that traps, so that disassemblers stay in step.
            ".inst {signature}",
            "44:",
            "b 55b",
            ".popsection",
            ".endif",
            restart = const Knobs::<$probe>::RESTART,
            signature = const SIGNATURE,
            at_sequence = const at::SEQUENCE,
            at_cpu_id = const at::CPU_ID,
            at_mm_cid = const at::MM_CID,
            area = in(reg) $area.address(),
            base = in(reg) $slots.base.as_ptr(),
            shift = in(reg) u64::from($slots.shift),
            limit = in(reg) $slots.limit,
            slot = out(reg) $slot,
            id = out(reg) _,
            delay = const Knobs::<$probe>::DELAY,
            spin = out(reg) _,
            $($operands)*
            // No operand is in these two: if the linker puts a veneer between a branch and a
            // distant label, such as the abort handler's, the veneer may overwrite them.
            out("x16") _,
            out("x17") _,
            // Without `preserves_flags`: the block changes flags. It accesses memory, uses no
            // stack, and returns.
            options(nostack),
        )
    };
}

/// `NEAR` makes no difference: the shift is in a register in any case.
#[inline]
pub(in super::super) unsafe fn add<P: Probe, const NEAR: usize>(
    area: Area,
    slots: &Slots,
    offset: usize,
    value: u64,
) -> bool {
    let slot: *mut u8;
    // SAFETY: invariants 1 and 2, by the caller.
    unsafe {
        sequence!(P, area, slots, [], [
            "ldr {sum}, [{slot}, {offset}]",
            ".ifeq {restart}",
            // The defect loses updates. This widens the window for it.
            "yield",
            ".endif",
            "add {sum}, {sum}, {value}",
            "str {sum}, [{slot}, {offset}]",
        ], slot,
            offset = in(reg) offset,
            value = in(reg) value,
            sum = out(reg) _,
        );
    }
    !slot.is_null()
}

// The gate is read by `ldar`, which takes no offset. An acquiring load, so that the head is read
// after it; it pairs with the thief's release.
const _: () = assert!(GATE == 0);

#[inline]
pub(in super::super) unsafe fn store_if_zero<P: Probe, const GATED: usize>(
    area: Area,
    slots: &Slots,
    offset: usize,
    new: u64,
) -> Option<NonNull<u8>> {
    let slot: *mut u8;
    let found: u64;
    // SAFETY: invariants 1 and 2, by the caller.
    unsafe {
        sequence!(P, area, slots, [
            ".if {gated}",
            "mov {found}, #{closed}",
            "ldar {spin}, [{slot}]",
            "cbnz {spin}, 33f",
            ".endif",
            "ldr {found}, [{slot}, {offset}]",
            "cbnz {found}, 33f",
        ], [
            "str {new}, [{slot}, {offset}]",
        ], slot,
            gated = const GATED,
            closed = const CLOSED,
            offset = in(reg) offset,
            new = in(reg) new,
            found = out(reg) found,
        );
    }
    NonNull::new(slot).filter(|_| found == 0)
}

#[inline]
pub(in super::super) unsafe fn push<P: Probe>(
    area: Area,
    slots: &Slots,
    node: NonNull<Node>,
    most: usize,
) -> Pushed {
    let slot: *mut u8;
    let found: usize;
    let depth: usize;
    // SAFETY: invariants 1, 2 and 3, by the caller. The node is written before the commit, and
    // until then no other thread sees it.
    unsafe {
        sequence!(P, area, slots, [
            "mov {found}, #{closed}",
            "ldar {spin}, [{slot}]",
            "cbnz {spin}, 33f",
            "ldr {found}, [{slot}, #{head}]",
            "mov {depth}, xzr",
            "cbz {found}, 67f",
            "ldr {depth}, [{found}, #{at_depth}]",
            "67:",
            "add {depth}, {depth}, #1",
            "cmp {depth}, {most}",
            "b.hi 33f",
            "str {found}, [{node}, #{next}]",
            "str {depth}, [{node}, #{at_depth}]",
        ], [
            "str {node}, [{slot}, #{head}]",
        ], slot,
            head = const HEAD,
            next = const NEXT,
            at_depth = const DEPTH,
            closed = const CLOSED,
            node = in(reg) node.as_ptr(),
            most = in(reg) most,
            found = out(reg) found,
            depth = out(reg) depth,
        );
    }
    Pushed::of(slot, found, depth, most)
}

#[inline]
pub(in super::super) unsafe fn pop<P: Probe>(area: Area, slots: &Slots) -> Option<NonNull<Node>> {
    let slot: *mut u8;
    let found: *mut Node;
    // SAFETY: invariants 1, 2 and 3, by the caller. The head is a live node while no other thread
    // runs with this ID.
    unsafe {
        sequence!(P, area, slots, [
            "mov {found}, #{closed}",
            "ldar {spin}, [{slot}]",
            "cbnz {spin}, 33f",
            "ldr {found}, [{slot}, #{head}]",
            "cbz {found}, 33f",
            "ldr {below}, [{found}, #{next}]",
        ], [
            "str {below}, [{slot}, #{head}]",
        ], slot,
            head = const HEAD,
            next = const NEXT,
            closed = const CLOSED,
            found = out(reg) found,
            below = out(reg) _,
        );
    }
    popped(slot, found)
}

#[inline(never)]
pub(in super::super) unsafe fn wait<P: Probe>(
    area: Area,
    cpu: u32,
    watched: &AtomicU32,
    turns: u32,
    trace: &mut Trace,
) -> bool {
    let slot: *mut u8;
    // The address of a slot is computed and not used.
    let slots = &Slots {
        base: NonNull::dangling(),
        shift: 0,
        limit: u32::MAX,
    };
    // SAFETY: invariant 1, by the caller. Only `trace` is written, and only by this thread.
    unsafe {
        sequence!(P, area, slots, [
            "ldr {seen:w}, [{trace}, #{starts}]",
            "add {seen:w}, {seen:w}, #1",
            "str {seen:w}, [{trace}, #{starts}]",
            "cmp {seen:w}, #1",
            "b.ne 33f",
            "ldr {seen:w}, [{area}, #{at_cpu_id}]",
            "cmp {seen:w}, {cpu:w}",
            "b.ne 33f",
            "ldr {seen:w}, [{watched}]",
            "str {seen:w}, [{trace}, #{at_seen}]",
            "86:",
            "yield",
            "ldr {now:w}, [{watched}]",
            "cmp {now:w}, {seen:w}",
            "b.ne 87f",
            "subs {turns:w}, {turns:w}, #1",
            "b.ne 86b",
            "b 33f",
            "87:",
            "ldr {now:w}, [{trace}, #{commits}]",
            "add {now:w}, {now:w}, #1",
        ], [
            "str {now:w}, [{trace}, #{commits}]",
        ], slot,
            starts = const offset_of!(Trace, starts),
            at_seen = const offset_of!(Trace, seen),
            commits = const offset_of!(Trace, commits),
            trace = in(reg) ptr::from_mut(trace),
            watched = in(reg) watched.as_ptr(),
            cpu = in(reg) cpu,
            // Changed, but a sequence that starts again ends before it uses this.
            turns = inout(reg) turns => _,
            seen = out(reg) _,
            now = out(reg) _,
        );
    }
    !slot.is_null()
}
