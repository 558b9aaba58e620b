//! Entries of places in the source, for locks of a program that tells where it takes them.

use super::entries::{Array, number_in, scattered};
use core::panic::Location;
use core::sync::atomic::Ordering::*;
use kinlock_report::{Place, Table};

/// The entry of a place, as an index plus 1; 0: there is no room.
pub(super) fn place_of(table: &Table, place: &'static Location<'static>) -> u32 {
    let places = Array {
        entries: &table.places,
        index: &table.place_index,
        used: &table.header.places_used,
        freed: &table.header.places_freed,
        key_of: |place: &Place| &place.address,
        hash_of: scattered,
    };
    let fill = |new: &Place| {
        // The end of a path tells more than its beginning.
        let path = place.file().as_bytes();
        let path = &path[path.len().saturating_sub(new.path.len())..];
        for (to, from) in new.path.iter().zip(path) {
            to.store(*from, Relaxed);
        }
        new.line.store(place.line(), Relaxed);
    };
    let address = core::ptr::from_ref(place).addr() as u64;
    let found = places.place(table, address, fill);
    found.map_or(0, |(place, _)| number_in(&table.places, place))
}
