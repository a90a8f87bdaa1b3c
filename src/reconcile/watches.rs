//! The watches: each feeds what it sees to the index, and puts on the queues whatever it concerns.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use futures::channel::mpsc::UnboundedSender;
use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ApiResource, DynamicObject, PartialObjectMeta};
use kube::runtime::WatchStreamExt;
use kube::runtime::reflector::{ObjectRef, Store, store::Writer};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, ResourceExt};
use tokio::sync::watch::Sender;

use crate::cluster::backoff::Pauses;
use crate::cluster::workloads::{api_resource, replica_sets};
use crate::pin::claim;
use crate::pin::kinds::WorkloadKind;
use crate::pin::meta;
use crate::pin::notice::{Notice, notices};
use crate::pin::objects::{Holder, WorkloadState};
use crate::pin::record::{Decided, Record};
use crate::pin::refresh::{Follows, sources_to_read};
use crate::pin::snapshot;
use crate::reconcile::index::{Key, WorkloadKey, workload_key};
use crate::reconcile::{Reconciler, Snapshot};

/// Where the watches put what they see.
#[derive(Clone)]
pub(super) struct Feed {
    pub(super) reconciler: Arc<Reconciler>,
    /// Snapshots to be looked at.
    pub(super) snapshots: UnboundedSender<ObjectRef<Snapshot>>,
    /// Workloads to be looked at for a refresh.
    pub(super) workloads: UnboundedSender<WorkloadKey>,
    /// What to tell in Events.
    pub(super) notices: UnboundedSender<(Arc<WorkloadState>, Notice)>,
    /// How many watches have listed everything once.
    pub(super) listed: Arc<Sender<usize>>,
}

/// What a watch tells.
pub(super) enum Change<K> {
    /// An object is new or has changed.
    Put(K),
    /// An object is gone.
    Gone(K),
    /// These are all that there are.
    Listed(HashSet<Key>),
}

impl Feed {
    /// Workloads of one kind.
    pub(super) async fn workloads(self, kind: &'static WorkloadKind) {
        let mut complete = false;
        let events = self.objects(&api_resource(kind));
        self.follow(kind.plural, events, |change| match change {
            Change::Put(object) => self.put_workload(WorkloadState::new(kind, &object), complete),
            Change::Gone(object) => {
                let key = workload_key(&WorkloadState::new(kind, &object));
                self.look_at(self.reconciler.index().remove_workload(&key));
                self.count_unpinned();
            }
            Change::Listed(seen) => {
                complete = true;
                self.look_at(self.reconciler.index().retain_workloads(kind, &seen));
                self.count_unpinned();
            }
        })
        .await;
    }

    /// ReplicaSets.
    pub(super) async fn holders(self) {
        let events = self.objects(&replica_sets());
        self.follow("replicasets", events, |change| {
            let concerned = match change {
                Change::Put(object) => self.reconciler.index().put_holder(Holder::new(&object)),
                Change::Gone(object) => self.reconciler.index().remove_holder(&key_of(&object)),
                Change::Listed(seen) => self.reconciler.index().retain_holders(&seen),
            };
            self.look_at(concerned);
        })
        .await;
    }

    /// Snapshots, into `writer`'s store as well.
    pub(super) async fn snapshots(self, writer: Writer<Snapshot>) {
        let events = self.configmaps(&format!("{}={}", meta::SNAPSHOT, meta::TRUE));
        let events = events.modify(|snapshot| snapshot::strip(&mut snapshot.metadata)).reflect(writer);
        self.follow("snapshots", events, |change| {
            let (snapshot, claims) = match change {
                Change::Put(snapshot) => (key_of(&snapshot), claim::claims(&snapshot.metadata)),
                // Somebody may still name it.
                Change::Gone(snapshot) => (key_of(&snapshot), <_>::default()),
                Change::Listed(_) => return,
            };
            self.reconciler.index().put_claims(&snapshot, claims.values().flatten());
            self.look_at([snapshot]);
        })
        .await;
    }

