//! The report. Field names of its JSON are a contract: add, never rename.

use std::io::Write;

use kinlock_cli::machine::Machine;
use kinlock_cli::report::html::{Page, Picture};
use kinlock_cli::report::table::{Columns, Table, wrapped};
use kinlock_cli::report::units::{grouped, rate, three_digits, time};
use kinlock_cli::report::{self, Flags};
use kinlock_measure::rounds::Extent;
use kinlock_measure::stats::{Summary, geometric_mean};
use serde::Serialize;

use super::child::Usage;
use super::counters::Counters;
use super::counting::Counting;
use super::scan::{At, Scan};
use super::verdict::{
    CONFIDENCE, ENOUGH, Ratio, Verdict, are_alike, far_values, rounds_for, together, trend,
};
use super::{Args, Ended, Sample};

#[derive(Serialize)]
pub struct Report {
    pub kind: &'static str,
    pub machine: Machine,
    pub command: Vec<String>,
    pub parameters: Parameters,
    pub extent: Extent,
    pub warnings: Vec<String>,
    /// How much a better lock could gain. Null if the counting run was interrupted, and for a scan,
    /// where the points have it.
    pub counting: Option<Counting>,
    /// The points at which locks were compared; without a scan, one point without parameters.
    pub points: Vec<Point>,
    /// Point by point, the best of each first.
    pub results: Vec<Entry>,
}

/// A point of a scan.
#[derive(Serialize)]
pub struct Point {
    /// The values of the parameters.
    pub at: At,
    /// How much a better lock could gain. Null if the counting run was interrupted.
    pub counting: Option<Counting>,
    /// How the rounds ended with `--until`.
    pub until: Option<Ended>,
    /// The probability that all intervals of this point contain their true medians. Null if there
    /// are too few rounds to claim anything.
    pub confidence: Option<f64>,
}

#[derive(Serialize)]
pub struct Parameters {
    pub program: Vec<String>,
    pub shell: bool,
    /// Null if rounds went on until intervals were narrow.
    pub rounds: Option<usize>,
    /// How far an interval may reach from its median ratio.
    pub until_percent: Option<f64>,
    pub time_limit_s: Option<f64>,
    pub scan: Vec<Scan>,
    pub warmup: usize,
    pub seed: u64,
    pub hogs: usize,
    pub prepare: Option<String>,
    /// Null if stdin was empty.
    pub input: Option<String>,
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
            rounds: args.until.is_none().then_some(args.rounds),
            until_percent: args.until.map(|until| 100.0 * until.0),
            time_limit_s: args.until.map(|_| args.time_limit),
            scan: args.scan.clone(),
            warmup: args.warmup,
            seed: args.seed,
            hogs: args.hogs,
            prepare: args.prepare.as_ref().map(|line| line.display().to_string()),
            input: args.input.as_ref().map(|path| path.display().to_string()),
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

    /// The words for better and for worse.
    fn words(&self) -> [&'static str; 2] {
        match self.is_time() {
            true => ["faster", "slower"],
            false => ["better", "worse"],
        }
    }
}

/// The results of a lock.
#[derive(Serialize)]
pub struct Entry {
    /// The point of the scan.
    #[serde(skip_serializing_if = "At::is_empty")]
    pub at: At,
    pub lock: String,
    /// The compared quantity: the wall time in seconds, or the number that the program prints.
    pub value: Summary,
    pub cpu_s: Summary,
    /// Null if it was not above this command's own peak in some round.
    pub peak_kib: Option<Summary>,
    pub switches: Summary,
    /// Counted in one run. Null if the kernel gives users no counters.
    pub counters: Option<Counters>,
    pub ratio: Ratio,
    pub verdict: Verdict,
    pub rounds: Vec<Round>,
}

#[derive(Serialize)]
pub struct Round {
    /// Its place in the order of the round, from 0.
    pub place: usize,
    pub value: f64,
    /// The ratio to the reference in this round: above 1 is better. Null if the two locks cannot be
    /// compared, since all runs under one of them failed.
    pub ratio: f64,
    /// The status as a shell reports it.
    pub status: i32,
    #[serde(flatten)]
    pub usage: Usage,
}

