//! Every metric that confpin exposes, each with a method that says what happened rather than which counter moves.
//!
//! Cheap to clone: all clones count into the same registry. No label carries a name or any content of an object.

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
use prometheus_client::registry::{Registry, Unit};

use super::labels::{
    Admission, Build, ByCause, ByReason, ByRejection, ByUse, ByWatch, DenyReason, Outcome, RefreshCause, Rejection,
    SnapshotUse,
};

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
    snapshots_missing: Gauge,
    refreshes: Family<ByCause, Counter>,
    refreshes_delayed: Gauge,
    unpinned_workloads: Gauge,
    watch_errors: Family<ByWatch, Counter>,
    leader: Gauge,
    certificate_expiry: Gauge<f64, AtomicU64>,
    certificate_reload_failures: Counter,
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
            snapshots_missing: Gauge::default(),
            refreshes: Family::default(),
            refreshes_delayed: Gauge::default(),
            unpinned_workloads: Gauge::default(),
            watch_errors: Family::default(),
            leader: Gauge::default(),
            certificate_expiry: Gauge::default(),
            certificate_reload_failures: Counter::default(),
        };
        metrics.register_webhook(&mut registry);
        metrics.register_reconciler(&mut registry);
        metrics.expose_zeros();
        metrics.registry = Arc::new(registry);
        metrics
    }

    fn register_webhook(&self, registry: &mut Registry) {
        registry.register("admissions", "Admissions by outcome", self.admissions.clone());
        registry.register_with_unit(
            "admission_duration",
            "Time from a request's arrival to its answer",
            Unit::Seconds,
            self.admission_duration.clone(),
        );
        registry.register("denials", "Workloads that could not be pinned, by reason", self.denials.clone());
        registry.register("requests_in_flight", "Requests that are being worked on", self.in_flight.clone());
        registry.register("requests_rejected", "Requests answered without the handler", self.rejections.clone());
        registry.register(
            "connection_errors",
            "Connections that failed before a request: handshakes, refused clients, too many connections",
            self.connection_errors.clone(),
        );
        registry.register("snapshots", "Snapshots put into templates, by how they came to be", self.snapshots.clone());
        registry.register_with_unit(
            "certificate_expiry_timestamp",
            "When the serving certificate expires, since the epoch",
            Unit::Seconds,
            self.certificate_expiry.clone(),
        );
        registry.register(
            "certificate_reload_failures",
            "Attempts to replace the serving certificate that failed",
            self.certificate_reload_failures.clone(),
        );
    }

    fn register_reconciler(&self, registry: &mut Registry) {
        registry.register("owner_patches", "Owner references written to snapshots", self.owner_patches.clone());
        registry.register_with_unit(
            "owner_delay",
            "Time from a holder's creation to its owner reference on its snapshots",
            Unit::Seconds,
            self.owner_delay.clone(),
        );
        registry.register(
            "orphans_deleted",
            "Snapshots deleted since nothing names them",
            self.orphans_deleted.clone(),
        );
        registry.register("snapshots_healed", "Snapshots that were gone and made again", self.snapshots_healed.clone());
        registry.register(
            "snapshots_missing",
            "Snapshots that are named, are gone, and cannot be made again",
            self.snapshots_missing.clone(),
        );
        registry.register("refreshes", "Refreshes that the reconciler asked for, by cause", self.refreshes.clone());
        registry.register(
            "refreshes_delayed",
            "Refreshes that wait for the shortest time between two of a workload",
            self.refreshes_delayed.clone(),
        );
        registry.register(
            "unpinned_workloads",
            "Workloads in labelled namespaces that still name a source",
            self.unpinned_workloads.clone(),
        );
        registry.register("watch_errors", "Errors of watches, by watch", self.watch_errors.clone());
        registry.register("leader", "1 in the replica that reconciles", self.leader.clone());
    }

    /// A counter that appears with its first event cannot be alerted on: its increase from nothing is not seen.
    fn expose_zeros(&self) {
        for &reason in DenyReason::ALL {
            let _ = self.denials.get_or_create(&ByReason { reason });
        }
        for &reason in Rejection::ALL {
            let _ = self.rejections.get_or_create(&ByRejection { reason });
        }
        for &result in SnapshotUse::ALL {
            let _ = self.snapshots.get_or_create(&ByUse { result });
        }
        for &cause in RefreshCause::ALL {
            let _ = self.refreshes.get_or_create(&ByCause { cause });
        }
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

    /// An owner reference was written, `delay` after its holder was created.
    pub fn owned(&self, delay: Duration) {
        self.owner_patches.inc();
        self.owner_delay.observe(delay.as_secs_f64());
    }

    /// A snapshot that nothing names was deleted.
    pub fn orphan_deleted(&self) {
        self.orphans_deleted.inc();
    }

    /// A snapshot that was gone was made again.
    pub fn healed(&self) {
        self.snapshots_healed.inc();
    }

    /// How many snapshots are named, gone, and beyond repair.
    pub fn set_missing(&self, count: usize) {
        self.snapshots_missing.set(signed(count));
    }

    /// The reconciler asked for a refresh.
    pub fn refreshed(&self, cause: RefreshCause) {
        self.refreshes.get_or_create(&ByCause { cause }).inc();
    }

    /// How many refreshes wait for their turn.
    pub fn set_delayed(&self, count: usize) {
        self.refreshes_delayed.set(signed(count));
    }

    /// How many workloads of labelled namespaces still name a source.
    pub fn set_unpinned(&self, count: usize) {
        self.unpinned_workloads.set(signed(count));
    }

    /// A watch failed and will be tried again. `watch` names what is watched.
    pub fn watch_failed(&self, watch: &'static str) {
        self.watch_errors.get_or_create(&ByWatch { watch }).inc();
    }

    /// Whether this replica reconciles.
    pub fn set_leader(&self, leader: bool) {
        self.leader.set(i64::from(leader));
    }

    /// When the certificate that is served expires.
    pub fn certificate_expires(&self, at: Timestamp) {
        self.certificate_expiry.set(at.as_duration().as_secs_f64());
    }

    /// The serving certificate could not be replaced.
    pub fn certificate_reload_failed(&self) {
        self.certificate_reload_failures.inc();
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

fn signed(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(metrics: &Metrics, start: &str) -> String {
        let text = metrics.encode().unwrap();
        let found = text.lines().find(|line| line.starts_with(start));
        found.unwrap_or_else(|| panic!("no {start} in:\n{text}")).to_owned()
    }

    #[test]
    fn what_happened_is_what_is_exposed() {
        let metrics = Metrics::new();
        metrics.clone().admitted("Deployment", Outcome::AdmittedUnpinned, true, Duration::from_millis(3));
        metrics.not_pinned(DenyReason::Forbidden);
        metrics.owned(Duration::from_secs(2));
        metrics.set_unpinned(7);
        metrics.certificate_expires("2026-06-01T00:00:00Z".parse().unwrap());
        for expected in [
            r#"confpin_admissions_total{kind="Deployment",outcome="admitted-unpinned",dry_run="true"} 1"#,
            r#"confpin_admission_duration_seconds_bucket{le="0.005"} 1"#,
            r#"confpin_admission_duration_seconds_bucket{le="30.0"} 1"#,
            r#"confpin_denials_total{reason="forbidden"} 1"#,
            "confpin_owner_delay_seconds_count 1",
            "confpin_unpinned_workloads 7",
            "confpin_certificate_expiry_timestamp_seconds 1780272000",
            r#"confpin_build_info{version="#,
        ] {
            line(&metrics, expected);
        }
        assert!(metrics.encode().unwrap().ends_with("# EOF\n"));
    }

    #[test]
    fn counters_with_known_labels_begin_at_zero() {
        let metrics = Metrics::new();
        assert!(line(&metrics, r#"confpin_denials_total{reason="timeout"}"#).ends_with(" 0"));
        assert!(line(&metrics, r#"confpin_refreshes_total{cause="on-change"}"#).ends_with(" 0"));
    }

    #[test]
    fn a_request_is_in_flight_until_it_is_dropped() {
        let metrics = Metrics::new();
        let request = metrics.in_flight();
        assert_eq!(line(&metrics, "confpin_requests_in_flight"), "confpin_requests_in_flight 1");
        drop(request);
        assert_eq!(line(&metrics, "confpin_requests_in_flight"), "confpin_requests_in_flight 0");
    }

    #[test]
    fn every_name_begins_with_the_program() {
        let text = Metrics::new().encode().unwrap();
        assert!(text.lines().filter(|line| !line.starts_with('#')).all(|line| line.starts_with("confpin_")));
    }
}
