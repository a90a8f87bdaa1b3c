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

/// The longest pause before a refresh that had no effect is requested again. The pause doubles each time.
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);

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
    /// The last refresh of each.
    last: HashMap<WorkloadKey, Last>,
    /// Their moment of settling is over before their turn comes, and they are owed a refresh all the same.
    owed: HashSet<WorkloadKey>,
    /// Those that wait for their turn after another refresh, or a failure.
    delayed: HashSet<WorkloadKey>,
}

/// The last refresh of a workload.
struct Last {
    at: Instant,
    /// How often in a row it was requested without effect.
    repeats: u32,
}

impl Last {
    /// How long after this refresh there may be another.
    fn pause(&self, shortest: Duration) -> Duration {
        if self.repeats == 0 {
            return shortest;
        }
        // --min-interval may be 0.
        let first = shortest.max(QUIET);
        first.saturating_mul(2_u32.saturating_pow(self.repeats)).min(LONGEST_PAUSE.max(shortest))
    }
}

impl Refreshes<'_> {
    /// One turn of a workload. Returns after which time there is to be another.
    async fn turn(&self, key: WorkloadKey) -> Option<Duration> {
        let shortest = self.reconciler.settings.min_interval;
        let (rest, settling) = {
            let mut memory = locked(&self.memory);
            // Kept for longer than the pause: the next attempt must find the number of those before it.
            memory.last.retain(|_, last| last.at.elapsed() < last.pause(shortest).saturating_mul(2));
            let rest = memory.last.get(&key).map(|last| last.pause(shortest).saturating_sub(last.at.elapsed()));
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
            Ok(Looked::Refreshed { is_repeated }) => {
                let before = memory.last.get(&key).filter(|_| is_repeated).map_or(0, |last| last.repeats + 1);
                memory.last.insert(key.clone(), Last { at: Instant::now(), repeats: before });
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
    Refreshed {
        /// The same refresh was requested before, without effect.
        is_repeated: bool,
    },
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
        Ok(Looked::Refreshed { is_repeated: refresh.is_repeated })
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

    #[test]
    fn a_refresh_without_effect_is_requested_ever_later() {
        let pause = |repeats| Last { at: std::time::Instant::now(), repeats }.pause(Duration::from_secs(30)).as_secs();
        assert_eq!([0, 1, 2, 6, 7, 99].map(pause), [30, 60, 120, 1920, 3600, 3600]);
        let unlimited = |repeats| Last { at: std::time::Instant::now(), repeats }.pause(Duration::ZERO).as_secs();
        assert_eq!([0, 1, 2].map(unlimited), [0, 2, 4], "with --min-interval=0");
    }

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
