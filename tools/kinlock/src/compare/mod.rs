//! `kinlock compare`: an unmodified program under each lock in turn.
//!
//! One [counting] run says how much there is to win. Then come rounds, in each of which every
//! [contender] runs the program once, in random order; each run is a [child]. What the rounds say
//! together is a [verdict], and all of it a [report].

mod child;
mod contender;
mod counting;
mod plot;
mod report;
mod verdict;

use std::ffi::OsString;

use clap::builder::RangedU64ValueParser;
use kinlock_cli::machine::Machine;
use kinlock_cli::outcome::{Failure, Outcome, tell};
use kinlock_cli::report::Destinations;
use kinlock_measure::background::Hogs;
use kinlock_measure::interrupt;
use kinlock_measure::progress::{self, ProgressBar};
use kinlock_measure::random::Random;
use kinlock_measure::rounds::{Rounds, Slot};
use regex_lite::Regex;

use self::child::{Run, Usage};
use self::contender::{Contender, Preload};
use self::counting::Counting;
use self::report::{Parameters, Report};
use crate::run::library;
use crate::run::program::Program;
use crate::run::variables::{Knobs, Variable};

/// Compare locks on an unmodified program
///
/// In each round every lock runs the program once, in random order. The time that it takes, or a
/// number that it prints, is compared with the reference's in the same round, so that drift of the
/// machine cancels. Of the ratios of all rounds the report has the median, with an interval that
/// contains the true one with a confidence of at least 95 % (six rounds or more), whatever their
/// distribution is. First the program runs once on the C library's locks, to count how often they
/// are found taken, and for how long threads wait: where both are little, no lock can change much.
///
/// The program's stdin is empty, and one that reads from the terminal fails. What it writes is not
/// shown; if it fails, a file has it. SIGINT (Ctrl-C) and SIGTERM end the program, and the complete
/// rounds are reported.
///
/// Exit status: 0 done, 1 the program failed, 2 bad input, 126 the program cannot be run, 127 it
/// was not found, 130 SIGINT, 143 SIGTERM.
///
/// Examples:
///   kinlock compare -- kccachetest order -th 16 100000
///   kinlock compare --metric 'readrandom.* ([0-9]+) ops/sec' --rounds 12 -- db_bench --threads=16
///   kinlock compare --preload other=/opt/other.so --hogs 1 --shell 'xz -T2 <f >/dev/null'
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Locks to compare: kinlock-mutex, kinlock-spin, pthread, [default:
    /// kinlock-mutex, pthread]; those of --preload come on top
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    locks: Vec<String>,
    /// Another library with locks, and what to call it; may be given several times
    #[arg(long, value_name = "NAME=FILE")]
    preload: Vec<Preload>,
    /// The lock that the others are compared with
    #[arg(long, value_name = "LOCK", default_value = "pthread")]
    reference: String,
    /// Runs of the program under each lock
    #[arg(
        long,
        value_name = "N",
        default_value_t = 10,
        value_parser = RangedU64ValueParser::<usize>::new().range(1..=1000),
    )]
    rounds: usize,
    /// Rounds before those, which do not count
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = RangedU64ValueParser::<usize>::new().range(..=1000),
    )]
    warmup: usize,
    /// A line for the shell, run before each run of the program
    #[arg(long, value_name = "COMMAND")]
    prepare: Option<OsString>,
    /// Compare a number that the program prints: what the first group of this regular expression
    /// matches, the last time if there are several. More is better
    #[arg(long, value_name = "REGEX")]
    metric: Option<Regex>,
    /// Less is better
    #[arg(long, requires = "metric")]
    lower_is_better: bool,
    /// Go on if the program fails. A lock under which every run failed is not compared, unless the
    /// reference's runs ended in the same way
    #[arg(long)]
    ignore_failure: bool,
    /// PROG is a line for the shell
    #[arg(long)]
    shell: bool,
    #[command(flatten)]
    knobs: Knobs,
    /// Start of the random numbers that decide the order of the locks
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    destinations: Destinations<Report>,
    /// N other busy processes run meanwhile, at most 1024
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        value_parser = RangedU64ValueParser::<usize>::new().range(..=1024),
    )]
    hogs: usize,
    /// No progress bar
    #[arg(long)]
    quiet: bool,
    /// The program and its arguments
    #[arg(value_name = "PROG", trailing_var_arg = true, required = true)]
    command: Vec<OsString>,
}

/// What is run, and how.
struct Session<'a> {
    args: &'a Args,
    contenders: Vec<Contender>,
    program: Program,
    prepare: Option<Program>,
    bar: ProgressBar,
}

pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    let outputs = args.destinations.open()?;
    let program = args.program()?;
    program.check(args.knobs.forces())?;
    let prepare = args.prepare.as_deref().map(Program::shell).transpose()?;
    let library = library::find()?;
    let mut contenders = contender::chosen(&args.locks, &args.reference, &args.preload, &library)?;
    let counter = Contender::counter(&library)?;
    for contender in &mut contenders {
        contender.variables.extend(args.knobs.variables());
    }
    interrupt::listen();
    let machine = Machine::current();
    let rounds_in_all = args.warmup + args.rounds;
    let session = Session {
        args,
        program,
        prepare,
        bar: progress::bar(args.quiet, 1 + rounds_in_all * contenders.len(), || {}),
        contenders,
    };
    let hogs = Hogs::start(args.hogs)?;
    let counting = session.count(&counter)?;
    let mut order_rng = Random::stream(args.seed, u64::MAX);
    let mut warm_up = Rounds::of(args.warmup);
    session.rounds(&mut warm_up, "warm-up round", &mut order_rng)?;
    let mut rounds = Rounds::of(args.rounds);
    let samples = session.rounds(&mut rounds, "round", &mut order_rng)?;
    session.bar.finish_and_clear();
    let disturbed = hogs.end();

    let extent = rounds.extent();
    let nothing = extent.rounds_done == 0;
    let names = session.contenders.into_iter().map(|one| one.name);
    let measured: Vec<_> = names.zip(samples).collect();
    let report = || {
        let parameters = Parameters::of(args);
        let results = report::results(&parameters, &measured);
        Report::new(machine, parameters, extent, counting, results, disturbed)
    };
    let written = match nothing {
        true => Ok(()),
        false => outputs.write(&report()),
    };
    if let Some(what) = extent.interruption() {
        let rest = if nothing { ": nothing to report" } else { "" };
        tell(&format!("kinlock: {what}{rest}"));
    }
    written?;
    Ok(match extent.interrupted_by {
        Some(signal) => Outcome::Interrupted(signal),
        None => Outcome::Done,
    })
}

impl Args {
    fn program(&self) -> anyhow::Result<Program> {
        match (self.shell, &self.command[..]) {
            (true, [line]) => Ok(Program::shell(line)?),
            (true, _) => anyhow::bail!("--shell takes one line: quote it as a whole"),
            (false, words) => Ok(Program::find(&words[0], &words[1..])?),
        }
    }

    /// The number that a run is compared by, in the unit of the report.
    fn value(&self, run: &mut Run, place: &str) -> Result<f64, Failure> {
        let Some(metric) = &self.metric else {
            return Ok(run.usage.wall_s);
        };
        let text = run.output.text();
        let number = metric.captures_iter(&text).last().and_then(|captures| {
            let group = captures.get(1).or(captures.get(0))?;
            let number: f64 = group.as_str().trim().replace(',', "").parse().ok()?;
            (number.is_finite() && number > 0.0).then_some(number)
        });
        number.ok_or_else(|| {
            let what = "--metric found no number above 0 in what the program printed";
            run.output.failure(place, what)
        })
    }
}

/// What remains of a run.
struct Sample {
    /// What it is compared by.
    value: f64,
    status: i32,
    usage: Usage,
}

impl Session<'_> {
    /// Runs the program to count what its locks do; `None` if it was interrupted.
    fn count(&self, counter: &Contender) -> anyhow::Result<Option<Counting>> {
        let file = tempfile::NamedTempFile::new()?;
        let mut variables = counter.variables.clone();
        variables.push(("KINLOCK_COUNTS", file.path().into()));
        let run = self.run(&variables, "the counting run")?;
        let text = std::fs::read_to_string(file.path())?;
        Ok(run.map(|run| Counting::of(&text, &run.usage)))
    }

    /// The samples of each contender.
    fn rounds(
        &self,
        rounds: &mut Rounds,
        kind: &str,
        order_rng: &mut Random,
    ) -> anyhow::Result<Vec<Vec<(usize, Sample)>>> {
        let asked = rounds.extent().rounds_asked;
        let sample = |Slot { subject, round }| {
            let contender = &self.contenders[subject];
            let place = format!("{kind} {}, {}", round + 1, contender.name);
            let Some(mut run) = self.run(&contender.variables, &place)? else {
                return Ok(None);
            };
            Ok(Some(Sample {
                value: self.args.value(&mut run, &place)?,
                status: run.shell_status(),
                usage: run.usage,
            }))
        };
        let samples = rounds.run(asked, self.contenders.len(), order_rng, sample)?;
        // What was given up is in no complete round.
        let some = |(place, sample): (usize, Option<Sample>)| Some((place, sample?));
        let samples = samples.into_iter();
        Ok(samples
            .map(|of| of.into_iter().filter_map(some).collect())
            .collect())
    }

    /// Runs the program once, after what prepares it; `None` if it was given up.
    fn run(&self, variables: &[Variable], place: &str) -> anyhow::Result<Option<Run>> {
        self.bar.set_message(place.to_owned());
        if let Some(prepare) = &self.prepare {
            match child::run(prepare, &[])? {
                None => return Ok(None),
                Some(run) => run.succeeded("--prepare", place)?,
            };
        }
        let run = child::run(&self.program, variables)?;
        self.bar.inc(1);
        match run {
            Some(run) if !self.args.ignore_failure => {
                Ok(Some(run.succeeded("the program", place)?))
            }
            run => Ok(run),
        }
    }
}
