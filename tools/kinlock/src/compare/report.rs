//! The report. Field names of its JSON are a contract: add, never rename.

use std::io::Write;

use kinlock_cli::machine::Machine;
use kinlock_cli::report::html::Page;
use kinlock_cli::report::table::{Columns, Table, wrapped};
use kinlock_cli::report::units::{grouped, rate, three_digits, time};
use kinlock_cli::report::{self, Flags};
use kinlock_measure::rounds::Extent;
use kinlock_measure::stats::{Summary, geometric_mean};
use serde::Serialize;

use super::child::Usage;
use super::counting::Counting;
use super::verdict::{ENOUGH, Ratio, Verdict, far_values, trend};
use super::{Args, Sample};

#[derive(Serialize)]
pub struct Report {
    pub kind: &'static str,
    pub machine: Machine,
    pub command: Vec<String>,
    pub parameters: Parameters,
    pub extent: Extent,
    pub warnings: Vec<String>,
    /// What there is to win; null if that run was interrupted.
    pub counting: Option<Counting>,
    /// The best first.
    pub results: Vec<Entry>,
}

#[derive(Serialize)]
pub struct Parameters {
    pub program: Vec<String>,
    pub shell: bool,
    pub rounds: usize,
    pub warmup: usize,
    pub seed: u64,
    pub hogs: usize,
    pub prepare: Option<String>,
    /// Null for wall time.
    pub metric: Option<String>,
    pub lower_is_better: bool,
    pub ignore_failure: bool,
}

impl Parameters {
    pub fn of(args: &Args) -> Self {
        let words = args.command.iter();
        Parameters {
            program: words.map(|word| word.display().to_string()).collect(),
            shell: args.shell,
            rounds: args.rounds,
            warmup: args.warmup,
            seed: args.seed,
            hogs: args.hogs,
            prepare: args.prepare.as_ref().map(|line| line.display().to_string()),
            metric: args
                .metric
                .as_ref()
                .map(|metric| metric.as_str().to_owned()),
            lower_is_better: args.lower_is_better || args.metric.is_none(),
            ignore_failure: args.ignore_failure,
        }
    }

    fn is_time(&self) -> bool {
        self.metric.is_none()
    }

    /// What is better, and what is worse.
    fn words(&self) -> [&'static str; 2] {
        match self.is_time() {
            true => ["faster", "slower"],
            false => ["better", "worse"],
        }
    }
}

/// What a lock came to.
#[derive(Serialize)]
pub struct Entry {
    pub lock: String,
    /// What is compared: the wall time in seconds, or the number that the program prints.
    pub value: Summary,
    pub cpu_s: Summary,
    /// Null if it was below that of this command in a round.
    pub peak_kib: Option<Summary>,
    pub switches: Summary,
    pub ratio: Ratio,
    pub verdict: Verdict,
    pub rounds: Vec<Round>,
    #[serde(skip)]
    is_time: bool,
}

#[derive(Serialize)]
pub struct Round {
    /// Its place in the order of the round, from 0.
    pub place: usize,
    pub value: f64,
    /// Compared with the reference in this round: above 1 is better. Null if all runs of one
    /// failed.
    pub ratio: f64,
    /// As a shell has it.
    pub status: i32,
    #[serde(flatten)]
    pub usage: Usage,
}

/// A lock with the samples of its rounds.
pub type Measured = (String, Vec<(usize, Sample)>);

