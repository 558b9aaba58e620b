//! Reads the table that a process left behind, or is filling.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::*};

use kinlock_cli::report::text;
use kinlock_report::{
    BUCKETS, ENDED, FREED, HELD, JOINS, NO_LOCKS, OTHERS, READING, RWLOCK, Table, bucket, end_of,
};

use super::entry::{file_and_line, get, get32, kind, name, stack, used};
use super::folder::Seen;
use super::others::Shortening;
use super::symbols::{Frame, Module, Symbols};
use super::{
    Behind, Caller, Did, Dropped, EndedThreads, Lock, OF_CRATE, OtherWaits, Process, Stripped,
    Thread, Times, Waited, misuse, recorded, rust,
};

fn bytes(from: &[AtomicU8]) -> Vec<u8> {
    from.iter().map(|byte| byte.load(Relaxed)).collect()
}

fn text(from: &[AtomicU8]) -> String {
    let bytes = bytes(from);
    let end = bytes.iter().position(|&byte| byte == 0);
    text::name(&bytes[..end.unwrap_or(bytes.len())])
}

/// What a process has done so far.
pub fn process(table: &Table, seen: Seen) -> Process {
    let header = &table.header;
    let _survived = Shortening::survived();
    let mut symbols = Symbols::new(modules(table));
    let tallies = Tallies::of(table);
    let end = match get(&header.end) {
        0 => seen.at,
        end => end,
    };
    let life = end.saturating_sub(get(&header.begin));
    let uses = uses(table);
    let mut threads = threads(table, &tallies, end);
    let entries = used(&table.locks, &header.locks_used).iter().enumerate();
    let entries = entries.filter(|(_, entry)| !matches!(get(&entry.address), 0 | FREED));
    let (others, locks): (Vec<_>, Vec<_>) =
        entries.partition(|(_, entry)| NO_LOCKS.iter().any(|kind| get32(&entry.kind) & kind != 0));
    let locks = locks
        .into_iter()
        .map(|(index, _)| lock(table, index, &tallies, &uses, &mut symbols, &threads, life));
    // A side of a reader-writer lock may have an entry only for the order of locks.
    let did_any = |lock: &Lock| lock.locked + lock.contended + lock.tries > 0;
    let mut locks: Vec<_> = locks
        .filter(|lock| lock.side.is_none() || did_any(lock))
        .collect();
    let waits = others
        .into_iter()
        .map(|(index, _)| waited(table, index, &uses, &mut symbols, &threads));
    let waits = waits.collect();
    tell_apart(&mut locks);
    // A wait that has not ended counts for the thread, as it does for the lock.
    for thread in &mut threads {
        if thread.waits_key != 0 && locks.iter().any(|lock| lock.key == thread.waits_key) {
            thread.did.contended += 1;
            thread.did.wait_ns += thread.waits_for_ns;
            thread.did.wait_max_ns = thread.did.wait_max_ns.max(thread.waits_for_ns);
        }
    }
    let ended = &header.ended_threads;
    let named = locks.iter().map(|lock| (lock.address, lock.name.clone()));
    let names = named.collect();
    let misuses = misuse::misuses(table, &names, &mut symbols);
    let order = misuse::order(table, &names, &mut symbols);
    Process {
        pid: get32(&header.process),
        parent: get32(&header.parent),
        program: text(&header.program),
        lock: ["kinlock-mutex", "kinlock-spin", "pthread", OF_CRATE]
            .get(get32(&header.locks) as usize)
            .copied()
            .unwrap_or("unknown"),
        ended: get(&header.end) != 0,
        runs: get(&header.end) == 0 && seen.runs,
        seconds: life as f64 / 1e9,
        domains: get32(&header.domains),
        thread_count: get32(&header.threads),
        changed_files: symbols.changed_files(),
        stripped_files: symbols
            .stripped_files()
            .into_iter()
            .map(|file| Stripped {
                file,
                package: None,
            })
            .collect(),
        dropped: Dropped {
            locks: get(&header.dropped_locks),
            stacks: get(&header.dropped_stacks),
            uses: get(&header.dropped_uses),
            threads: get(&header.dropped_threads),
            misuses: get(&header.dropped_misuses),
            waits: get(&header.dropped_waits),
        },
        no_memory: get32(&header.no_memory) > 0,
        ended_threads: EndedThreads {
            count: get(&ended.count),
            did: Did {
                locked: get(&ended.locked),
                contended: get(&ended.contended),
                wait_ns: get(&ended.wait_ns),
                wait_max_ns: get(&ended.wait_max),
                other_waits: other_waits(&ended.others, &ended.other_ns),
            },
            life_ns: get(&ended.life_ns),
        },
        misuses,
        order,
        locks,
        waits,
        threads,
    }
}

