//! Owner references: one snapshot at a time.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::cluster::Error;
use crate::cluster::snapshots::Write;
use crate::pin::claim::Claim;
use crate::pin::objects::{Holder, WorkloadState};
use crate::pin::ownership::{self, Judgement, is_settled, until_expiry, unused_since};
use crate::pin::snapshot_state::SnapshotState;
use crate::reconcile::index::{Key, claimant};
use crate::reconcile::{CATCH_UP, Reconciler};

/// What the claims on a snapshot look like.
pub(super) enum Claims {
    /// All are settled.
    Settled,
    /// One is not: look again after this time, if no event comes before.
    Pending(Duration),
}

impl Reconciler {
    /// Brings one snapshot's owners up to date. Returns when to look at it again, if no event comes before.
    ///
    /// # Errors
    /// When the API server refuses or cannot be asked; the caller tries again.
    pub(super) async fn reconcile(&self, key: &Key) -> Result<Option<Duration>, Error> {
        let Some(snapshot) = self.index().snapshot(key).cloned() else {
            return self.heal(key).await;
        };
        // Another object's event came before the snapshot's own: to work on it again would be in vain.
        if self.index().is_superseded(key, &snapshot.version) {
            return Ok(None);
        }
        let now = Timestamp::now();
        let (mut judgement, mut holders) = self.judge(key, &snapshot);
        if let Judgement::Check(claims) = &judgement {
            if let Claims::Pending(again) = self.check(key, claims, now).await? {
                return Ok(Some(again));
            }
            // The index went on while the claims were looked at: what it showed before may lack the holder that settled one.
            (judgement, holders) = self.judge(key, &snapshot);
        }
        match judgement {
            Judgement::Rest => Ok(None),
            Judgement::Unused => self.collect(key, &snapshot, now).await,
            Judgement::Own | Judgement::Check(_) => self.own(key, &snapshot, &holders, now).await.map(|()| None),
        }
    }

    /// What is to be done about a snapshot as the watches show it, and its holders.
    pub(super) fn judge(&self, key: &Key, snapshot: &SnapshotState) -> (Judgement, Vec<Arc<Holder>>) {
        // One that is being deleted is past help, and one that is not what it claims to be is none of ours.
        if snapshot.deleting || !snapshot.recognised {
            return (Judgement::Rest, Vec::new());
        }
        let index = self.index();
        let (workloads, holders) = (index.workloads_naming(key), index.holders_naming(key));
        (ownership::judge(snapshot, &workloads, &holders), holders)
    }

    /// Looks at the claims on a snapshot. Live, and settled only if the index knows just what the live reads find: a
    /// watch that lags must neither leave a holder out nor put one in that is gone.
    pub(super) async fn check(&self, snapshot: &Key, claims: &[Claim], now: Timestamp) -> Result<Claims, Error> {
        let claims = claims.iter().filter_map(|claim| Some((claim, claimant(&snapshot.namespace, claim)?)));
        let mut settled = Vec::new();
        // The index first: in a burst of claims each event would else have all those read live that came before it.
        for (claim, workload) in claims {
            // Created with generateName: which workload it is of cannot be known, so its time must pass.
            let known = if claim.name.is_empty() { None } else { self.index().workload(&workload).cloned() };
            if !is_settled(claim, known.as_deref(), now) {
                return Ok(Claims::Pending(until_expiry(claim, now).unsigned_abs().max(CATCH_UP)));
            }
            if !claim.name.is_empty() {
                settled.push((claim, workload, known));
            }
        }
        for (claim, workload, known) in settled {
            let live = self.cluster.workload(workload.0, &snapshot.namespace, &claim.name).await?;
            if !is_settled(claim, live.as_ref(), now) {
                return Ok(Claims::Pending(CATCH_UP));
            }
            if !self.has_caught_up(snapshot, known.as_deref(), live.as_ref()).await? {
                return Ok(Claims::Pending(CATCH_UP));
            }
        }
        Ok(Claims::Settled)
    }

    async fn has_caught_up(
        &self,
        snapshot: &Key,
        known: Option<&WorkloadState>,
        live: Option<&WorkloadState>,
    ) -> Result<bool, Error> {
        let Some(live) = live else { return Ok(known.is_none()) };
        if known.is_none_or(|known| known.uid != live.uid || known.generation != live.generation) {
            return Ok(false);
        }
        let holders = self.cluster.holders(&snapshot.namespace, live.selector.as_deref()).await?;
        let naming: HashSet<_> = holders.iter().filter(|it| it.names(&snapshot.name)).map(|it| &it.uid).collect();
        let index = self.index();
        let known = index.holders_naming(snapshot);
        let known_uids: HashSet<_> = known.iter().map(|it| &it.uid).collect();
        // Both ways: one that only the index has is gone, and does not stand for the workload.
        let mut own = known.iter().filter(|it| it.controller.as_ref().is_some_and(|it| it.uid == live.uid));
        Ok(naming.is_subset(&known_uids) && own.all(|it| naming.contains(&it.uid)))
    }

    async fn own(
        &self,
        key: &Key,
        snapshot: &SnapshotState,
        holders: &[Arc<Holder>],
        now: Timestamp,
    ) -> Result<(), Error> {
        let patch = ownership::own(snapshot, holders);
        match self.cluster.own_snapshot(&key.namespace, &key.name, &patch).await? {
            // It has changed since it was read: the watch brings what it is now.
            Write::Outdated => {}
            Write::Done(version) => {
                self.index().written(key, &snapshot.version, version.as_deref());
                tracing::debug!(namespace = %key.namespace, snapshot = %key.name, "owned");
                // Only a holder that came after the last claim was waited for.
                let newest = holders.iter().filter_map(|holder| holder.created).max();
                let waited = newest.filter(|created| unused_since(snapshot).is_none_or(|since| *created >= since));
                let delay = waited.and_then(|created| now.duration_since(created).try_into().ok());
                self.metrics.owned(delay);
            }
        }
        Ok(())
    }
}
