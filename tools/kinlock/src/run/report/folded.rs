//! Folded stacks: a line for each call stack that waited for a lock, outermost call first, with the
//! time that it waited.

use std::collections::BTreeMap;
use std::io::Write;

use super::Report;
use super::symbols::short;

pub fn write(report: &Report, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    for process in &report.processes {
        for lock in &process.locks {
            let mut left = lock.wait.total_ns;
            let name = match lock.side {
                Some(side) => format!("{} to {side}", lock.name),
                None => lock.name.clone(),
            };
            let mut add = |frames: &[String], nanos: u64| {
                let mut line = vec![word(&process.program)];
                line.extend_from_slice(frames);
                line.push(format!("[{}]", word(&name)));
                *lines.entry(line.join(";")).or_default() += nanos;
            };
            for caller in lock.callers.iter().filter(|caller| caller.wait_ns > 0) {
                let frames = caller.frames.iter().rev();
                let frames: Vec<_> = frames.map(|frame| word(&short(&frame.function))).collect();
                add(&frames, caller.wait_ns);
                left = left.saturating_sub(caller.wait_ns);
            }
            // Waits of callers for which the table had no room.
            if left > 0 {
                add(&["[unknown]".to_owned()], left);
            }
        }
    }
    for (line, nanos) in lines {
        writeln!(out, "{line} {nanos}")?;
    }
    Ok(())
}

/// Replaces the characters that have a meaning in folded stacks.
fn word(text: &str) -> String {
    text.replace([';', ' ', '\n'], "_")
}
