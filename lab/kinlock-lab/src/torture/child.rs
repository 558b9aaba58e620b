//! A task for a child process. If the child crashes or does not end, that is a failed check.

use std::io::Read;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::Context;
use kinlock_cli::parameters::Parameters;
use kinlock_verify::plan::PATIENCE;
use kinlock_verify::report::{Check, Property, Report};

/// The time that a child may take beyond the time asked for: for starting threads, for checks, and
/// for scenarios that need a minimum. Some scenarios wait up to five minutes for a busy machine.
const OVERHEAD: Duration = Duration::from_secs(900);

/// What a child process does.
#[derive(Clone)]
pub struct Task {
    /// The subcommand, which names what is tortured.
    pub primitive: &'static str,
    pub specimen: &'static str,
    pub is_broken: bool,
    /// The arguments of the subcommand, which name a single specimen.
    pub parameters: Parameters,
    /// How long the task takes if nothing hangs.
    pub seconds: f64,
    /// After how long the child notices that a thread hangs.
    pub hang: f64,
    /// The value of `KINLOCK_TOPOLOGY`, if it is set.
    pub topology: Option<String>,
    /// Whether the child shows no progress.
    pub quiet: bool,
}

impl Task {
    pub fn run(&self) -> anyhow::Result<Report> {
        let this = std::env::current_exe().context("cannot find the program itself")?;
        let mut command = Command::new(this);
        command
            .args(["torture", self.primitive, "--in-process", "--json", "-"])
            .args(self.parameters.arguments())
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        if self.quiet {
            command.arg("--quiet");
        }
        if let Some(topology) = &self.topology {
            command.env("KINLOCK_TOPOLOGY", topology);
        }
        let (text, status) = output(&mut command, self.time_limit())?;
        Ok(self.understand(&text, status))
    }

    fn time_limit(&self) -> Duration {
        let rounds = if self.is_broken { PATIENCE as f64 } else { 1.0 };
        Duration::from_secs_f64(1.5 * rounds * self.seconds + 3.0 * self.hang) + OVERHEAD
    }

    fn understand(&self, text: &str, status: Option<ExitStatus>) -> Report {
        if let Ok(report) = serde_json::from_str(text) {
            return report;
        }
        let mut report = Report::new();
        report.push(Check {
            name: format!("{}/{}", self.specimen, Property::Completion.name()),
            property: Property::Completion,
            passed: false,
            detail: match status {
                None => "the process did not end and was killed".to_owned(),
                Some(status) => format!("the process ended with {status} and without a report"),
            },
        });
        report
    }
}

/// Runs the command. Returns its standard output and its status; `None` if it did not end in time
/// and was killed.
fn output(command: &mut Command, limit: Duration) -> anyhow::Result<(String, Option<ExitStatus>)> {
    let mut child = command.spawn().context("cannot start a child process")?;
    let mut stdout = child.stdout.take().context("the child has no output")?;
    // Read while the child runs, because a full pipe would stop it. A child whose output has ended
    // counts as ended.
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut text = String::new();
        // Output that cannot be read counts as a missing report.
        let read = stdout.read_to_string(&mut text);
        sender.send(read.map_or_else(|_| String::new(), |_| text))
    });
    let text = receiver.recv_timeout(limit);
    // A child that has ended may have left its output open to a child of its own.
    let has_ended = text.is_ok() || child.try_wait().is_ok_and(|status| status.is_some());
    if !has_ended {
        child.kill().context("cannot end a child process")?;
    }
    let status = child.wait().context("cannot wait for a child process")?;
    let status = has_ended.then_some(status);
    Ok((text.unwrap_or_default(), status))
}
