//! Refreshes: asks admission to decide a workload again when its sources call for it. What calls for it,
//! [`crate::pin::refresh`] says; here is when it is looked at, and how often at most.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use futures::channel::mpsc::UnboundedReceiver;
use futures::stream::{self, StreamExt, TryStreamExt};

use crate::cluster::Error;
use crate::cluster::snapshots::Write;
use crate::observe::labels::{Part, RefreshCause};
use crate::pin::meta;
use crate::pin::record::Record;
use crate::pin::refresh::{Cause, Current, Follows, due, sources_to_read};
use crate::pin::snapshot::Source;
use crate::reconcile::fair::Most;
use crate::reconcile::index::WorkloadKey;
use crate::reconcile::queue::{Isolation, work_off};
use crate::reconcile::{Reconciler, locked};

/// How long a workload waits after the first sign of a change: sources that change together make one rollout.
const QUIET: Duration = Duration::from_secs(1);

/// Pause between two refreshes, whatever they are of: one ConfigMap that a thousand workloads share does not become a
/// thousand rollouts in one second.
const SPACING: Duration = Duration::from_millis(100);

/// How many workloads are looked at at a time. A refresh passes the admission webhooks of its namespace, which are others'
/// and may take their time.
const MOST: Most = Most { all: 32, of_group: 4 };

/// How many sources of a workload are read at a time.
const PARALLEL: usize = 8;

/// How long before a refresh that failed is tried again.
const RETRY: Duration = Duration::from_secs(10);

/// Works off `requests`, each a workload to be looked at. The first sign of a change counts: a source that never rests must
/// not put its workloads off for ever.
pub(super) async fn run(reconciler: &Reconciler, requests: &mut UnboundedReceiver<WorkloadKey>) {
    let refreshes = Refreshes { reconciler, pace: Pace::default(), memory: Mutex::default() };
    let isolation = Isolation { metrics: &reconciler.metrics, part: Part::Refreshes };
    work_off(requests, QUIET, MOST, |(_, key)| &key.namespace, isolation, |workload| refreshes.turn(workload)).await;
}

/// The refreshes of one reconciler for as long as it leads.
struct Refreshes<'a> {
    reconciler: &'a Reconciler,
    pace: Pace,
    memory: Mutex<Memory>,
}

#[derive(Default)]
struct Memory {
    /// When each was last refreshed.
    last: HashMap<WorkloadKey, Instant>,
    /// Their moment of settling is over before their turn comes, and they are owed a refresh all the same.
    owed: HashSet<WorkloadKey>,
    /// Those that wait for their turn after another refresh, or a failure.
    delayed: HashSet<WorkloadKey>,
}

impl Refreshes<'_> {
    /// One turn of a workload. Returns after which time there is to be another.
    async fn turn(&self, key: WorkloadKey) -> Option<Duration> {
        let shortest = self.reconciler.settings.min_interval;
        let (rest, settling) = {
            let mut memory = locked(&self.memory);
            memory.last.retain(|_, at| at.elapsed() < shortest);
            let rest = memory.last.get(&key).map(|at| shortest.saturating_sub(at.elapsed()));
            (rest, memory.owed.remove(&key))
        };
        let looked = self.reconciler.refresh(&key, settling, rest, &self.pace).await;
        let mut memory = locked(&self.memory);
        let again = match looked {
            Ok(Looked::Nothing) => None,
            Ok(Looked::TooSoon { rest, settling }) => {
                memory.owed.extend(settling.then(|| key.clone()));
                Some(rest)
            }
            Ok(Looked::Refreshed) => {
                memory.last.insert(key.clone(), Instant::now());
                None
            }
            Err(error) => {
                tracing::warn!(%error, "a workload was not refreshed, trying again");
                memory.owed.extend(settling.then(|| key.clone()));
                Some(RETRY)
            }
        };
        if again.is_some() {
            memory.delayed.insert(key);
        } else {
            memory.delayed.remove(&key);
        }
        self.reconciler.delayed.set(memory.delayed.len());
        again
    }
}

impl Drop for Refreshes<'_> {
    fn drop(&mut self) {
        self.reconciler.delayed.set(0);
    }
}

/// Keeps a distance between refreshes that are under way at the same time.
#[derive(Default)]
struct Pace(Mutex<Option<tokio::time::Instant>>);

impl Pace {
    async fn wait(&self) {
        let at = {
            let (now, mut next) = (tokio::time::Instant::now(), locked(&self.0));
            let at = next.map_or(now, |next| next.max(now));
            *next = Some(at + SPACING);
            at
        };
        tokio::time::sleep_until(at).await;
    }
}

/// What came of looking at a workload.
enum Looked {
    Nothing,
    Refreshed,
    /// A refresh may be due, and the last one was too short a time ago.
    TooSoon {
        rest: Duration,
        settling: bool,
    },
}

impl Reconciler {
    async fn refresh(
        &self,
        key: &WorkloadKey,
        settling: bool,
        rest: Option<Duration>,
        pace: &Pace,
    ) -> Result<Looked, Error> {
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
        let mut names = sources_to_read(&record, &workload.configmaps, follows);
        if names.is_empty() {
            return Ok(Looked::Nothing);
        }
        if let Some(rest) = rest.filter(|rest| !rest.is_zero()) {
            return Ok(Looked::TooSoon { rest, settling: follows.settling });
        }
        // A record of more is not admission's.
        names.truncate(self.settings.max_references);
        let reads = names.into_iter().map(|name| self.current(&workload.namespace, name)).collect::<Vec<_>>();
        let sources = stream::iter(reads).buffered(PARALLEL).try_collect().await?;
        let Some(refresh) = due(&record, &workload.configmaps, &sources, follows, workload.annotation(meta::REFRESH))
        else {
            return Ok(Looked::Nothing);
        };
        pace.wait().await;
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

    /// A source as it is now; `None` for one that is missing, or never pinned.
    async fn current(&self, namespace: &str, name: &str) -> Result<(String, Option<Current>), Error> {
        let found = self.cluster.configmap(namespace, name).await?;
        let current = found.filter(|found| !self.settings.exemptions.configmap(found)).map(|found| Current {
            hash: Source::new(name, &found).hash,
            resource_version: found.metadata.resource_version.unwrap_or_default(),
        });
        Ok((name.to_owned(), current))
    }
}

#[cfg(test)]
mod tests {
    use futures::future::join_all;
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn refreshes_keep_their_distance() {
        let (pace, begin) = (Pace::default(), Instant::now());
        let wait = async || {
            pace.wait().await;
            begin.elapsed()
        };
        let mut waited = join_all([(); 4].map(|()| wait())).await;
        waited.sort();
        assert_eq!(waited, [0, 1, 2, 3].map(|turn| turn * SPACING));
        tokio::time::advance(10 * SPACING).await;
        assert_eq!(wait().await, 13 * SPACING, "one that comes late need not wait");
    }
}