/// What came out, the best first. The reference is the last of those that were measured, and all
/// have at least one round.
pub fn results(parameters: &Parameters, measured: &[Measured]) -> Vec<Entry> {
    let Some((reference, others)) = measured.last() else {
        return Vec::new();
    };
    let entry = |(lock, samples): &Measured| {
        let pairs = samples.iter().zip(others);
        let is_comparable = lock == reference || are_comparable(samples, others);
        let rounds = pairs.map(|((place, own), (_, other))| Round {
            place: *place,
            value: own.value,
            ratio: match parameters.lower_is_better {
                _ if !is_comparable => f64::NAN,
                true => other.value / own.value,
                false => own.value / other.value,
            },
            status: own.status,
            usage: own.usage,
        });
        let rounds: Vec<_> = rounds.collect();
        let ratios: Vec<_> = rounds.iter().map(|round| round.ratio).collect();
        let ratio = match is_comparable {
            true => Ratio::of(reference, &ratios),
            false => Ratio::none(reference),
        };
        let of = |value: fn(&Round) -> f64| Summary::of(rounds.iter().map(value));
        let peaks = rounds
            .iter()
            .map(|round| Some(round.usage.peak_kib? as f64));
        let peaks: Option<Vec<_>> = peaks.collect();
        Entry {
            lock: lock.clone(),
            value: of(|round| round.value),
            cpu_s: of(|round| round.usage.cpu_s()),
            peak_kib: peaks.map(Summary::of),
            switches: of(|round| round.usage.switches() as f64),
            verdict: match lock == reference {
                true => Verdict::Reference,
                false => ratio.verdict(rounds.len()),
            },
            ratio,
            rounds,
            is_time: parameters.is_time(),
        }
    };
    let mut results: Vec<_> = measured.iter().map(entry).collect();
    // What failed is last: no number is at most NaN.
    let median = |entry: &Entry| entry.ratio.over_rounds.median.max(0.0);
    results.sort_by(|a, b| median(b).total_cmp(&median(a)));
    results
}

/// Whether two locks can be compared: not if all runs under one of them failed, unless they ended
/// in the same way under the other, as those of a program do whose status says something else.
fn are_comparable(samples: &[(usize, Sample)], others: &[(usize, Sample)]) -> bool {
    let all_failed = |all: &[(usize, Sample)]| all.iter().all(|(_, sample)| sample.status != 0);
    let mut pairs = samples.iter().zip(others);
    !(all_failed(samples) || all_failed(others))
        || pairs.all(|((_, own), (_, other))| own.status == other.status)
}

/// What is compared, as people read it.
fn show(is_time: bool, value: f64) -> String {
    match is_time {
        true => time(1e9 * value),
        false if value >= 1.0 => rate(value),
        // Three digits of what may be seconds.
        false => format!(
            "{value:.*}",
            (2.0 - value.log10().floor()).min(12.0) as usize
        ),
    }
}

impl Entry {
    fn show(&self, value: f64) -> String {
        show(self.is_time, value)
    }

    fn values(&self) -> Vec<f64> {
        self.rounds.iter().map(|round| round.value).collect()
    }
}

impl Report {
    pub fn new(
        machine: Machine,
        parameters: Parameters,
        extent: Extent,
        counting: Option<Counting>,
        results: Vec<Entry>,
        disturbed: Option<String>,
    ) -> Self {
        let counted = counting.as_ref().and_then(Counting::warning);
        let few = (extent.rounds_done < ENOUGH)
            .then(|| format!("fewer than {ENOUGH} rounds: nothing is claimed; try --rounds 10"));
        let usual = [extent.interruption(), counted, few, disturbed];
        let usual = usual
            .into_iter()
            .chain([machine.is_busy(), machine.is_scaled()]);
        let mut warnings: Vec<_> = usual.flatten().collect();
        warnings.extend(short(&parameters, &results));
        warnings.extend(drift(&parameters, &results));
        warnings.extend(
            results
                .iter()
                .filter_map(|entry| heavy_tail(&parameters, entry)),
        );
        warnings.extend(results.iter().filter_map(failures));
        Report {
            kind: "measured",
            machine,
            command: std::env::args().collect(),
            parameters,
            extent,
            warnings,
            counting,
            results,
        }
    }

    /// The program, what is compared, how often, and where.
    fn heading(&self) -> String {
        let parameters = &self.parameters;
        let what = match (&parameters.metric, parameters.lower_is_better) {
            (None, _) => "wall time".to_owned(),
            (Some(metric), false) => format!("what {metric} finds, more is better"),
            (Some(metric), true) => format!("what {metric} finds, less is better"),
        };
        let (done, hogs) = (self.extent.rounds_done, parameters.hogs);
        let plural = if done == 1 { "" } else { "s" };
        let hogs = match hogs {
            0 => String::new(),
            1 => ", beside another busy process".to_owned(),
            n => format!(", beside {n} other busy processes"),
        };
        format!(
            "{}: {what}, {done} round{plural}{hogs}",
            parameters.program.join(" ")
        )
    }