    /// Sources, of which nothing is kept: their metadata tells that one changed, and a read what it holds.
    pub(super) async fn sources(self) {
        let mut complete = false;
        let events = self.configmaps(&format!("{}!={}", meta::SNAPSHOT, meta::TRUE));
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
            let _ = self.workloads.unbounded_send(workload);
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
                // The other ends of all queues go only with the program.
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
            let _ = self.workloads.unbounded_send(key.clone());
        }
    }

    /// Puts all that there is on the queues, for a reconciler that begins in the middle.
    pub(super) fn everything(&self, snapshots: &Store<Snapshot>) {
        let named: Vec<_> = self.reconciler.index().named().cloned().collect();
        self.look_at(named);
        self.look_at(snapshots.state().iter().map(|snapshot| key_of(snapshot.as_ref())));
        let workloads: Vec<_> = self.reconciler.index().workloads().cloned().collect();
        self.refresh(workloads);
    }

    fn look_at(&self, configmaps: impl IntoIterator<Item = Key>) {
        for key in configmaps {
            let _ = self.snapshots.unbounded_send(ObjectRef::new(&key.name).within(&key.namespace));
        }
    }

    /// Puts those of the workloads on the queue that follow their sources, or miss one.
    pub(super) fn refresh(&self, workloads: impl IntoIterator<Item = WorkloadKey>) {
        for key in workloads {
            if self.follows(&key) {
                let _ = self.workloads.unbounded_send(key);
            }
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

    /// Tells every change that a watch shows. A watch that fails is started again; one of a kind that the cluster does
    /// not have, or no longer has, shows an empty list each time, so that no restart is needed once it is installed.
    pub(super) async fn follow<K: kube::Resource>(
        &self,
        name: &'static str,
        events: impl Stream<Item = watcher::Result<Event<K>>>,
        mut tell: impl FnMut(Change<K>),
    ) {
        let watch = self.reconciler.metrics.watch(name);
        let mut seen = HashSet::new();
        let mut first = true;
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.next().await {
            let change = match event {
                Ok(Event::Init) => {
                    watch.lists();
                    seen.clear();
                    continue;
                }
                Ok(Event::Apply(object)) => Change::Put(object),
                Ok(Event::InitApply(object)) => {
                    seen.insert(key_of(&object));
                    Change::Put(object)
                }
                Ok(Event::Delete(object)) => Change::Gone(object),
                Ok(Event::InitDone) => Change::Listed(std::mem::take(&mut seen)),
                Err(error) if is_unknown_kind(&error) => Change::Listed(HashSet::new()),
                Err(error) => {
                    watch.failed(&error);
                    continue;
                }
            };
            let listed = matches!(change, Change::Listed(_));
            tell(change);
            if listed {
                watch.has_listed();
                if std::mem::take(&mut first) {
                    self.has_listed();
                }
            }
        }
    }

    /// A watch has listed everything for the first time.
    pub(super) fn has_listed(&self) {
        self.listed.send_modify(|count| *count += 1);
    }

    fn objects(&self, resource: &ApiResource) -> impl Stream<Item = watcher::Result<Event<DynamicObject>>> + use<> {
        let api = self.reconciler.cluster.objects(resource, self.reconciler.namespace.as_deref());
        watcher(api, paged()).backoff(Pauses::default())
    }

    fn configmaps(&self, labels: &str) -> impl Stream<Item = watcher::Result<Event<Snapshot>>> + use<> {
        let client = self.reconciler.cluster.client();
        let api: Api<PartialObjectMeta<ConfigMap>> = match &self.reconciler.namespace {
            Some(namespace) => Api::namespaced(client, namespace),
            None => Api::all(client),
        };
        watcher(api, paged().labels(labels)).backoff(Pauses::default())
    }
}

/// Lists come in small pages: all the objects of one are in memory at once, in full, before anything is made of them, and
/// what that takes is not given back.
pub(super) fn paged() -> watcher::Config {
    const PAGE: u32 = 100;
    watcher::Config::default().page_size(PAGE)
}

fn key_of(object: &impl kube::Resource) -> Key {
    let metadata = object.meta();
    Key::new(metadata.namespace.as_deref().unwrap_or_default(), metadata.name.as_deref().unwrap_or_default())
}

/// Whether the API server does not know the kind (404 for the list itself).
fn is_unknown_kind(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status)) => status.code == 404,
        _ => false,
    }
}
