//! The C library's own functions, under their own names.
//!
//! Each is looked up by name and version, in the C library itself: when this library is loaded, or
//! at its first use if that comes earlier. `RTLD_NEXT` would find another preloaded library's
//! replacement, which may call this library.

use super::lookup;
use core::ffi::{CStr, c_int, c_uint, c_void};
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};
use core::{mem, ptr};

/// The version of functions that have not changed since the architecture began.
const FIRST: &CStr = if cfg!(target_arch = "x86_64") {
    c"GLIBC_2.2.5"
} else {
    c"GLIBC_2.17"
};
/// The version for x86-64. On aarch64 the functions have not changed since then.
const fn of_x86(version: &'static CStr) -> &'static CStr {
    if cfg!(target_arch = "x86_64") {
        version
    } else {
        FIRST
    }
}
/// The version of today's condition variables.
const CONDVARS: &CStr = of_x86(c"GLIBC_2.3.2");
/// The version of functions that take a clock.
const CLOCKS: &CStr = c"GLIBC_2.30";
/// The version of functions that wait for the end of a thread with a limit.
const TIMED_JOIN: &CStr = of_x86(c"GLIBC_2.3.3");
const CLOCK_JOIN: &CStr = c"GLIBC_2.31";
/// The version of functions of C11's threads.
const C11: &CStr = c"GLIBC_2.28";

struct Function {
    name: &'static CStr,
    version: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Function {
    const fn new(name: &'static CStr, version: &'static CStr) -> Self {
        Function {
            name,
            version,
            address: AtomicPtr::new(ptr::null_mut()),
        }
    }

    fn address(&self) -> *mut c_void {
        let known = self.address.load(Relaxed);
        if known.is_null() {
            self.look_up()
        } else {
            known
        }
    }

    #[cold]
    fn look_up(&self) -> *mut c_void {
        let found = lookup::in_c_library(self.name, self.version);
        self.address.store(found, Relaxed);
        found
    }
}

macro_rules! functions {
    ($($name:ident($($parameter:ident: $type:ty),*), $version:expr;)*) => {
        /// Looks up all functions. Calls of functions that the C library lacks return `ENOSYS`.
        pub(crate) fn look_all_up() {
            look_others_up();
            $($name::FUNCTION.address();)*
        }

        $(
            mod $name {
                use super::*;
                const NAME: &CStr = match CStr::from_bytes_with_nul(
                    concat!(stringify!($name), "\0").as_bytes(),
                ) {
                    Ok(name) => name,
                    Err(_) => panic!("a name"),
                };
                pub(super) static FUNCTION: Function = Function::new(NAME, $version);
            }

            /// The C library's function of this name.
            ///
            /// # Safety
            ///
            /// As the C library demands.
            pub(crate) unsafe extern "C-unwind" fn $name($($parameter: $type),*) -> c_int {
                let address = $name::FUNCTION.address();
                if address.is_null() {
                    return libc::ENOSYS;
                }
                // SAFETY: invariant 3: this is that function.
                unsafe {
                    let function = mem::transmute::<
                        *mut c_void,
                        unsafe extern "C-unwind" fn($($type),*) -> c_int,
                    >(address);
                    function($($parameter),*)
                }
            }
        )*
    };
}

/// Looks up the functions that read the clock and the number of the CPU without a system call, for
/// `direct.c`, and the one that deletes a key, for `missing.c`.
fn look_others_up() {
    unsafe extern "C" {
        static kinlock_clock: AtomicPtr<c_void>;
        static kinlock_cpu: AtomicPtr<c_void>;
        static kinlock_key_delete: AtomicPtr<c_void>;
    }
    let clock = lookup::in_c_library(c"clock_gettime", of_x86(c"GLIBC_2.17"));
    let cpu = lookup::in_c_library(c"sched_getcpu", of_x86(c"GLIBC_2.6"));
    let key_delete = lookup::in_c_library(c"pthread_key_delete", FIRST);
    // SAFETY: invariant 3: they are these functions, and the words are only accessed as atomics.
    unsafe {
        kinlock_clock.store(clock, Relaxed);
        kinlock_cpu.store(cpu, Relaxed);
        kinlock_key_delete.store(key_delete, Relaxed);
    }
}

type Mutex = *const c_void;
type Condvar = *const c_void;
type RwLock = *const c_void;
type Time = *const libc::timespec;

functions! {
    pthread_mutex_init(mutex: Mutex, attributes: *const c_void), FIRST;
    pthread_mutex_destroy(mutex: Mutex), FIRST;
    pthread_mutex_lock(mutex: Mutex), FIRST;
    pthread_mutex_trylock(mutex: Mutex), FIRST;
    pthread_mutex_timedlock(mutex: Mutex, until: Time), FIRST;
    pthread_mutex_clocklock(mutex: Mutex, clock: libc::clockid_t, until: Time), CLOCKS;
    pthread_mutex_unlock(mutex: Mutex), FIRST;
    pthread_cond_init(condvar: Condvar, attributes: *const c_void), CONDVARS;
    pthread_cond_destroy(condvar: Condvar), CONDVARS;
    pthread_cond_wait(condvar: Condvar, mutex: Mutex), CONDVARS;
    pthread_cond_timedwait(condvar: Condvar, mutex: Mutex, until: Time), CONDVARS;
    pthread_cond_clockwait(
        condvar: Condvar, mutex: Mutex, clock: libc::clockid_t, until: Time
    ), CLOCKS;
    pthread_cond_signal(condvar: Condvar), CONDVARS;
    pthread_cond_broadcast(condvar: Condvar), CONDVARS;
    pthread_rwlock_init(lock: RwLock, attributes: *const c_void), FIRST;
    pthread_rwlock_destroy(lock: RwLock), FIRST;
    pthread_rwlock_rdlock(lock: RwLock), FIRST;
    pthread_rwlock_wrlock(lock: RwLock), FIRST;
    pthread_rwlock_tryrdlock(lock: RwLock), FIRST;
    pthread_rwlock_trywrlock(lock: RwLock), FIRST;
    pthread_rwlock_timedrdlock(lock: RwLock, until: Time), FIRST;
    pthread_rwlock_timedwrlock(lock: RwLock, until: Time), FIRST;
    pthread_rwlock_clockrdlock(lock: RwLock, clock: libc::clockid_t, until: Time), CLOCKS;
    pthread_rwlock_clockwrlock(lock: RwLock, clock: libc::clockid_t, until: Time), CLOCKS;
    pthread_rwlock_unlock(lock: RwLock), FIRST;
    pthread_spin_init(lock: *const c_void, shared: c_int), FIRST;
    pthread_spin_lock(lock: *const c_void), FIRST;
    pthread_spin_trylock(lock: *const c_void), FIRST;
    pthread_spin_unlock(lock: *const c_void), FIRST;
    pthread_barrier_init(
        barrier: *const c_void, attributes: *const c_void, count: c_uint
    ), FIRST;
    pthread_barrier_destroy(barrier: *const c_void), FIRST;
    pthread_barrier_wait(barrier: *const c_void), FIRST;
    sem_init(semaphore: *const c_void, shared: c_int, value: c_uint), FIRST;
    sem_destroy(semaphore: *const c_void), FIRST;
    sem_trywait(semaphore: *const c_void), FIRST;
    sem_wait(semaphore: *const c_void), FIRST;
    sem_timedwait(semaphore: *const c_void, until: Time), FIRST;
    sem_clockwait(semaphore: *const c_void, clock: libc::clockid_t, until: Time), CLOCKS;
    pthread_join(thread: libc::pthread_t, result: *mut *mut c_void), FIRST;
    pthread_timedjoin_np(
        thread: libc::pthread_t, result: *mut *mut c_void, until: Time
    ), TIMED_JOIN;
    pthread_clockjoin_np(
        thread: libc::pthread_t, result: *mut *mut c_void, clock: libc::clockid_t, until: Time
    ), CLOCK_JOIN;
    thrd_join(thread: libc::pthread_t, result: *mut c_int), C11;
}
