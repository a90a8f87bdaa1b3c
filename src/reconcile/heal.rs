//! Healing: a referenced snapshot that was deleted is recreated if its source still has the content.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::cluster::Error;
use crate::cluster::events::About;
use crate::pin::meta;
use crate::pin::notice::{Notice, Reason};
use crate::pin::objects::WorkloadState;
use crate::pin::record::Record;
use crate::pin::snapshot::{self, Source};
use crate::reconcile::Reconciler;
use crate::reconcile::index::Key;

/// How long a name that could not be healed is left alone, however many events concern it.
const LEAVE: Duration = Duration::from_secs(30);

/// Names that were looked at lately.
#[derive(Debug, Default)]
pub(super) struct Looked(HashMap<Key, Instant>);

impl Looked {
    /// Whether `key` is to be looked at now; if so, it is not for a while.
    fn take(&mut self, key: &Key, now: Instant) -> bool {
        self.0.retain(|_, at| now.duration_since(*at) < LEAVE);
        let fresh = !self.0.contains_key(key);
        if fresh {
            self.0.insert(key.clone(), now);
        }
        fresh
    }
}

impl Reconciler {
    /// Looks after a ConfigMap that is named and that the watch does not show as a snapshot: most are sources, some are
    /// snapshots that were deleted.
    pub(super) async fn heal(&self, key: &Key) -> Result<(), Error> {
        let (workloads, sources) = self.concerned(key);
        if sources.is_empty() || !self.looked().take(key, Instant::now()) {
            return Ok(());
        }
        if self.cluster.configmap(&key.namespace, &key.name).await?.is_some() {
            return Ok(());
        }
        for name in sources {
            let Some(configmap) = self.cluster.configmap(&key.namespace, &name).await? else { continue };
            let source = Source::new(&name, &configmap);
            if !snapshot::names(&name, &source.hash).iter().any(|own| **own == *key.name) {
                continue;
            }
            // Without owners: these come by the snapshot's own event, as for any other.
            let _ = self.cluster.create_snapshot(&key.namespace, &source.snapshot(&key.name, None)).await?;
            tracing::info!(namespace = %key.namespace, snapshot = %key.name, "made a deleted snapshot again");
            self.metrics.healed();
            let note = format!("snapshot {} was deleted; made it again from ConfigMap {name}", key.name);
            self.tell(&workloads, &Notice { reason: Reason::Healed, note }).await;
            return Ok(());
        }
        // Of a namespace that is being deleted the snapshots may go first.
        if self.cluster.namespace(&key.namespace).await?.terminating || self.concerned(key).0.is_empty() {
            return Ok(());
        }
        let note = format!(
            "snapshot {} was deleted and its content is gone: revisions that reference it cannot start new pods; \
             roll out the workload again, for example by kubectl rollout restart",
            key.name
        );
        tracing::warn!(namespace = %key.namespace, snapshot = %key.name, "a snapshot that is named is gone");
        self.tell(&workloads, &Notice { reason: Reason::SnapshotLost, note }).await;
        Ok(())
    }

    /// The workloads that a missing snapshot concerns, and the sources that it may be of, by their records.
    fn concerned(&self, key: &Key) -> (Vec<Arc<WorkloadState>>, BTreeSet<String>) {
        if !snapshot::looks_like_one(&key.name) {
            return (Vec::new(), BTreeSet::new());
        }
        let index = self.index();
        let mut workloads: Vec<_> = index.workloads_naming(key).into_iter().map(|naming| naming.workload).collect();
        let holders = index.holders_naming(key);
        let controllers = holders.iter().filter_map(|holder| index.controller(holder)).cloned();
        workloads.extend(controllers);
        workloads.sort_by(|one, other| one.uid.cmp(&other.uid));
        workloads.dedup_by(|one, other| one.uid == other.uid);
        let records = workloads.iter().filter_map(|workload| workload.annotation(meta::RECORD));
        let sources = records.flat_map(|text| Record::parse(text).0.into_keys());
        let sources = sources.filter(|source| snapshot::may_be_of(&key.name, source)).collect();
        (workloads, sources)
    }

    pub(super) async fn tell(&self, workloads: &[Arc<WorkloadState>], notice: &Notice) {
        for workload in workloads {
            let uid = workload.uid.to_string();
            let about =
                About { kind: workload.kind, namespace: &workload.namespace, name: &workload.name, uid: Some(&uid) };
            self.events.publish(&about, notice).await;
        }
    }
}