fn other_waits(count: &AtomicU64, nanos: &[AtomicU64; NO_LOCKS.len()]) -> OtherWaits {
    let [condvar_ns, barrier_ns, semaphore_ns, join_ns] = nanos.each_ref().map(get);
    OtherWaits {
        count: get(count),
        total_ns: condvar_ns + barrier_ns + semaphore_ns + join_ns,
        condvar_ns,
        barrier_ns,
        semaphore_ns,
        join_ns,
    }
}

/// The uses of each lock, by its index plus 1.
fn uses(table: &Table) -> HashMap<u32, Vec<usize>> {
    let mut uses: HashMap<u32, Vec<usize>> = HashMap::new();
    let all = used(&table.uses, &table.header.uses_used);
    for (at, found) in all.iter().enumerate() {
        let key = get(&found.key);
        if key != FREED {
            uses.entry((key >> 32) as u32).or_default().push(at);
        }
    }
    uses
}

fn modules(table: &Table) -> Vec<Module> {
    let all = table.modules.iter().filter(|m| m.end.load(Acquire) != 0);
    all.map(|module| {
        let part = |from: &[AtomicU8], length: &AtomicU32| {
            let length = (get32(length) as usize).min(from.len());
            bytes(&from[..length])
        };
        let path = OsString::from_vec(part(&module.path, &module.path_length));
        Module::new(
            (get(&module.start), get(&module.end)),
            get(&module.bias),
            path.into(),
            part(&module.build_id, &module.build_id_length),
        )
    })
    .collect()
}

/// The sum of a lock's tallies.
#[derive(Clone, Default)]
struct Sum {
    locked: u64,
    changed: u64,
    remote: u64,
    contended: u64,
    wait_ns: u64,
    /// The tokens of the threads that hold it, each with [`Tally::since`](kinlock_report::Tally).
    holders: Vec<(u32, u64)>,
}

/// The sums of all tallies.
struct Tallies {
    locks: Vec<Sum>,
    /// How often each thread took a lock, by its token.
    locked: HashMap<u32, u64>,
}

impl Tallies {
    fn of(table: &Table) -> Self {
        let mut locks = vec![Sum::default(); table.locks.len()];
        let mut locked = HashMap::new();
        for owner in table.owners.iter().filter(|o| get32(&o.token) != 0) {
            let token = get32(&owner.token);
            for (tally, waits) in owner.tallies.iter().zip(&owner.waits) {
                let Some(at) = table.lock_of(tally) else {
                    continue;
                };
                let sum = &mut locks[at];
                sum.locked += get(&tally.locked);
                sum.changed += get(&tally.changed);
                sum.remote += get(&tally.remote);
                sum.contended += get(&waits.count);
                sum.wait_ns += get(&waits.nanos);
                let since = get(&tally.since);
                if since != 0 {
                    sum.holders.push((token, since));
                }
                *locked.entry(token).or_default() += get(&tally.locked);
            }
        }
        Tallies { locks, locked }
    }

    fn locked_by(&self, token: u32) -> u64 {
        self.locked.get(&token).copied().unwrap_or(0)
    }
}

