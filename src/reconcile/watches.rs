//! The watches: each feeds what it sees to the index, and puts on the queues whatever it concerns.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use futures::Stream;
use futures::channel::mpsc::UnboundedSender;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ApiResource;
use kube::runtime::watcher::{self, Event};
use kube::{Resource, ResourceExt};
use tokio::sync::watch::Sender;

use crate::cluster::watched::{METADATA, WHOLE, Watched};
use crate::cluster::workloads::{api_resource, replica_sets};
use crate::pin::kinds::WorkloadKind;
use crate::pin::meta;
use crate::pin::notice::{Notice, notices};
use crate::pin::objects::{Holder, WorkloadState};
use crate::pin::ownership::Judgement;
use crate::pin::record::{Decided, Record};
use crate::pin::refresh::{Follows, sources_to_read};
use crate::pin::snapshot;
use crate::pin::snapshot_state::SnapshotState;
use crate::reconcile::Reconciler;
use crate::reconcile::changes::{Change, key_of};
use crate::reconcile::index::{Key, WorkloadKey, workload_key};

/// Where the watches put what they see.
#[derive(Clone)]
pub(super) struct Feed {
    pub(super) reconciler: Arc<Reconciler>,
    /// Snapshots to be looked at, and other ConfigMaps that something names.
    pub(super) snapshots: UnboundedSender<Key>,
    /// Workloads to be looked at for a refresh.
    pub(super) workloads: UnboundedSender<WorkloadKey>,
    /// What to tell in Events.
    pub(super) notices: UnboundedSender<(Arc<WorkloadState>, Notice)>,
    /// The watches that have listed everything once.
    pub(super) listed: Arc<Sender<BTreeSet<&'static str>>>,
    /// Whether the queues are being processed. Nothing is queued before.
    pub(super) worked: Arc<AtomicBool>,
}

impl Feed {
    /// Workloads of one kind.
    pub(super) async fn workloads(self, kind: &'static WorkloadKind) {
        let mut complete = false;
        let events = self.watch::<WHOLE>(&api_resource(kind), None);
        self.follow(kind.plural, events, |change| match change {
            Change::Put(object) => self.put_workload(WorkloadState::new(kind, &object.0), complete),
            Change::Gone(object) => {
                let key = (kind, key_of(&object));
                self.look_at(self.reconciler.index().remove_workload(&key));
                self.count_unpinned();
            }
            Change::Listed(seen) => {
                complete = true;
                if let Some(seen) = seen {
                    self.look_at(self.reconciler.index().retain_workloads(kind, &seen));
                }
                self.count_unpinned();
            }
        })
        .await;
    }

    /// ReplicaSets.
    pub(super) async fn holders(self) {
        let events = self.watch::<WHOLE>(&replica_sets(), None);
        self.follow("replicasets", events, |change| {
            let concerned = match change {
                Change::Put(object) => self.reconciler.index().put_holder(Holder::new(&object.0)),
                Change::Gone(object) => self.reconciler.index().remove_holder(&key_of(&object)),
                Change::Listed(Some(seen)) => self.reconciler.index().retain_holders(&seen),
                Change::Listed(None) => return,
            };
            self.look_at(concerned);
        })
        .await;
    }

    /// Snapshots.
    pub(super) async fn snapshots(self) {
        let snapshots = format!("{}={}", meta::SNAPSHOT, meta::TRUE);
        let events = self.watch::<METADATA>(&configmaps(), Some(&snapshots));
        self.follow("snapshots", events, |change| {
            let concerned = match change {
                Change::Put(object) => {
                    vec![self.put_snapshot(SnapshotState::new(object.meta(), Timestamp::now()))]
                }
                // A workload or holder may still reference it.
                Change::Gone(object) => {
                    let key = key_of(&object);
                    self.reconciler.index().remove_snapshot(&key);
                    vec![key]
                }
                Change::Listed(Some(seen)) => self.reconciler.index().retain_snapshots(&seen),
                Change::Listed(None) => return,
            };
            self.look_at(concerned);
        })
        .await;
    }

    fn put_snapshot(&self, snapshot: SnapshotState) -> Key {
        let discarded = snapshot.discarded_claims();
        let version = snapshot.version.clone();
        let mut index = self.reconciler.index();
        let before = index.snapshot(&Key::shared(&snapshot.namespace, &snapshot.name)).map(|it| it.version.clone());
        let key = index.put_snapshot(snapshot);
        drop(index);
        // A list brings the same version again.
        if discarded > 0 && before.is_none_or(|before| before != version) {
            tracing::warn!(
                namespace = %key.namespace,
                snapshot = %key.name,
                discarded,
                "ignored claims that confpin cannot have written; if nobody edited them, compare the clocks of the nodes"
            );
        }
        key
    }

    /// Sources, of which nothing is kept: their metadata tells that one changed, and a read what it holds.
    pub(super) async fn sources(self) {
        let mut complete = false;
        let sources = format!("{}!={}", meta::SNAPSHOT, meta::TRUE);
        let events = self.watch::<METADATA>(&configmaps(), Some(&sources));
        self.follow("sources", events, |change| match change {
            Change::Put(source) if complete => {
                let version = source.resource_version().unwrap_or_default();
                let source = key_of(&source);
                self.reconciler.decisions().changed(source.clone(), version, Instant::now());
                let workloads: Vec<_> = self.reconciler.index().workloads_with_source(&source).cloned().collect();
                self.refresh(workloads);
            }
            Change::Put(_) | Change::Gone(_) => {}
            Change::Listed(_) => {
                // Whatever changed before, while nobody watched, shows in the records.
                complete = true;
                let workloads: Vec<_> = self.reconciler.index().workloads().cloned().collect();
                self.refresh(workloads);
            }
        })
        .await;
    }

