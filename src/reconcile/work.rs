//! Runs the reconciler: starts the watches, and works off the queues that they fill.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::channel::mpsc::{UnboundedReceiver, unbounded};
use kube::runtime::controller::{Action, Config, Error as ControllerError, applier};
use kube::runtime::reflector::{ObjectRef, Store, store};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::cluster::Error;
use crate::observe::health::Condition;
use crate::pin::kinds::WORKLOADS;
use crate::pin::record::Decided;
use crate::reconcile::index::Key;
use crate::reconcile::watches::Feed;
use crate::reconcile::{Reconciler, Snapshot, owners, refresh};

/// How many snapshots are worked on at a time.
const CONCURRENCY: u16 = 16;

/// How long before a snapshot whose turn failed is tried again.
const RETRY: Duration = Duration::from_secs(2);

/// Reconciles until `stop`. `synced` is met once everything has been listed; `decisions` are the webhook's.
pub async fn run(
    reconciler: Arc<Reconciler>,
    mut decisions: UnboundedReceiver<Decided>,
    synced: Condition,
    stop: CancellationToken,
) {
    let (snapshots, snapshot_requests) = unbounded();
    let (workloads, workload_requests) = unbounded();
    let (notices, mut told) = unbounded();
    let (listed, mut is_listed) = tokio::sync::watch::channel(0_usize);
    let feed = Feed { reconciler: reconciler.clone(), snapshots, workloads, notices, listed: Arc::new(listed) };

    let mut tasks = JoinSet::new();
    let (reader, writer) = store::<Snapshot>();
    WORKLOADS.into_iter().for_each(|kind| drop(tasks.spawn(feed.clone().workloads(kind))));
    tasks.spawn(feed.clone().holders());
    tasks.spawn(feed.clone().snapshots(writer));
    tasks.spawn(feed.clone().sources());
    tasks.spawn(feed.clone().namespaces());
    let watches = tasks.len();

    let noting = reconciler.clone();
    tasks.spawn(async move {
        while let Some(decided) = decisions.next().await {
            let workload = (decided.kind, Key::new(&decided.namespace, &decided.name));
            if noting.decisions().decided(decided, Instant::now()) {
                let _ = feed.workloads.unbounded_send(workload);
            }
        }
    });
    let telling = reconciler.clone();
    tasks.spawn(async move {
        while let Some((workload, notice)) = told.next().await {
            telling.tell(&[workload], &notice).await;
        }
    });
    tasks.spawn(async move {
        // Half a picture would show holders missing, so nothing is judged before the first lists are complete.
        if is_listed.wait_for(|listed| *listed >= watches).await.is_err() {
            return;
        }
        synced.set(true);
        tokio::join!(
            reconcile_snapshots(reconciler.clone(), reader, snapshot_requests),
            refresh::run(reconciler, workload_requests),
        );
    });
    // None of them ends by itself, but for a mistake: then the program is to end, and not to go on without.
    tokio::select! {
        () = stop.cancelled() => {}
        ended = tasks.join_next() => tracing::error!(?ended, "a part of the reconciler ended"),
    }
}

async fn reconcile_snapshots(
    reconciler: Arc<Reconciler>,
    snapshots: Store<Snapshot>,
    requests: UnboundedReceiver<ObjectRef<Snapshot>>,
) {
    let healer = reconciler.clone();
    let reconcile = |snapshot, context| Box::pin(owners::reconcile(snapshot, context));
    let requests = requests.map(Ok::<_, Infallible>);
    let config = Config::default().concurrency(CONCURRENCY);
    applier(reconcile, on_error, reconciler, snapshots, requests, config)
        .for_each_concurrent(usize::from(CONCURRENCY), async |result| match result {
            Ok(_) => {}
            // Named, and not there as a snapshot.
            Err(ControllerError::ObjectNotFound(missing)) => {
                let key = Key::new(missing.namespace.as_deref().unwrap_or_default(), &missing.name);
                if let Err(error) = healer.heal(&key).await {
                    tracing::warn!(%error, "a missing snapshot was not looked after");
                }
            }
            Err(error) => tracing::warn!(%error, "a snapshot was not brought up to date, trying again"),
        })
        .await;
}

fn on_error(_: Arc<Snapshot>, _: &Error, _: Arc<Reconciler>) -> Action {
    Action::requeue(RETRY)
}
