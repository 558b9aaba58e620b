//! One file per thing a person wants to do.

pub mod bench;
pub mod explore;
pub mod reproduce;
pub mod sim;
pub mod topology;
pub mod torture;

/// Of items with the same key, leaves the first.
fn keep_first<T, K: PartialEq>(items: &mut Vec<T>, key: impl Fn(&T) -> K) {
    let mut seen = Vec::new();
    items.retain(|item| {
        let key = key(item);
        let is_new = !seen.contains(&key);
        seen.push(key);
        is_new
    });
}