    /// Takes in a decision of this replica's webhook.
    pub(super) fn decided(&self, decided: Decided) {
        let workload = (decided.kind, Key::new(&decided.namespace, &decided.name));
        if self.reconciler.decisions().decided(decided, Instant::now()) {
            self.look_at_workload(workload);
        }
    }

    fn put_workload(&self, workload: WorkloadState, complete: bool) {
        let key = workload_key(&workload);
        let (old, new) = {
            let mut index = self.reconciler.index();
            let old = index.workload(&key).cloned();
            self.look_at(index.put_workload(workload));
            (old, index.workload(&key).cloned())
        };
        let Some(new) = new else { return };
        if complete {
            for notice in notices(old.as_deref(), &new) {
                let _ = self.notices.unbounded_send((new.clone(), notice));
            }
            self.count_unpinned();
            self.note_decision(&key, old.as_deref(), &new);
        }
        if old.is_none_or(|old| old.annotations != new.annotations) {
            self.refresh([key]);
        }
    }

    /// Of the decisions of other replicas nothing is heard but what they have stored.
    fn note_decision(&self, key: &WorkloadKey, old: Option<&WorkloadState>, new: &WorkloadState) {
        let of = |name: &str| (old.and_then(|old| old.annotation(name)), new.annotation(name));
        let ((before, Some(after)), (asked_before, asked)) = (of(meta::RECORD), of(meta::REFRESH)) else { return };
        if before == Some(after) {
            return;
        }
        let is_refresh = old.is_some() && asked_before != asked;
        if self.reconciler.decisions().seen(key, &Record::parse(after), is_refresh, Instant::now()) {
            self.look_at_workload(key.clone());
        }
    }

    /// Puts on the queues whatever there is to be done, and from now on whatever comes, for a reconciler that begins in the
    /// middle.
    pub(super) fn begin(&self) {
        self.worked.store(true, Ordering::SeqCst);
        let (snapshots, named): (Vec<_>, Vec<_>) = {
            let index = self.reconciler.index();
            let snapshots = index.snapshots().map(|(key, snapshot)| (key.clone(), snapshot.clone())).collect();
            let is_missing = |key: &&Key| snapshot::looks_like_one(&key.name) && index.snapshot(key).is_none();
            (snapshots, index.named().filter(is_missing).cloned().collect())
        };
        let rests =
            |(key, snapshot): &(Key, Arc<SnapshotState>)| self.reconciler.judge(key, snapshot).0 == Judgement::Rest;
        self.look_at(snapshots.into_iter().filter(|snapshot| !rests(snapshot)).map(|(key, _)| key));
        self.look_at(named);
        let workloads: Vec<_> = self.reconciler.index().workloads().cloned().collect();
        self.refresh(workloads);
    }

    /// Puts nothing on the queues any more.
    pub(super) fn end(&self) {
        self.worked.store(false, Ordering::SeqCst);
    }

    fn is_worked(&self) -> bool {
        self.worked.load(Ordering::SeqCst)
    }

    fn look_at(&self, configmaps: impl IntoIterator<Item = Key>) {
        if self.is_worked() {
            for key in configmaps {
                // The other ends of all queues go only with the program.
                let _ = self.snapshots.unbounded_send(key);
            }
        }
    }

    /// Puts those of the workloads on the queue that follow their sources, or miss one.
    pub(super) fn refresh(&self, workloads: impl IntoIterator<Item = WorkloadKey>) {
        for key in workloads {
            if self.is_worked() && self.follows(&key) {
                self.look_at_workload(key);
            }
        }
    }

    fn look_at_workload(&self, key: WorkloadKey) {
        if self.is_worked() {
            let _ = self.workloads.unbounded_send(key);
        }
    }

    fn follows(&self, key: &WorkloadKey) -> bool {
        let (workload, namespace) = {
            let index = self.reconciler.index();
            (index.workload(key).cloned(), index.namespace(&key.1.namespace))
        };
        let Some(workload) = workload else { return false };
        let Some(record) = workload.annotation(meta::RECORD).map(Record::parse) else { return false };
        let follows = Follows {
            on_change: namespace.on_change || workload.annotation(meta::ROLLOUT) == Some(meta::ON_CHANGE),
            settling: self.reconciler.decisions().is_settling(key, &record, Instant::now()),
        };
        !sources_to_read(&record, &workload.configmaps, follows).is_empty()
    }

    pub(super) fn count_unpinned(&self) {
        self.reconciler.unpinned.set(self.reconciler.index().unpinned());
    }

    /// A watch has listed everything.
    pub(super) fn has_listed(&self, watch: &'static str) {
        self.listed.send_if_modified(|listed| listed.insert(watch));
    }

    /// Whether a watch has listed everything before.
    pub(super) fn is_listed(&self, watch: &'static str) -> bool {
        self.listed.borrow().contains(watch)
    }

    pub(super) fn watch<const IS_WHOLE: bool>(
        &self,
        resource: &ApiResource,
        labels: Option<&str>,
    ) -> impl Stream<Item = watcher::Result<Event<Watched<IS_WHOLE>>>> + use<IS_WHOLE> {
        self.reconciler.cluster.watch(resource, self.reconciler.namespace.as_deref(), labels)
    }
}

fn configmaps() -> ApiResource {
    ApiResource::erase::<ConfigMap>(&())
}