/// A lock with the samples of its rounds.
pub type Measured = (String, Vec<(usize, Sample)>);

/// The results at a point, the best first; none if no round is complete. The reference is the last
/// lock in `measured`.
pub fn results(parameters: &Parameters, at: &At, measured: &[Measured]) -> Vec<Entry> {
    let Some((reference, others)) = measured.last().filter(|(_, samples)| !samples.is_empty())
    else {
        return Vec::new();
    };
    let intervals = (measured.len() - 1).max(1);
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
        let ratio = match (is_comparable, parameters.until_percent) {
            (true, None) => Ratio::of(reference, &ratios, intervals),
            (true, Some(_)) => Ratio::looked_at(reference, &ratios, intervals),
            // A lock that failed cannot be compared.
            (false, _) => Ratio::of(reference, &[f64::NAN], 1),
        };
        let of = |value: fn(&Round) -> f64| Summary::of(rounds.iter().map(value));
        let peaks = rounds
            .iter()
            .map(|round| Some(round.usage.peak_kib? as f64));
        let peaks: Option<Vec<_>> = peaks.collect();
        Entry {
            at: at.clone(),
            lock: lock.clone(),
            value: of(|round| round.value),
            cpu_s: of(|round| round.usage.cpu_s()),
            peak_kib: peaks.map(Summary::of),
            switches: of(|round| round.usage.switches() as f64),
            counters: None,
            verdict: match lock == reference {
                true => Verdict::Reference,
                false => ratio.verdict(),
            },
            ratio,
            rounds,
        }
    };
    let mut results: Vec<_> = measured.iter().map(entry).collect();
    // Locks that failed are last: `max` makes 0 of NaN.
    let median = |entry: &Entry| entry.ratio.over_rounds.median.max(0.0);
    results.sort_by(|a, b| median(b).total_cmp(&median(a)));
    results
}

/// Whether two locks can be compared: not if all runs under one of them failed, unless the runs
/// under the other lock ended in the same way. A program may have its own use for its status.
fn are_comparable(samples: &[(usize, Sample)], others: &[(usize, Sample)]) -> bool {
    let all_failed = |all: &[(usize, Sample)]| all.iter().all(|(_, sample)| sample.status != 0);
    let mut pairs = samples.iter().zip(others);
    !(all_failed(samples) || all_failed(others))
        || pairs.all(|((_, own), (_, other))| own.status == other.status)
}

/// The compared quantity, for people.
fn shown(is_time: bool, value: f64) -> String {
    match is_time {
        true => time(1e9 * value),
        false if value >= 1.0 => rate(value),
        // Three significant digits, since the number may be in seconds.
        false => format!(
            "{value:.*}",
            (2.0 - value.log10().floor()).min(12.0) as usize
        ),
    }
}

impl Entry {
    /// Whether the entry has a ratio to another lock.
    pub fn is_compared(&self) -> bool {
        ![Verdict::Reference, Verdict::Failed].contains(&self.verdict)
    }

    /// One of the processor's counters.
    fn counter(&self, of: fn(&Counters) -> Option<u64>) -> Option<u64> {
        self.counters.as_ref().and_then(of)
    }
}