    fn table(&self) -> Table {
        let to = self.results.first().map_or("", |entry| &entry.ratio.to);
        let columns = Columns::new()
            .add("lock", |e: &Entry| e.lock.clone())
            .add("median", |e| e.show(e.value.median))
            .add("range", |e| {
                format!("{}..{}", e.show(e.value.min), e.show(e.value.max))
            })
            .add(format!("over {to}"), |e| match e.verdict {
                Verdict::Reference => "1".to_owned(),
                Verdict::Failed => "failed".to_owned(),
                _ => e.ratio.words(),
            })
            .add("wins", |e| match e.verdict {
                Verdict::Reference | Verdict::Failed => String::new(),
                _ => format!("{}/{}", e.ratio.wins, e.rounds.len()),
            })
            .add("CPU time", |e| time(1e9 * e.cpu_s.median))
            .add("switches", |e| grouped(e.switches.median.round() as u64))
            .add("peak memory", |e| match &e.peak_kib {
                Some(peak) => format!("{} MiB", three_digits(peak.median / 1024.0)),
                None => "small".to_owned(),
            });
        columns.of(&self.results)
    }

    /// A sentence for each lock, and one about what there is to win.
    fn sentences(&self) -> Vec<String> {
        let words = self.parameters.words();
        let others = self.results.iter();
        let others = others.filter(|entry| entry.verdict != Verdict::Reference);
        let locks = others.map(|entry| {
            let rounds = entry.rounds.len();
            entry.ratio.sentence(&entry.lock, rounds, words)
        });
        let counted = self.counting.iter().map(Counting::words);
        locks.chain(self.confidence()).chain(counted).collect()
    }

    /// Adds a table of the runs under each lock to a page.
    fn add_rounds(&self, page: &mut Page) {
        for entry in &self.results {
            let is_time = entry.is_time;
            let columns = Columns::<(usize, &Round)>::new()
                .add("round", |(number, _)| *number)
                .add("place in it", |(_, round)| round.place + 1)
                .add("value", move |(_, round)| show(is_time, round.value))
                .add(format!("over {}", entry.ratio.to), |(_, round)| {
                    format!("{:.3}", round.ratio)
                })
                .add("CPU time", |(_, round)| time(1e9 * round.usage.cpu_s()))
                .add("switches", |(_, round)| grouped(round.usage.switches()))
                .add("status", |(_, round)| round.status);
            let rounds: Vec<_> = (1..).zip(&entry.rounds).collect();
            let table = columns.of(&rounds);
            page.table(&entry.lock, &table, 1..table.headings.len());
        }
    }

    /// What the brackets mean.
    fn confidence(&self) -> Option<String> {
        let ratio = &self.results.first()?.ratio;
        let percent = 100.0 * ratio.confidence;
        (self.extent.rounds_done >= ENOUGH).then(|| {
            format!(
                "In brackets: where the true median ratio is, with a confidence of {percent:.0} %."
            )
        })
    }
}

/// A warning if starting processes is much of what was measured.
fn short(parameters: &Parameters, results: &[Entry]) -> Option<String> {
    let shortest = results.iter().map(|entry| entry.value.median);
    let shortest = shortest.fold(f64::INFINITY, f64::min);
    (parameters.is_time() && shortest < 0.02).then(|| {
        let time = time(1e9 * shortest);
        format!("a run takes {time}: much of that is starting the program; give it more to do")
    })
}

