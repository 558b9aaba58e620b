//! The sequences in x86-64 assembly. The parent module documents the sequences, the labels and the
//! invariants.
//!
//! An x86-64 processor takes interrupts between instructions only. So `add [slot], value` without a
//! lock prefix is a read-modify-write that no other thread of this CPU can divide, and serves as a
//! commit.

use core::arch::asm;
use core::mem::offset_of;
use core::ptr::{self, NonNull};
use core::sync::atomic::AtomicU32;

use super::{CLOSED, DEPTH, GATE, HEAD, Knobs, NEXT, Node, Pushed, STRETCH, Slots, Trace, popped};
use crate::area::{Area, SIGNATURE, at};
use crate::probe::Probe;

/// A sequence: `$before` and `$commit` between begin and end, with the operands below and its own.
/// The delay of a [`Probe`] comes between `$before` and `$commit`.
///
/// `slot` is the address of the slot when `$before` starts. It is 0 at the end if the ID is not
/// below the limit, or the thread is not registered. The base of `fs` is the thread pointer.
///
/// `$near` = 1: invariant 4 holds. A shift by a constant saves an addition a load and a cycle.
macro_rules! sequence {
    (
        $near:expr, $probe:ty, $area:expr, $slots:expr,
        [$($before:literal),* $(,)?], [$($commit:literal),* $(,)?],
        $slot:ident, $($operands:tt)*
    ) => {
        asm!(
            ".if {restart}",
            ".pushsection __rseq_cs, \"aw\", @progbits",
            ".balign 32",
            "77:",
            ".long 0, 0",
            ".quad 22f, 33f - 22f, 44f",
            ".popsection",
            // For debuggers: where descriptors are, and where sequences begin and are left. `R`:
            // kept by linkers that drop unused sections.
            ".pushsection __rseq_cs_ptr_array, \"awR\", @progbits",
            ".quad 77b",
            ".popsection",
            ".pushsection __rseq_exit_point_array, \"awR\", @progbits",
            ".quad 22f, 33f",
            ".popsection",
            "55:",
            "lea {slot}, [rip + 77b]",
            "mov qword ptr fs:[{area} + {at_sequence}], {slot}",
            ".endif",
            "22:",
            // No CPU: not registered, and no ID either.
            "cmp dword ptr fs:[{area} + {at_cpu_id}], 0",
            "jl 66f",
            // Clears the upper half of `slot`.
            "mov {slot:e}, dword ptr fs:[{area} + {at_mm_cid}]",
            "cmp {slot:e}, dword ptr [{slots} + {limit}]",
            "jae 66f",
            ".if {near}",
            "shl {slot}, {near}",
            ".else",
            "mov ecx, dword ptr [{slots} + {shift}]",
            "shl {slot}, cl",
            ".endif",
            "add {slot}, qword ptr [{slots} + {base}]",
            $($before,)*
            ".if {delay}",
            "mov {spin:e}, {delay}",
            "88:",
            "dec {spin:e}",
            "jnz 88b",
            ".endif",
            $($commit,)*
            "33:",
            ".pushsection __rseq_failure, \"ax\", @progbits",
            "66:",
            "xor {slot:e}, {slot:e}",
            "jmp 33b",
            ".if {restart}",
            // The signature as the operand of an undefined instruction, so that disassemblers stay
            // in step.
            ".byte 0x0f, 0xb9, 0x3d",
            ".long {signature}",
            "44:",
            "jmp 55b",
            ".endif",
            ".popsection",
            restart = const Knobs::<$probe>::RESTART,
            signature = const SIGNATURE,
            at_sequence = const at::SEQUENCE,
            at_cpu_id = const at::CPU_ID,
            at_mm_cid = const at::MM_CID,
            area = in(reg) $area.distance(),
            // In memory the fields take one register together, so that fewer values are saved
            // around a long sequence.
            slots = in(reg) ptr::from_ref::<Slots>($slots),
            base = const offset_of!(Slots, base),
            limit = const offset_of!(Slots, limit),
            shift = const offset_of!(Slots, shift),
            near = const $near * STRETCH.ilog2() as usize,
            slot = out(reg) $slot,
            delay = const Knobs::<$probe>::DELAY,
            spin = out(reg) _,
            $($operands)*
            out("ecx") _,
            // Without `preserves_flags`: the block changes flags. It accesses memory, uses no
            // stack, and returns.
            options(nostack),
        )
    };
}