fn threads(table: &Table, tallies: &Tallies, end: u64) -> Vec<Thread> {
    let all = table.threads.iter().filter(|t| get32(&t.token) != 0);
    all.map(|thread| Thread {
        number: get32(&thread.token),
        id: get32(&thread.id),
        name: text(&thread.name),
        did: Did {
            locked: get(&thread.locked) + tallies.locked_by(get32(&thread.token)),
            contended: get(&thread.contended),
            wait_ns: get(&thread.wait_ns),
            wait_max_ns: get(&thread.wait_max),
            other_waits: other_waits(&thread.others, &thread.other_ns),
        },
        waits_for: object(get(&thread.waits_for)),
        waits_for_ns: match get(&thread.waits_for) {
            0 => 0,
            _ => end.saturating_sub(get(&thread.waits_since)),
        },
        waits_key: get(&thread.waits_for),
        life: [
            get(&thread.begin),
            match get(&thread.end) {
                0 => end,
                end => end,
            },
        ]
        .map(|time| time.saturating_sub(get(&table.header.begin)) as f64 / 1e9),
    })
    .collect()
}

/// The address of the object that an entry's key contains; 0: the entry is for no object.
fn object(key: u64) -> u64 {
    match key {
        JOINS => 0,
        key => key & !READING & !OTHERS,
    }
}

/// Reads an object that is not a lock.
fn waited(
    table: &Table,
    index: usize,
    uses: &HashMap<u32, Vec<usize>>,
    symbols: &mut Symbols,
    threads: &[Thread],
) -> Waited {
    let from = &table.locks[index];
    let key = get(&from.address);
    let (address, is_ended) = (object(key), key & OTHERS == ENDED);
    let kind = kind(get32(&from.kind));
    let name = match address {
        0 => "pthread_join".to_owned(),
        _ => name(address, place(table, from).as_deref(), symbols),
    };
    let own_uses = uses.get(&(index as u32 + 1)).map_or(&[][..], |uses| uses);
    let [waited, wait_ns] = [&from.contended, &from.wait_ns].map(get);
    let mut callers = callers(table, own_uses, [waited, wait_ns, 0], symbols);
    callers
        .iter_mut()
        .for_each(|caller| rust::without_own(&mut caller.frames));
    let key = if is_ended { 0 } else { key };
    Waited {
        name,
        address,
        key,
        kind,
        is_ended,
        ended: get(&from.ended),
        calls: get(&from.locked),
        waited,
        timeouts: get(&from.timeouts),
        threads: threads_of(from),
        wait: times(wait_ns, waited, get(&from.wait_max), &counts(&from.waits)),
        waiting: waiting(threads, key).map(|thread| thread.id).collect(),
        callers,
    }
}

/// The threads that wait for the object with this key in its entry.
fn waiting(threads: &[Thread], key: u64) -> impl Iterator<Item = &Thread> {
    let all = threads.iter();
    all.filter(move |thread| key != 0 && thread.waits_key == key)
}

fn threads_of(entry: &kinlock_report::Lock) -> u32 {
    let words = entry.threads.iter();
    words.map(|word| get(word).count_ones()).sum()
}

