//! Domains of concurrency IDs, and leases.

use core::fmt;
use core::marker::PhantomData;
use core::str::FromStr;
use std::sync::Arc;

use super::area::{self, Unavailable};
use super::arena::{Arena, NoMemory};
use super::leased::{self, Leased};
use super::sequence::{self, Slots};
use crate::raw::{MAX_IDS, Policy};

/// How IDs are held; see [the two kinds](super#two-kinds-of-holding).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Backend {
    /// Not at all: the ID is read inside a restartable sequence. The kernel hands it out, from the one domain that it has per process.
    Restartable,
    /// For as long as a thread says so. We hand it out; any number of domains.
    Lease,
}

impl Backend {
    /// Both.
    pub const ALL: [Backend; 2] = [Backend::Restartable, Backend::Lease];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Backend::Restartable => "rseq",
            Backend::Lease => "lease",
        }
    }

    /// Whether this kernel, C library and process can do it. Asks on behalf of the calling thread.
    ///
    /// # Errors
    ///
    /// Why not. Leases are always available.
    pub fn available(self) -> Result<(), Unavailable> {
        match self {
            Backend::Restartable => area::available(),
            Backend::Lease => Ok(()),
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

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, UnknownPolicy> {
        let mut all = Policy::ALL.into_iter();
        all.find(|policy| policy.name() == text)
            .ok_or(UnknownPolicy)
    }
}

/// No policy has this name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnknownPolicy;

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no such policy; known: ")?;
        f.write_str(&Policy::ALL.map(Policy::name).join(", "))
    }
}

impl core::error::Error for UnknownPolicy {}

/// Threads among which concurrency IDs are unique, and the memory of those IDs.
///
/// Cheap to clone: clones are the same domain. Structures keep theirs alive; a [`Lease`] borrows it, so that it cannot outlive it.
///
/// ```
/// use kinlock_ids::{Backend, Domain};
///
/// // Restartable sequences where the kernel has them, else leases; which, it says.
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
    /// `None`: restartable.
    leased: Option<Leased>,
}

/// What a domain is to be like.
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing until `build`"]
pub struct Builder {
    backend: Option<Backend>,
    policy: Option<Policy>,
    max_ids: Option<u32>,
}

impl Builder {
    /// Use this backend or none. Without this call, or with `None`: restartable sequences if they are available and neither a policy nor a number of IDs is asked for, which only leases have; else
    /// leases. [`Domain::backend`] tells which.
    pub fn backend(mut self, backend: impl Into<Option<Backend>>) -> Self {
        self.backend = backend.into();
        self
    }

    /// Who gets which ID [default: [`Policy::RecentFirst`]]. Leases only.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// How many threads can hold an ID at a time, at least; rounded up to a multiple of 32, and with [`Policy::PerCpu`] to the number of CPUs [default: eight for every CPU, at least 256]. Leases only.
    ///
    /// IDs that are never used cost a few bytes and address space. A thread that is preempted while it holds a lease keeps it: more than CPUs are needed.
    pub fn max_ids(mut self, max_ids: u32) -> Self {
        self.max_ids = Some(max_ids);
        self
    }

    /// Makes the domain.
    ///
    /// # Errors
    ///
    /// If the backend asked for is not available or cannot do what else is asked for, or if there is no memory.
    pub fn build(self) -> Result<Domain, BuildError> {
        let wants_leases = self.policy.is_some() || self.max_ids.is_some();
        match self.backend {
            Some(Backend::Lease) => self.leases(),
            Some(Backend::Restartable) => {
                area::available().map_err(BuildError::Unavailable)?;
                if wants_leases {
                    return Err(BuildError::KernelDecides);
                }
                Ok(Domain::restartable())
            }
            None if wants_leases || area::available().is_err() => self.leases(),
            None => Ok(Domain::restartable()),
        }
    }

    fn leases(self) -> Result<Domain, BuildError> {
        let policy = self.policy.unwrap_or_default();
        let usual = || (8 * leased::possible_cpus().len() as u32).max(256);
        let max_ids = self.max_ids.unwrap_or_else(usual);
        if !(1..=MAX_IDS / 2).contains(&max_ids) {
            return Err(BuildError::MaxIds(max_ids));
        }
        let arena = Arena::new(leased::capacity(policy, max_ids));
        let leased = Leased::new(policy, &arena)?;
        let inner = Arc::new(Inner {
            arena,
            leased: Some(leased),
        });
        inner.leased.iter().for_each(Leased::enlist);
        Ok(Domain { inner })
    }
}

/// Why there is no domain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// Restartable sequences were asked for.
    Unavailable(Unavailable),
    /// A policy or a number of IDs was asked for, together with restartable sequences: there the kernel decides.
    KernelDecides,
    /// So many IDs cannot be.
    MaxIds(u32),
    /// There is no memory for the domain's state, or no address space for the IDs' memory.
    Memory,
    /// The process has made 4294967294 domains with leases, and cannot tell more apart.
    TooManyDomains,
    /// Somebody has to hold an ID, and in a restartable domain nobody does.
    Unleased,
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::Unavailable(why) => why.fmt(f),
            BuildError::KernelDecides => f.write_str(
                "with restartable sequences the kernel decides on policy and number of IDs",
            ),
            BuildError::MaxIds(max_ids) => {
                write!(f, "{max_ids} IDs; it has to be 1 to {}", MAX_IDS / 2)
            }
            BuildError::Memory => f.write_str("no memory or address space for so many IDs"),
            BuildError::TooManyDomains => {
                f.write_str("the process has made as many domains as it can tell apart")
            }
            BuildError::Unleased => f.write_str("this needs leases, and the domain is restartable"),
        }
    }
}

