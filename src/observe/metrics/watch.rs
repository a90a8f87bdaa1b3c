//! What metrics and the log tell of a watch.

use std::fmt;

use prometheus_client::metrics::counter::Counter;

use super::Share;

/// A watch, for as long as it is followed. It begins with a list.
#[derive(Debug)]
pub struct Watch {
    pub(super) name: &'static str,
    pub(super) listing: Share,
    pub(super) errors: Counter,
}

impl Watch {
    /// The watch lists everything, for the first time or again: the index may be stale until it has.
    pub fn lists(&self) {
        self.listing.set(1);
    }

    /// It has listed everything, and tells of changes from here on.
    pub fn has_listed(&self) {
        self.listing.set(0);
    }

    /// It failed, and will be started again.
    pub fn failed(&self, error: &dyn fmt::Display) {
        self.errors.inc();
        tracing::warn!(%error, watch = self.name, "a watch failed, starting it again");
    }

    /// A read in its place failed, which the caller logs.
    pub fn read_failed(&self) {
        self.errors.inc();
    }
}
