//! Throughput over the number of threads, both on logarithmic scales.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::style::Style;
use super::{least_shown, locks_of};
use crate::bench::harness::report::Entry;
use crate::bench::locks::Locks;
use crate::report::plot::{Drawn, text};
use crate::report::units::rate;

/// Draws the entries of one workload.
pub fn draw(area: &DrawingArea<SVGBackend, Shift>, row: &[Entry<Locks>]) -> Drawn {
    let mut threads: Vec<usize> = row.iter().map(|entry| entry.threads).collect();
    threads.sort_unstable();
    threads.dedup();
    let least = least_shown(row) * 0.7;
    let shown = |ops_per_s: f64| ops_per_s.max(least);
    let highest = row.iter().map(|e| e.ops_per_s.max).fold(0.0, f64::max);

    // Positions are logarithms; the labels undo that. A single number of threads gets some room
    // around it.
    let first = (threads[0] as f64).log2() - 0.2;
    let last = (threads[threads.len() - 1] as f64).log2() + 0.2;
    let mut chart = ChartBuilder::on(area)
        .margin_right(24)
        .margin_left(8)
        .x_label_area_size(44)
        .y_label_area_size(74)
        .build_cartesian_2d(first..last, (least..highest * 1.25).log_scale())?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(RGBColor(245, 245, 245))
        .bold_line_style(RGBColor(225, 225, 225))
        .x_labels(0)
        .x_desc("threads")
        .y_desc("operations per second (at the bottom: or less)")
        .y_label_formatter(&|value| rate(*value))
        .label_style(text(13))
        .axis_desc_style(text(14))
        .draw()?;

    let bottom = area.dim_in_pixel().1 as i32 - 44;
    for &threads in &labelled(&threads) {
        let (x, _) = chart.backend_coord(&((threads as f64).log2(), least));
        let (left, _) = area.get_base_pixel();
        let label = text(13).pos(Pos::new(HPos::Center, VPos::Top));
        area.draw(&Text::new(
            threads.to_string(),
            (x - left, bottom + 6),
            label,
        ))?;
    }

    for lock in locks_of(row) {
        let style = Style::of(lock);
        let mut entries: Vec<&Entry<Locks>> =
            row.iter().filter(|entry| entry.lock == lock).collect();
        entries.sort_by_key(|entry| entry.threads);
        let x = |entry: &Entry<Locks>| (entry.threads as f64).log2();
        let upper = entries.iter().map(|e| (x(e), shown(e.ops_per_s.max)));
        let lower = entries.iter().rev().map(|e| (x(e), shown(e.ops_per_s.min)));
        let outline: Vec<_> = upper.chain(lower).collect();
        chart.draw_series(std::iter::once(Polygon::new(outline, style.band())))?;
        let medians = entries.iter().map(|e| (x(e), shown(e.ops_per_s.median)));
        chart.draw_series(LineSeries::new(medians, style.line()))?;
        for entry in entries {
            let (left, top) = area.get_base_pixel();
            let (px, py) = chart.backend_coord(&(x(entry), shown(entry.ops_per_s.median)));
            style.mark(area, (px - left, py - top), 0.8)?;
        }
    }
    Ok(())
}

/// The numbers of threads that get a label: all if they are few, else roughly every doubling.
fn labelled(threads: &[usize]) -> Vec<usize> {
    if threads.len() <= 8 {
        return threads.to_vec();
    }
    let mut chosen: Vec<usize> = Vec::new();
    for &count in threads {
        if chosen.last().is_none_or(|&last| count >= 2 * last) {
            chosen.push(count);
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_stay_apart() {
        assert_eq!(labelled(&[1, 2, 8]), [1, 2, 8]);
        let many: Vec<usize> = (1..=142).collect();
        assert_eq!(labelled(&many), [1, 2, 4, 8, 16, 32, 64, 128]);
    }
}
