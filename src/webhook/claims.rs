//! Claims of requests that come together: those on one snapshot go in one write.
//!
//! An API server tries a patch again as long as another one gets before it, so forty at a time on one object take
//! seconds. Many workloads that share a source and are deployed at once are just that.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::cluster::Error;
use crate::cluster::snapshots::Write;
use crate::pin::claim::Claim;

/// A snapshot: its namespace, name and UID.
pub type Key = (String, String, String);

/// The claims that are being made by this process.
#[derive(Debug, Default)]
pub struct Claims {
    queues: Mutex<BTreeMap<Key, Arc<Queue>>>,
}

/// The claims on one snapshot that wait to be written.
#[derive(Debug, Default)]
struct Queue {
    /// Held by the one that writes.
    turn: tokio::sync::Mutex<()>,
    waiting: Mutex<Vec<Arc<Waiting>>>,
}

#[derive(Debug)]
struct Waiting {
    claim: Claim,
    written: AtomicBool,
}

impl Claims {
    /// Has `claim` written, alone or with others whose turn it was meanwhile. `write` writes all that it is given at
    /// once, and is called at most once.
    ///
    /// # Errors
    /// Those of `write`.
    pub async fn make<F>(
        &self,
        snapshot: Key,
        claim: &Claim,
        write: impl FnOnce(Vec<Claim>) -> F,
    ) -> Result<Write, Error>
    where
        F: Future<Output = Result<Write, Error>>,
    {
        let place = Place::take(self, snapshot, claim);
        let _turn = place.queue.turn.lock().await;
        if place.waiting.is_written() {
            return Ok(Write::Done(()));
        }
        // They stay in the queue until it is done: a request that is given up in the middle leaves it to the next one.
        let together: Vec<_> = lock(&place.queue.waiting).iter().filter(|it| !it.is_written()).cloned().collect();
        let written = write(together.iter().map(|it| it.claim.clone()).collect()).await?;
        if written == Write::Done(()) {
            together.iter().for_each(|it| it.written.store(true, Ordering::Release));
        }
        Ok(written)
    }
}

impl Waiting {
    fn is_written(&self) -> bool {
        self.written.load(Ordering::Acquire)
    }
}

/// A claim's place in a queue, which it leaves however its request ends.
struct Place<'a> {
    claims: &'a Claims,
    key: Key,
    queue: Arc<Queue>,
    waiting: Arc<Waiting>,
}

impl<'a> Place<'a> {
    fn take(claims: &'a Claims, key: Key, claim: &Claim) -> Self {
        let waiting = Arc::new(Waiting { claim: claim.clone(), written: AtomicBool::new(false) });
        let mut queues = lock(&claims.queues);
        let queue = queues.entry(key.clone()).or_default().clone();
        lock(&queue.waiting).push(waiting.clone());
        Self { claims, key, queue, waiting }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        // In the order of `take`, so that nobody enters a queue that is being removed.
        let mut queues = lock(&self.claims.queues);
        let mut waiting = lock(&self.queue.waiting);
        waiting.retain(|it| !Arc::ptr_eq(it, &self.waiting));
        if waiting.is_empty() {
            queues.remove(&self.key);
        }
    }
}

/// No code that holds one of these locks can leave what it guards half-changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use futures::future::join_all;
    use tokio::sync::Notify;

    use super::*;

    fn claim(name: &str) -> Claim {
        let at = jiff::Timestamp::UNIX_EPOCH;
        Claim { kind: "Deployment.apps".into(), name: name.into(), uid: None, generation: 1, at }
    }

    fn snapshot(name: &str) -> Key {
        ("shop".into(), name.into(), "a-uid".into())
    }

    fn names(claims: &[Claim]) -> String {
        claims.iter().map(|claim| claim.name.as_str()).collect::<Vec<_>>().join(" ")
    }

    /// What was written, and a gate before each write.
    #[derive(Default)]
    struct Written {
        writes: Mutex<Vec<String>>,
        go: Notify,
    }

    impl Written {
        async fn write(&self, claims: Vec<Claim>, result: Result<Write, Error>) -> Result<Write, Error> {
            self.go.notified().await;
            lock(&self.writes).push(names(&claims));
            result
        }

        async fn claim(&self, all: &Claims, name: &str, result: Result<Write, Error>) -> Result<Write, Error> {
            all.make(snapshot("app"), &claim(name), |claims| self.write(claims, result)).await
        }

        fn told(&self) -> Vec<String> {
            lock(&self.writes).clone()
        }
    }

    fn refused() -> Error {
        let status = kube::core::Status { code: 403, ..Default::default() };
        Error::new("claim", kube::Error::Api(Box::new(status)))
    }

    #[tokio::test]
    async fn what_comes_during_a_write_goes_with_the_next_one() {
        let (claims, written) = (Claims::default(), Written::default());
        let all = ["a", "b", "c", "d"].map(|name| written.claim(&claims, name, Ok(Write::Done(()))));
        let gate = async {
            // The others have come by the time that the first one writes.
            for _ in 0..2 {
                tokio::task::yield_now().await;
                written.go.notify_one();
            }
        };
        let (results, ()) = tokio::join!(join_all(all), gate);
        assert!(results.iter().all(|result| matches!(result, Ok(Write::Done(())))));
        assert_eq!(written.told(), ["a", "b c d"]);
        assert!(lock(&claims.queues).is_empty());
    }

    #[tokio::test]
    async fn each_tries_for_itself_when_a_write_failed() {
        let (claims, written) = (Claims::default(), Written::default());
        let first = written.claim(&claims, "a", Err(refused()));
        let second = written.claim(&claims, "b", Ok(Write::Outdated));
        let third = written.claim(&claims, "c", Ok(Write::Done(())));
        let gate = async {
            for _ in 0..4 {
                written.go.notify_one();
                tokio::task::yield_now().await;
            }
        };
        let (first, second, third, ()) = tokio::join!(first, second, third, gate);
        assert!(first.is_err());
        assert_eq!((second.unwrap(), third.unwrap()), (Write::Outdated, Write::Done(())));
        assert_eq!(written.told(), ["a", "b c", "c"]);
    }

    #[tokio::test]
    async fn a_request_that_is_given_up_holds_nobody_up() {
        let (claims, written) = (Claims::default(), Written::default());
        let mut given_up = Box::pin(written.claim(&claims, "a", Ok(Write::Done(()))));
        assert!((&mut given_up).now_or_never().is_none());
        let mut next = Box::pin(written.claim(&claims, "b", Ok(Write::Done(()))));
        assert!((&mut next).now_or_never().is_none());
        drop(given_up);
        written.go.notify_one();
        assert!(next.await.is_ok());
        assert_eq!(written.told(), ["b"]);
        assert!(lock(&claims.queues).is_empty());
    }

    #[tokio::test]
    async fn snapshots_do_not_wait_for_each_other() {
        let (claims, written) = (Claims::default(), Written::default());
        let mut held = Box::pin(written.claim(&claims, "a", Ok(Write::Done(()))));
        assert!((&mut held).now_or_never().is_none());
        let free = claim("a");
        let other = claims.make(snapshot("other"), &free, |_| async { Ok(Write::Done(())) });
        assert!(other.now_or_never().is_some());
    }
}
