//! Whether a machine is virtual.
//!
//! # Invariants
//!
//! 1. Every x86_64 processor has the `cpuid` instruction and its leaf 1.

use super::walk::Files;

/// Whether this machine is virtual, as far as that can be detected.
///
/// On x86_64 the processor tells; elsewhere the firmware's tables do, read through `files`.
pub(crate) fn this_machine_is_virtual(files: &impl Files) -> bool {
    if cfg!(target_arch = "x86_64") {
        processor_is_virtual()
    } else {
        firmware_is_virtual(files)
    }
}

/// Whether the firmware's tables in `files` say that this is a virtual machine.
pub(crate) fn firmware_is_virtual(files: &impl Files) -> bool {
    let exists = |path: &str| files.open(format_args!("{path}")).is_some();
    if exists("hypervisor/type") || exists("firmware/devicetree/base/hypervisor/compatible") {
        return true;
    }
    let product = |names: &str| starts_with(files, "class/dmi/id/product_name", names);
    let vendor = |names: &str| starts_with(files, "class/dmi/id/sys_vendor", names);
    PRODUCTS.iter().any(|name| product(name))
        || VENDORS.iter().any(|name| vendor(name))
        || (vendor("Amazon EC2") && !is_bare_metal_instance(files))
}

const PRODUCTS: [&str; 6] = [
    "KVM",
    "Virtual Machine",
    "VMware",
    "VirtualBox",
    "Google Compute Engine",
    "Apple Virtualization",
];
const VENDORS: [&str; 5] = ["QEMU", "VMware", "Xen", "Parallels", "OpenStack"];

fn starts_with(files: &impl Files, path: &str, beginning: &str) -> bool {
    let Some(mut bytes) = files.open(format_args!("{path}")) else {
        return false;
    };
    beginning
        .bytes()
        .all(|expected| bytes.next() == Some(expected))
}

/// Amazon's instances without a hypervisor have names like `m7g.metal` or `m7g.metal-48xl`.
fn is_bare_metal_instance(files: &impl Files) -> bool {
    let Some(mut name) = files.open(format_args!("class/dmi/id/product_name")) else {
        return false;
    };
    name.any(|byte| byte == b'.')
        && b"metal"
            .iter()
            .all(|&expected| name.next() == Some(expected))
}

/// Reads the bit of the processor's feature flags that hypervisors set and hardware never does.
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn processor_is_virtual() -> bool {
    const HYPERVISOR: u32 = 1 << 31;
    // Safe in newer compilers, but not yet in the oldest supported one.
    #[allow(unused_unsafe)]
    // SAFETY: invariant 1.
    let flags = unsafe { core::arch::x86_64::__cpuid(1) };
    flags.ecx & HYPERVISOR != 0
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn processor_is_virtual() -> bool {
    false
}
