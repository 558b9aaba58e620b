//! One lock in a process of its own, and again with the machine's CPUs divided into locality domains.

use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use kinlock_verify::locks::Specimen;
use kinlock_verify::report::{Check, Property, Report};
use kinlock_verify::{allowed_cpus, scenarios};

use super::settings::Parameters;

/// The share of the time that each division of the machine gets.
const DIVIDED: f64 = 0.08;
/// Time for starting threads and for scenarios that need a minimum, besides what was asked for.
const OVERHEAD: Duration = Duration::from_secs(30);

/// Tortures `lock` in child processes.
///
/// # Errors
/// If a child cannot be started. A child that crashes or does not end is a failed check.
pub fn torture(lock: Specimen, parameters: &Parameters, quiet: bool) -> anyhow::Result<Report> {
    let mut plain = Parameters {
        locks: vec![lock.name.to_owned()],
        ..parameters.clone()
    };
    plain.scenarios.retain(|name| name != scenarios::TOPOLOGY);

    let cpus = allowed_cpus();
    let wants_division =
        plain.scenarios.len() < parameters.scenarios.len() && lock.defect.is_none();
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

    let mut report = Report::new();
    if !plain.scenarios.is_empty() {
        report.merge(run(&plain, None, quiet)?);
    }
    for domains in divisions {
        let divided = Parameters {
            seconds: parameters.seconds * DIVIDED,
            topology: vec![domains],
            scenarios: vec![scenarios::TOPOLOGY.to_owned()],
            ..plain.clone()
        };
        report.merge(run(&divided, Some(divide(&cpus, domains)), quiet)?);
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

fn run(parameters: &Parameters, topology: Option<String>, quiet: bool) -> anyhow::Result<Report> {
    let this = std::env::current_exe().context("cannot find the program itself")?;
    let mut command = Command::new(this);
    command
        .args(["torture", "locks", "--in-process", "--json", "-"])
        .args(parameters.arguments());
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    if quiet {
        command.arg("--quiet");
    }
    if let Some(topology) = topology {
        command.env("KINLOCK_TOPOLOGY", topology);
    }
    let mut child = command.spawn().context("cannot start a child process")?;
    let mut stdout = child.stdout.take().context("the child has no output")?;
    // Read while it runs: a full pipe would stop it.
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        stdout.read_to_string(&mut text).map(|_| text)
    });
    let status = wait(&mut child, time_limit(parameters))?;
    let text = reader
        .join()
        .map_err(|_| anyhow::anyhow!("reading a child's output failed"))?;
    Ok(understand(&text.unwrap_or_default(), status)
        .unwrap_or_else(|what| failure(parameters, what)))
}

fn time_limit(parameters: &Parameters) -> Duration {
    let hangs = Duration::from_secs_f64(parameters.hang) * 3;
    Duration::from_secs_f64(parameters.seconds).mul_f64(1.5) + hangs + OVERHEAD
}

/// `None`: it did not end in time and was killed.
pub(in crate::verbs::torture) fn wait(
    child: &mut Child,
    limit: Duration,
) -> anyhow::Result<Option<ExitStatus>> {
    let give_up = Instant::now() + limit;
    loop {
        if let Some(status) = child
            .try_wait()
            .context("cannot wait for a child process")?
        {
            return Ok(Some(status));
        }
        if Instant::now() >= give_up {
            child.kill().context("cannot end a child process")?;
            child.wait().context("cannot wait for a child process")?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub(in crate::verbs::torture) fn understand(
    text: &str,
    status: Option<ExitStatus>,
) -> Result<Report, String> {
    let status = status.ok_or("the process did not end and was killed")?;
    serde_json::from_str(text)
        .map_err(|_| format!("the process ended with {status} and without a report"))
}

fn failure(parameters: &Parameters, detail: String) -> Report {
    let mut report = Report::new();
    report.push(Check {
        name: format!(
            "{}/{}",
            parameters.locks.join(","),
            Property::Completion.name()
        ),
        property: Property::Completion,
        passed: false,
        detail,
    });
    report
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
