//! `kinlock compare`: an unmodified program under each lock in turn.
//!
//! One [counting] run says how much a better lock could gain. Then come rounds. In each of them
//! every [contender] runs the program once, in random order; each run is a [child]. The rounds
//! together give a [verdict] for each lock, and a [report] has everything.

mod child;
mod contender;
mod counters;
mod counting;
mod plot;
mod report;
mod scan;
mod until;
mod verdict;

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

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
use self::report::{Measured, Parameters, Point, Report};
use self::scan::{At, Scan};
use self::until::Until;
use self::verdict::Verdict;
use crate::run::library;
use crate::run::program::Program;
use crate::run::variables::{Knobs, Lock, Variable, of_lock};

/// Compare locks on an unmodified program
///
/// In each round every lock runs the program once, in random order. The time that it takes, or a
/// number that it prints, is compared with the reference's in the same round, so that drift of the
/// machine cancels. The report has the median of the ratios of all rounds, with an interval that
/// contains the true median with a confidence of at least 95 % for all locks together (six rounds
/// or more, seven for two locks and the reference), whatever their distribution is. First the
/// program runs once on the C library's locks, to count how often they are found taken, and for how
/// long threads wait: if both are low, no lock can change much. If the kernel lets the processor's
/// counters be read, each lock has one more run at the end, for its instructions and cache misses.
///
/// The program's stdin is empty unless --input names a file, and a program that reads from the
/// terminal fails. Its output is not shown; if it fails, the output is kept in a file. SIGINT
/// (Ctrl-C), SIGTERM, SIGHUP and SIGQUIT end the program, and the complete rounds are reported.
///
/// Exit status: 0 done, 1 the program failed, or a lock is worse than --fail-below says, 2 bad
/// input, 126 the program cannot be run, 127 it was not found, 128 and the signal's number (130
/// SIGINT).
///
/// Examples:
///   kinlock compare -- kccachetest order -th 16 100000
///   kinlock compare --metric 'readrandom.* ([0-9]+) ops/sec' --rounds 12 -- db_bench --threads=16
///   kinlock compare --scan threads=1,2,4,8 --plot scan.svg -- db_bench --threads={threads}
///   kinlock compare --fail-below 0.97 -- kccachetest order -th 16 100000    # in CI
///   kinlock compare --until 2% --html report.html -- kccachetest order -th 16 100000
///   kinlock compare --preload other=/opt/other.so --hogs 1 --shell 'xz -T2 <f >/dev/null'
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Locks to compare: kinlock-mutex, kinlock-spin, pthread, [default:
    /// kinlock-mutex, pthread]; locks of --preload are added
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
    /// Instead of a number of rounds: go on until no interval reaches further than PERCENT from its
    /// median ratio, such as 2%. The intervals are computed after 8, 10, 13, 17, ... rounds, 1000
    /// at most, and are so wide that all of them together hold with a confidence of at least 95 %
    #[arg(long, value_name = "PERCENT", conflicts_with = "rounds")]
    until: Option<Until>,
    /// With --until: about how many seconds the rounds may take, at each point of a scan. The
    /// report says if the intervals are still too wide then
    #[arg(long, value_name = "S", default_value_t = 600.0, requires = "until",
        value_parser = kinlock_cli::args::seconds)]
    time_limit: f64,
    /// Compare at each of these values of a parameter, which replace {NAME} in PROG, its arguments
    /// and --prepare; given several times, at all combinations
    #[arg(long, value_name = "NAME=A,B")]
    scan: Vec<Scan>,
    /// Warm-up rounds before those, which do not count
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
    /// The file that each run of the program reads on stdin, from its beginning
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Compare a number that the program prints: the first group of this regular expression, in its
    /// last match if there are several. More is better
    #[arg(long, value_name = "REGEX")]
    metric: Option<Regex>,
    /// With --metric: less is better
    #[arg(long, requires = "metric")]
    lower_is_better: bool,
    /// End with status 1 if a lock is less than RATIO times as good as the reference, such as 0.97:
    /// if its interval ends below that, or if a run ended with another status than the reference's
    /// in the same round
    #[arg(long, value_name = "RATIO", value_parser = ratio)]
    fail_below: Option<f64>,
    /// Go on if the program fails. A lock under which every run failed is not compared, unless the
    /// reference's runs ended in the same way
    #[arg(long)]
    ignore_failure: bool,
    /// PROG is a line for the shell
    #[arg(long)]
    shell: bool,
    /// Start of the random numbers that decide the order of the locks
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    destinations: Destinations<Report>,
    /// Run N CPU-bound processes as background load, at most 1024
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
    #[command(flatten)]
    knobs: Knobs,
}

