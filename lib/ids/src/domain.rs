//! Domains of concurrency IDs, and leases.

use core::fmt;
use core::marker::PhantomData;
use core::str::FromStr;
use std::sync::Arc;

use super::area::{self, Unavailable};
use super::arena::Arena;
use super::ending;
use super::error::{BuildError, EnterError};
use super::leased::{self, Leased};
use super::sequence::Slots;
use super::trial;
use crate::raw::{BLOCK, MAX_IDS};
use kinlock_core::platform::Platform;
use kinlock_linux::Native;

/// How a thread gets its ID; see [the two backends](super#two-backends).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Backend {
    /// The ID is read inside a restartable sequence and never held. The kernel allocates it, in one
    /// domain per process.
    Restartable,
    /// A thread holds the ID until it drops its lease. This library allocates it, in any number of
    /// domains.
    Lease,
}

impl Backend {
    /// Both backends.
    pub const ALL: [Backend; 2] = [Backend::Restartable, Backend::Lease];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Backend::Restartable => "rseq",
            Backend::Lease => "lease",
        }
    }

    /// Whether kernel, C library and process support this backend. Asks on behalf of the calling
    /// thread. The first call in a process that may use restartable sequences
    /// [tries](super::sequence#a-trial-before-the-first-use) whether the kernel restarts them.
    ///
    /// # Errors
    ///
    /// The reason if they do not. Leases are always available.
    pub fn available(self) -> Result<(), Unavailable> {
        match self {
            Backend::Restartable => {
                ending::prepare();
                trial::available()
            }
            Backend::Lease => Ok(()),
        }
    }

    /// Whether a trial in this process has shown that the backend works, not only that the kernel
    /// offers it. Leases need no trial. A trial shows nothing if the process can have no other
    /// thread for it, or if that thread did not get the CPU in time.
    pub fn tried(self) -> bool {
        match self {
            Backend::Restartable => self.available().is_ok() && trial::has_shown(),
            Backend::Lease => true,
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Backend {
    type Err = UnknownBackend;

    fn from_str(text: &str) -> Result<Self, UnknownBackend> {
        let mut all = Backend::ALL.into_iter();
        all.find(|backend| backend.name() == text)
            .ok_or(UnknownBackend)
    }
}

/// No backend has this name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnknownBackend;

impl fmt::Display for UnknownBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no such backend; known: rseq, lease")
    }
}

impl core::error::Error for UnknownBackend {}

/// A group of threads among which concurrency IDs are unique, and the memory of those IDs.
///
/// Cheap to clone: clones are the same domain. Structures keep their domain alive. A [`Lease`]
/// borrows it and cannot outlive it.
///
/// ```
/// use kinlock_ids::{Backend, Domain};
///
/// // Restartable sequences where the kernel has them, else leases.
/// let domain = Domain::auto();
/// println!("{}", domain.backend());
///
/// // Leases, and nothing else.
/// let domain = Domain::builder().backend(Backend::Lease).max_ids(100).build()?;
/// let lease = domain.enter()?;
/// assert!(lease.id() < domain.max_ids());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Domain {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    arena: Arena,
    /// `None`: the domain is restartable.
    leased: Option<Leased>,
}

/// The options of a new domain.
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing until `build`"]
pub struct Builder {
    backend: Option<Backend>,
    max_ids: Option<u32>,
}

impl Builder {
    /// Requires this backend. `None`, the default, takes restartable sequences if they are
    /// available and no number of IDs is set. Otherwise it takes leases.
    /// [`Domain::backend`] tells which.
    pub fn backend(mut self, backend: impl Into<Option<Backend>>) -> Self {
        self.backend = backend.into();
        self
    }

    /// The least number of IDs that can be held at the same time [default: eight for every CPU, and
    /// at least 256]. Rounded up to a multiple of 32. Leases only.
    ///
    /// An ID that is never used costs a few bytes and address space. Choose more than the number of
    /// CPUs: a thread that is preempted while it holds a lease keeps its ID.
    pub fn max_ids(mut self, max_ids: u32) -> Self {
        self.max_ids = Some(max_ids);
        self
    }

