//! A picture of the last few hand-offs: which thread had the lock when, and what the next one
//! waited for.

use kinlock_cli::report::plot::elements::*;
use kinlock_cli::report::plot::{Area, COLOURS, Drawn, quiet_text, text};
use kinlock_sim::trace::{Cause, Handoff, Part, Step};

use super::{Report, Traced, waited};

/// How many hand-offs are drawn.
const SHOWN: usize = 3;

const WIDTH: u32 = 1000;
const TITLE: u32 = 84;
const HEADING: u32 = 34;
const ROW: u32 = 26;
const AXIS: u32 = 26;
/// The list of steps, in columns.
const LIST_ROW: u32 = 17;
/// The positions of the begin and the end of time.
const LEFT: i32 = 150;
const RIGHT: i32 = WIDTH as i32 - 20;
/// Narrower steps have no number.
const LEAST: i32 = 9;

const HELD: RGBColor = RGBColor(60, 60, 60);
const OWN: RGBColor = RGBColor(205, 205, 205);
const SPIN: RGBColor = RGBColor(235, 235, 235);
const SLEEP: RGBColor = RGBColor(150, 110, 70);

/// The hand-offs that are drawn.
fn shown(traced: &Traced) -> &[Handoff] {
    let all = &traced.trace.handoffs;
    &all[all.len().saturating_sub(SHOWN)..]
}

/// The threads that take part, by socket.
fn threads(handoffs: &[Handoff]) -> Vec<(usize, usize)> {
    let mut threads = Vec::new();
    for handoff in handoffs {
        threads.extend([handoff.from, handoff.to].map(|holder| (holder.socket, holder.thread)));
        let steps = handoff.held.iter().chain(&handoff.handed);
        threads.extend(steps.map(|step| (step.socket, step.thread)));
    }
    threads.sort_unstable();
    threads.dedup();
    threads
}

/// The steps that have a number: transfers of lines.
fn numbered(handoff: &Handoff) -> Vec<&Step> {
    let steps = handoff.handed.iter();
    steps
        .filter(|step| !matches!(step.cause, Cause::Own | Cause::Spin))
        .collect()
}

fn list_height(handoffs: &[Handoff]) -> u32 {
    let most = handoffs.iter().map(|handoff| numbered(handoff).len()).max();
    LIST_ROW * (most.unwrap_or(0) as u32 + 2)
}

fn panel_height(traced: &Traced) -> u32 {
    let handoffs = shown(traced);
    HEADING + ROW * threads(handoffs).len() as u32 + AXIS + list_height(handoffs)
}

/// How large the picture is.
pub fn size(report: &Report) -> (u32, u32) {
    (
        WIDTH,
        TITLE + report.locks.iter().map(panel_height).sum::<u32>(),
    )
}

pub fn draw(report: &Report, area: &Area) -> Drawn {
    let (title, mut rest) = area.split_vertically(TITLE);
    let about = format!("simulated: {}", report.machine.about);
    title.draw(&Text::new(about, (14, 10), text(18)))?;
    let run = format!(
        "{}, {} threads, seed {}: the last {SHOWN} hand-offs, and the chain of waits that each \
         consists of",
        report.workload, report.threads, report.seed
    );
    title.draw(&Text::new(run, (14, 34), quiet_text(14)))?;
    legend(&title)?;
    for traced in &report.locks {
        let (panel, below) = rest.split_vertically(panel_height(traced));
        rest = below;
        draw_lock(traced, &panel)?;
    }
    Ok(())
}

fn colour(cause: Cause) -> RGBColor {
    let part = |part: Part| match part {
        Part::Word => COLOURS[0],
        Part::Node => COLOURS[2],
        Part::Data => COLOURS[4],
        Part::Other => COLOURS[5],
    };
    match cause {
        Cause::Line(of, _) => part(of),
        // A paler shade of the line that is waited for.
        Cause::Queue(of) => {
            let RGBColor(r, g, b) = part(of);
            let pale = |channel: u8| channel / 2 + 127;
            RGBColor(pale(r), pale(g), pale(b))
        }
        Cause::Spin => SPIN,
        Cause::Own => OWN,
        Cause::Sleep => SLEEP,
    }
}

fn legend(title: &Area) -> Drawn {
    let entries = [
        (HELD, "holds the lock"),
        (
            colour(Cause::Queue(Part::Word)),
            "(pale: the line goes to others first)",
        ),
        (COLOURS[0], "lock word travels"),
        (COLOURS[2], "queue node"),
        (COLOURS[4], "data"),
        (SPIN, "pause, end of spin"),
        (OWN, "instructions"),
    ];
    let order = [0, 2, 1, 3, 4, 5, 6];
    let mut x = 14;
    for (colour, name) in order.map(|place| entries[place]) {
        title.draw(&Rectangle::new([(x, 62), (x + 14, 74)], colour.filled()))?;
        title.draw(&Text::new(name, (x + 19, 61), quiet_text(13)))?;
        x += 38 + 11 * name.len() as i32 / 2;
    }
    Ok(())
}

/// Where things are in a panel.
struct Scale<'a> {
    threads: &'a [(usize, usize)],
    from_ns: f64,
    to_ns: f64,
}

