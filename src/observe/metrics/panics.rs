//! Isolation of panics: a mistake that one object brings to light must not stop the work for all others.

use std::panic::{self, AssertUnwindSafe};

use futures::FutureExt;

use super::Metrics;
use crate::observe::labels::{ByPart, Part};

// The panic hook logs where. Whatever a panic can leave half-changed is behind a lock whose users cope with that.
impl Metrics {
    /// Runs `work`; `None` if it panicked, which is counted.
    pub fn catch<T>(&self, part: Part, work: impl FnOnce() -> T) -> Option<T> {
        panic::catch_unwind(AssertUnwindSafe(work)).map_err(|_| self.panicked(part)).ok()
    }

    /// Runs `work` to its end; `None` if it panicked, which is counted.
    pub async fn isolate<T>(&self, part: Part, work: impl Future<Output = T>) -> Option<T> {
        AssertUnwindSafe(work).catch_unwind().await.map_err(|_| self.panicked(part)).ok()
    }

    fn panicked(&self, part: Part) {
        self.panics.get_or_create(&ByPart { part }).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(metrics: &Metrics, part: Part) -> u64 {
        metrics.panics.get_or_create(&ByPart { part }).get()
    }

    #[tokio::test]
    async fn a_panic_is_counted_and_goes_no_further() {
        let metrics = Metrics::new();
        assert_eq!(metrics.catch(Part::Watches, || 1), Some(1));
        assert_eq!(metrics.isolate(Part::Events, async { 2 }).await, Some(2));
        assert_eq!(metrics.catch(Part::Watches, || -> u8 { panic!("a test's panic") }), None);
        let late = async {
            tokio::task::yield_now().await;
            panic!("a test's panic")
        };
        assert_eq!(metrics.isolate::<u8>(Part::Events, late).await, None);
        assert_eq!([Part::Watches, Part::Events, Part::Snapshots].map(|part| count(&metrics, part)), [1, 1, 0]);
    }
}
