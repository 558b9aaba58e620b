//! The lock algorithms of kinlock, each written once and generic over the
//! [`Platform`](platform::Platform) that it runs on.
//!
//! Users of locks want the crate `kinlock`. This crate is for readers of the algorithms, and for
//! those who run them on another platform, such as a simulator, a model checker or a kernel. It is
//! `no_std` and does not use libc: an algorithm asks its platform for what it needs from the
//! machine. The platform of Linux is in the crate `kinlock-linux`. This crate makes no semver
//! promise.
//!
//! # Features
//!
//! * `events`: counters of what slow paths do; see [`events`].

#![cfg_attr(not(any(test, miri)), no_std)]

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
#[cfg(all(any(test, miri), not(loom)))]
pub mod sleepers;
pub mod slots;
#[cfg(all(test, not(loom)))]
mod threads;
pub mod tuning;
pub mod visible_readers;

/// The platform of unit tests.
#[cfg(all(test, not(loom)))]
use threads::Threads as Native;

/// Makes `cargo test` run the example in the README, which the registry shows.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
