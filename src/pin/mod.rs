//! The pure core: what a snapshot is and what admission decides.
//!
//! Nothing here does I/O, reads a clock or holds a Kubernetes client: the webhook, the reconciler and the tests
//! call the same functions with the facts they have gathered. `tests/architecture.rs` holds that direction.

pub mod claim;
pub mod content;
pub mod decision;
pub mod exempt;
pub mod kinds;
pub mod meta;
pub mod notice;
pub mod objects;
pub mod ownership;
pub mod patch;
pub mod record;
pub mod references;
pub mod refresh;
pub mod request;
pub mod scope;
pub mod snapshot;
pub mod snapshot_state;
pub mod template;
pub mod uid;
pub mod warning;
pub mod webhook_configuration;
