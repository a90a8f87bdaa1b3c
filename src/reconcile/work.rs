//! Runs the reconciler: starts the watches, and works off the queues that they fill.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use futures::StreamExt;
use futures::channel::mpsc::{UnboundedReceiver, unbounded};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::observe::health::Condition;
use crate::pin::kinds::WORKLOADS;
use crate::pin::record::Decided;
use crate::reconcile::fair::Most;
use crate::reconcile::index::{Key, WorkloadKey};
use crate::reconcile::queue::work_off;
use crate::reconcile::watches::Feed;
use crate::reconcile::{Reconciler, refresh};

/// How many snapshots are worked on at a time.
const MOST: Most = Most { all: 32, of_group: 8 };

/// How long before a snapshot whose turn failed is tried again.
const RETRY: Duration = Duration::from_secs(2);

/// Reconciles until `stop`. The condition beside each reconciler is met once it has listed everything; `decisions` are
/// the webhook's.
pub async fn run(
    reconcilers: Vec<(Arc<Reconciler>, Condition)>,
    mut decisions: UnboundedReceiver<Decided>,
    stop: CancellationToken,
) {
    let mut tasks = JoinSet::new();
    let feeds: Vec<_> =
        reconcilers.into_iter().map(|(reconciler, synced)| start(reconciler, synced, &mut tasks)).collect();
    tasks.spawn(async move {
        while let Some(decided) = decisions.next().await {
            if let Some(feed) = feeds.iter().find(|feed| feed.reconciler.is_of(&decided.namespace)) {
                feed.decided(decided);
            }
        }
    });
    // None of them ends by itself, but for a mistake: then the program is to end, and not to go on without.
    tokio::select! {
        () = stop.cancelled() => {}
        ended = tasks.join_next() => tracing::error!(?ended, "a part of the reconciler ended"),
    }
}

/// Starts the tasks of one reconciler. Returns what takes in the webhook's decisions.
fn start(reconciler: Arc<Reconciler>, synced: Condition, tasks: &mut JoinSet<()>) -> Feed {
    let (snapshots, snapshot_requests) = unbounded();
    let (workloads, workload_requests) = unbounded();
    let (notices, mut told) = unbounded();
    let (listed, mut is_listed) = tokio::sync::watch::channel(0_usize);
    let feed = Feed {
        reconciler: reconciler.clone(),
        snapshots,
        workloads,
        notices,
        listed: Arc::new(listed),
        worked: Arc::new(AtomicBool::new(false)),
    };

    let before = tasks.len();
    WORKLOADS.into_iter().for_each(|kind| drop(tasks.spawn(feed.clone().workloads(kind))));
    tasks.spawn(feed.clone().holders());
    tasks.spawn(feed.clone().snapshots());
    tasks.spawn(feed.clone().sources());
    tasks.spawn(feed.clone().namespaces());
    let watches = tasks.len() - before;

    let telling = reconciler.clone();
    tasks.spawn(async move {
        while let Some((workload, notice)) = told.next().await {
            if telling.leadership.is_held() {
                telling.tell(&[workload], &notice).await;
            }
        }
    });
    let leading = feed.clone();
    tasks.spawn(async move {
        // Half a picture would show holders missing, so nothing is judged before the first lists are complete.
        if is_listed.wait_for(|listed| *listed >= watches).await.is_err() {
            return;
        }
        synced.set(true);
        lead(&reconciler, &leading, snapshot_requests, workload_requests).await;
    });
    feed
}

/// Works off the queues whenever this replica leads. The watches run in every replica, so that a new leader knows all from
/// its first moment.
async fn lead(
    reconciler: &Arc<Reconciler>,
    feed: &Feed,
    mut snapshots: UnboundedReceiver<Key>,
    mut workloads: UnboundedReceiver<WorkloadKey>,
) {
    loop {
        reconciler.leadership.held().await;
        let namespace = reconciler.namespace.as_deref();
        tracing::info!(namespace, "this replica reconciles");
        reconciler.metrics.leads(true);
        feed.begin();
        tokio::select! {
            () = reconciler.leadership.lost() => {}
            () = work_off(&mut snapshots, Duration::ZERO, MOST, |key| &key.namespace, |key| turn(reconciler, key)) => {}
            () = refresh::run(reconciler, &mut workloads) => {}
        }
        feed.end();
        // What was under way is dropped where it stood: the next leader looks at everything.
        tracing::info!(namespace, "this replica does not reconcile any more");
        reconciler.metrics.leads(false);
    }
}

/// One turn of a snapshot. Returns after which time there is to be another.
async fn turn(reconciler: &Reconciler, key: Key) -> Option<Duration> {
    reconciler.reconcile(&key).await.unwrap_or_else(|error| {
        tracing::warn!(%error, "a snapshot was not brought up to date, trying again");
        Some(RETRY)
    })
}
