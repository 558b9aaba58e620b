//! Throughput against the 99.9 % wait. The best locks are at the lower right: the frontier joins
//! those that no other lock beats in both.

use kinlock_cli::report::plot::{Area, Drawn, quiet_text, styled};
use kinlock_cli::report::units::{rate, time};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::least_shown;
use crate::harness::plot::look;
use crate::harness::results::Report;
use crate::harness::suite::Entry;
use crate::locks::Locks;

/// Draws the entries of one workload: those with several threads, if there are any.
pub fn draw(area: &Area, report: &Report<Locks>, row: &[Entry<Locks>]) -> Drawn {
    let mut entries: Vec<&Entry<Locks>> = row.iter().collect();
    if row.iter().any(|entry| entry.threads > 1) {
        entries.retain(|entry| entry.threads > 1);
    }
    let least = least_shown(row);
    let throughput = |entry: &Entry<Locks>| entry.ops_per_s.median.max(least);
    let wait = |entry: &Entry<Locks>| entry.detail.acquire_ns.p999.max(1) as f64;
    let range = |value: &dyn Fn(&Entry<Locks>) -> f64| {
        let values = entries.iter().map(|entry| value(entry));
        let (low, high) = (
            values.clone().fold(f64::INFINITY, f64::min),
            values.fold(0.0, f64::max),
        );
        (low * 0.6..high * 1.7).log_scale()
    };

    let mut chart = ChartBuilder::on(area)
        .margin_right(24)
        .x_label_area_size(44)
        .y_label_area_size(74)
        .build_cartesian_2d(range(&throughput), range(&wait))?;
    let mut mesh = chart.configure_mesh();
    mesh.x_labels(6)
        .x_desc("operations per second (at the left: or less)")
        .y_desc("99.9 % wait")
        .x_label_formatter(&|value| rate(*value))
        .y_label_formatter(&|value| time(*value));
    styled(&mut mesh).draw()?;

    let (left, top) = area.get_base_pixel();

    for cell in entries.chunk_by(|a, b| a.threads == b.threads) {
        let points: Vec<_> = cell.iter().map(|e| (throughput(e), wait(e))).collect();
        let steps = steps(&pareto(&points));
        chart.draw_series(LineSeries::new(steps.clone(), RGBColor(170, 170, 170)))?;
        if let Some(&end) = steps.last() {
            let (x, y) = chart.backend_coord(&end);
            let label = match cell[0].threads {
                1 => "1 thread".to_owned(),
                threads => format!("{threads} threads"),
            };
            let above = quiet_text(13).pos(Pos::new(HPos::Right, VPos::Bottom));
            area.draw(&Text::new(label, (x - left + 12, y - top - 10), above))?;
        }
        for entry in cell {
            let (x, y) = chart.backend_coord(&(throughput(entry), wait(entry)));
            // More threads, larger marks.
            let scale = 0.7 + 0.1 * (entry.threads as f64).log2();
            look(report, &entry.lock).mark(area, (x - left, y - top), scale)?;
        }
    }
    Ok(())
}

/// The points that no other point beats in both throughput (more) and wait (less), by rising
/// throughput.
fn pareto(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let beats = |a: &(f64, f64), b: &(f64, f64)| a.0 >= b.0 && a.1 <= b.1 && a != b;
    let mut frontier: Vec<_> = points
        .iter()
        .copied()
        .filter(|point| !points.iter().any(|other| beats(other, point)))
        .collect();
    frontier.sort_by(|a, b| a.0.total_cmp(&b.0));
    frontier
}

/// The frontier as stairs: more throughput than a point's is only to be had with the next point's
/// wait.
fn steps(frontier: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let Some(&first) = frontier.first() else {
        return Vec::new();
    };
    let pairs = frontier.windows(2);
    let corners = pairs.flat_map(|pair| [(pair[0].0, pair[1].1), pair[1]]);
    std::iter::once(first).chain(corners).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frontier_drops_what_is_beaten() {
        let points = [
            (10.0, 5.0),
            (20.0, 9.0),
            (15.0, 10.0),
            (5.0, 5.0),
            (30.0, 50.0),
        ];
        assert_eq!(pareto(&points), [(10.0, 5.0), (20.0, 9.0), (30.0, 50.0)]);
        assert_eq!(pareto(&[(1.0, 1.0), (1.0, 1.0)]).len(), 2);
    }

    #[test]
    fn stairs_turn_at_every_point() {
        let frontier = [(1.0, 1.0), (2.0, 5.0)];
        assert_eq!(steps(&frontier), [(1.0, 1.0), (1.0, 5.0), (2.0, 5.0)]);
        assert!(steps(&[]).is_empty());
    }
}