impl Report {
    pub fn new(
        machine: Machine,
        parameters: Parameters,
        extent: Extent,
        points: Vec<Point>,
        results: Vec<Entry>,
        notes: Vec<String>,
    ) -> Self {
        let mut warnings: Vec<_> = extent.interruption().into_iter().collect();
        let mut of_points = Vec::new();
        for (point, entries) in points.iter().zip(by_point(&results)) {
            let counted = point.counting.as_ref().and_then(Counting::warning);
            let rounds = entries.iter().map(|entry| entry.rounds.len()).min();
            let few = rounds.filter(|&rounds| rounds < ENOUGH).map(|_| {
                format!("fewer than {ENOUGH} rounds: nothing is claimed; try --rounds 10")
            });
            let wide = point
                .until
                .and_then(|until| wide(&parameters, until, entries));
            let own = [
                counted,
                few,
                wide,
                short(&parameters, entries),
                fixed(&parameters, entries),
                unsure(&parameters, point.confidence, entries),
                drift(&parameters, entries),
            ];
            let tails = entries
                .iter()
                .filter_map(|entry| heavy_tail(&parameters, entry));
            let failures = entries.iter().filter_map(failures);
            let own = own.into_iter().flatten().chain(tails).chain(failures);
            of_points.extend(own.map(|warning| (&point.at, warning)));
        }
        warnings.extend(told_once(of_points, points.len()));
        let machines = [machine.is_busy(), machine.is_scaled()];
        warnings.extend(machines.into_iter().flatten().chain(notes));
        let counting = match &points[..] {
            [point] if point.at.is_empty() => point.counting.clone(),
            _ => None,
        };
        Report {
            kind: "measured",
            machine,
            command: std::env::args().collect(),
            parameters,
            extent,
            warnings,
            counting,
            points,
            results,
        }
    }

    /// The program, the compared quantity, and the number of rounds.
    fn heading(&self) -> String {
        format!("{}: {}", self.parameters.program.join(" "), self.about())
    }

    /// The compared quantity, and the number of rounds.
    fn about(&self) -> String {
        let parameters = &self.parameters;
        let what = match (&parameters.metric, parameters.lower_is_better) {
            (None, _) => "wall time".to_owned(),
            (Some(metric), false) => format!("what {metric} finds, more is better"),
            (Some(metric), true) => format!("what {metric} finds, less is better"),
        };
        let (done, hogs) = (self.extent.rounds_done, parameters.hogs);
        let plural = if done == 1 { "" } else { "s" };
        let in_all = match self.points.len() {
            0 | 1 => String::new(),
            n => format!(" in all, at {n} points"),
        };
        let hogs = match hogs {
            0 => String::new(),
            1 => ", beside another busy process".to_owned(),
            n => format!(", beside {n} other busy processes"),
        };
        format!("{what}, {done} round{plural}{in_all}{hogs}")
    }

    /// The lock that the others are compared with.
    pub fn reference(&self) -> &str {
        self.results.first().map_or("", |entry| &entry.ratio.to)
    }

    fn table(&self) -> Table {
        let to = self.reference();
        let is_time = self.parameters.is_time();
        let show = move |value| shown(is_time, value);
        let mut columns = self.columns_of_points();
        columns = columns
            .add("lock", |e: &Entry| e.lock.clone())
            .add("median", move |e| show(e.value.median))
            .add("range", move |e| {
                format!("{}..{}", show(e.value.min), show(e.value.max))
            })
            .add(format!("over {to}"), |e| match e.verdict {
                Verdict::Reference => "1".to_owned(),
                Verdict::Failed => "failed".to_owned(),
                _ => e.ratio.words(),
            })
            .add("wins", |e| match e.is_compared() {
                true => format!("{}/{}", e.ratio.wins, e.rounds.len()),
                false => String::new(),
            })
            .add("CPU time", |e| time(1e9 * e.cpu_s.median))
            .add("switches", |e| grouped(e.switches.median.round() as u64))
            .add("peak memory", |e| match &e.peak_kib {
                Some(peak) => format!("{} MiB", three_digits(peak.median / 1024.0)),
                None => "small".to_owned(),
            });
        if self.results.iter().any(|entry| entry.counters.is_some()) {
            let shown = |count: Option<u64>| count.map_or("-".to_owned(), |n| rate(n as f64));
            columns = columns
                .add("instructions", move |e| {
                    shown(e.counter(|c| c.instructions))
                })
                .add("cache misses", move |e| {
                    shown(e.counter(|c| c.cache_misses))
                });
        }
        columns.of(&self.results)
    }

    /// A column for each parameter of a scan.
    fn columns_of_points(&self) -> Columns<Entry> {
        let scans = self.parameters.scan.iter();
        scans.fold(Columns::new(), |columns, scan| {
            let name = scan.name.clone();
            columns.add(&scan.name, move |e: &Entry| e.at.value(&name).to_owned())
        })
    }

