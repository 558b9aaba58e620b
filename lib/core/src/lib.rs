//! The lock algorithms of kinlock, each written once and generic over the
//! [`Platform`](platform::Platform) that it runs on.
//!
//! Users of locks want the crate `kinlock`. This crate is for readers of the algorithms, and for
//! those who run them on another platform, such as a simulator, a model checker or a kernel. It is
//! `no_std` and does not know libc: what an algorithm needs of the machine, it asks its platform
//! for. The platform of Linux is in the crate `kinlock-linux`. This crate makes no semver promise.
//!
//! # Modules
//!
//! From the bottom up: each module uses only those above it in this table.
//!
//! | module | contents |
//! | --- | --- |
//! | [`atomic`], [`tuning`], [`events`] | a platform's atomics; the values of the knobs; counters |
//! | [`hardware`] | the processor's atomics and hints, for platforms |
//! | [`visible_readers`] | the table in which readers of read-biased locks announce themselves |
//! | [`slots`] | where threads wait: slots and nodes |
//! | [`fence_calls`] | heavy fences by a system call: what one covers, and how many there are |
//! | [`platform`] | what an algorithm may ask of the machine |
//! | `loom` | the platform of the model checker |
//! | [`raw`] | the algorithms |
//! | [`config`] | the knobs that functions set; configurations of locks with those in force |
//! | [`bare`] | the platform of hardware without an operating system |
//!
//! # Features
//!
//! * `events`: counters of what slow paths do; see [`events`].

#![cfg_attr(not(test), no_std)]

pub mod atomic;
#[cfg(not(loom))]
pub mod bare;
pub mod config;
pub mod events;
pub mod fence_calls;
#[cfg(not(loom))]
pub mod hardware;
#[cfg(loom)]
pub mod loom;
pub mod platform;
pub mod raw;
pub mod slots;
#[cfg(all(test, not(loom)))]
mod threads;
pub mod tuning;
pub mod visible_readers;

/// The platform of unit tests.
#[cfg(all(test, not(loom)))]
use threads::Threads as Native;

/// Has `cargo test` run the example of the page that the registry shows.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
