//! Orphans: snapshots that nothing names and nothing owns, of workloads that were refused after us, or superseded
//! before they had a ReplicaSet.

use std::time::Duration;

use jiff::Timestamp;

use crate::cluster::Error;
use crate::cluster::snapshots::Write;
use crate::pin::ownership::unused_since;
use crate::pin::snapshot_state::SnapshotState;
use crate::reconcile::Reconciler;
use crate::reconcile::index::Key;
use crate::reconcile::owners::Claims;

/// How soon to look again at a snapshot that something turned out to name.
const NAMED: Duration = Duration::from_mins(10);

impl Reconciler {
    /// Deletes a snapshot once it has been unused for the grace period, after a live look at whatever could name it. Returns
    /// when to look again. The delete carries UID and resourceVersion: a claim that comes in between makes it fail.
    pub(super) async fn collect(
        &self,
        key: &Key,
        snapshot: &SnapshotState,
        now: Timestamp,
    ) -> Result<Option<Duration>, Error> {
        let Some(since) = unused_since(snapshot) else { return Ok(None) };
        let age = now.duration_since(since);
        if age < self.settings.orphan_grace {
            return Ok(Some(self.settings.orphan_grace.saturating_sub(age).unsigned_abs()));
        }
        let claims: Vec<_> = snapshot.claims().cloned().collect();
        if let Claims::Pending(again) = self.check(key, &claims, now).await? {
            return Ok(Some(again));
        }
        if self.cluster.names_configmap(&key.namespace, &key.name).await? {
            tracing::debug!(namespace = %key.namespace, snapshot = %key.name, "unowned and still named");
            return Ok(Some(NAMED));
        }
        if self.cluster.delete_snapshot(&key.namespace, &key.name, &snapshot.uid, &snapshot.version).await?
            == Write::Done(())
        {
            tracing::info!(namespace = %key.namespace, snapshot = %key.name, "deleted an orphan");
            self.metrics.orphan_deleted();
        }
        Ok(None)
    }
}
