//! `KINLOCK_TOPOLOGY`: domains that the user defines.
//!
//! Its value is a sequence of lists of CPUs, separated by semicolons, as in `0-3;4-7`. The first
//! list is domain 0, and so on. The CPUs need not exist. CPUs that the value does not name belong
//! to domain 0.

use core::ops::RangeInclusive;

use super::MAX_CPUS;
use super::affinity::CpuSet;
use super::cpulist::CpuList;
use kinlock_core::tuning::ParseError;

/// Calls `put` with every CPU that `text` names and its domain; returns the number of domains.
///
/// # Errors
///
/// [`ParseError`] if `text` is malformed. Then `put` has not been called.
pub(crate) fn read(text: &[u8], put: impl Fn(usize, u16)) -> Result<u16, ParseError> {
    let count = check(text)?;
    for (list, domain) in lists(text).zip(0..) {
        let cpus = CpuList::new(list.iter().copied()).map_while(Result::ok);
        cpus.flatten().for_each(|cpu| put(cpu, domain));
    }
    Ok(count)
}

fn lists(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&byte| byte == b';')
}

/// The number of domains that `text` names, if it is correct.
fn check(text: &[u8]) -> Result<u16, ParseError> {
    let mut named = CpuSet::empty();
    let mut count = 0;
    for list in lists(text) {
        let mut empty = true;
        for range in CpuList::new(list.iter().copied()) {
            name_once(&mut named, range.map_err(|_| SYNTAX)?)?;
            empty = false;
        }
        if empty {
            return Err(SYNTAX);
        }
        // Cannot overflow: each domain has a CPU of its own, and there are at most MAX_CPUS.
        count += 1;
    }
    Ok(count)
}

const SYNTAX: ParseError = ParseError::new("one list of CPUs for each domain, as in 0-3;4-7");

fn name_once(named: &mut CpuSet, cpus: RangeInclusive<usize>) -> Result<(), ParseError> {
    for cpu in cpus {
        if cpu >= MAX_CPUS {
            return Err(ParseError::new("CPU numbers below 8192"));
        }
        if !named.insert(cpu) {
            return Err(ParseError::new("every CPU in one domain only"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    fn domains(text: &str) -> Result<(u16, BTreeMap<usize, u16>), String> {
        let found = RefCell::new(BTreeMap::new());
        let count = read(text.as_bytes(), |cpu, domain| {
            assert_eq!(found.borrow_mut().insert(cpu, domain), None);
        });
        match count {
            Ok(count) => Ok((count, found.into_inner())),
            Err(error) => {
                assert!(found.borrow().is_empty());
                Err(error.to_string())
            }
        }
    }

    #[test]
    fn lists_are_domains_in_the_order_written() {
        assert_eq!(domains("0;1"), Ok((2, BTreeMap::from([(0, 0), (1, 1)]))));
        let three = BTreeMap::from([(4, 0), (5, 0), (0, 1), (2, 1), (8191, 2)]);
        assert_eq!(domains(" 4-5 ; 0,2;8191"), Ok((3, three)));
        assert_eq!(domains("7").map(|(count, _)| count), Ok(1));
    }

    #[test]
    fn refuses_what_makes_no_sense() {
        let syntax = "expected one list of CPUs for each domain, as in 0-3;4-7";
        for text in [
            "", ";", "0;", ";0", "0;;1", "x", "0-", "3-0", "0:1", "0;1 2",
        ] {
            assert_eq!(domains(text), Err(syntax.to_owned()), "{text}");
        }
        for text in ["0;0", "0-3;3", "0,1,0"] {
            assert_eq!(
                domains(text),
                Err("expected every CPU in one domain only".to_owned())
            );
        }
        for text in ["8192", "0;0-1000000"] {
            let error = domains(text).unwrap_err();
            assert!(error.starts_with("expected "), "{error}");
        }
        assert_eq!(
            domains("1-8192"),
            Err("expected CPU numbers below 8192".to_owned())
        );
    }
}
