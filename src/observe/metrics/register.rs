//! Name, unit and help of every metric. Names are an interface: alerts and dashboards use them.

use prometheus_client::registry::{Registry, Unit};

use super::Metrics;
use crate::observe::labels::{
    ByCause, ByPart, ByReason, ByRejection, ByUse, DenyReason, Part, RefreshCause, Rejection, SnapshotUse,
};

impl Metrics {
    /// Makes every metric known to `registry`, at zero.
    pub(super) fn register(&self, registry: &mut Registry) {
        self.register_webhook(registry);
        self.register_reconciler(registry);
        self.expose_zeros();
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
        registry.register_with_unit(
            "ca_expiry_timestamp",
            "When the CA that signs serving certificates expires, in seconds since the epoch; 0 if confpin has no CA",
            Unit::Seconds,
            self.ca_expiry.clone(),
        );
        registry.register(
            "trust_published",
            "Writes of the CA bundle to the webhook configuration: rotations, and repairs of foreign edits",
            self.trust_published.clone(),
        );
        registry.register(
            "certificate_reload_failures",
            "Attempts to replace the serving certificate that failed",
            self.certificate_reload_failures.clone(),
        );
    }

    fn register_reconciler(&self, registry: &mut Registry) {
        registry.register("leader", "1 while this replica reconciles, else 0", self.leader.clone());
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
        registry.register("snapshots_healed", "Deleted snapshots recreated", self.snapshots_healed.clone());
        registry.register("refreshes", "Refreshes that the reconciler asked for, by cause", self.refreshes.clone());
        registry.register(
            "refreshes_delayed",
            "Refreshes that wait for the shortest time between two of a workload",
            self.refreshes_delayed.clone(),
        );
        registry.register(
            "unpinned_workloads",
            "Workloads in labelled namespaces that have never been decided",
            self.unpinned_workloads.clone(),
        );
        registry.register(
            "watches_listing",
            "Watches that have not completed their initial list, or list again, by watch",
            self.watches_listing.clone(),
        );
        registry.register("watch_errors", "Errors of watches, by watch", self.watch_errors.clone());
        registry.register("panics", "Panics that were caught outside of requests, by part", self.panics.clone());
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
        for &part in Part::ALL {
            let _ = self.panics.get_or_create(&ByPart { part });
        }
        for &cause in RefreshCause::ALL {
            let _ = self.refreshes.get_or_create(&ByCause { cause });
        }
    }
}