fn lock(
    table: &Table,
    index: usize,
    tallies: &Tallies,
    uses: &HashMap<u32, Vec<usize>>,
    symbols: &mut Symbols,
    threads: &[Thread],
    life: u64,
) -> Lock {
    let (from, sum) = (&table.locks[index], &tallies.locks[index]);
    let changed = get(&from.changed) + sum.changed;
    let remote = get(&from.remote) + sum.remote;
    let own = get(&from.address);
    let (is_ended, are_others) = (own & OTHERS == ENDED, own & OTHERS == OTHERS);
    let address = if are_others { 0 } else { object(own) };
    let key = if is_ended || are_others { 0 } else { own };
    let side = (get32(&from.kind) & RWLOCK != 0).then_some(match own & READING {
        0 => "write",
        _ => "read",
    });
    let count = get(&from.ended);
    let [ended, others] = if are_others { [0, count] } else { [count, 0] };
    let place = place(table, from);
    let name = match are_others {
        true => format!("{others} others"),
        false => name(address, place.as_deref(), symbols),
    };
    let by_token = |&(token, _): &(u32, u64)| {
        let thread = threads.iter().find(|thread| thread.number == token);
        thread.map_or(0, |thread| thread.id)
    };
    let holders = match is_ended {
        true => &[][..],
        false => &sum.holders,
    };
    let measured = holders.iter().map(|&(_, since)| since);
    let measured: Vec<u64> = measured.filter(|&since| since > HELD).collect();
    let holders: Vec<u32> = holders.iter().map(by_token).collect();
    let own_uses = uses.get(&(index as u32 + 1)).map_or(&[][..], |uses| uses);
    let (mut waits, mut holds) = (counts(&from.waits), counts(&from.holds));
    let mut contended = get(&from.contended) + sum.contended;
    let mut wait_ns = get(&from.wait_ns) + sum.wait_ns;
    let mut wait_max = get(&from.wait_max);
    // Waits that have not ended count until now.
    for nanos in waiting(threads, key).map(|thread| thread.waits_for_ns) {
        contended += 1;
        wait_ns += nanos;
        wait_max = wait_max.max(nanos);
        waits[bucket(nanos)] += 1;
    }
    let mut first = stack(table, get32(&from.first), symbols);
    let mut callers = callers(
        table,
        own_uses,
        [contended, wait_ns, get(&from.failed)],
        symbols,
    );
    let [mut hold_ns, mut held, mut hold_max, mut hold_samples] =
        [&from.hold_ns, &from.held, &from.hold_max, &from.samples].map(get);
    // Holds that have not ended count until now, too.
    let end = get(&table.header.begin) + life;
    for nanos in measured.iter().map(|&since| end.saturating_sub(since)) {
        hold_ns += nanos;
        held += 1;
        hold_max = hold_max.max(nanos);
        hold_samples += 1;
        holds[bucket(nanos)] += 1;
    }
    // This is an estimate. Only one thread at a time holds the lock, so the sum is at most the life
    // of the process, except for readers and for rows that stand for many locks.
    if ended.max(others) <= 1 && side != Some("read") {
        hold_ns = hold_ns.min(life);
    }
    for caller in &mut callers {
        caller.hold_ns = caller.hold_ns.min(hold_ns);
    }
    let data = rust::data(&first, &callers);
    rust::without_own(&mut first);
    callers
        .iter_mut()
        .for_each(|caller| rust::without_own(&mut caller.frames));
    Lock {
        name,
        address,
        key,
        kind: kind(get32(&from.kind)),
        side,
        is_ended,
        ended,
        others,
        locked: get(&from.locked) + sum.locked,
        nested: get(&from.nested),
        contended,
        timeouts: get(&from.timeouts),
        tries: get(&from.tries),
        failed_tries: get(&from.failed),
        changed_owner: changed,
        local: changed.saturating_sub(remote),
        remote,
        threads: threads_of(from),
        wait: times(wait_ns, contended, wait_max, &waits),
        behind_readers: behind(&from.behind[0]),
        behind_writers: behind(&from.behind[1]),
        hold: times(hold_ns, held, hold_max, &holds),
        hold_samples,
        // A replay does not model readers.
        recorded: match side {
            None => recorded::distributions(table, from),
            Some(_) => None,
        },
        held_by: holders.first().copied(),
        holders,
        waiting: waiting(threads, key).map(|thread| thread.id).collect(),
        data,
        place,
        first,
        callers,
    }
}

/// `path:line` at which the program first took a lock, if it records that.
fn place(table: &Table, lock: &kinlock_report::Lock) -> Option<String> {
    let number = get32(&lock.place) as usize;
    let place = table.places.get(number.checked_sub(1)?)?;
    let path = text(&place.path);
    (!path.is_empty()).then(|| format!("{path}:{}", get32(&place.line)))
}

