//! The webhook: admission reviews in, JSON patches out.

pub mod admission;
pub mod claims;
pub mod handler;
pub mod refusal;
pub mod review;
pub mod server;
pub mod snapshots;
