//! Refreshes: asks admission to decide a workload again when its sources call for it. What calls for it,
//! [`crate::pin::refresh`] says; here is when it is looked at, and how often at most.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::channel::mpsc::UnboundedReceiver;
use tokio_util::time::DelayQueue;

use crate::cluster::Error;
use crate::cluster::snapshots::Write;
use crate::observe::labels::RefreshCause;
use crate::pin::meta;
use crate::pin::record::Record;
use crate::pin::refresh::{Cause, Current, Follows, due, sources_to_read};
use crate::pin::snapshot::Source;
use crate::reconcile::Reconciler;
use crate::reconcile::index::WorkloadKey;

/// How long a workload waits after the first sign of a change: sources that change together make one rollout.
const QUIET: Duration = Duration::from_secs(1);

/// Pause between two refreshes, whatever they are of: one ConfigMap that a thousand workloads share does not become a
/// thousand rollouts in one second.
const SPACING: Duration = Duration::from_millis(100);

/// How long before a refresh that failed is tried again.
const RETRY: Duration = Duration::from_secs(10);

/// Works off `requests`, each a workload to be looked at.
pub(super) async fn run(reconciler: Arc<Reconciler>, requests: &mut UnboundedReceiver<WorkloadKey>) {
    let mut waiting = DelayQueue::new();
    let mut places = HashMap::new();
    let mut last: HashMap<WorkloadKey, Instant> = HashMap::new();
    // Their moment of settling is over before their turn comes, and they are owed a refresh all the same.
    let mut owed = HashSet::new();
    loop {
        reconciler.delayed.set(waiting.len());
        let workload = tokio::select! {
            request = requests.next() => {
                let Some(workload) = request else { return };
                // The first sign counts: a source that never rests must not put its workloads off for ever.
                places.entry(workload).or_insert_with_key(|workload| waiting.insert(workload.clone(), QUIET));
                continue;
            }
            Some(expired) = waiting.next() => expired.into_inner(),
        };
        places.remove(&workload);
        last.retain(|_, at| at.elapsed() < reconciler.settings.min_interval);
        let rest = last.get(&workload).map(|at| reconciler.settings.min_interval.saturating_sub(at.elapsed()));
        let settling = owed.remove(&workload);
        let again = match reconciler.refresh(&workload, settling, rest).await {
            Ok(Looked::Nothing) => None,
            Ok(Looked::TooSoon { rest, settling }) => {
                owed.extend(settling.then(|| workload.clone()));
                Some(rest)
            }
            Ok(Looked::Refreshed) => {
                last.insert(workload.clone(), Instant::now());
                tokio::time::sleep(SPACING).await;
                None
            }
            Err(error) => {
                tracing::warn!(%error, "a workload was not refreshed, trying again");
                owed.extend(settling.then(|| workload.clone()));
                Some(RETRY)
            }
        };
        if let Some(pause) = again {
            places.entry(workload).or_insert_with_key(|workload| waiting.insert(workload.clone(), pause));
        }
    }
}

/// What came of looking at a workload.
enum Looked {
    Nothing,
    Refreshed,
    /// A refresh is due, and the last one was too short a time ago.
    TooSoon {
        rest: Duration,
        settling: bool,
    },
}

impl Reconciler {
    async fn refresh(&self, key: &WorkloadKey, settling: bool, rest: Option<Duration>) -> Result<Looked, Error> {
        let (workload, namespace) = {
            let index = self.index();
            (index.workload(key).cloned(), index.namespace(&key.1.namespace))
        };
        let Some(workload) = workload else { return Ok(Looked::Nothing) };
        // Where admission is not asked, an annotation would change nothing.
        let pins = namespace.enabled && !namespace.opts_out && !workload.opts_out();
        let Some(record) = workload.annotation(meta::RECORD).map(Record::parse).filter(|_| pins && !workload.deleting)
        else {
            return Ok(Looked::Nothing);
        };
        let follows = Follows {
            on_change: namespace.on_change || workload.annotation(meta::ROLLOUT) == Some(meta::ON_CHANGE),
            settling: settling || self.decisions().is_settling(key, &record, Instant::now()),
        };
        let mut sources = BTreeMap::new();
        for name in sources_to_read(&record, &workload.configmaps, follows) {
            let found = self.cluster.configmap(&workload.namespace, name).await?;
            let current = found.filter(|found| !self.settings.exemptions.configmap(found)).map(|found| Current {
                hash: Source::new(name, &found).hash,
                resource_version: found.metadata.resource_version.unwrap_or_default(),
            });
            sources.insert(name.to_owned(), current);
        }
        let Some(refresh) = due(&record, &workload.configmaps, &sources, follows, workload.annotation(meta::REFRESH))
        else {
            return Ok(Looked::Nothing);
        };
        if let Some(rest) = rest.filter(|rest| !rest.is_zero()) {
            return Ok(Looked::TooSoon { rest, settling: follows.settling });
        }
        if self.cluster.ask_for_refresh(&workload, &refresh.value).await? == Write::Outdated {
            return Ok(Looked::Nothing);
        }
        tracing::info!(
            namespace = %workload.namespace,
            name = %workload.name,
            kind = workload.kind.kind,
            cause = ?refresh.cause,
            sources = refresh.value,
            "asked for a refresh"
        );
        self.metrics.refreshed(match refresh.cause {
            Cause::Appeared => RefreshCause::Missing,
            Cause::Settle => RefreshCause::Settle,
            Cause::OnChange => RefreshCause::OnChange,
        });
        Ok(Looked::Refreshed)
    }
}
