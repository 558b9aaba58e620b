//! Finds fewer disruptions with which a schedule still fails.
//!
//! Source: Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input", TSE 2002
//! (`ddmin`).

/// The most schedules that shrinking may take.
const PATIENCE: usize = 800;

/// A sublist of `items` for which `fails` still holds; `fails` has to hold for the whole list.
/// Unless `PATIENCE` runs out, no single item can be left out of the result.
pub fn shrink<T: Clone>(mut items: Vec<T>, mut fails: impl FnMut(&[T]) -> bool) -> Vec<T> {
    if items.is_empty() || fails(&[]) {
        return Vec::new();
    }
    let (mut asked, mut parts) = (1, 2);
    while items.len() > 1 && asked < PATIENCE {
        let size = items.len().div_ceil(parts);
        // Leave out one part at a time. With two parts, the rest is the other part.
        let smaller = (0..items.len()).step_by(size).find_map(|start| {
            let end = (start + size).min(items.len());
            let rest = [&items[..start], &items[end..]].concat();
            asked += 1;
            fails(&rest).then_some(rest)
        });
        match smaller {
            Some(rest) => {
                items = rest;
                parts = (parts - 1).max(2);
            }
            None if size == 1 => break,
            None => parts = (parts * 2).min(items.len()),
        }
    }
    items
}
