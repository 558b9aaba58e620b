//! One file per thing a person wants to do.

pub mod explore;
pub mod reproduce;
pub mod sim;
pub mod torture;
