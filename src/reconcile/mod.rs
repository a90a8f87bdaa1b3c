//! The reconciler: gives snapshots their owners, and collects those that nothing ever owned.
//!
//! Watches feed an index of workloads and holders and a store of snapshots' metadata; every event puts the snapshots
//! that it concerns on a queue, where kube's `applier` hands each to [`owners::reconcile`], one at a time a snapshot.

pub mod index;
pub mod orphans;
pub mod owners;
pub mod watches;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::PartialObjectMeta;

use crate::cluster::Cluster;
use crate::observe::metrics::Metrics;
use crate::reconcile::index::Index;

/// A snapshot as it is watched: without its content.
pub type Snapshot = PartialObjectMeta<ConfigMap>;

/// What the operator decides.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// How long a snapshot that nothing names is kept.
    pub orphan_grace: SignedDuration,
}

/// The reconciler's state.
pub struct Reconciler {
    cluster: Cluster,
    settings: Settings,
    metrics: Metrics,
    index: Mutex<Index>,
}

/// How long to wait where a live read is ahead of the watch.
const CATCH_UP: Duration = Duration::from_millis(200);

impl Reconciler {
    /// A reconciler that knows nothing yet.
    #[must_use]
    pub fn new(cluster: Cluster, settings: Settings, metrics: Metrics) -> Self {
        Self { cluster, settings, metrics, index: Mutex::default() }
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        // A panic of another thread leaves at worst an entry of one object out, which the next event of it mends.
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
