//! Gauges that several parts of the program each know a share of.

use std::sync::atomic::{AtomicI64, Ordering};

use prometheus_client::metrics::gauge::Gauge;

/// One part's share of a gauge, which shows the sum of all shares.
#[derive(Debug)]
pub struct Share {
    gauge: Gauge,
    own: AtomicI64,
}

impl Share {
    /// A share that is nothing yet.
    pub(super) fn of(gauge: &Gauge) -> Self {
        Self { gauge: gauge.clone(), own: AtomicI64::new(0) }
    }

    /// Sets the share.
    pub fn set(&self, count: usize) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.gauge.inc_by(count.saturating_sub(self.own.swap(count, Ordering::Relaxed)));
    }
}