impl Scale<'_> {
    fn x(&self, ns: f64) -> i32 {
        let part = (ns - self.from_ns) / (self.to_ns - self.from_ns);
        LEFT + (part * f64::from(RIGHT - LEFT)).round() as i32
    }

    /// The top of a thread's row.
    fn y(&self, thread: usize) -> i32 {
        let mut rows = self.threads.iter();
        let row = rows.position(|&(_, known)| known == thread).unwrap_or(0);
        (HEADING + ROW * row as u32) as i32
    }

    fn bottom(&self) -> i32 {
        (HEADING + ROW * self.threads.len() as u32) as i32
    }

    fn bar(&self, area: &Area, thread: usize, (from, to): (f64, f64), of: RGBColor) -> Drawn {
        let y = self.y(thread);
        let corners = [(self.x(from), y + 4), (self.x(to), y + ROW as i32 - 4)];
        area.draw(&Rectangle::new(corners, of.filled()))?;
        Ok(())
    }
}

fn draw_lock(traced: &Traced, area: &Area) -> Drawn {
    let handoffs = shown(traced);
    let (Some(first), Some(last)) = (handoffs.first(), handoffs.last()) else {
        let none = format!("{}: no hand-off after the warm-up", traced.lock);
        area.draw(&Text::new(none, (14, 10), text(15)))?;
        return Ok(());
    };
    let threads = threads(handoffs);
    let scale = Scale {
        threads: &threads,
        from_ns: first.acquired_ns,
        // Of the last holder it is only known that it has the lock.
        to_ns: last.handed_ns + 0.03 * (last.handed_ns - first.acquired_ns),
    };
    let per_cycle = traced.trace.mean_ns(|_| true);
    let heading = format!(
        "{}: {per_cycle:.0} ns from one acquisition to the next, on average",
        traced.lock
    );
    area.draw(&Text::new(heading, (14, 8), text(15)))?;
    rows(area, &scale)?;
    let mut number = 1;
    for (column, handoff) in handoffs.iter().enumerate() {
        scale.bar(
            area,
            handoff.from.thread,
            (handoff.acquired_ns, handoff.released_ns),
            HELD,
        )?;
        draw_steps(area, &scale, &handoff.handed, number)?;
        list(area, &scale, handoff, column, number)?;
        number += numbered(handoff).len();
    }
    scale.bar(area, last.to.thread, (last.handed_ns, scale.to_ns), HELD)
}

/// The threads' names and lines, and the axis of time.
fn rows(area: &Area, scale: &Scale) -> Drawn {
    let grid = RGBColor(225, 225, 225);
    for &(socket, thread) in scale.threads {
        let y = scale.y(thread);
        let name = format!("thread {thread} (socket {socket})");
        area.draw(&Text::new(name, (14, y + 6), text(13)))?;
        let middle = y + ROW as i32 / 2;
        area.draw(&PathElement::new([(LEFT, middle), (RIGHT, middle)], grid))?;
    }
    let span = scale.to_ns - scale.from_ns;
    let tick = [
        10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1e3, 2e3, 5e3, 1e4, 1e5, 1e6, 1e7,
    ];
    let tick = tick
        .into_iter()
        .find(|tick| span / tick <= 12.0)
        .unwrap_or(1e8);
    for n in 0..=(span / tick) as usize {
        let ns = n as f64 * tick;
        let (x, y) = (scale.x(scale.from_ns + ns), scale.bottom());
        area.draw(&PathElement::new([(x, HEADING as i32), (x, y + 3)], grid))?;
        area.draw(&Text::new(
            format!("{ns:.0} ns"),
            (x + 2, y + 5),
            quiet_text(12),
        ))?;
    }
    Ok(())
}

/// The steps of a hand-off, and an arrow where the chain goes from one thread to another.
fn draw_steps(area: &Area, scale: &Scale, steps: &[Step], mut number: usize) -> Drawn {
    for step in steps {
        scale.bar(
            area,
            step.thread,
            (step.from_ns, step.to_ns),
            colour(step.cause),
        )?;
        if matches!(step.cause, Cause::Own | Cause::Spin) {
            continue;
        }
        let (from, to) = (scale.x(step.from_ns), scale.x(step.to_ns));
        if to - from >= LEAST {
            let place = ((from + to) / 2 - 3, scale.y(step.thread) + 7);
            let white = ("sans-serif", 13).into_font().color(&WHITE);
            area.draw(&Text::new(number.to_string(), place, white))?;
        }
        number += 1;
    }
    for pair in steps
        .windows(2)
        .filter(|pair| pair[0].thread != pair[1].thread)
    {
        let x = scale.x(pair[1].from_ns);
        let [from, to] = [0, 1].map(|i| scale.y(pair[i].thread) + ROW as i32 / 2);
        let head = if to > from { -5 } else { 5 };
        area.draw(&PathElement::new([(x, from), (x, to)], HELD))?;
        let corners = [(x - 3, to + head), (x, to), (x + 3, to + head)];
        area.draw(&Polygon::new(corners, HELD.filled()))?;
    }
    Ok(())
}

/// The list that explains the numbers of a hand-off.
fn list(area: &Area, scale: &Scale, handoff: &Handoff, column: usize, first: usize) -> Drawn {
    let x = 14 + column as i32 * (WIDTH as i32 - 14) / SHOWN as i32;
    let mut y = scale.bottom() + AXIS as i32;
    let (from, to) = (handoff.from.thread, handoff.to.thread);
    let took = handoff.handed_ns - handoff.asked_ns;
    let heading = format!("{from} to {to}, {}: {took:.0} ns", handoff.distance.name());
    area.draw(&Text::new(heading, (x, y), text(13)))?;
    for (number, step) in (first..).zip(numbered(handoff)) {
        y += LIST_ROW as i32;
        let ns = step.to_ns - step.from_ns;
        let line = format!("({number}) {}: {ns:.0} ns", waited(step));
        area.draw(&Text::new(line, (x, y), quiet_text(13)))?;
    }
    Ok(())
}
