//! Probes for tools such as bpftrace, perf and SystemTap: USDT, as the C library has them.
//!
//! A probe is one `nop` in the code, and a note in the file that says where it is, what it is
//! called and which register has its argument. A tool that traces the probe puts a breakpoint in
//! place of the `nop`. The note is not loaded into memory.
//!
//! # Invariant cited by `SAFETY` comments
//!
//! 1. A `nop` has no effect, and the directives around it write to sections of their own.

/// A probe of the provider `libpthread`, with the addresses of one or two objects: references or
/// pointers.
#[macro_export]
macro_rules! probe {
    ($name:literal, $object:expr) => {{
        let object: *const _ = $object;
        let object = object.addr();
        $crate::probe!(@ $name, "8@{0}", object)
    }};
    ($name:literal, $object:expr, $other:expr) => {{
        let (object, other): (*const _, *const _) = ($object, $other);
        let (object, other) = (object.addr(), other.addr());
        $crate::probe!(@ $name, "8@{0} 8@{1}", object, other)
    }};
    (@ $name:literal, $arguments:literal, $($object:ident),*) => {{
        // Tools know the names that registers have in this syntax.
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: invariant 1.
        unsafe {
            $crate::probe!(% (nostack, att_syntax) $name, $arguments, $($object),*)
        }
        #[cfg(all(target_arch = "aarch64", not(miri)))]
        // SAFETY: invariant 1.
        unsafe {
            $crate::probe!(% (nostack) $name, $arguments, $($object),*)
        }
        #[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
        let _ = ($($object),*);
    }};
    (% ($($option:ident),*) $name:literal, $arguments:literal, $($object:ident),*) => {
        ::core::arch::asm!(
            // Each probe has its own label, so that the linker drops the note if it drops the code.
            // Tools warn of notes whose code is gone.
            ".ifndef kinlock_probes",
            ".set kinlock_probes, 0",
            ".endif",
            ".set kinlock_probes, kinlock_probes + 1",
            ".altmacro",
            ".macro kinlock_probe number",
            ".Lkinlock_probe_\\number: nop",
            ".pushsection .note.stapsdt, \"o\", %note, .Lkinlock_probe_\\number",
            ".balign 4",
            ".4byte 992f - 991f, 994f - 993f, 3",
            "991: .asciz \"stapsdt\"",
            "992: .balign 4",
            "993: .8byte .Lkinlock_probe_\\number, _.stapsdt.base, 0",
            ".asciz \"libpthread\"",
            concat!(".asciz \"", $name, "\""),
            concat!(".asciz \"", $arguments, "\""),
            "994: .balign 4",
            ".popsection",
            ".endm",
            "kinlock_probe %kinlock_probes",
            ".purgem kinlock_probe",
            ".noaltmacro",
            // The address of this symbol tells a tool how far a file was moved after it was linked.
            ".ifndef _.stapsdt.base",
            ".pushsection .stapsdt.base, \"aGR\", %progbits, .stapsdt.base, comdat",
            ".weak _.stapsdt.base",
            ".hidden _.stapsdt.base",
            "_.stapsdt.base: .space 1",
            ".size _.stapsdt.base, 1",
            ".popsection",
            ".endif",
            $(in(reg) $object,)*
            options(nomem, preserves_flags), options($($option),*),
        )
    };
}
