//! Finding the caller of a frame by call frame information (`.eh_frame`).
//!
//! Shared objects carry this description for debuggers and exceptions. It says for each instruction
//! where the caller's frame begins, relative to a register, and where the return address is. Code
//! without a description is assumed to have frame pointers. The recorder finds the callers of its
//! own thread in this way, and the command those of threads of another process.

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, EndianSlice, NativeEndian, Register, RegisterRule,
    UnwindContext, UnwindContextStorage, UnwindSection, UnwindTableRow,
};

#[cfg(target_arch = "aarch64")]
const FRAME: Register = gimli::AArch64::X29;
#[cfg(target_arch = "aarch64")]
const STACK: Register = gimli::AArch64::SP;
#[cfg(not(target_arch = "aarch64"))]
const FRAME: Register = gimli::X86_64::RBP;
#[cfg(not(target_arch = "aarch64"))]
const STACK: Register = gimli::X86_64::RSP;

/// The registers that identify a frame, and from which the caller's frame can be found.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Registers {
    /// The program counter.
    pub pc: u64,
    /// The stack pointer.
    pub stack: u64,
    /// The frame pointer; 0: it is not known.
    pub frame: u64,
}

/// How to find the caller from one instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// There is no caller, or it cannot be found.
    End,
    /// The caller's frame begins `begin` bytes above the stack or the frame register. At `back`
    /// bytes from that beginning lies the return address, and at `frame` bytes the caller's frame
    /// register, if it was saved.
    Known {
        /// Whether that is above the frame register.
        is_by_frame: bool,
        /// How far above the register.
        begin: i32,
        /// Where the return address lies.
        back: i16,
        /// Where the frame register was saved.
        frame: Option<i16>,
    },
}

impl Rule {
    /// The rule for code without a description.
    pub const FRAME_POINTER: Rule = Rule::Known {
        is_by_frame: true,
        begin: 16,
        back: -8,
        frame: Some(-16),
    };

    /// The rule in a word that is never 0.
    pub fn to_word(self) -> u64 {
        match self {
            Rule::End => 1,
            Rule::Known {
                is_by_frame,
                begin,
                back,
                frame,
            } => {
                // All offsets are multiples of 8, so their lowest bits are free.
                let flags = 2 | u64::from(is_by_frame);
                let frame = frame.map_or(1, |at| at as u16);
                u64::from(begin as u32) << 32
                    | u64::from(back as u16 & !7 | flags as u16) << 16
                    | u64::from(frame)
            }
        }
    }

    /// The rule of such a word.
    pub fn of_word(word: u64) -> Self {
        if word == 1 {
            return Rule::End;
        }
        let (back, frame) = ((word >> 16) as u16, word as u16);
        Rule::Known {
            is_by_frame: back & 1 != 0,
            begin: (word >> 32) as i32,
            back: (back & !7) as i16,
            frame: (frame != 1).then_some(frame as i16),
        }
    }

    /// What a shared object's description says of the instruction at `pc`. `index`: the address of
    /// `.eh_frame_hdr`. `to_end` returns the object's bytes from an address on. `None`: there is no
    /// description of this instruction.
    pub fn described<'a>(
        pc: u64,
        index: u64,
        to_end: impl Fn(u64) -> Option<&'a [u8]>,
    ) -> Option<Rule> {
        let bases = BaseAddresses::default().set_eh_frame_hdr(index);
        let header = EhFrameHdr::new(to_end(index)?, NativeEndian);
        let header = header.parse(&bases, 8).ok()?;
        let gimli::Pointer::Direct(begin) = header.eh_frame_ptr() else {
            return None;
        };
        let bases = bases.set_eh_frame(begin);
        let section = EhFrame::new(to_end(begin)?, NativeEndian);
        let table = header.table()?;
        let entry = table.fde_for_address(&section, &bases, pc, Section::cie_from_offset);
        let entry = entry.ok()?;
        let mut context = UnwindContext::<usize, Storage>::new_in();
        let row = entry.unwind_info_for_address(&section, &bases, &mut context, pc);
        let back = entry.cie().return_address_register();
        Some(row.map_or(Rule::End, |row| of_row(row, back).unwrap_or(Rule::End)))
    }

    /// The registers in the caller; `None` if it cannot be found. `read` reads a word of the stack.
    pub fn caller(
        self,
        at: &Registers,
        mut read: impl FnMut(u64) -> Option<u64>,
    ) -> Option<Registers> {
        let Rule::Known {
            is_by_frame,
            begin,
            back,
            frame,
        } = self
        else {
            return None;
        };
        let base = if is_by_frame { at.frame } else { at.stack };
        let begin = base.wrapping_add_signed(begin.into());
        let mut read = |offset: i16| read(begin.wrapping_add_signed(offset.into()));
        let pc = without_signature(read(back)?);
        let frame = match frame {
            Some(offset) => read(offset)?,
            None => at.frame,
        };
        Some(Registers {
            pc,
            stack: begin,
            frame,
        })
    }
}

/// On aarch64, return addresses may carry a signature in bits that no address uses.
fn without_signature(pc: u64) -> u64 {
    match cfg!(target_arch = "aarch64") {
        true => pc & ((1 << 48) - 1),
        false => pc,
    }
}

type Section<'a> = EhFrame<EndianSlice<'a, NativeEndian>>;

/// Memory for reading one description: room for the registers that a function saves, and for the
/// rows that it remembers.
struct Storage;

impl UnwindContextStorage<usize> for Storage {
    type Rules = [(Register, RegisterRule<usize>); 24];
    type Stack = [UnwindTableRow<usize, Self>; 2];
}

/// The rule that a row of the description gives. `None`: it uses expressions or other registers,
/// which are not followed here.
fn of_row(row: &UnwindTableRow<usize, Storage>, back: Register) -> Option<Rule> {
    let CfaRule::RegisterAndOffset { register, offset } = *row.cfa() else {
        return None;
    };
    let is_by_frame = register == FRAME;
    if !is_by_frame && register != STACK {
        return None;
    }
    let short = |offset: i64| i16::try_from(offset).ok().filter(|at| at % 8 == 0);
    let RegisterRule::Offset(back) = row.register(back) else {
        return None;
    };
    let frame = match row.register(FRAME) {
        RegisterRule::Offset(offset) => Some(short(offset)?),
        RegisterRule::Undefined | RegisterRule::SameValue => None,
        _ => return None,
    };
    Some(Rule::Known {
        is_by_frame,
        begin: i32::try_from(offset).ok()?,
        back: short(back)?,
        frame,
    })
}