    /// Makes the domain.
    ///
    /// # Errors
    ///
    /// * [`BuildError::Unavailable`] if the requested backend is not available.
    /// * [`BuildError::KernelDecides`] for a number of IDs with restartable sequences.
    /// * [`BuildError::MaxIds`], [`BuildError::Memory`] and [`BuildError::TooManyDomains`] as they
    ///   say.
    pub fn build(self) -> Result<Domain, BuildError> {
        ending::prepare();
        let wants_leases = self.max_ids.is_some();
        match self.backend {
            Some(Backend::Lease) => self.leases(),
            Some(Backend::Restartable) => {
                trial::available().map_err(BuildError::Unavailable)?;
                if wants_leases {
                    return Err(BuildError::KernelDecides);
                }
                Ok(Domain::restartable())
            }
            None if wants_leases || trial::available().is_err() => self.leases(),
            None => Ok(Domain::restartable()),
        }
    }

    fn leases(self) -> Result<Domain, BuildError> {
        let usual = || (8 * leased::possible_cpus().len() as u32).max(256);
        let max_ids = self.max_ids.unwrap_or_else(usual);
        if !(1..=MAX_IDS / 2).contains(&max_ids) {
            return Err(BuildError::MaxIds(max_ids));
        }
        let arena = Arena::new(max_ids.next_multiple_of(BLOCK));
        let leased = Leased::new(&arena)?;
        let inner = Arc::new(Inner {
            arena,
            leased: Some(leased),
        });
        inner.leased.iter().for_each(Leased::enlist);
        Ok(Domain { inner })
    }
}

impl Domain {
    /// A builder with the default options.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Restartable sequences if they are available, else leases.
    /// [`backend`](Self::backend) tells which.
    ///
    /// # Panics
    ///
    /// If there is no address space for the memory of the default number of IDs.
    pub fn auto() -> Self {
        Self::builder()
            .build()
            .expect("address space for a few IDs")
    }

    fn restartable() -> Self {
        // The kernel's IDs are below the number of possible CPUs, whatever the number of threads:
        // since Linux 6.19 they may exceed min(threads, allowed CPUs) by a quarter. Gaps in the CPU
        // numbers only make this limit larger than needed.
        let inner = Inner {
            arena: Arena::new(leased::cpu_numbers()),
            leased: None,
        };
        Domain {
            inner: Arc::new(inner),
        }
    }

    /// How threads of this domain get their IDs.
    pub fn backend(&self) -> Backend {
        match self.inner.leased {
            None => Backend::Restartable,
            Some(_) => Backend::Lease,
        }
    }

    /// The exclusive upper bound of all IDs. O(1).
    pub fn max_ids(&self) -> u32 {
        self.inner.arena.ids()
    }

    /// The number of living threads that have entered, with leases; else `None`.
    pub fn members(&self) -> Option<u32> {
        Some(self.leased()?.ids.members())
    }

    /// The smaller of members and allowed CPUs, and at least 1, with leases; else `None`. IDs are
    /// below the larger of this limit and the peak number of concurrent holders. They may exceed
    /// that bound by the number of IDs that changed hands while a thread was looking for one.
    pub fn limit(&self) -> Option<u32> {
        Some(self.leased()?.ids.limit())
    }