fn ratio(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(ratio) if (0.001..=1000.0).contains(&ratio) => Ok(ratio),
        _ => Err("it has to be a ratio from 0.001 to 1000, as 0.97".to_owned()),
    }
}

/// A note if the command's own stdin is not empty: programs do not get it.
fn unread() -> Option<String> {
    let is_null = || {
        let [own, null] = ["/proc/self/fd/0", "/dev/null"].map(|path| std::fs::metadata(path).ok());
        own.is_none_or(|own| null.is_some_and(|null| own.rdev() == null.rdev()))
    };
    (!io::stdin().is_terminal() && !is_null()).then(|| {
        "the program's stdin is empty, though this command's is not the terminal: --input FILE has \
         each run read a file"
            .to_owned()
    })
}

/// A note if the environment sets knobs: they apply to all of our locks.
fn knobs() -> Option<String> {
    let set = std::env::vars_os().filter_map(|(name, value)| {
        let name = name.to_str().filter(|name| name.starts_with("KINLOCK_"))?;
        (name != "KINLOCK_PRELOAD").then(|| format!("{name}={}", value.display()))
    });
    let set: Vec<_> = set.collect();
    (!set.is_empty()).then(|| format!("the environment has {}", set.join(", ")))
}

/// What is run, and how.
struct Session<'a> {
    args: &'a Args,
    contenders: Vec<Contender>,
    bar: ProgressBar,
}

/// What is run at a point of a scan.
struct Task {
    at: At,
    program: Program,
    prepare: Option<Program>,
}

pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    let outputs = args.destinations.open()?;
    args.input.as_deref().map(child::input).transpose()?;
    let tasks = args.tasks()?;
    let library = library::find()?;
    let mut contenders = contender::chosen(&args.locks, &args.reference, &args.preload, &library)?;
    for contender in &mut contenders {
        contender.variables.extend(args.knobs.variables());
    }
    interrupt::listen();
    let machine = Machine::current();
    let counters = counters::Open::new().map(drop);
    let unread = args.input.is_none().then(unread).flatten();
    let mut notes: Vec<String> = unread.into_iter().chain(knobs()).collect();
    let [least, most] = args.extremes();
    let each = 1 + (args.warmup + least) * contenders.len();
    let session = Session {
        args,
        bar: progress::bar(args.quiet, tasks.len() * each, || {}),
        contenders,
    };
    let hogs = Hogs::start(args.hogs)?;
    let parameters = Parameters::of(args);
    let mut order_rng = Random::stream(args.seed, u64::MAX);
    let mut rounds = Rounds::of(tasks.len() * most);
    let (mut points, mut results) = (Vec::new(), Vec::new());
    for task in &tasks {
        if !rounds.go_on() {
            break;
        }
        let counting = session.count(task, &library)?;
        let warm_up = |slot| session.sample(task, "warm-up round", slot);
        let (subjects, rounds_before) = (session.contenders.len(), args.warmup);
        Rounds::of(rounds_before).run(rounds_before, subjects, &mut order_rng, warm_up)?;
        let (measured, until) = session.measure(task, &parameters, &mut rounds, &mut order_rng)?;
        let mut own = report::results(&parameters, &task.at, &measured);
        if counters.is_ok() && !own.is_empty() {
            notes.extend(session.count_events(task, &mut own));
        }
        // Points without a complete round are left out of the report.
        if !own.is_empty() {
            let at = task.at.clone();
            points.push(Point {
                at,
                counting,
                until,
                confidence: report::confidence(&own),
            });
            results.extend(own);
        }
    }
    session.bar.finish_and_clear();
    notes.extend(hogs.end());
    notes.extend(counters.err().map(|error| counters::refused(&error)));

    let extent = rounds.extent();
    let nothing = extent.rounds_done == 0;
    let failed = args.fail_below.and_then(|least| below(least, &results));
    let written = match nothing {
        true => Ok(()),
        false => outputs.write(&Report::new(
            machine, parameters, extent, points, results, notes,
        )),
    };
    if let Some(what) = extent.interruption() {
        let rest = if nothing { ": nothing to report" } else { "" };
        tell(&format!("kinlock: {what}{rest}"));
    }
    if let Some(what) = &failed {
        tell(&format!("kinlock: {what}"));
    }
    written?;
    Ok(match extent.interrupted_by {
        Some(signal) => Outcome::Interrupted(signal),
        None if failed.is_some() => Outcome::CheckFailed,
        None => Outcome::Done,
    })
}

