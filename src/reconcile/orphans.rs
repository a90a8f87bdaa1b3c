//! Orphans: snapshots that nothing names and nothing owns, of workloads that were refused after us, or superseded
//! before they had a ReplicaSet.

use jiff::{SignedDuration, Timestamp};
use kube::api::ObjectMeta;
use kube::runtime::controller::Action;

use crate::cluster::Error;
use crate::cluster::snapshots::Write;
use crate::pin::claim;
use crate::pin::ownership::unused_since;
use crate::reconcile::Reconciler;
use crate::reconcile::index::Key;
use crate::reconcile::owners::Claims;

/// How soon to look again at a snapshot that something turned out to name.
const NAMED: SignedDuration = SignedDuration::from_mins(10);

impl Reconciler {
    /// Deletes a snapshot once it has been unused for the grace period, after a live look at whatever could name it.
    /// The delete carries UID and resourceVersion: a claim that comes in between makes it fail.
    pub(super) async fn collect(&self, key: &Key, snapshot: &ObjectMeta, now: Timestamp) -> Result<Action, Error> {
        let (Some(since), Some(uid), Some(version)) =
            (unused_since(snapshot), &snapshot.uid, &snapshot.resource_version)
        else {
            return Ok(Action::await_change());
        };
        let age = now.duration_since(since);
        if age < self.settings.orphan_grace {
            return Ok(after(self.settings.orphan_grace - age));
        }
        let claims: Vec<_> = claim::claims(snapshot).into_values().flatten().collect();
        if let Claims::Pending(again) = self.check(key, &claims, now).await? {
            return Ok(Action::requeue(again));
        }
        if self.cluster.names_configmap(&key.namespace, &key.name).await? {
            tracing::debug!(namespace = %key.namespace, snapshot = %key.name, "unowned and still named");
            return Ok(after(NAMED));
        }
        if self.cluster.delete_snapshot(&key.namespace, &key.name, uid, version).await? == Write::Done(()) {
            tracing::info!(namespace = %key.namespace, snapshot = %key.name, "deleted an orphan");
            self.metrics.orphan_deleted();
        }
        Ok(Action::await_change())
    }
}

fn after(time: SignedDuration) -> Action {
    Action::requeue(time.unsigned_abs())
}
