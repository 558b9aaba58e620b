//! Call stacks of programs in Rust that take locks of the crate `kinlock`.

use super::Caller;
use super::symbols::Frame;

/// The type of the data that a lock guards, if the name of a function contains it.
pub fn data(first: &[Frame], callers: &[Caller]) -> Option<String> {
    let callers = callers.iter().flat_map(|caller| &caller.frames);
    let mut frames = first.iter().chain(callers);
    frames.find_map(|frame| guarded(&frame.function))
}

/// `T` of a function of `lock_api::Mutex<kinlock::mutex::RawMutex, T>` or of its relatives, if its
/// name has types, as Rust's newer mangling gives it.
fn guarded(function: &str) -> Option<String> {
    let from = function.find("lock_api::")?;
    let rest = &function[from..];
    let (_, rest) = rest.split_once("<kinlock::")?;
    let (_, rest) = rest.split_once(", ")?;
    let mut depth = 0_i32;
    let end = rest.char_indices().find(|&(at, c)| {
        match c {
            '<' | '(' | '[' => depth += 1,
            '>' if rest[..at].ends_with('-') => {}
            '>' | ')' | ']' => depth -= 1,
            _ => {}
        }
        depth < 0
    });
    Some(rest[..end?.0].to_owned())
}

/// Removes the lock's own functions, by which the program took it.
pub fn without_own(frames: &mut Vec<Frame>) {
    const OWN: [&str; 4] = [
        "lock_api::",
        "kinlock::",
        "kinlock_core::",
        "kinlock_recorder::",
    ];
    let is_own = |frame: &Frame| {
        let function = frame.function.trim_start_matches('<');
        OWN.iter().any(|own| function.starts_with(own))
    };
    let own = frames.iter().take_while(|frame| is_own(frame)).count();
    // If there are no other functions, these are kept.
    if own < frames.len() {
        frames.drain(..own);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_type_of_the_data_is_read_from_names_that_have_it() {
        let mutex = "<lock_api::mutex::Mutex<kinlock::mutex::RawMutex, hot::Stock>>::lock";
        assert_eq!(guarded(mutex).as_deref(), Some("hot::Stock"));
        let nested = "<lock_api::rwlock::RwLock<kinlock::rwlock::RawRwLock, \
                      alloc::vec::Vec<(u32, fn(u8) -> u8)>>>::read";
        let data = "alloc::vec::Vec<(u32, fn(u8) -> u8)>";
        assert_eq!(guarded(nested).as_deref(), Some(data));
        for other in [
            "lock_api::mutex::Mutex<R,T>::lock",
            "<lock_api::mutex::Mutex<other::RawMutex, hot::Stock>>::lock",
            "hot::Shop::order",
            "<lock_api::mutex::Mutex<kinlock::mutex::RawMutex, hot::Sto",
        ] {
            assert_eq!(guarded(other), None, "{other}");
        }
    }
}
