//! One lock in a process of its own, and again with the machine's CPUs divided into locality domains.

use kinlock_verify::locks::Specimen;
use kinlock_verify::report::Report;
use kinlock_verify::{allowed_cpus, scenarios};

use super::super::child::Task;
use super::settings::{Parameters, suits};

/// The share of the time that each division of the machine gets.
const DIVIDED: f64 = 0.08;

/// Tortures `lock` in child processes.
///
/// # Errors
/// If a child cannot be started. A child that crashes or does not end is a failed check.
pub fn torture(lock: Specimen, parameters: &Parameters, quiet: bool) -> anyhow::Result<Report> {
    let mut plain = Parameters {
        locks: vec![lock.name.to_owned()],
        ..parameters.clone()
    };
    let is_plain = |name: &String| name != scenarios::TOPOLOGY && suits(&lock, name);
    plain.scenarios.retain(is_plain);

    let cpus = allowed_cpus();
    let mut asked = parameters.scenarios.iter();
    let wants_division = asked.any(|name| name == scenarios::TOPOLOGY) && lock.defect.is_none();
    let divisions: Vec<usize> = if wants_division {
        parameters
            .topology
            .iter()
            .copied()
            .filter(|domains| *domains <= cpus.len())
            .collect()
    } else {
        Vec::new()
    };
    plain.seconds *= 1.0 - (DIVIDED * divisions.len() as f64).min(0.5);

    let run = |parameters: &Parameters, topology| {
        let task = Task {
            primitive: "locks",
            specimen: lock.name.to_owned(),
            broken: lock.defect.is_some(),
            arguments: parameters.arguments(),
            seconds: parameters.seconds,
            hang: parameters.hang,
            topology,
            quiet,
        };
        task.run()
    };
    let mut report = Report::new();
    if !plain.scenarios.is_empty() {
        report.merge(run(&plain, None)?);
    }
    for domains in divisions {
        let divided = Parameters {
            seconds: parameters.seconds * DIVIDED,
            topology: vec![domains],
            scenarios: vec![scenarios::TOPOLOGY.to_owned()],
            ..plain.clone()
        };
        report.merge(run(&divided, Some(divide(&cpus, domains)))?);
    }
    Ok(report)
}

/// The CPUs dealt out to so many domains, as `KINLOCK_TOPOLOGY` wants them.
fn divide(cpus: &[usize], domains: usize) -> String {
    let of = |domain| {
        let dealt = cpus.iter().skip(domain).step_by(domains);
        dealt.map(usize::to_string).collect::<Vec<_>>().join(",")
    };
    (0..domains).map(of).collect::<Vec<_>>().join(";")
}

#[cfg(test)]
mod tests {
    use super::divide;

    #[test]
    fn every_cpu_is_in_one_domain() {
        assert_eq!(divide(&[0, 1, 2, 5, 9], 2), "0,2,9;1,5");
        assert_eq!(divide(&[3, 4], 2), "3;4");
    }
}
