//! `kinlock manual`, in builds with the feature `manual`: writes a man page for each verb and the
//! shells' completions from the definition of the command line, for installation.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;
use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, roman};
use kinlock_cli::VERSION;
use kinlock_cli::outcome::Outcome;

const NAME: &str = "kinlock";
const SHELLS: [Shell; 3] = [Shell::Bash, Shell::Zsh, Shell::Fish];

/// Writes the pages and the completions of `command` into `folder`, under the names that shells and
/// `man` look for.
pub fn write(command: &Command, folder: &Path) -> anyhow::Result<Outcome> {
    let written = write_files(command, folder);
    written.with_context(|| format!("cannot write the manual to {}", folder.display()))?;
    Ok(Outcome::Done)
}

fn write_files(command: &Command, folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    for shell in SHELLS {
        clap_complete::generate_to(shell, &mut shown(command), NAME, folder)?;
    }
    // The verb `help` has no page.
    let mut command = shown(command).disable_help_subcommand(true);
    command.build();
    write_pages(&command, NAME, folder)
}

/// The command without its hidden verbs, which completions would offer.
fn shown(command: &Command) -> Command {
    let mut shown = Command::new(NAME)
        .version(VERSION)
        .subcommand_required(true);
    if let Some(about) = command.get_about() {
        shown = shown.about(about.clone());
    }
    if let Some(about) = command.get_long_about() {
        shown = shown.long_about(about.clone());
    }
    let verbs = command.get_subcommands();
    shown.subcommands(verbs.filter(|verb| !verb.is_hide_set()).cloned())
}

/// The page of a command, and those of its verbs. `above` is the page that lists this one.
fn write_pages(command: &Command, above: &str, folder: &Path) -> io::Result<()> {
    let source = format!("{NAME} {VERSION}");
    let page = Man::new(command.clone()).source(source).manual(NAME);
    let mut file = File::create(folder.join(page.get_filename()))?;
    let about = command.get_long_about().or(command.get_about());
    let about = about.map(ToString::to_string).unwrap_or_default();
    let (about, mut examples) = without_examples(&about);
    let notes = command.get_after_long_help().or(command.get_after_help());
    let notes = notes.map(ToString::to_string).unwrap_or_default();
    let (notes, more) = without_examples(&notes);
    examples.extend(more);

    page.render_title(&mut file)?;
    // Names of options must not be hyphenated.
    file.write_all(b".nh\n.ad l\n")?;
    page.render_name_section(&mut file)?;
    page.render_synopsis_section(&mut file)?;
    section("DESCRIPTION", &about, &mut file)?;
    if command
        .get_arguments()
        .any(|argument| !argument.is_hide_set())
    {
        page.render_options_section(&mut file)?;
    }
    if command.has_subcommands() {
        page.render_subcommands_section(&mut file)?;
    }
    section("NOTES", &notes, &mut file)?;
    section("EXAMPLES", &examples, &mut file)?;
    see_also(command, above).to_writer(&mut file)?;
    file.flush()?;
    let own = command.get_display_name().unwrap_or(command.get_name());
    let verbs = command.get_subcommands();
    verbs
        .filter(|verb| !verb.is_hide_set())
        .try_for_each(|verb| write_pages(verb, own, folder))
}

/// Splits a text into the paragraphs that are not examples, and the examples.
fn without_examples(text: &str) -> (Vec<String>, Vec<String>) {
    let paragraphs = text.split("\n\n").filter(|text| !text.trim().is_empty());
    let (examples, others): (Vec<_>, Vec<_>) =
        paragraphs.partition(|text| text.starts_with("Example"));
    // The examples follow the word, in lines of their own or in the rest of its line.
    let bodies = examples.into_iter().filter_map(|text| text.split_once(':'));
    let bodies = bodies.map(|(_, body)| match body.trim_start_matches(' ') {
        lines if lines.starts_with('\n') => lines[1..].to_owned(),
        line => format!("  {line}"),
    });
    (
        others.into_iter().map(str::to_owned).collect(),
        bodies.collect(),
    )
}

/// A section, unless it would be empty. Indented lines stay as they are: they are tables, and
/// commands.
fn section(heading: &str, paragraphs: &[String], file: &mut File) -> io::Result<()> {
    if paragraphs.is_empty() {
        return Ok(());
    }
    let mut roff = Roff::new();
    roff.control("SH", [heading]);
    for (number, paragraph) in paragraphs.iter().enumerate() {
        if number > 0 {
            roff.control("PP", []);
        }
        let mut is_fixed = false;
        for line in paragraph.lines() {
            if line.starts_with(' ') != is_fixed {
                is_fixed = !is_fixed;
                roff.control(if is_fixed { "nf" } else { "fi" }, []);
            }
            roff.text(match is_fixed {
                true => vec![roman(line)],
                false => inlines(line),
            });
        }
        if is_fixed {
            roff.control("fi", []);
        }
    }
    roff.to_writer(file)
}

/// A line in which text between grave accents becomes bold.
fn inlines(line: &str) -> Vec<Inline> {
    let parts = line.split('`').enumerate();
    let parts = parts.map(|(number, part)| match number % 2 {
        0 => roman(part),
        _ => bold(part),
    });
    parts.collect()
}

/// Refers to the page that lists this one, and to the page of section 7, which has what no verb's
/// page says.
fn see_also(command: &Command, above: &str) -> Roff {
    let own = command.get_display_name().unwrap_or(command.get_name());
    let mut line = Vec::new();
    if own != above {
        line.extend([bold(above), roman("(1), ")]);
    }
    line.extend([bold(NAME), roman("(7)")]);
    let mut roff = Roff::new();
    roff.control("SH", ["SEE ALSO"]);
    roff.text(line);
    roff
}
