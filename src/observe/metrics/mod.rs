//! Every metric that confpin exposes, each with a method that says what happened rather than which counter moves.
//!
//! Cheap to clone: all clones count into the same registry. No label carries a name or any content of an object.

mod panics;
mod register;
mod share;
mod watch;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use jiff::Timestamp;
use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use super::labels::{
    Admission, Build, ByCause, ByPart, ByReason, ByRejection, ByUse, ByWatch, DenyReason, Outcome, RefreshCause,
    Rejection, SnapshotUse,
};
pub use share::Share;
pub use watch::Watch;

/// The media type of [`Metrics::encode`]'s text.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Upper bounds of an admission's duration, in seconds: from one read of a near cache of etcd to the most that an API server
/// grants.
const ADMISSION_BUCKETS: [f64; 12] = [0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0];

/// Upper bounds of the time until a snapshot is owned, in seconds: a watch event is there in milliseconds, a change of leader
/// takes half a minute.
const OWNER_BUCKETS: [f64; 9] = [0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0];

/// The process's metrics.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Registry>,
    admissions: Family<Admission, Counter>,
    admission_duration: Histogram,
    denials: Family<ByReason, Counter>,
    in_flight: Gauge,
    rejections: Family<ByRejection, Counter>,
    connection_errors: Counter,
    snapshots: Family<ByUse, Counter>,
    owner_patches: Counter,
    owner_delay: Histogram,
    orphans_deleted: Counter,
    snapshots_healed: Counter,
    refreshes: Family<ByCause, Counter>,
    refreshes_delayed: Gauge,
    unpinned_workloads: Gauge,
    watches_listing: Family<ByWatch, Gauge>,
    watch_errors: Family<ByWatch, Counter>,
    certificate_expiry: Gauge<f64, AtomicU64>,
    certificate_reload_failures: Counter,
    ca_expiry: Gauge<f64, AtomicU64>,
    trust_published: Counter,
    leader: Gauge,
    panics: Family<ByPart, Counter>,
}

/// A request that is being worked on, until it is dropped.
#[derive(Debug)]
pub struct InFlight(Gauge);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Metrics {
    /// Metrics that all stand at zero, with a registry of their own.
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("confpin");
        let build = Info::new(Build { version: env!("CARGO_PKG_VERSION") });
        registry.register("build", "The build that runs", build);
        let mut metrics = Self {
            registry: Arc::default(),
            admissions: Family::default(),
            admission_duration: Histogram::new(ADMISSION_BUCKETS),
            denials: Family::default(),
            in_flight: Gauge::default(),
            rejections: Family::default(),
            connection_errors: Counter::default(),
            snapshots: Family::default(),
            owner_patches: Counter::default(),
            owner_delay: Histogram::new(OWNER_BUCKETS),
            orphans_deleted: Counter::default(),
            snapshots_healed: Counter::default(),
            refreshes: Family::default(),
            refreshes_delayed: Gauge::default(),
            unpinned_workloads: Gauge::default(),
            watches_listing: Family::default(),
            watch_errors: Family::default(),
            certificate_expiry: Gauge::default(),
            certificate_reload_failures: Counter::default(),
            ca_expiry: Gauge::default(),
            trust_published: Counter::default(),
            leader: Gauge::default(),
            panics: Family::default(),
        };
        metrics.register(&mut registry);
        metrics.registry = Arc::new(registry);
        metrics
    }

    /// An admission ended. `kind` is one of the table of kinds, never text of the request.
    pub fn admitted(&self, kind: &str, outcome: Outcome, dry_run: bool, took: Duration) {
        self.admissions.get_or_create(&Admission { kind: kind.to_owned(), outcome, dry_run }).inc();
        self.admission_duration.observe(took.as_secs_f64());
    }

    /// A workload could not be pinned, whether it was refused or admitted as it is.
    pub fn not_pinned(&self, reason: DenyReason) {
        self.denials.get_or_create(&ByReason { reason }).inc();
    }

    /// A request is worked on until the answer is dropped.
    pub fn in_flight(&self) -> InFlight {
        self.in_flight.inc();
        InFlight(self.in_flight.clone())
    }

    /// A request was answered by the server itself.
    pub fn rejected(&self, reason: Rejection) {
        self.rejections.get_or_create(&ByRejection { reason }).inc();
    }

    /// A connection ended before it carried a request.
    pub fn connection_failed(&self) {
        self.connection_errors.inc();
    }

    /// A snapshot was put into a template.
    pub fn snapshot_used(&self, result: SnapshotUse) {
        self.snapshots.get_or_create(&ByUse { result }).inc();
    }

    /// A snapshot got its owners, `delay` after the newest of them was created if it was waited for. Creation times are
    /// whole seconds, so a delay may be up to one too long.
    pub fn owned(&self, delay: Option<Duration>) {
        self.owner_patches.inc();
        if let Some(delay) = delay {
            self.owner_delay.observe(delay.as_secs_f64());
        }
    }

    /// A snapshot that nothing names was deleted.
    pub fn orphan_deleted(&self) {
        self.orphans_deleted.inc();
    }

    /// A deleted snapshot was recreated.
    pub fn healed(&self) {
        self.snapshots_healed.inc();
    }

    /// The reconciler asked for a refresh.
    pub fn refreshed(&self, cause: RefreshCause) {
        self.refreshes.get_or_create(&ByCause { cause }).inc();
    }

    /// A share of how many refreshes wait for their turn.
    pub fn delayed(&self) -> Share {
        Share::of(&self.refreshes_delayed)
    }

    /// A share of how many workloads of labelled namespaces have never been decided.
    pub fn unpinned(&self) -> Share {
        Share::of(&self.unpinned_workloads)
    }

    /// A watch begins. `name` tells what is watched.
    pub fn watch(&self, name: &'static str) -> Watch {
        let by = ByWatch { watch: name };
        let listing = Share::of(&self.watches_listing.get_or_create(&by));
        let watch = Watch { name, listing, errors: self.watch_errors.get_or_create(&by).clone() };
        watch.lists();
        watch
    }

    /// When the certificate that is served expires.
    pub fn certificate_expires(&self, at: Timestamp) {
        self.certificate_expiry.set(at.as_duration().as_secs_f64());
    }

    /// The serving certificate could not be replaced.
    pub fn certificate_reload_failed(&self) {
        self.certificate_reload_failures.inc();
    }

    /// When the CA that signs serving certificates expires.
    pub fn ca_expires(&self, at: Timestamp) {
        self.ca_expiry.set(at.as_duration().as_secs_f64());
    }

    /// The webhook configuration was told which CAs to trust.
    pub fn trust_published(&self) {
        self.trust_published.inc();
    }

    /// Whether this replica reconciles.
    pub fn leads(&self, leads: bool) {
        self.leader.set(i64::from(leads));
    }

    /// All metrics as OpenMetrics text; see [`CONTENT_TYPE`].
    ///
    /// # Errors
    ///
    /// None that is known of: writing to a string does not fail.
    pub fn encode(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