/// Names, in one line, the locks that are certainly below the ratio `least`, or that cannot be
/// compared because runs of one round ended differently.
fn below(least: f64, entries: &[report::Entry]) -> Option<String> {
    let words = |entry: &report::Entry| {
        let mut all = entries.iter().filter(|other| other.at == entry.at);
        let reference = all.find(|other| other.verdict == Verdict::Reference)?;
        if entry.lock == reference.lock {
            return None;
        }
        let what = failed(entry, reference).or_else(|| {
            let (ratio, to) = (entry.ratio.words(), &entry.ratio.to);
            (entry.ratio.high < least).then(|| format!("{} is {ratio} of {to}", entry.lock))
        });
        Some(entry.at.about(what?))
    };
    let all: Vec<_> = entries.iter().filter_map(words).collect();
    (!all.is_empty()).then(|| format!("--fail-below {least}: {}", all.join("; ")))
}

/// Says which of two locks failed in rounds in which the other one's run ended differently: the
/// first one if both did.
fn failed(entry: &report::Entry, reference: &report::Entry) -> Option<String> {
    let rounds = entry.rounds.iter().zip(&reference.rounds);
    let statuses = rounds.map(|(own, other)| [own.status, other.status]);
    let different: Vec<_> = statuses.filter(|[own, other]| own != other).collect();
    let all = entry.rounds.len();
    let by = |at: usize, lock: &str| {
        let count = different.iter().filter(|pair| pair[at] != 0).count();
        (count > 0).then(|| format!("{lock} failed in {count} of {all} rounds"))
    };
    by(0, &entry.lock).or_else(|| by(1, &reference.lock))
}

impl Args {
    /// What is run at each point.
    fn tasks(&self) -> anyhow::Result<Vec<Task>> {
        let words = self.command.iter().chain(&self.prepare);
        let points = scan::points(&self.scan, words.map(OsString::as_os_str))?;
        let mut tasks: Vec<Task> = Vec::new();
        for at in points {
            let filled: Vec<_> = self.command.iter().map(|word| at.fill(word)).collect();
            let prepare = self.prepare.as_deref().map(|line| at.fill(line));
            let program = self.program(&filled)?;
            // Checked once per program, so that a warning is printed once.
            if tasks.is_empty() || filled[0] != self.command[0] {
                program.check(self.knobs.force, false)?;
            }
            let prepare = prepare.as_deref().map(Program::shell).transpose()?;
            tasks.push(Task {
                at,
                program,
                prepare,
            });
        }
        Ok(tasks)
    }

    fn program(&self, words: &[OsString]) -> anyhow::Result<Program> {
        match (self.shell, words) {
            (true, [line]) => Ok(Program::shell(line)?),
            (true, _) => anyhow::bail!("--shell takes one line: quote it as a whole"),
            (false, words) => Ok(Program::find(&words[0], &words[1..])?),
        }
    }