    /// The columns that contain numbers.
    fn right(&self) -> std::ops::Range<usize> {
        1 + self.parameters.scan.len()..usize::MAX
    }

    /// For each point, a sentence for each lock, and one about how much a better lock could gain.
    fn sentences(&self) -> Vec<String> {
        let words = self.parameters.words();
        let mut sentences = Vec::new();
        for (point, entries) in self.points.iter().zip(by_point(&self.results)) {
            let others = entries
                .iter()
                .filter(|entry| entry.verdict != Verdict::Reference);
            let locks = others.map(|entry| {
                let rounds = entry.rounds.len();
                entry.ratio.sentence(&entry.lock, rounds, words)
            });
            sentences.extend(locks.map(|sentence| point.at.about(sentence)));
        }
        sentences.extend(self.confidence());
        let counted = self.points.iter().filter_map(|point| {
            let counting = point.counting.as_ref()?;
            Some((&point.at, counting.words()))
        });
        sentences.extend(told_once(counted.collect(), self.points.len()));
        sentences
    }

    /// Adds a table of the runs under each lock to a page.
    fn add_rounds(&self, page: &mut Page) {
        let is_time = self.parameters.is_time();
        for entry in &self.results {
            let columns = Columns::<(usize, &Round)>::new()
                .add("round", |(number, _)| *number)
                .add("place in it", |(_, round)| round.place + 1)
                .add("value", move |(_, round)| shown(is_time, round.value))
                .add(format!("over {}", entry.ratio.to), |(_, round)| {
                    format!("{:.3}", round.ratio)
                })
                .add("CPU time", |(_, round)| time(1e9 * round.usage.cpu_s()))
                .add("switches", |(_, round)| grouped(round.usage.switches()))
                .add("status", |(_, round)| round.status);
            let rounds: Vec<_> = (1..).zip(&entry.rounds).collect();
            let table = columns.of(&rounds);
            let lock = entry.at.about(entry.lock.clone());
            page.table(&lock, &table, 1..table.headings.len());
        }
    }

    /// A sentence that explains the brackets.
    fn confidence(&self) -> Option<String> {
        let confidences = self.points.iter().filter_map(|point| point.confidence);
        let percent = 100.0 * confidences.reduce(f64::min)?;
        let intervals = by_point(&self.results).map(|entries| claims(entries).count());
        let several = match intervals.max() {
            Some(2..) => ", for all locks together",
            _ => "",
        };
        let looks = match self.parameters.until_percent {
            Some(_) => ", at all looks together",
            None => "",
        };
        let each = match self.points.len() {
            0 | 1 => "",
            _ => ", at each point by itself",
        };
        Some(format!(
            "In brackets: where the true median ratio is, with a confidence of {percent:.0} \
             %{several}{looks}{each}."
        ))
    }
}

/// The confidences of the intervals of a point that claim something.
fn claims(entries: &[Entry]) -> impl Iterator<Item = f64> {
    let compared = entries
        .iter()
        .filter(|entry| entry.is_compared() && entry.ratio.claims);
    compared.map(|entry| entry.ratio.confidence)
}

/// The probability that all intervals of a point contain their true medians; `None` if there are
/// none.
pub fn confidence(entries: &[Entry]) -> Option<f64> {
    claims(entries).next()?;
    Some(together(claims(entries)))
}

/// A warning if the intervals have less than the intended confidence.
fn unsure(parameters: &Parameters, confidence: Option<f64>, entries: &[Entry]) -> Option<String> {
    let percent = 100.0 * confidence.filter(|&confidence| confidence < CONFIDENCE)?;
    let aim = 100.0 * CONFIDENCE;
    let remedy = match parameters.rounds {
        Some(_) => format!("try --rounds {}", rounds_for(claims(entries).count())),
        None => "compare fewer locks".to_owned(),
    };
    Some(format!(
        "so few rounds are not enough for a confidence of {aim:.0} %: all intervals hold together \
         with {percent:.0} %; {remedy}"
    ))
}

