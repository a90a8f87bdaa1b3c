//! What people ask about their workloads: which revision runs which configuration, and what an apply would change.
//!
//! Facts are gathered with a reader's rights ([`facts`]), and from them pure functions make the answers that
//! [`crate::cli`] prints. No rule is repeated here: [`crate::pin`] decides what confpin would do.

pub mod age;
pub mod apply;
pub mod difference;
pub mod explain;
pub mod facts;
pub mod foresee;
pub mod history;
pub mod manifests;
pub mod orphans;
pub mod preview;
pub mod release;
pub mod render;
pub mod status;
pub mod target;
