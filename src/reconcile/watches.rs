//! The watches that feed the reconciler, and the queue that they fill.

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures::{Stream, StreamExt, TryStreamExt, future};
use kube::api::{ApiResource, DynamicObject};
use kube::runtime::WatchStreamExt;
use kube::runtime::controller::{Action, Config, Error as ControllerError, applier};
use kube::runtime::reflector::{ObjectRef, store};
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, ResourceExt};
use tokio_util::sync::CancellationToken;

use crate::cluster::Error;
use crate::cluster::workloads::{api_resource, replica_sets};
use crate::observe::health::Condition;
use crate::pin::claim;
use crate::pin::kinds::{WORKLOADS, WorkloadKind};
use crate::pin::meta;
use crate::pin::objects::{Holder, WorkloadState};
use crate::reconcile::index::{Key, workload_key};
use crate::reconcile::{Reconciler, Snapshot, owners};

/// How many snapshots are worked on at a time.
const CONCURRENCY: u16 = 16;

/// How long before a snapshot whose turn failed is tried again.
const RETRY: Duration = Duration::from_secs(2);

type Queue = UnboundedSender<ObjectRef<Snapshot>>;

/// Reconciles until `stop`. `synced` is met once everything has been listed.
pub async fn run(reconciler: Arc<Reconciler>, synced: Condition, stop: CancellationToken) {
    let (queue, requests) = unbounded();
    let (ready, is_ready) = tokio::sync::watch::channel(0_usize);
    let ready = Arc::new(ready);
    let sources = WORKLOADS.len() + 1;
    let watches = WORKLOADS
        .into_iter()
        .map(|kind| tokio::spawn(watch_workloads(reconciler.clone(), kind, queue.clone(), Arc::clone(&ready))))
        .chain([tokio::spawn(watch_holders(reconciler.clone(), queue.clone(), Arc::clone(&ready)))]);
    let watches = Tasks(watches.collect());
    let reconcile = reconcile_snapshots(reconciler, queue, requests, is_ready, sources, synced);
    tokio::select! {
        () = stop.cancelled() => {}
        () = reconcile => tracing::error!("the reconciler's queue ended"),
    }
    drop(watches);
}

/// Tasks that end with their owner.
struct Tasks(Vec<tokio::task::JoinHandle<()>>);

