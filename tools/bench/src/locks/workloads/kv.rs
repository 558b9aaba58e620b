//! An ordered map of a million keys: 80 % reads, 10 % insertions, 10 % removals, popular keys
//! often.

use std::collections::BTreeMap;
use std::hint::black_box;

use kinlock_measure::random::Random;

use super::Request;
use super::zipf::Zipf;
use crate::locks::round::Workload;

const KEYS: u64 = 1_000_000;

pub struct Kv {
    keys: Zipf,
}

impl Kv {
    pub fn new() -> Self {
        Self {
            keys: Zipf::new(KEYS),
        }
    }
}

/// What is done with a key.
#[derive(Clone, Copy)]
pub enum Kind {
    Read,
    Insert,
    Remove,
}

impl Workload for Kv {
    type Shared = BTreeMap<u64, u64>;
    type Local = (Request, Kind);

    /// The map has all keys at first. A removed key comes back by an insertion, which is as likely
    /// as a removal.
    fn shared(&self) -> BTreeMap<u64, u64> {
        (0..KEYS).map(|key| (key, key)).collect()
    }

    fn local(&self, rng: Random) -> Self::Local {
        (Request::new(rng), Kind::Read)
    }

    #[inline(always)]
    fn think(&self, (request, kind): &mut Self::Local) {
        request.key = self.keys.draw(&mut request.rng);
        *kind = match request.rng.below(10) {
            0 => Kind::Insert,
            1 => Kind::Remove,
            _ => Kind::Read,
        };
    }

    /// Not inlined: one copy for all locks takes the same time under each, and is compiled once.
    #[inline(never)]
    fn section(&self, map: &mut BTreeMap<u64, u64>, (request, kind): &mut Self::Local) {
        let key = request.key;
        black_box(match kind {
            Kind::Read => map.get(&key).copied(),
            Kind::Insert => map.insert(key, key),
            Kind::Remove => map.remove(&key),
        });
    }
}
