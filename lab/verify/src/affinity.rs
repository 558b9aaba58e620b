//! Which CPUs threads may run on. Affinity makes situations likelier: no check depends on it, and
//! where the kernel refuses, a thread stays where it is.

pub(crate) use kinlock_measure::cpus::{allowed_cpus, confine, pin_to};
