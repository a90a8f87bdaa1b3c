//! Runs the reconciler: starts the watches, and works off the queues that they fill.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use futures::StreamExt;
use futures::channel::mpsc::{UnboundedReceiver, unbounded};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::observe::health::Condition;
use crate::observe::labels::Part;
use crate::observe::metrics::Metrics;
use crate::pin::kinds::WORKLOADS;
use crate::pin::record::Decided;
use crate::reconcile::fair::Most;
use crate::reconcile::index::{Key, WorkloadKey};
use crate::reconcile::queue::{Isolation, work_off};
use crate::reconcile::watches::Feed;
use crate::reconcile::{Reconciler, refresh};

/// How many snapshots are worked on at a time.
const MOST: Most = Most { all: 32, of_group: 8 };

/// How long before a snapshot whose turn failed is tried again, and before a part that panicked is started again.
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
                feed.reconciler.metrics.catch(Part::Decisions, || feed.decided(decided));
            }
        }
    });
    // No task ends by itself, except for a bug: then the program must exit, rather than continue without the task.
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
    let (listed, mut is_listed) = tokio::sync::watch::channel(BTreeSet::new());
    let feed = Feed {
        reconciler: reconciler.clone(),
        snapshots,
        workloads,
        notices,
        listed: Arc::new(listed),
        worked: Arc::new(AtomicBool::new(false)),
    };

    let before = tasks.len();
    for kind in WORKLOADS {
        watch(&feed, tasks, move |feed| feed.workloads(kind));
    }
    watch(&feed, tasks, Feed::holders);
    watch(&feed, tasks, Feed::snapshots);
    watch(&feed, tasks, Feed::sources);
    watch(&feed, tasks, Feed::namespaces);
    let watches = tasks.len() - before;

    let telling = reconciler.clone();
    tasks.spawn(async move {
        while let Some((workload, notice)) = told.next().await {
            if telling.leadership.is_held() {
                telling.metrics.isolate(Part::Events, telling.tell(&[workload], &notice)).await;
            }
        }
    });
    let leading = feed.clone();
    tasks.spawn(async move {
        // Half a picture would show holders missing, so nothing is judged before the first lists are complete.
        if is_listed.wait_for(|listed| listed.len() >= watches).await.is_err() {
            return;
        }
        synced.set(true);
        lead(&reconciler, &leading, snapshot_requests, workload_requests).await;
    });
    feed
}

fn watch<F>(feed: &Feed, tasks: &mut JoinSet<()>, start: impl Fn(Feed) -> F + Send + Sync + 'static)
where
    F: Future<Output = ()> + Send + 'static,
{
    let feed = feed.clone();
    tasks.spawn(async move { kept(&feed.reconciler.metrics, Part::Watches, || start(feed.clone())).await });
}

/// Runs a part of the program to its end. After a panic, which [`Metrics`] counts, it is started again.
async fn kept<F: Future<Output = ()>>(metrics: &Metrics, part: Part, start: impl Fn() -> F) {
    while metrics.isolate(part, start()).await.is_none() {
        tokio::time::sleep(RETRY).await;
    }
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
        let isolation = Isolation { metrics: &reconciler.metrics, part: Part::Snapshots };
        let work = async {
            tokio::select! {
                () = reconciler.leadership.lost() => {}
                () = work_off(&mut snapshots, Duration::ZERO, MOST, |key| &key.namespace, isolation, |key| turn(reconciler, key)) => {}
                () = refresh::run(reconciler, &mut workloads) => {}
            }
        };
        let ended = reconciler.metrics.isolate(Part::Reconciler, work).await;
        feed.end();
        if ended.is_none() {
            tokio::time::sleep(RETRY).await;
        }
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_part_that_panics_is_started_again() {
        let (metrics, starts) = (Metrics::new(), Cell::new(0));
        kept(&metrics, Part::Watches, async || {
            starts.set(starts.get() + 1);
            assert!(starts.get() > 3, "a test's panic");
        })
        .await;
        assert_eq!(starts.get(), 4);
        assert!(metrics.encode().expect("text").contains("confpin_panics_total{part=\"watches\"} 3"));
    }
}