impl core::error::Error for BuildError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            BuildError::Unavailable(why) => Some(why),
            _ => None,
        }
    }
}

impl From<NoMemory> for BuildError {
    fn from(_: NoMemory) -> Self {
        BuildError::Memory
    }
}

impl Domain {
    /// What a domain is to be like.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Restartable sequences if they are available, else leases with the default policy. [`backend`](Self::backend) tells which.
    ///
    /// # Panics
    ///
    /// If there is no address space for the memory of the usual number of IDs.
    pub fn auto() -> Self {
        Self::builder()
            .build()
            .expect("address space for a few IDs")
    }

    fn restartable() -> Self {
        // The kernel's IDs are below the number of possible CPUs; that CPU numbers may have gaps makes this one larger at worst.
        let ids = leased::possible_cpus().last().map_or(1, |last| last + 1) as u32;
        let inner = Inner {
            arena: Arena::new(ids),
            leased: None,
        };
        Domain {
            inner: Arc::new(inner),
        }
    }

    /// How IDs are held in this domain.
    pub fn backend(&self) -> Backend {
        match self.inner.leased {
            None => Backend::Restartable,
            Some(_) => Backend::Lease,
        }
    }

    /// Who gets which ID, with leases. With restartable sequences the kernel has a policy of its own: `None`.
    pub fn policy(&self) -> Option<Policy> {
        self.inner.leased.as_ref().map(Leased::policy)
    }

    /// All IDs are below it.
    pub fn max_ids(&self) -> u32 {
        self.inner.arena.ids()
    }

    /// How many threads have entered and live, with leases.
    pub fn members(&self) -> Option<u32> {
        self.inner.leased.as_ref().map(Leased::members)
    }

    /// IDs are below this number or the largest number of concurrent holders, whichever is greater: the smaller of members and allowed CPUs. With leases.
    pub fn limit(&self) -> Option<u32> {
        self.inner.leased.as_ref().map(Leased::limit)
    }

    /// On how many CPUs the threads of the process may run, as far as the domain knows. With leases.
    pub fn cpus_allowed(&self) -> Option<u32> {
        self.inner.leased.as_ref().map(Leased::cpus_allowed)
    }

    /// Asks the kernel again on which CPUs the threads of the process may run. With leases; there CPUs that come into use are noticed without it, so that this is needed only to have the IDs of fewer CPUs closer
    /// together. Reads a file per thread.
    pub fn refresh(&self) {
        self.inner.leased.iter().for_each(Leased::refresh);
    }

    /// Takes an ID until the lease is dropped. The thread sees what was done before under this ID.
    ///
    /// The ID is dense: see [`limit`](Self::limit). One atomic read-modify-write to enter and stores to leave, on cache lines of the CPU's and the ID's own, if the thread does not change CPUs meanwhile and no other does the same there.
    /// Lock-free in nearly all cases; may be called by signal handlers, if the thread has entered the domain before. A thread may hold several IDs.
    ///
    /// # Errors
    ///
    /// [`EnterError::Exhausted`] if all IDs are held, [`EnterError::NothingToHold`] if the domain is restartable, [`EnterError::ThreadEnded`] from a thread's last destructors.
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

    /// The ID with which the calling thread ran a moment ago, with restartable sequences: it may have another one by now, so this is good for statistics only. `None` with leases.
    #[inline]
    pub fn momentary_id(&self) -> Option<u32> {
        if self.inner.leased.is_some() {
            return None;
        }
        let area = area::current()?;
        // SAFETY: invariant 1 of `sequence`.
        Some(unsafe { sequence::id(area) })
    }

    pub(super) fn leased(&self) -> Option<&Leased> {
        self.inner.leased.as_ref()
    }

    pub(super) fn allocate(&self, size: usize) -> Result<Slots, NoMemory> {
        self.inner.arena.allocate(size)
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
/// And the domain outlives it:
///
/// ```compile_fail,E0505
/// let domain = kinlock_ids::Domain::builder().max_ids(32).build().unwrap();
/// let lease = domain.enter().unwrap();
/// drop(domain);
/// lease.id();
/// ```
///
/// A lease that is forgotten is given back when its thread ends. Destructors of thread-locals may hold, use and take leases, and so may those of `pthread` keys, but for one that runs in the fourth round of the C library's, because it has
/// set its key again or another destructor has set it late: by then what the thread still holds may have been taken away, and may be another thread's; and what is forgotten there may be lost. In the child of a fork the leases of the thread that forked are held, and no others.
#[must_use = "the ID is given back when the lease is dropped"]
#[derive(Debug)]
pub struct Lease<'d> {
    leased: &'d Leased,
    id: u32,
    not_send: PhantomData<*const ()>,
}

impl Lease<'_> {
    /// The ID: nobody else in the domain has it.
    #[inline]
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Whether it is an ID of `domain`.
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
        // SAFETY: the ID was acquired for this lease, and is given back once: here.
        unsafe { self.leased.release(self.id) };
    }
}

/// Why there is no lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum EnterError {
    /// All IDs are held: there are more holders than [`Domain::max_ids`].
    Exhausted,
    /// The domain is restartable: there IDs are not held.
    NothingToHold,
    /// The thread's leases have been taken away because it ends: this is one of its last destructors.
    ThreadEnded,
}

impl fmt::Display for EnterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EnterError::Exhausted => "all concurrency IDs of the domain are held",
            EnterError::NothingToHold => "IDs of a restartable domain are not held",
            EnterError::ThreadEnded => "the thread has ended but for its last destructors",
        })
    }
}

impl core::error::Error for EnterError {}
