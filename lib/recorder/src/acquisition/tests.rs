use super::*;
use std::alloc::{Layout, alloc_zeroed};
use std::boxed::Box;

/// A table of zeros, except that its first tally belongs to its first lock, which is at this
/// address and was taken by the first use.
fn table(address: u64) -> Box<Table> {
    // SAFETY: invariant 3: the fields are atomics, so zeros are a table; new memory of its layout.
    let table = unsafe {
        let memory = alloc_zeroed(Layout::new::<Table>());
        assert!(!memory.is_null());
        Box::from_raw(memory.cast::<Table>())
    };
    table.locks[0].address.store(address, Relaxed);
    let tally = &table.owners[0].tallies[0];
    tally.lock.store(1, Relaxed);
    tally.taken_by.store(1, Relaxed);
    table
}

/// Ends a measured hold, which took `nanos` and stands for `weight` holds.
fn end(table: &Table, weight: u16, nanos: u64) {
    let owner = &table.owners[0];
    owner.tallies[0].weight.store(weight, Relaxed);
    end_of_hold(table, owner, &owner.tallies[0], nanos);
}

/// The number of holds and their time. Checks that lock and use agree.
fn holds(table: &Table) -> [u64; 2] {
    let (lock, found) = (&table.locks[0], &table.uses[0]);
    let all = [&lock.held, &lock.hold_ns].map(|number| number.load(Relaxed));
    let by_use = [&found.held, &found.hold_ns].map(|number| number.load(Relaxed));
    assert_eq!(all, by_use);
    let classes = lock.holds.iter().map(|class| class.load(Relaxed));
    assert_eq!(classes.sum::<u64>(), all[0]);
    all
}

const USUAL: u64 = 1000;
const INTERRUPTED: u64 = 16_000_000;

#[test]
fn an_interrupted_hold_counts_once() {
    for address in [0x1000, 0x1000 | READING] {
        let table = table(address);
        end(&table, 1, USUAL);
        end(&table, 256, INTERRUPTED);
        assert_eq!(holds(&table), [257, 256 * USUAL + INTERRUPTED]);
        let lock = &table.locks[0];
        assert_eq!(lock.holds[bucket(USUAL)].load(Relaxed), 256);
        assert_eq!(lock.holds[bucket(INTERRUPTED)].load(Relaxed), 1);
        assert_eq!(lock.hold_max.load(Relaxed), INTERRUPTED);
        assert_eq!(lock.samples.load(Relaxed), 2);
    }
}

#[test]
fn a_hold_that_is_not_the_longest_stands_for_its_weight() {
    let table = table(0x1000);
    end(&table, 1, USUAL);
    end(&table, 256, USUAL);
    end(&table, 256, USUAL / 2);
    assert_eq!(holds(&table), [513, 257 * USUAL + 256 * USUAL / 2]);
    assert_eq!(table.locks[0].hold_max.load(Relaxed), USUAL);
}
