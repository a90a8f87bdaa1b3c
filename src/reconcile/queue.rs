//! Works off a queue: kube's scheduler tells what is due, [`Fair`] whose turn it is.

use std::collections::HashMap;
use std::hash::Hash;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::channel::mpsc::unbounded;
use futures::stream::{self, FuturesUnordered};
use futures::{Stream, StreamExt};
use kube::runtime::scheduler::{ScheduleRequest, scheduler};
use tokio::time::Instant;

use crate::observe::labels::Part;
use crate::observe::metrics::Metrics;
use crate::reconcile::fair::{Fair, Most};

/// The longest pause before another turn: what is further away could not be expressed as an [`Instant`].
const LONGEST_PAUSE: Duration = Duration::from_hours(24);

/// The pauses after turns that panicked, one after the other: the first, doubled each time, and the longest. What makes a
/// turn panic mostly does so again.
const AFTER_PANIC: (Duration, Duration) = (Duration::from_secs(2), Duration::from_mins(5));

/// Where panics of turns are counted.
pub(super) struct Isolation<'a> {
    pub(super) metrics: &'a Metrics,
    pub(super) part: Part,
}

/// Takes up each key `quiet` after it is first asked for: once, however often it is asked for meanwhile, by one turn at a
/// time, and by at most `most` turns of all keys. A turn returns after which time there is to be another. After one that
/// panics, its key has another turn later, and all others continue.
///
/// What kube's `applier` does, for what is no object of Kubernetes, and fairly. It returns never.
pub(super) async fn work_off<K, F>(
    requests: impl Stream<Item = K>,
    quiet: Duration,
    most: Most,
    group: impl Fn(&K) -> &Arc<str>,
    isolation: Isolation<'_>,
    turn: impl Fn(K) -> F,
) where
    K: Clone + Eq + Hash,
    F: Future<Output = Option<Duration>>,
{
    let (later, again) = unbounded();
    let requests = requests.map(|message| ScheduleRequest { message, run_at: Instant::now() + quiet });
    let mut due = pin!(scheduler(stream::select(requests, again)));
    let mut fair: Fair<K> = Fair::new(most);
    let mut turns = FuturesUnordered::new();
    let mut panics: HashMap<K, u32> = HashMap::new();
    loop {
        while let Some(key) = fair.begin() {
            let turn = isolation.metrics.isolate(isolation.part, turn(key.clone()));
            turns.push(async { (key, turn.await) });
        }
        tokio::select! {
            Some((key, done)) = turns.next() => {
                fair.end(group(&key), &key);
                let pause = if let Some(pause) = done {
                    panics.remove(&key);
                    pause
                } else {
                    let before = panics.entry(key.clone()).or_default();
                    let (first, longest) = AFTER_PANIC;
                    let pause = first.saturating_mul(2_u32.saturating_pow(*before)).min(longest);
                    *before = before.saturating_add(1);
                    Some(pause)
                };
                if let Some(pause) = pause {
                    let run_at = Instant::now() + Duration::min(pause, LONGEST_PAUSE);
                    // Its other end is in this function.
                    let _ = later.unbounded_send(ScheduleRequest { message: key, run_at });
                }
            }
            Some(key) = due.next() => fair.ask(group(&key), key.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    const TURN: Duration = Duration::from_secs(3);
    const QUIET: Duration = Duration::from_millis(100);
    /// The key whose turns panic.
    const PANICS: char = '!';

    /// When turns began, in seconds, with requests at these seconds, until a minute is over. Each takes three, and asks
    /// for another after `again`.
    async fn begun(requests: &[(u64, char)], concurrency: usize, again: Option<Duration>) -> Vec<(u64, char)> {
        let (most, group) = (Most { all: concurrency, of_group: concurrency }, Arc::<str>::from("shop"));
        let start = Instant::now();
        let begun = RefCell::new(Vec::new());
        let requests = stream::iter(requests).then(async |(at, key)| {
            tokio::time::sleep_until(start + Duration::from_secs(*at)).await;
            (group.clone(), *key)
        });
        let turn = async |(_, key): (Arc<str>, char)| {
            begun.borrow_mut().push((start.elapsed().as_secs(), key));
            tokio::time::sleep(TURN).await;
            assert_ne!(key, PANICS, "a test's panic");
            again
        };
        let requests = requests.chain(stream::pending());
        let metrics = Metrics::new();
        let isolation = Isolation { metrics: &metrics, part: Part::Snapshots };
        let work = work_off(requests, QUIET, most, |(group, _)| group, isolation, turn);
        let _ = tokio::time::timeout(Duration::from_secs(60), work).await;
        begun.into_inner()
    }

    #[tokio::test(start_paused = true)]
    async fn one_turn_of_a_key_at_a_time_and_one_for_all_who_ask_meanwhile() {
        let asked = [(1, 'a'), (1, 'a'), (1, 'b'), (2, 'a'), (3, 'a'), (10, 'a')];
        let mut begun = begun(&asked, 9, None).await;
        begun.sort_unstable();
        assert_eq!(begun, [(1, 'a'), (1, 'b'), (4, 'a'), (10, 'a')]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_that_panics_is_tried_again_ever_later_and_all_others_go_on() {
        let begun = begun(&[(1, PANICS), (1, 'a'), (9, 'b')], 1, None).await;
        let seconds = |of| begun.iter().filter(|(_, key)| *key == of).map(|(second, _)| *second).collect::<Vec<_>>();
        assert_eq!((seconds('a'), seconds('b')), (vec![4], vec![10]));
        assert_eq!(seconds(PANICS), [1, 7, 14, 25, 44]);
    }

    #[tokio::test(start_paused = true)]
    async fn no_pause_is_too_long() {
        assert_eq!(begun(&[(1, 'a'), (9, 'a')], 9, Some(Duration::MAX)).await, [(1, 'a'), (9, 'a')]);
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_turns_than_allowed() {
        let asked = [(1, 'a'), (1, 'b'), (1, 'c'), (1, 'd'), (1, 'e')];
        let seconds: Vec<_> = begun(&asked, 2, None).await.into_iter().map(|(second, _)| second).collect();
        assert_eq!(seconds, [1, 1, 4, 4, 7]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_may_ask_for_another_and_whoever_asks_sooner_has_it_sooner() {
        let begun = begun(&[(1, 'a'), (7, 'a')], 9, Some(Duration::from_secs(20))).await;
        let seconds: Vec<_> = begun.into_iter().map(|(second, _)| second).collect();
        assert_eq!(seconds, [1, 7, 30, 53]);
    }
}
