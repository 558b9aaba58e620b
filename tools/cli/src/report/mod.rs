//! What the reports of all verbs have in common: forms, flags, files, tables, pictures, numbers.

pub mod cells;
pub mod html;
pub mod plot;
pub mod table;
pub mod text;
pub mod units;
pub mod write;

use std::io::Write;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgMatches, Command, value_parser};
use serde::Serialize;

use self::html::{Page, Picture};
use self::plot::{Area, Drawn};
use self::table::Table;
use self::write::Outputs;

/// Writes a report as JSON, indented, with a newline at the end.
pub fn write_json(report: &impl Serialize, mut out: impl Write) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(report)?;
    writeln!(out, "{}", text::json(&text))?;
    Ok(())
}

/// What a verb found out; serialized, it is the report for programs.
pub trait Report: Serialize + Sized + 'static {
    const FLAGS: Flags;
    /// Whether the report contains the command line of the user's program.
    const IS_PRIVATE: bool = false;

    /// Writes what people read on stdout.
    fn text(&self, out: &mut dyn Write) -> anyhow::Result<()>;

    /// Writes the tables in Markdown, for reports and issues.
    fn markdown(&self, out: &mut dyn Write) -> anyhow::Result<()>;

    /// The page for browsers, with these pictures of [`Pictures`] in it.
    fn page(&self, pictures: &[Picture]) -> anyhow::Result<Page>;

    /// One row per number or group of numbers, for spreadsheets.
    fn csv(&self) -> Table;
}

/// The help of the flags that differ between reports.
pub struct Flags {
    pub json: &'static str,
    pub csv: &'static str,
}

/// A report with or without pictures. The code that draws a report depends on the report, and not
/// the other way round.
pub trait Pictures: Report {
    /// `--plot`, if there is something to draw.
    const PLOT: Option<Plot<Self>>;
}

pub struct Plot<R> {
    pub help: &'static str,
    pub size: fn(&R) -> (u32, u32),
    /// Draws the picture with that index.
    pub draw: fn(&R, usize, &Area) -> Drawn,
    /// A title, and a sentence that says how to read the picture, for readers who do not see it.
    pub about: fn(&R) -> [String; 2],
}

/// The destinations of a report as given on the command line. `-` is stdout.
pub struct Destinations<R> {
    pub json: Option<PathBuf>,
    pub csv: Option<PathBuf>,
    pub markdown: Option<PathBuf>,
    pub plot: Option<PathBuf>,
    pub html: Option<PathBuf>,
    report: PhantomData<R>,
}

impl<R: Pictures> Destinations<R> {
    /// Opens all destinations before there is a report. If none of them is stdout, the tables for
    /// people go there.
    pub fn open(&self) -> anyhow::Result<Outputs<R>> {
        self.open_for(&["picture"])
    }

    /// The same for pictures with these names. If there are several, each file name contains the
    /// name of its picture.
    pub fn open_for(&self, names: &[&str]) -> anyhow::Result<Outputs<R>> {
        let mut outputs = match R::IS_PRIVATE {
            true => Outputs::private(),
            false => Outputs::new(),
        };
        outputs.add(self.json.as_deref(), |report, out| write_json(report, out))?;
        outputs.add(self.csv.as_deref(), |report: &R, out| report.csv().csv(out))?;
        outputs.add(self.markdown.as_deref(), R::markdown)?;
        let pictures = names.len();
        outputs.add(self.html.as_deref(), move |report, out| {
            write_page(report, pictures, out)
        })?;
        if let (Some(path), Some(flag)) = (&self.plot, R::PLOT) {
            plot::check_name(path)?;
            let (size, draw) = (flag.size, flag.draw);
            for (index, name) in names.iter().enumerate() {
                let path = match names.len() {
                    1 => path.clone(),
                    _ => with_name(path, name),
                };
                outputs.add_picture(&path, move |report, out| {
                    plot::write(size(report), out, |area| draw(report, index, area))
                })?;
            }
        }
        outputs.for_people(R::text);
        Ok(outputs)
    }
}

/// Writes a report as a page, with this number of pictures.
fn write_page<R: Pictures>(report: &R, count: usize, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut pictures = Vec::new();
    if let Some(Plot {
        size, draw, about, ..
    }) = R::PLOT
    {
        for index in 0..count {
            let [title, about] = about(report);
            let picture =
                Picture::draw(title, about, size(report), |area| draw(report, index, area));
            pictures.push(picture?);
        }
    }
    report.page(&pictures)?.write(out)
}

impl<R: Pictures> clap::Args for Destinations<R> {
    fn augment_args(command: Command) -> Command {
        let Flags { json, csv } = R::FLAGS;
        let markdown = "Write the tables as Markdown (- for stdout)";
        let html = "Write one page for browsers that needs no other file: tables and pictures (- \
                    for stdout)";
        let mut flags = vec![("json", json), ("csv", csv), ("markdown", markdown)];
        flags.push(("html", html));
        flags.extend(R::PLOT.map(|plot| ("plot", plot.help)));
        command.args(flags.into_iter().map(|(name, help)| {
            Arg::new(name)
                .long(name)
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .help(help)
        }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<R: Pictures> clap::FromArgMatches for Destinations<R> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let path = |name| matches.get_one::<PathBuf>(name).cloned();
        Ok(Self {
            json: path("json"),
            csv: path("csv"),
            markdown: path("markdown"),
            plot: R::PLOT.and_then(|_| path("plot")),
            html: path("html"),
            report: PhantomData,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// `plots/all.svg` with `cna-lock2` is `plots/all-cna-lock2.svg`.
fn with_name(path: &Path, name: &str) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let extension = path.extension().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{stem}-{name}.{extension}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_before_the_extension() {
        let named = with_name(Path::new("plots/all.x.svg"), "lock2");
        assert_eq!(named, Path::new("plots/all.x-lock2.svg"));
    }
}
