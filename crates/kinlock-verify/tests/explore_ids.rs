//! Random schedules of concurrency IDs: ours pass under every policy, each broken allocator is caught by what it violates.

use kinlock::raw::ids::{IdConfig, IdFault, Policy};
use kinlock_verify::explore::ids::{Violation, hunt};

const SCHEDULES: u64 = 1500;

macro_rules! config {
    ($name:ident: fault $fault:ident, patience $patience:expr) => {
        #[derive(Clone, Copy, Debug)]
        struct $name;
        impl IdConfig for $name {
            const FAULT: IdFault = IdFault::$fault;
            const PATIENCE: u32 = $patience;
        }
    };
}

config!(Sound: fault None, patience 16);
config!(Impatient: fault None, patience 1);
config!(Shared: fault Shared, patience 16);
config!(Leaked: fault Leaked, patience 16);
config!(AboveBound: fault AboveBound, patience 16);
config!(StaleRecent: fault StaleRecent, patience 16);
config!(LateGrowth: fault LateGrowth, patience 16);
config!(Stranded: fault Stranded, patience 16);

#[test]
fn sound_allocators_pass() {
    for policy in Policy::ALL {
        assert_eq!(hunt::<Sound>(policy, 1, SCHEDULES), None, "{policy:?}");
        assert_eq!(
            hunt::<Impatient>(policy, 1_000_000, SCHEDULES),
            None,
            "{policy:?}"
        );
    }
}

fn caught<C: IdConfig>(meant: &[Violation]) {
    caught_within::<C>(SCHEDULES, meant);
}

fn caught_within<C: IdConfig>(schedules: u64, meant: &[Violation]) {
    let found = hunt::<C>(Policy::RecentFirst, 1, schedules);
    println!("{found:?}");
    let (_, violation) = found.expect("it is caught");
    assert!(meant.contains(&violation), "{violation:?}");
}

#[test]
fn a_shared_id_is_caught() {
    // If both of its holders free it, the second time borrows from other bits of the map.
    caught::<Shared>(&[Violation::Shared, Violation::Lost]);
}

#[test]
fn a_leaked_id_is_caught() {
    // What is lost is below the bound, so that others may come above it before somebody counts.
    caught::<Leaked>(&[Violation::Lost, Violation::AboveBound]);
}

#[test]
fn an_id_above_the_bound_is_caught() {
    caught::<AboveBound>(&[Violation::AboveBound]);
}

#[test]
fn a_stale_recent_id_is_caught() {
    caught::<StaleRecent>(&[Violation::AboveBound]);
}

#[test]
fn an_id_that_is_kept_above_the_limit_for_ever_is_caught() {
    caught::<Stranded>(&[Violation::Stuck]);
}

#[test]
fn growth_by_an_old_limit_is_caught() {
    // Rare: the limit has to come down between two steps, to more than there ever were on their way.
    caught_within::<LateGrowth>(100 * SCHEDULES, &[Violation::AboveBound]);
}