/// Sentences about points. A sentence that is the same for all `points` appears once and names
/// none.
fn told_once(all: Vec<(&At, String)>, points: usize) -> Vec<String> {
    let mut told: Vec<(Vec<&At>, String)> = Vec::new();
    for (at, sentence) in all {
        match told.iter_mut().find(|(_, known)| *known == sentence) {
            Some((places, _)) => places.push(at),
            None => told.push((vec![at], sentence)),
        }
    }
    let told = told
        .into_iter()
        .flat_map(|(places, sentence)| match places.len() {
            n if n == points => vec![sentence],
            _ => places.iter().map(|at| at.about(sentence.clone())).collect(),
        });
    told.collect()
}

/// The entries of each point.
fn by_point(results: &[Entry]) -> impl Iterator<Item = &[Entry]> {
    results.chunk_by(|a, b| a.at == b.at)
}

/// A warning if the intervals are not as narrow as was asked for.
fn wide(parameters: &Parameters, until: Ended, results: &[Entry]) -> Option<String> {
    let wanted = parameters.until_percent.filter(|_| !until.reached)?;
    let compared = results.iter().filter(|entry| entry.is_compared());
    let widest = compared.max_by(|a, b| a.ratio.reach().total_cmp(&b.ratio.reach()))?;
    let (rounds, seconds) = (widest.rounds.len(), time(1e9 * until.seconds));
    Some(format!(
        "not as narrow as --until {wanted}%: after {rounds} rounds in {seconds} the interval of {} \
         reaches {:.1} % from its median ratio; a longer --time-limit, a quieter machine or longer \
         runs narrow it",
        widest.lock,
        100.0 * widest.ratio.reach()
    ))
}

/// A warning if starting processes is a large part of the measured time.
fn short(parameters: &Parameters, results: &[Entry]) -> Option<String> {
    let shortest = results.iter().map(|entry| entry.value.median);
    let shortest = shortest.fold(f64::INFINITY, f64::min);
    (parameters.is_time() && shortest < 0.02).then(|| {
        let time = time(1e9 * shortest);
        format!("a run takes {time}: much of that is starting the program; give it more to do")
    })
}

/// A warning if all runs take the same time, as when a program works for a fixed time.
fn fixed(parameters: &Parameters, results: &[Entry]) -> Option<String> {
    let rounds = results.iter().flat_map(|entry| &entry.rounds);
    let values: Vec<_> = rounds.map(|round| round.value).collect();
    (parameters.is_time() && results.len() > 1 && are_alike(&values)).then(|| {
        "all runs took the same time: if the program works for a fixed time, compare a number that \
         it prints (--metric), or give it a fixed amount of work"
            .to_owned()
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
    let values: Vec<_> = entry.rounds.iter().map(|round| round.value).collect();
    let far = far_values(&values);
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
        let text = table.fitted(table.text(self.right()));
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
        table.markdown(self.right(), out)?;
        writeln!(out)?;
        for line in self.sentences().iter().chain(&self.warnings) {
            writeln!(out, "- {line}")?;
        }
        Ok(())
    }

    fn page(&self, pictures: &[Picture]) -> anyhow::Result<Page> {
        let mut page = Page::new("kinlock compare");
        page.command(&self.parameters.program);
        let machine = self.machine.summary();
        page.paragraph(&format!("Compared: {}.\nOn {machine}.", self.about()));
        page.list(self.sentences());
        page.notes(&self.warnings);
        pictures.iter().for_each(|picture| page.picture(picture));
        let table = self.table();
        page.table("Each lock, the best first", &table, self.right());
        page.heading(2, "Rounds");
        page.folded("Each run of the program", |page| self.add_rounds(page));
        Ok(page)
    }

    fn csv(&self) -> Table {
        let written = |count: Option<u64>| count.map_or(String::new(), |n| n.to_string());
        let columns = self
            .columns_of_points()
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
            })
            .add("instructions", move |e| {
                written(e.counter(|c| c.instructions))
            })
            .add("cache_misses", move |e| {
                written(e.counter(|c| c.cache_misses))
            });
        columns.of(&self.results)
    }
}