/// Adds `value` to the word at `offset` of the slot, wrapping. Returns false if there is no slot:
/// the ID is not below the limit, or the thread is not registered.
///
/// # Safety
///
/// Invariants 1 and 2; with `NEAR` = 1 also 4; `offset` is a multiple of 8 and `offset + 8` is at
/// most the size of a slot.
#[inline]
pub(in super::super) unsafe fn add<P: Probe, const NEAR: usize>(
    area: Area,
    slots: &Slots,
    offset: usize,
    value: u64,
) -> bool {
    let slot: *mut u8;
    // SAFETY: invariants 1, 2 and, with `NEAR` = 1, 4, by the caller.
    unsafe {
        sequence!(NEAR, P, area, slots, [], [
            ".if {restart}",
            "add qword ptr [{slot} + {offset}], {value}",
            ".else",
            // The defect loses updates, so the addition must take more than one instruction.
            "mov {spin}, qword ptr [{slot} + {offset}]",
            "pause",
            "add {spin}, {value}",
            "mov qword ptr [{slot} + {offset}], {spin}",
            ".endif",
        ], slot,
            offset = in(reg) offset,
            value = in(reg) value,
        );
    }
    !slot.is_null()
}

/// Stores `new` in the word at `offset` of the slot if that holds 0 and, with `GATED` = 1, the gate
/// is open. Returns the slot if the word was stored.
///
/// # Safety
///
/// Invariants 1 and 2; `offset` is a multiple of 8 and `offset + 8` is at most the size of a slot.
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
        sequence!(0, P, area, slots, [
            ".if {gated}",
            "mov {found:e}, {closed}",
            "cmp qword ptr [{slot} + {gate}], 0",
            "jne 33f",
            ".endif",
            "mov {found}, qword ptr [{slot} + {offset}]",
            "test {found}, {found}",
            "jnz 33f",
        ], [
            "mov qword ptr [{slot} + {offset}], {new}",
        ], slot,
            gated = const GATED,
            gate = const GATE,
            closed = const CLOSED,
            offset = in(reg) offset,
            new = in(reg) new,
            found = out(reg) found,
        );
    }
    NonNull::new(slot).filter(|_| found == 0)
}

/// Pushes `node` on the list of the slot, unless that has `most` nodes already.
///
/// # Safety
///
/// Invariants 1, 2, 3 and 4; no other thread accesses `node`.
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
    // SAFETY: invariants 1, 2, 3 and 4, by the caller. The node is written before the commit, and
    // until then no other thread sees it.
    unsafe {
        sequence!(1, P, area, slots, [
            "mov {found:e}, {closed}",
            "cmp qword ptr [{slot} + {gate}], 0",
            "jne 33f",
            "mov {found}, qword ptr [{slot} + {head}]",
            "xor {depth:e}, {depth:e}",
            "test {found}, {found}",
            "jz 67f",
            "mov {depth}, qword ptr [{found} + {at_depth}]",
            "67:",
            "inc {depth}",
            "cmp {depth}, {most}",
            "ja 33f",
            "mov qword ptr [{node} + {next}], {found}",
            "mov qword ptr [{node} + {at_depth}], {depth}",
        ], [
            "mov qword ptr [{slot} + {head}], {node}",
        ], slot,
            gate = const GATE,
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

/// Pops the head of the list of the slot.
///
/// # Safety
///
/// Invariants 1, 2, 3 and 4.
#[inline]
pub(in super::super) unsafe fn pop<P: Probe>(area: Area, slots: &Slots) -> Option<NonNull<Node>> {
    let slot: *mut u8;
    let found: *mut Node;
    // SAFETY: invariants 1, 2, 3 and 4, by the caller. The head is a live node while no other
    // thread runs with this ID.
    unsafe {
        sequence!(1, P, area, slots, [
            "mov {found:e}, {closed}",
            "cmp qword ptr [{slot} + {gate}], 0",
            "jne 33f",
            "mov {found}, qword ptr [{slot} + {head}]",
            "test {found}, {found}",
            "jz 33f",
            "mov {below}, qword ptr [{found} + {next}]",
        ], [
            "mov qword ptr [{slot} + {head}], {below}",
        ], slot,
            gate = const GATE,
            head = const HEAD,
            next = const NEXT,
            closed = const CLOSED,
            found = out(reg) found,
            below = out(reg) _,
        );
    }
    popped(slot, found)
}

/// Waits inside a sequence until the word at `watched` changes, for `turns` turns of a loop at
/// most, if the thread runs on the CPU `cpu`. A sequence that starts again ends at once. If the
/// word has changed and the sequence still goes on, it commits. Returns false if the thread has no
/// ID.
///
/// # Safety
///
/// Invariant 1.
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
        sequence!(0, P, area, slots, [
            "inc dword ptr [{trace} + {starts}]",
            "cmp dword ptr [{trace} + {starts}], 1",
            "jne 33f",
            "cmp dword ptr fs:[{area} + {at_cpu_id}], {cpu:e}",
            "jne 33f",
            "mov {seen:e}, dword ptr [{watched}]",
            "mov dword ptr [{trace} + {at_seen}], {seen:e}",
            "86:",
            "pause",
            "cmp dword ptr [{watched}], {seen:e}",
            "jne 87f",
            "dec {turns:e}",
            "jnz 86b",
            "jmp 33f",
            "87:",
        ], [
            "inc dword ptr [{trace} + {commits}]",
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
        );
    }
    !slot.is_null()
}
