//! Healing: a referenced snapshot that was deleted is recreated if its source still has the content.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::cluster::Error;
use crate::cluster::events::About;
use crate::cluster::snapshots::Write;
use crate::pin::meta;
use crate::pin::notice::{Notice, Reason};
use crate::pin::objects::{Holder, WorkloadState};
use crate::pin::record::Record;
use crate::pin::snapshot::{self, Source};
use crate::reconcile::Reconciler;
use crate::reconcile::index::Key;

/// How long a ConfigMap for which there was nothing to heal is left alone, however many events concern it.
const LEAVE: Duration = Duration::from_secs(30);

/// The same after a snapshot was recreated: one that is deleted again comes back soon, but not in a hot loop.
const LEAVE_HEALED: Duration = Duration::from_secs(2);

/// ConfigMaps that are left alone, and until when.
#[derive(Debug, Default)]
pub(super) struct Looked(HashMap<Key, Instant>);

impl Looked {
    /// How long `key` is still left alone; `None` if it is not.
    fn rest(&mut self, key: &Key, now: Instant) -> Option<Duration> {
        self.0.retain(|_, until| *until > now);
        self.0.get(key).map(|until| until.duration_since(now))
    }

    fn leave(&mut self, key: &Key, pause: Duration) {
        self.0.insert(key.clone(), Instant::now() + pause);
    }
}

impl Reconciler {
    /// Examines a ConfigMap that is referenced and that the watch does not show as a snapshot: most are sources, some are
    /// snapshots that were deleted. Returns when to examine it again, if no event comes before.
    ///
    /// # Errors
    /// When the API server refuses or cannot be asked: nothing is concluded, and the caller tries again.
    pub(super) async fn heal(&self, key: &Key) -> Result<Option<Duration>, Error> {
        let (workloads, sources) = self.concerned(key);
        if sources.is_empty() {
            return Ok(None);
        }
        // Deferred, not dropped: what happens in the meantime must not be missed.
        let rest = self.looked().rest(key, Instant::now());
        if rest.is_some() {
            return Ok(rest);
        }
        let pause = self.examine(key, &workloads, sources).await?;
        self.looked().leave(key, pause);
        Ok(None)
    }

    /// Recreates a snapshot if it is gone and in use, or reports that it is lost. Returns how long to leave it alone then.
    async fn examine(
        &self,
        key: &Key,
        workloads: &[Arc<WorkloadState>],
        sources: BTreeSet<String>,
    ) -> Result<Duration, Error> {
        if self.cluster.configmap(&key.namespace, &key.name).await?.is_some() {
            return Ok(LEAVE);
        }
        // Snapshots of a namespace that is being deleted may be deleted before their workloads.
        if self.cluster.namespace(&key.namespace).await?.terminating || !self.is_in_use(key, workloads).await? {
            return Ok(LEAVE_HEALED);
        }
        for name in sources {
            let Some(configmap) = self.cluster.configmap(&key.namespace, &name).await? else { continue };
            let source = Source::new(&name, &configmap);
            if !snapshot::names(&name, &source.hash).iter().any(|own| **own == *key.name) {
                continue;
            }
            // Without owners: these are set after the snapshot's own event, as for any other.
            let created = self.cluster.create_snapshot(&key.namespace, &source.snapshot(&key.name, None)).await?;
            // Admission was faster.
            if created == Write::Outdated {
                return Ok(LEAVE_HEALED);
            }
            tracing::info!(namespace = %key.namespace, snapshot = %key.name, "recreated a deleted snapshot");
            self.metrics.healed();
            let note = format!("snapshot {} was deleted; recreated it from ConfigMap {name}", key.name);
            self.tell(workloads, &Notice { reason: Reason::Healed, note }).await;
            return Ok(LEAVE_HEALED);
        }
        let note = format!(
            "snapshot {} was deleted and its content is gone: revisions that reference it cannot start new pods; \
             roll out the workload again, for example by kubectl rollout restart",
            key.name
        );
        tracing::warn!(namespace = %key.namespace, snapshot = %key.name, "a referenced snapshot is gone");
        self.tell(workloads, &Notice { reason: Reason::SnapshotLost, note }).await;
        Ok(LEAVE)
    }

    /// Whether one of `workloads`, or a holder of one, references the snapshot, by live reads. While they are deleted in the
    /// foreground, Kubernetes deletes the snapshot first, and its event can come before theirs.
    async fn is_in_use(&self, key: &Key, workloads: &[Arc<WorkloadState>]) -> Result<bool, Error> {
        for known in workloads {
            let live = self.cluster.workload(known.kind, &known.namespace, &known.name).await?;
            let Some(live) = live.filter(|live| live.uid == known.uid && !live.deleting) else { continue };
            if live.names(&key.name) {
                return Ok(true);
            }
            let holders = self.cluster.holders(&key.namespace, live.selector.as_deref()).await?;
            let is_own = |holder: &Holder| holder.controller.as_ref().is_some_and(|it| it.uid == live.uid);
            if holders.iter().any(|holder| !holder.deleting && is_own(holder) && holder.names(&key.name)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The workloads that a missing snapshot concerns, without those that are being deleted, and the sources that it may be of, by their records.
    fn concerned(&self, key: &Key) -> (Vec<Arc<WorkloadState>>, BTreeSet<String>) {
        if !snapshot::looks_like_one(&key.name) {
            return (Vec::new(), BTreeSet::new());
        }
        let index = self.index();
        let mut workloads: Vec<_> = index.workloads_naming(key).into_iter().map(|naming| naming.workload).collect();
        let holders = index.holders_naming(key);
        let existing = holders.iter().filter(|holder| !holder.deleting);
        let controllers = existing.filter_map(|holder| index.controller(holder)).cloned();
        workloads.extend(controllers);
        workloads.retain(|workload| !workload.deleting);
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