    /// The IDs that are held, or kept for their CPUs, with leases; else none: the kernel does not
    /// tell. In ascending order. Not a consistent snapshot, but it contains the IDs that the
    /// calling thread holds. O([`max_ids`](Self::max_ids) / 32).
    ///
    /// ```
    /// let domain = kinlock_ids::Domain::builder().max_ids(32).build()?;
    /// let lease = domain.enter()?;
    /// assert!(domain.ids_in_use().eq([lease.id()]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn ids_in_use(&self) -> impl Iterator<Item = u32> {
        let leased = self.inner.leased.iter();
        leased.flat_map(|leased| leased.ids.ids_in_use())
    }

    /// With leases: frees IDs that CPUs keep and that nobody has used for 100 ms, so that those in
    /// use get denser. Returns how many it has freed. No effect without leases.
    ///
    /// No time of use is recorded. A call marks the idle IDs, and a later call frees those whose
    /// mark is old enough; using an ID removes its mark. Threads that find no ID on their CPU do
    /// the same, at most every 100 ms. O([`max_ids`](Self::max_ids) / 32).
    ///
    /// ```
    /// let domain = kinlock_ids::Domain::builder().max_ids(32).build()?;
    /// drop(domain.enter()?);
    /// domain.reclaim();
    /// std::thread::sleep(std::time::Duration::from_millis(101));
    /// assert_eq!(domain.reclaim(), 1);
    /// assert_eq!(domain.ids_in_use().count(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reclaim(&self) -> u32 {
        let reclaim = |leased: &Leased| leased.ids.reclaim(Native::now());
        self.leased().map_or(0, reclaim)
    }

    /// With leases: on how many CPUs the threads of the process may run, as far as the domain
    /// knows. With restartable sequences: `None`.
    pub fn cpus_allowed(&self) -> Option<u32> {
        Some(self.leased()?.ids.cpus_allowed())
    }

    /// Asks the kernel again on which CPUs the threads of the process may run. No effect without
    /// leases.
    ///
    /// Newly used CPUs are noticed without this call. It is needed only after CPUs have been taken
    /// away, to make IDs denser. Reads one file per thread of the process.
    pub fn refresh(&self) {
        self.inner.leased.iter().for_each(Leased::refresh);
    }

    /// Acquires an ID, which is held until the lease is dropped. The thread sees what earlier
    /// holders of this ID did.
    ///
    /// The ID is dense: see [`limit`](Self::limit). Entering usually takes one atomic
    /// read-modify-write, and leaving takes stores, on cache lines of the CPU and of the ID. It
    /// costs more if the thread changes CPUs while it holds the lease, or if another thread holds a
    /// lease from the same CPU. Lock-free; a thread's first call may allocate. A signal handler may
    /// call it if the thread has entered the domain before. A thread may hold several IDs.
    ///
    /// # Errors
    ///
    /// * [`EnterError::Exhausted`] if all IDs are held.
    /// * [`EnterError::NothingToHold`] if the domain is restartable.
    /// * [`EnterError::ThreadEnded`] in a thread's last destructors.
    #[inline]
    pub fn enter(&self) -> Result<Lease<'_>, EnterError> {
        let Some(leased) = &self.inner.leased else {
            return Err(EnterError::NothingToHold);
        };
        leased.acquire().map(|id| Lease {
            leased,
            id,
            not_send: PhantomData,
        })
    }

    /// The ID with which the calling thread ran a moment ago, with restartable sequences. The
    /// thread may have another one by now: the value is good for statistics only. `None` with
    /// leases.
    #[inline]
    pub fn momentary_id(&self) -> Option<u32> {
        if self.inner.leased.is_some() {
            return None;
        }
        area::current()?.momentary_id()
    }

    pub(super) fn leased(&self) -> Option<&Leased> {
        self.inner.leased.as_ref()
    }

    pub(super) fn allocate(&self, size: usize) -> Result<Slots, BuildError> {
        self.inner.arena.allocate(size).ok_or(BuildError::Memory)
    }

    pub(super) fn free(&self, slots: Slots, size: usize) {
        self.inner.arena.free(slots, size);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.leased.iter().for_each(Leased::retire);
    }
}

/// An ID, held until this is dropped. See [`Domain::enter`].
///
/// It stays on its thread:
///
/// ```compile_fail,E0277
/// let domain = kinlock_ids::Domain::builder().max_ids(32).build().unwrap();
/// let lease = domain.enter().unwrap();
/// std::thread::scope(|s| {
///     s.spawn(move || lease.id());
/// });
/// ```
///
/// The domain outlives it:
///
/// ```compile_fail,E0505
/// let domain = kinlock_ids::Domain::builder().max_ids(32).build().unwrap();
/// let lease = domain.enter().unwrap();
/// drop(domain);
/// lease.id();
/// ```
///
/// A forgotten lease (`mem::forget`) is released when its thread ends. In the child of a fork the
/// leases of the forking thread are held, and no others.
///
/// Destructors of thread-locals and of `pthread` keys may hold, use and acquire leases. The
/// exception is a key's destructor that runs in the C library's fourth round, because the key was
/// set again in the third. By then the thread's leases may have been taken away and their IDs may
/// belong to other threads; a lease forgotten there may be lost.
#[must_use = "the ID is given back when the lease is dropped"]
#[derive(Debug)]
pub struct Lease<'d> {
    leased: &'d Leased,
    id: u32,
    not_send: PhantomData<*const ()>,
}

impl Lease<'_> {
    /// The ID. No other thread of the domain holds it.
    #[inline]
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Whether this is a lease of `domain`.
    #[inline]
    pub fn is_of(&self, domain: &Domain) -> bool {
        domain
            .leased()
            .is_some_and(|leased| core::ptr::eq(leased, self.leased))
    }
}

impl Drop for Lease<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the ID was acquired for this lease, and is released once: here.
        unsafe { self.leased.release(self.id) };
    }
}