/// A warning if the program gets better or worse from round to round, under all locks.
fn drift(parameters: &Parameters, results: &[Entry]) -> Option<String> {
    let rounds = results.first()?.rounds.len();
    let values = (0..rounds).map(|round| {
        let values = results.iter().map(|entry| entry.rounds[round].value);
        geometric_mean(values)
    });
    let change = trend(&values.collect::<Vec<_>>())?;
    let is_worse = (change > 1.0) == parameters.lower_is_better;
    let [better, worse] = parameters.words();
    let word = if is_worse { worse } else { better };
    Some(format!(
        "from the first third of the rounds to the last, runs get {word} by a factor of {:.2}: \
         does the program leave something behind (see --prepare), or does the machine change its \
         speed? Ratios within rounds hold",
        change.max(1.0 / change)
    ))
}

fn heavy_tail(parameters: &Parameters, entry: &Entry) -> Option<String> {
    let far = far_values(&entry.values());
    let Summary { median, min, max } = entry.value;
    let worst = match parameters.lower_is_better {
        true => max / median,
        false => median / min,
    };
    (far > 0).then(|| {
        format!(
            "{}: {far} of {} runs are far from the others, the worst by a factor of {worst:.2}: a \
             heavy tail, or something else ran",
            entry.lock,
            entry.rounds.len()
        )
    })
}

fn failures(entry: &Entry) -> Option<String> {
    let failed = entry.rounds.iter().filter(|round| round.status != 0);
    let failed: Vec<_> = failed.map(|round| round.status.to_string()).collect();
    let (n, all) = (failed.len(), entry.rounds.len());
    (n > 0).then(|| {
        let statuses = failed.join(", ");
        format!(
            "{}: {n} of {all} runs failed, with status {statuses}",
            entry.lock
        )
    })
}

impl report::Report for Report {
    const IS_PRIVATE: bool = true;
    const FLAGS: Flags = Flags {
        json: "Write the full report, raw runs included, as JSON (- for stdout)",
        csv: "Write one line per lock as CSV (- for stdout)",
    };

    fn text(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let table = self.table();
        let text = table.fitted(table.text(1..table.headings.len()));
        writeln!(
            out,
            "{}\n{}\n\n{text}\n",
            self.heading(),
            self.machine.summary()
        )?;
        for sentence in self.sentences() {
            writeln!(out, "{}", wrapped(&sentence, "    "))?;
        }
        for warning in &self.warnings {
            writeln!(out, "{}", wrapped(&format!("note: {warning}"), "      "))?;
        }
        Ok(())
    }

    fn markdown(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        writeln!(out, "{}. {}\n", self.heading(), self.machine.summary())?;
        let table = self.table();
        table.markdown(1..table.headings.len(), out)?;
        writeln!(out)?;
        for line in self.sentences().iter().chain(&self.warnings) {
            writeln!(out, "- {line}")?;
        }
        Ok(())
    }

    fn page(&self) -> anyhow::Result<Page> {
        let mut page = Page::new("kinlock compare");
        page.command(&self.parameters.program);
        page.paragraph(&format!("{}. {}", self.heading(), self.machine.summary()));
        page.list(self.sentences());
        let notes = self.warnings.iter();
        page.list(notes.map(|warning| format!("Note: {warning}")));
        page.pictures_here();
        let table = self.table();
        page.table("Each lock, the best first", &table, 1..table.headings.len());
        page.heading(2, "Rounds");
        page.folded("Each run of the program", |page| self.add_rounds(page));
        Ok(page)
    }

    fn csv(&self) -> Table {
        let columns = Columns::new()
            .add("lock", |e: &Entry| e.lock.clone())
            .add("rounds", |e| e.rounds.len())
            .band("value", ["min", "max"], 6, |e| e.value.into())
            .add("ratio_to", |e| e.ratio.to.clone())
            .band("ratio", ["low", "high"], 6, |e| {
                [e.ratio.over_rounds.median, e.ratio.low, e.ratio.high]
            })
            .number("confidence", 4, |e| e.ratio.confidence)
            .add("wins", |e| e.ratio.wins)
            .number("cpu_s", 6, |e| e.cpu_s.median)
            .number("switches", 0, |e| e.switches.median)
            .add("peak_kib", |e| {
                let peak = e.peak_kib.map(|peak| format!("{:.0}", peak.median));
                peak.unwrap_or_default()
            });
        columns.of(&self.results)
    }
}