/// The holders of locks: the address of each lock, perhaps with [`READING`], and the number of a
/// thread.
pub fn holders(table: &Table) -> Vec<(u64, u32)> {
    let threads = || table.threads.iter();
    let id = |token: &u32| {
        let thread = threads().find(|thread| get32(&thread.token) == *token);
        thread.map(|thread| get32(&thread.id))
    };
    let locks = Tallies::of(table).locks.into_iter().zip(&table.locks);
    let all = locks.flat_map(|(sum, lock)| {
        let key = get(&lock.address);
        let tokens = sum.holders.iter();
        let holders: Vec<_> = tokens.filter_map(|(token, _)| id(token)).collect();
        holders.into_iter().map(move |holder| (key, holder))
    });
    // Locks that have ended are left out: another lock may have the address now.
    all.filter(|(key, _)| key & OTHERS == 0).collect()
}

/// Adds the address to the names of locks that are named after the same line.
fn tell_apart(locks: &mut [Lock]) {
    let mut addresses: HashMap<String, BTreeSet<u64>> = HashMap::new();
    for lock in &*locks {
        let known = addresses.entry(lock.name.clone());
        known.or_default().insert(lock.address);
    }
    for lock in locks {
        let is_line = lock.place.as_deref().map(file_and_line) == Some(&lock.name);
        if is_line && addresses[&lock.name].len() > 1 {
            lock.name += &format!(" {:#x}", lock.address);
        }
    }
}

fn behind(from: &kinlock_report::Behind) -> Behind {
    Behind {
        count: get(&from.count),
        wait_ns: get(&from.nanos),
    }
}

fn counts(from: &[AtomicU64]) -> Vec<u64> {
    from.iter().map(get).collect()
}

fn times(total: u64, count: u64, max: u64, classes: &[u64]) -> Times {
    Times {
        count,
        total_ns: total,
        avg_ns: total.checked_div(count).unwrap_or(0),
        p99_ns: percentile(classes, 0.99).min(max),
        max_ns: max,
        histogram: histogram(classes),
    }
}

fn histogram(classes: &[u64]) -> Vec<[u64; 3]> {
    let all = classes.iter().enumerate().filter(|(_, count)| **count > 0);
    let range = |class: usize| [class.checked_sub(1).map_or(0, end_of), end_of(class)];
    all.map(|(class, &count)| {
        let [from, to] = range(class);
        [from, to, count]
    })
    .collect()
}

/// The end of the class that contains this percentile of the times.
fn percentile(classes: &[u64], part: f64) -> u64 {
    let all: u64 = classes.iter().sum();
    let mut left = (part * all as f64).ceil() as u64;
    for (class, &count) in classes.iter().enumerate() {
        if count >= left {
            return if all == 0 { 0 } else { end_of(class) };
        }
        left -= count;
    }
    end_of(BUCKETS - 1)
}

/// The uses of a lock, the longest wait first. The waits of a use are estimated, but the lock's are
/// known, so the estimates are scaled down if their sum is larger.
fn callers(table: &Table, uses: &[usize], known: [u64; 3], symbols: &mut Symbols) -> Vec<Caller> {
    let uses = uses.iter().map(|&at| &table.uses[at]);
    let all = uses.map(|found| Caller {
        contended: get(&found.contended),
        wait_ns: get(&found.wait_ns),
        wait_max_ns: get(&found.wait_max),
        held: get(&found.held),
        hold_ns: get(&found.hold_ns),
        failed_tries: get(&found.failed),
        frames: stack(table, get(&found.key) as u32, symbols),
    });
    let mut callers = sums(all);
    let sums = callers.iter().fold([0_u64; 3], |[n, ns, failed], caller| {
        [
            n.saturating_add(caller.contended),
            ns.saturating_add(caller.wait_ns),
            failed.saturating_add(caller.failed_tries),
        ]
    });
    for caller in &mut callers {
        let numbers = [
            &mut caller.contended,
            &mut caller.wait_ns,
            &mut caller.failed_tries,
        ];
        for ((number, sum), known) in numbers.into_iter().zip(sums).zip(known) {
            if sum > known {
                *number = (u128::from(*number) * u128::from(known) / u128::from(sum)) as u64;
            }
        }
    }
    callers.sort_by_key(|caller| {
        std::cmp::Reverse((caller.wait_ns, caller.failed_tries, caller.hold_ns))
    });
    callers
}

