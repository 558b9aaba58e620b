//! A schedule's events as text.

use kinlock_sim::{DisruptionKind, Note, Noted};

/// One line for each note, in order of time.
pub(super) fn lines(notes: &[Note], clock_mhz: u64) -> Vec<String> {
    let nanos = |cycles: u64| cycles * 1000 / clock_mhz;
    let mut notes = notes.to_vec();
    notes.sort_by_key(|note| note.time);
    notes
        .iter()
        .map(|note| {
            let what = match note.what {
                Noted::Said(what) => what.to_owned(),
                Noted::Counted(event) => event.name().replace('_', " "),
                Noted::Parks => "falls asleep".to_owned(),
                Noted::Disrupted(d) => match d.kind {
                    DisruptionKind::Preemption { cycles } => format!(
                        "is preempted for {} ns before its access {}",
                        nanos(cycles),
                        d.spot.access
                    ),
                    DisruptionKind::Interrupt => {
                        format!("is interrupted before its access {}", d.spot.access)
                    }
                },
            };
            format!("{:>12} ns  thread {} {what}", nanos(note.time), note.thread)
        })
        .collect()
}
