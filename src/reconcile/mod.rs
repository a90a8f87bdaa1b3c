//! The reconciler: gives snapshots their owners, collects those that nothing ever owned, makes those again that
//! were deleted, and asks for a refresh where sources call for it.
//!
//! Watches feed an index of workloads, holders and snapshots. Every event puts the snapshots that it concerns on a queue,
//! from which [`work`] hands each to [`owners::reconcile`], one at a time a snapshot; and workloads that follow their
//! sources on another, for [`refresh`].
//!
//! A [`Reconciler`] is of a whole cluster, or of one namespace where confpin has rights in some only: nothing that it
//! knows reaches beyond a namespace, so those of several need to know nothing of each other.

mod changes;
mod decisions;
mod fair;
mod heal;
pub mod index;
mod many;
mod namespaces;
mod orphans;
mod owners;
mod queue;
mod refresh;
mod texts;
mod watches;
pub mod work;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::SignedDuration;

use crate::cluster::Cluster;
use crate::cluster::events::Events;
use crate::cluster::lease::Leadership;
use crate::observe::metrics::{Metrics, Share};
use crate::pin::exempt::Exemptions;
use crate::reconcile::decisions::Decisions;
use crate::reconcile::heal::Looked;
use crate::reconcile::index::Index;

/// What the operator decides.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How long a snapshot that nothing names is kept.
    pub orphan_grace: SignedDuration,
    /// How long after a decision a workload follows its sources; `None` for not at all.
    pub settle: Option<Duration>,
    /// The shortest time between two refreshes of one workload.
    pub min_interval: Duration,
    /// The most ConfigMaps of one template.
    pub max_references: usize,
    /// What is never pinned.
    pub exemptions: Exemptions,
}

/// The reconciler's state.
pub struct Reconciler {
    cluster: Cluster,
    namespace: Option<String>,
    leadership: Leadership,
    settings: Settings,
    metrics: Metrics,
    unpinned: Share,
    delayed: Share,
    events: Events,
    index: Mutex<Index>,
    decisions: Mutex<Decisions>,
    looked: Mutex<Looked>,
}

/// How long to wait where a live read is ahead of the watch.
const CATCH_UP: Duration = Duration::from_millis(200);

impl Reconciler {
    /// A reconciler of `namespace`, or of all, that knows nothing yet, and changes something only while `leadership` is
    /// held.
    #[must_use]
    pub fn new(
        cluster: &Cluster,
        namespace: Option<String>,
        leadership: Leadership,
        settings: Settings,
        metrics: Metrics,
    ) -> Self {
        Self {
            events: Events::new(cluster),
            cluster: cluster.led_by(leadership.clone()),
            namespace,
            leadership,
            decisions: Mutex::new(Decisions::new(settings.settle)),
            index: Mutex::new(Index::new(settings.exemptions.clone())),
            settings,
            unpinned: metrics.unpinned(),
            delayed: metrics.delayed(),
            metrics,
            looked: Mutex::default(),
        }
    }

    /// Whether a namespace is its own.
    fn is_of(&self, namespace: &str) -> bool {
        self.namespace.as_deref().is_none_or(|own| own == namespace)
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        locked(&self.index)
    }

    fn decisions(&self) -> MutexGuard<'_, Decisions> {
        locked(&self.decisions)
    }

    fn looked(&self) -> MutexGuard<'_, Looked> {
        locked(&self.looked)
    }
}

/// A panic of another thread leaves at worst one entry out, which the next event of its object mends.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