impl Drop for Tasks {
    fn drop(&mut self) {
        self.0.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

async fn reconcile_snapshots(
    reconciler: Arc<Reconciler>,
    queue: Queue,
    requests: UnboundedReceiver<ObjectRef<Snapshot>>,
    mut is_ready: tokio::sync::watch::Receiver<usize>,
    sources: usize,
    synced: Condition,
) {
    let (snapshots, writer) = store::<Snapshot>();
    let api: Api<Snapshot> = Api::all(reconciler.cluster.client());
    let selector = watcher::Config::default().labels(&format!("{}={}", meta::SNAPSHOT, meta::TRUE));
    let watch_reconciler = reconciler.clone();
    let watch = watcher(api, selector).backoff(Pauses::default()).reflect(writer).for_each(move |event| {
        if let Some(snapshot) = taken(&watch_reconciler, "snapshots", event) {
            watch_reconciler.on_snapshot(&queue, snapshot);
        }
        future::ready(())
    });
    let work = async {
        // Half a picture would show holders missing, so nothing is judged before the first lists are complete. A
        // failure here means that the watches are gone, and the program with them.
        if is_ready.wait_for(|ready| *ready >= sources).await.is_err() || snapshots.wait_until_ready().await.is_err() {
            return;
        }
        synced.set(true);
        let metrics = reconciler.metrics.clone();
        let requests = requests.map(Ok::<_, Infallible>);
        let config = Config::default().concurrency(CONCURRENCY);
        let reconcile = |snapshot, context| Box::pin(owners::reconcile(snapshot, context));
        applier(reconcile, on_error, reconciler, snapshots, requests, config)
            .for_each(|result| {
                match result {
                    // A ConfigMap that some template names and that is no snapshot.
                    Ok(_) | Err(ControllerError::ObjectNotFound(_)) => {}
                    Err(error) => {
                        metrics.watch_failed("queue");
                        tracing::warn!(%error, "a snapshot could not be brought up to date, trying again");
                    }
                }
                future::ready(())
            })
            .await;
    };
    tokio::join!(watch, work);
}

#[expect(clippy::needless_pass_by_value, reason = "the signature is the applier's")]
fn on_error(_: Arc<Snapshot>, _: &Error, _: Arc<Reconciler>) -> Action {
    Action::requeue(RETRY)
}

/// The event, or `None` after an error, which the watch recovers from by itself.
fn taken<K>(reconciler: &Reconciler, watch: &'static str, event: watcher::Result<Event<K>>) -> Option<Event<K>> {
    event
        .inspect_err(|error| {
            reconciler.metrics.watch_failed(watch);
            tracing::warn!(%error, watch, "a watch failed, starting it again");
        })
        .ok()
}

async fn watch_workloads(
    reconciler: Arc<Reconciler>,
    kind: &'static WorkloadKind,
    queue: Queue,
    ready: Arc<tokio::sync::watch::Sender<usize>>,
) {
    let mut seen = HashSet::new();
    let mut first = Some(());
    let mut synced = move || {
        if first.take().is_some() {
            ready.send_modify(|count| *count += 1);
        }
    };
    let mut events = std::pin::pin!(watch(&reconciler, &api_resource(kind)));
    while let Some(event) = events.next().await {
        if event.as_ref().is_err_and(is_unknown_kind) {
            // Not installed, or no longer: the watch looks again and again, so that no restart is needed.
            let gone = reconciler.index().retain_workloads(kind, &HashSet::new());
            enqueue(&queue, gone);
            synced();
            continue;
        }
        let concerned = match taken(&reconciler, kind.plural, event) {
            None => continue,
            Some(Event::Init) => {
                seen.clear();
                continue;
            }
            Some(Event::Apply(object)) => reconciler.index().put_workload(WorkloadState::new(kind, &object)),
            Some(Event::InitApply(object)) => {
                let workload = WorkloadState::new(kind, &object);
                seen.insert(workload_key(&workload).1);
                reconciler.index().put_workload(workload)
            }
            Some(Event::Delete(object)) => {
                reconciler.index().remove_workload(&workload_key(&WorkloadState::new(kind, &object)))
            }
            Some(Event::InitDone) => {
                let concerned = reconciler.index().retain_workloads(kind, &seen);
                synced();
                concerned
            }
        };
        enqueue(&queue, concerned);
    }
}

async fn watch_holders(reconciler: Arc<Reconciler>, queue: Queue, ready: Arc<tokio::sync::watch::Sender<usize>>) {
    let mut seen = HashSet::new();
    let mut first = Some(());
    let key = |object: &DynamicObject| Key::new(&object.namespace().unwrap_or_default(), &object.name_any());
    let mut events = std::pin::pin!(watch(&reconciler, &replica_sets()));
    while let Some(event) = events.next().await {
        let concerned = match taken(&reconciler, "replicasets", event) {
            None => continue,
            Some(Event::Init) => {
                seen.clear();
                continue;
            }
            Some(Event::Apply(object)) => reconciler.index().put_holder(Holder::new(&object)),
            Some(Event::InitApply(object)) => {
                seen.insert(key(&object));
                reconciler.index().put_holder(Holder::new(&object))
            }
            Some(Event::Delete(object)) => reconciler.index().remove_holder(&key(&object)),
            Some(Event::InitDone) => {
                let concerned = reconciler.index().retain_holders(&seen);
                if first.take().is_some() {
                    ready.send_modify(|count| *count += 1);
                }
                concerned
            }
        };
        enqueue(&queue, concerned);
    }
}

fn watch(
    reconciler: &Reconciler,
    resource: &ApiResource,
) -> impl Stream<Item = watcher::Result<Event<DynamicObject>>> + use<> {
    let api: Api<DynamicObject> = Api::all_with(reconciler.cluster.client(), resource);
    watcher(api, watcher::Config::default()).backoff(Pauses::default()).into_stream()
}

impl Reconciler {
    fn on_snapshot(&self, queue: &Queue, event: Event<Snapshot>) {
        let (snapshot, deleted) = match event {
            Event::Apply(snapshot) | Event::InitApply(snapshot) => (snapshot, false),
            Event::Delete(snapshot) => (snapshot, true),
            Event::Init | Event::InitDone => return,
        };
        let key = Key::new(&snapshot.namespace().unwrap_or_default(), &snapshot.name_any());
        let claims = if deleted { <_>::default() } else { claim::claims(&snapshot.metadata) };
        self.index().put_claims(&key, claims.values().flatten());
        if !deleted {
            enqueue(queue, [key]);
        }
    }
}

fn enqueue(queue: &Queue, configmaps: impl IntoIterator<Item = Key>) {
    for key in configmaps {
        // The other end goes only with the program.
        let _ = queue.unbounded_send(ObjectRef::new(&key.name).within(&key.namespace));
    }
}

/// Whether the API server does not know the kind (404 for the list itself).
fn is_unknown_kind(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status)) => status.code == 404,
        _ => false,
    }
}

/// Pauses between the attempts of a watch: short at first, then a few seconds, so that a kind which is installed
/// later is found soon and an API server that is down is not stormed.
#[derive(Debug, Clone, Default)]
struct Pauses(u32);

impl Pauses {
    const FIRST: Duration = Duration::from_millis(250);
    const LONGEST: Duration = Duration::from_secs(5);
}

impl Iterator for Pauses {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let pause = Self::FIRST.saturating_mul(1 << self.0.min(8)).min(Self::LONGEST);
        self.0 += 1;
        Some(pause)
    }
}

impl Backoff for Pauses {
    fn reset(&mut self) {
        self.0 = 0;
    }
}