    /// The least and the most rounds of a point.
    fn extremes(&self) -> [usize; 2] {
        match self.until {
            Some(_) => [until::FIRST, until::MOST],
            None => [self.rounds; 2],
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

/// The result of a run.
#[derive(Clone, Copy)]
struct Sample {
    /// The number that is compared.
    value: f64,
    status: i32,
    usage: Usage,
}

/// How the rounds of `--until` ended.
#[derive(Clone, Copy, serde::Serialize)]
pub struct Ended {
    /// The intervals became narrow enough.
    pub reached: bool,
    /// How long the rounds took.
    pub seconds: f64,
}

/// The samples of each contender, as the rounds have them; `None` if a run was given up.
type Samples = [Vec<(usize, Option<Sample>)>];

impl Session<'_> {
    /// Runs the program to count what the C library's locks do; `None` if it was interrupted.
    fn count(&self, task: &Task, library: &Path) -> anyhow::Result<Option<Counting>> {
        let file = tempfile::NamedTempFile::new()?;
        let mut variables = of_lock(Lock::Pthread, library);
        variables.push(("KINLOCK_COUNTS", file.path().into()));
        let run = self.run(task, &variables, "the counting run")?;
        let text = std::fs::read_to_string(file.path())?;
        Ok(run.map(|run| Counting::of(&text, &run.usage)))
    }

    /// Runs the program once more under each lock, for the processor's counters. The rounds are not
    /// lost if that fails: a note says why there are no counters.
    fn count_events(&self, task: &Task, entries: &mut [report::Entry]) -> Option<String> {
        for entry in entries {
            let mut contenders = self.contenders.iter();
            let contender = contenders.find(|contender| contender.name == entry.lock);
            let contender = contender.expect("what was measured was under comparison");
            let open = match counters::Open::new() {
                Ok(open) => open,
                Err(error) => return Some(counters::refused(&error)),
            };
            let place = format!("the run for counters, {}", contender.name);
            match self.run(task, &contender.variables, &task.at.about(place)) {
                Ok(Some(_)) => entry.counters = Some(open.read()),
                // The run was interrupted.
                Ok(None) => return None,
                Err(error) => return Some(format!("no hardware counters: {error:#}")),
            }
        }
        None
    }

    /// The samples of each contender, and with `--until` how the rounds ended.
    fn measure(
        &self,
        task: &Task,
        parameters: &Parameters,
        rounds: &mut Rounds,
        order_rng: &mut Random,
    ) -> anyhow::Result<(Vec<Measured>, Option<Ended>)> {
        let begin = Instant::now();
        let limit = Duration::from_secs_f64(self.args.time_limit);
        let mut reached = false;
        let is_enough = |samples: &Samples| {
            let done = samples.first().map_or(0, Vec::len);
            let Some(Until(reach)) = self.args.until else {
                return false;
            };
            if until::looks().all(|look| look != done) {
                return false;
            }
            let entries = report::results(parameters, &task.at, &self.named(samples));
            // More rounds do not make a failed lock comparable, so it does not prolong the run.
            reached = entries
                .iter()
                .all(|entry| !entry.is_compared() || entry.ratio.reach() <= reach);
            let goes_on = !reached && until::has_time(done, begin.elapsed(), limit);
            if let Some(next) = until::looks().find(|&look| look > done && goes_on) {
                self.bar
                    .inc_length(((next - done) * self.contenders.len()) as u64);
            }
            !goes_on
        };
        let sample = |slot| self.sample(task, "round", slot);
        let ([_, most], subjects) = (self.args.extremes(), self.contenders.len());
        let samples = rounds.run_until(most, subjects, order_rng, sample, is_enough)?;
        let seconds = begin.elapsed().as_secs_f64();
        let until = self.args.until.map(|_| Ended { reached, seconds });
        Ok((self.named(&samples), until))
    }

    /// The samples with the names of the contenders. A run that was given up is in no complete
    /// round.
    fn named(&self, samples: &Samples) -> Vec<Measured> {
        let names = self.contenders.iter().map(|one| one.name.clone());
        let some = |&(place, sample): &(usize, Option<Sample>)| Some((place, sample?));
        let samples = samples
            .iter()
            .map(|of| of.iter().filter_map(some).collect());
        names.zip(samples).collect()
    }

    fn sample(&self, task: &Task, kind: &str, slot: Slot) -> anyhow::Result<Option<Sample>> {
        let Slot { subject, round } = slot;
        let contender = &self.contenders[subject];
        let place = task
            .at
            .about(format!("{kind} {}, {}", round + 1, contender.name));
        let Some(mut run) = self.run(task, &contender.variables, &place)? else {
            return Ok(None);
        };
        Ok(Some(Sample {
            value: self.args.value(&mut run, &place)?,
            status: run.shell_status(),
            usage: run.usage,
        }))
    }

    /// Runs the program once, after the command of `--prepare`; `None` if the run was given up.
    fn run(&self, task: &Task, variables: &[Variable], place: &str) -> anyhow::Result<Option<Run>> {
        self.bar.set_message(place.to_owned());
        if let Some(prepare) = &task.prepare {
            match child::run(prepare, &[], None)? {
                None => return Ok(None),
                Some(run) => run.succeeded("--prepare", place)?,
            };
        }
        let run = child::run(&task.program, variables, self.args.input.as_deref())?;
        self.bar.inc(1);
        match run {
            Some(run) if !self.args.ignore_failure => {
                Ok(Some(run.succeeded("the program", place)?))
            }
            run => Ok(run),
        }
    }
}