/// Sums up the uses with the same calls.
fn sums(all: impl Iterator<Item = Caller>) -> Vec<Caller> {
    let mut sums: BTreeMap<Vec<Frame>, Caller> = BTreeMap::new();
    for mut caller in all {
        let frames = std::mem::take(&mut caller.frames);
        sums.entry(frames).or_default().add(&caller);
    }
    let sums = sums.into_iter();
    sums.map(|(frames, sum)| Caller { frames, ..sum }).collect()
}

#[cfg(test)]
mod tests {
    use super::super::folder::zeros;
    use super::*;
    use kinlock_report::Use;

    #[test]
    fn one_lock_is_held_for_at_most_the_time_of_the_run() {
        let (run, estimate) = (1000, 4000);
        // The address of an entry, its kind, how many locks it stands for, and what is checked.
        let entries = [
            (0x1000, 0, 0, run),
            (0x2000, RWLOCK, 0, run),
            (0x2000 | READING, RWLOCK, 0, estimate),
            (0x3000 | ENDED, 0, 1, run),
            (0x4000 | ENDED, 0, 3, estimate),
            (OTHERS, 0, 3, estimate),
        ];
        let table = zeros();
        table.header.begin.store(500, Relaxed);
        table.header.end.store(500 + run, Relaxed);
        table.header.locks_used.store(entries.len() as u32, Relaxed);
        table.header.uses_used.store(entries.len() as u32, Relaxed);
        for (at, (address, kind, ended, _)) in entries.into_iter().enumerate() {
            let (lock, found) = (&table.locks[at], &table.uses[at]);
            lock.address.store(address, Relaxed);
            lock.kind.store(kind, Relaxed);
            lock.ended.store(ended, Relaxed);
            lock.locked.store(1, Relaxed);
            lock.hold_ns.store(estimate, Relaxed);
            found.key.store(Use::key_of(at as u32 + 1, 1), Relaxed);
            found.hold_ns.store(estimate, Relaxed);
        }
        let told = process(&table, Seen::default()).locks;
        let told: Vec<_> = told
            .iter()
            .map(|lock| [lock.hold.total_ns, lock.callers[0].hold_ns])
            .collect();
        assert_eq!(told, entries.map(|(.., nanos)| [nanos; 2]));
    }

    #[test]
    fn who_held_a_lock_that_has_ended_holds_none() {
        let table = zeros();
        let keys = [0x1000, 0x1000 | ENDED, 0x2000 | READING, OTHERS];
        table.threads[0].token.store(7, Relaxed);
        table.threads[0].id.store(42, Relaxed);
        table.owners[0].token.store(7, Relaxed);
        for (at, key) in keys.into_iter().enumerate() {
            let (lock, tally) = (&table.locks[at], &table.owners[0].tallies[at]);
            lock.address.store(key, Relaxed);
            lock.serial.store(at as u32 + 1, Relaxed);
            tally.lock.store(at as u32 + 1, Relaxed);
            tally.serial.store(at as u32 + 1, Relaxed);
            tally.since.store(1, Relaxed);
        }
        assert_eq!(holders(&table), [(0x1000, 42), (0x2000 | READING, 42)]);
    }

    #[test]
    fn what_the_same_calls_did_is_added_up() {
        let frames = |function: &str| {
            vec![Frame {
                function: function.to_owned(),
                ..Frame::default()
            }]
        };
        let all = [("b", 1), ("a", 2), ("b", 4)].map(|(name, wait_ns)| Caller {
            contended: 1,
            wait_ns,
            wait_max_ns: wait_ns,
            frames: frames(name),
            ..Caller::default()
        });
        let found = sums(all.into_iter()).into_iter();
        let found: Vec<_> = found
            .map(|sum| {
                let numbers = [sum.contended, sum.wait_ns, sum.wait_max_ns];
                (sum.frames, numbers)
            })
            .collect();
        assert_eq!(found, [(frames("a"), [1, 2, 2]), (frames("b"), [2, 5, 4])]);
    }
}
