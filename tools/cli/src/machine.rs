//! What this machine is, for later readers of the results.
//!
//! Invariants:
//! 1. The C library writes only through the pointers it is given, and they point to locals of the
//!    type it expects.
//! 2. `gnu_get_libc_version` returns a constant string.

use std::fs;
use std::path::Path;

use kinlock_linux::topology::{self, Topology};
use kinlock_measure::cpus;
use serde::Serialize;

/// A description of the machine and of this build of the command.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// The processor as it names itself.
    pub cpu: String,
    /// Architecture: `x86_64`.
    pub architecture: &'static str,
    /// CPUs online (hardware threads).
    pub cpus: usize,
    pub usable_cpus: usize,
    pub sockets: usize,
    pub nodes: usize,
    /// Locality domains, as the locks see them.
    pub domains: usize,
    /// Whether it is a virtual machine, as far as can be told.
    #[serde(rename = "virtual")]
    pub is_virtual: bool,
    /// How the kernel scales the CPUs' frequency, if it says so.
    pub governor: Option<String>,
    /// Operating system and its version.
    pub kernel: String,
    /// C library and its version.
    pub libc: String,
    pub timer_resolution_ns: f64,
    /// What reading the clock takes, in ns.
    pub timer_cost_ns: f64,
    /// The kernel's load average over one minute, read before the run.
    pub load_average: f64,
    pub version: &'static str,
    /// The commit that the command was built from, if it was built in a checkout.
    pub commit: Option<&'static str>,
}

impl Machine {
    /// Looks at the machine. Takes a few milliseconds.
    pub fn current() -> Self {
        let topology = Topology::current();
        let online = || topology.cpus().iter().filter(|cpu| cpu.online);
        let mut sockets: Vec<_> = online().filter_map(|cpu| cpu.socket).collect();
        sockets.sort_unstable();
        sockets.dedup();
        let usable = cpus::allowed_cpus();
        Self {
            cpu: cpus::model(),
            architecture: std::env::consts::ARCH,
            cpus: online().count(),
            usable_cpus: usable.len(),
            sockets: sockets.len().max(1),
            nodes: topology.nodes().len().max(1),
            domains: topology::domain_count(),
            is_virtual: topology.is_virtual(),
            governor: usable.first().and_then(|&cpu| governor(cpu)),
            kernel: kernel(),
            libc: libc_version(),
            timer_resolution_ns: timer_resolution_ns(),
            timer_cost_ns: kinlock_measure::machine::clock_ns(),
            load_average: load_average(),
            version: env!("CARGO_PKG_VERSION"),
            commit: option_env!("KINLOCK_COMMIT"),
        }
    }

    /// A warning if the machine was busy before the run.
    pub fn is_busy(&self) -> Option<String> {
        let (load, cpus) = (self.load_average, self.usable_cpus);
        (load > 0.3 * cpus as f64).then(|| {
            format!(
                "the machine was busy before the run (load {load:.1} on {cpus} CPUs): trust ratios \
                 only"
            )
        })
    }

    /// A warning if the frequency of its CPUs changes.
    pub fn is_scaled(&self) -> Option<String> {
        let mut governor = self.governor.iter();
        let governor = governor.find(|&name| name != "performance")?;
        Some(format!(
            "the CPU frequency changes during the run: its governor is {governor:?}"
        ))
    }

    /// One line for people.
    pub fn summary(&self) -> String {
        let plural = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        format!(
            "{}{}: {}, {}, {}; {}; {}",
            self.cpu,
            if self.is_virtual { " (virtual)" } else { "" },
            plural(self.usable_cpus, "CPU"),
            plural(self.nodes, "node"),
            plural(self.domains, "locality domain"),
            self.kernel,
            self.libc,
        )
    }
}

fn governor(cpu: usize) -> Option<String> {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor");
    read_line(Path::new(&path))
}

fn kernel() -> String {
    let part = |name: &str| read_line(&Path::new("/proc/sys/kernel").join(name));
    let name = part("ostype").unwrap_or_else(|| std::env::consts::OS.to_owned());
    format!("{name} {}", part("osrelease").unwrap_or_default())
        .trim_end()
        .to_owned()
}

#[cfg(target_env = "gnu")]
fn libc_version() -> String {
    // SAFETY: invariant 2.
    let version = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) };
    format!("glibc {}", version.to_string_lossy())
}

#[cfg(not(target_env = "gnu"))]
fn libc_version() -> String {
    "libc of unknown version".to_owned()
}

fn timer_resolution_ns() -> f64 {
    let mut resolution = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: invariant 1.
    unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC, &mut resolution) };
    resolution.tv_sec as f64 * 1e9 + resolution.tv_nsec as f64
}

fn load_average() -> f64 {
    read_line(Path::new("/proc/loadavg"))
        .and_then(|line| line.split_whitespace().next()?.parse().ok())
        .unwrap_or(0.0)
}

fn read_line(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn describes_this_machine() {
        let machine = Machine::current();
        assert!(!machine.cpu.is_empty() && !machine.kernel.is_empty());
        assert!(machine.usable_cpus >= 1 && machine.cpus >= machine.usable_cpus);
        assert!(machine.timer_cost_ns > 0.0 && machine.timer_cost_ns.is_finite());
        assert!(!machine.summary().contains('\n'));
    }
}
