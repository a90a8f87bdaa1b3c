//! Whether a snapshot may be given its owners, and which.
//!
//! The rule: a snapshot is owned by every ReplicaSet that names it, but stays without owners, and so out of the
//! garbage collector's reach, while a template that names it is on its way to a ReplicaSet: while a claim on it is
//! not settled, or a workload names it whose current ReplicaSet is not there yet.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Map, Value, json};

use crate::pin::claim::Claim;
use crate::pin::objects::{Holder, WorkloadState};
use crate::pin::snapshot_state::SnapshotState;
use crate::pin::uid::Uid;

/// After which a claim that has not been fulfilled is void: longer than an API server works on one request
/// (`--request-timeout`, 60 s), so that a workload which was admitted has been stored or never will be, and clocks may
/// be apart by the rest.
pub const CLAIM_EXPIRY: SignedDuration = SignedDuration::from_secs(150);

/// By how much the clocks of confpin and the API server may differ where their times are compared.
const CLOCK_SKEW: SignedDuration = SignedDuration::from_secs(60);

/// A workload whose stored template names a snapshot.
#[derive(Debug, Clone)]
pub struct Naming {
    /// The workload.
    pub workload: Arc<WorkloadState>,
    /// The Deployment that has the template, where the workload is a Rollout that refers to it.
    pub by_reference: Option<Arc<WorkloadState>>,
}

impl Naming {
    /// Whether the ReplicaSet of the current template is among `holders`, so that these stand for the workload.
    ///
    /// That the controller has seen the generation is not enough: paused, or busy with scaling, it reports so without
    /// having made the ReplicaSet.
    fn is_covered(&self, holders: &[Arc<Holder>]) -> bool {
        let workload = &self.workload;
        let sees_deployment =
            |deployment: &Arc<WorkloadState>| workload.observed_workload_generation >= deployment.generation;
        workload.observed_generation >= workload.generation
            && self.by_reference.as_ref().is_none_or(sees_deployment)
            && holders.iter().any(|holder| workload.is_current_holder(holder))
    }
}

/// What is to be done about a snapshot's owners.
#[derive(Debug, Clone, PartialEq)]
pub enum Judgement {
    /// Nothing: it is as it should be, or what is missing will show as an event.
    Rest,
    /// These claims are to be looked at; if all are settled, the patch of [`own`] is due.
    Check(Vec<Claim>),
    /// The patch of [`own`] is due.
    Own,
    /// Nothing names it, as far as is known.
    Unused,
}

/// Judges a snapshot by itself, and the workloads and holders that name it.
#[must_use]
pub fn judge(snapshot: &SnapshotState, workloads: &[Naming], holders: &[Arc<Holder>]) -> Judgement {
    if snapshot.claims().next().is_none() && !snapshot.owners.is_empty() {
        // It is protected by those that it has; another one can only add to that.
        let is_complete = snapshot.claims.is_empty() && missing_owners(snapshot, holders).next().is_none();
        return if is_complete { Judgement::Rest } else { Judgement::Own };
    }
    if !workloads.iter().all(|naming| naming.is_covered(holders)) {
        return Judgement::Rest;
    }
    let claims: Vec<_> = snapshot.claims().cloned().collect();
    match () {
        () if workloads.is_empty() && holders.is_empty() && snapshot.owners.is_empty() => Judgement::Unused,
        () if !claims.is_empty() => Judgement::Check(claims),
        () => Judgement::Own,
    }
}

fn missing_owners(snapshot: &SnapshotState, holders: &[Arc<Holder>]) -> impl Iterator<Item = OwnerReference> {
    let missing = holders.iter().filter(|holder| !holder.deleting && !snapshot.is_owned_by(&holder.uid));
    missing.map(|holder| holder.owner_reference())
}

/// The strategic merge patch that adds the owners that a snapshot lacks and removes its claims. Owner references are
/// merged by UID (`patchMergeKey` of `ObjectMeta.ownerReferences`), so that those of others stay, and a snapshot of many
/// holders does not send them all again. It carries the resourceVersion: a claim that is made in the meantime makes it
/// fail.
#[must_use]
pub fn own(snapshot: &SnapshotState, holders: &[Arc<Holder>]) -> Value {
    let missing: Vec<_> = missing_owners(snapshot, holders).collect();
    let settled: Map<_, _> = snapshot.claims.iter().map(|(key, _)| (key.clone(), Value::Null)).collect();
    json!({"metadata": {
        "resourceVersion": snapshot.version,
        "ownerReferences": missing,
        "annotations": settled,
    }})
}

/// Whether a claim is settled: what its workload was to become has been stored and dealt with by its controller, or
/// never will be. `workload` is what a live read finds.
#[must_use]
pub fn is_settled(claim: &Claim, workload: Option<&WorkloadState>, now: Timestamp) -> bool {
    let expired = now.duration_since(claim.at) >= CLAIM_EXPIRY;
    let Some(workload) = workload else {
        // An update of a workload that is gone fails; a creation may still be on its way.
        return expired || claim.uid.is_some();
    };
    if claim.uid.as_deref().is_some_and(|uid| Uid::from(uid) != workload.uid) {
        return true;
    }
    // A creation's claim may meet a workload of that name which is just being deleted.
    let is_the_one =
        claim.uid.is_some() || workload.created.is_some_and(|created| claim.at.duration_since(created) <= CLOCK_SKEW);
    let stored = is_the_one && workload.generation >= claim.generation;
    (stored || expired) && workload.observed_generation >= workload.generation
}

/// How long until a claim is void.
#[must_use]
pub fn until_expiry(claim: &Claim, now: Timestamp) -> SignedDuration {
    CLAIM_EXPIRY.saturating_sub(now.duration_since(claim.at)).max(SignedDuration::ZERO)
}

/// Since when a snapshot that nothing names can have been unused: its creation, or the last claim on it.
#[must_use]
pub fn unused_since(snapshot: &SnapshotState) -> Option<Timestamp> {
    snapshot.claims().map(|claim| claim.at).chain(snapshot.created).max()
}

#[cfg(test)]
mod tests {
    use kube::api::ObjectMeta;
    use rstest::rstest;

    use super::*;
    use crate::pin::kinds::{DEPLOYMENT, ROLLOUT};
    use crate::pin::objects::Controller;
    use crate::pin::template::Template;

    fn time(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + seconds).expect("a time")
    }

    fn workload() -> WorkloadState {
        WorkloadState {
            kind: &DEPLOYMENT,
            namespace: "n".into(),
            name: "web".into(),
            uid: "web-uid".into(),
            generation: 3,
            observed_generation: 3,
            created: Some(time(0)),
            deleting: false,
            annotations: <_>::default(),
            configmaps: <_>::default(),
            template: Template::of(&json!({"current": true})).digest(),
            pod_hash: None,
            workload_ref: None,
            observed_workload_generation: 0,
            selector: None,
        }
    }

    fn naming(workload: WorkloadState) -> Naming {
        Naming { workload: Arc::new(workload), by_reference: None }
    }

    fn holder(uid: &str) -> Holder {
        let controller = Controller { kind: Some(&DEPLOYMENT), name: "web".into(), uid: "web-uid".into() };
        Holder {
            namespace: "n".into(),
            name: uid.into(),
            uid: uid.into(),
            deleting: false,
            created: None,
            controller: Some(controller),
            configmaps: <_>::default(),
            template: workload().template,
            pod_hash: None,
        }
    }

    fn old_holder(uid: &str) -> Holder {
        Holder { template: Template::of(&json!({})).digest(), ..holder(uid) }
    }

    fn claim() -> Claim {
        Claim {
            kind: DEPLOYMENT.qualified(),
            name: "web".into(),
            uid: Some("web-uid".into()),
            generation: 3,
            at: time(0),
        }
    }

    fn forged() -> Claim {
        Claim { uid: None, at: Timestamp::MAX, ..claim() }
    }

    fn snapshot(owners: &[&str], claims: &[Claim]) -> SnapshotState {
        let owners = owners.iter().map(|uid| holder(uid).owner_reference()).collect();
        SnapshotState::new(
            &ObjectMeta {
                resource_version: Some("7".into()),
                owner_references: Some(owners),
                annotations: Some(claims.iter().map(Claim::annotation).collect()),
                ..<_>::default()
            },
            time(0),
        )
    }

    fn arcs(holders: &[Holder]) -> Vec<Arc<Holder>> {
        holders.iter().cloned().map(Arc::new).collect()
    }

    #[rstest]
    #[case::owned_by_all(snapshot(&["a"], &[]), &[holder("a")], Judgement::Rest)]
    #[case::one_more(snapshot(&["a"], &[]), &[holder("a"), holder("b")], Judgement::Own)]
    #[case::one_more_that_goes(snapshot(&["a"], &[]), &[holder("a"), Holder { deleting: true, ..holder("b") }], Judgement::Rest)]
    #[case::claimed(snapshot(&[], &[claim()]), &[holder("a")], Judgement::Check(vec![claim()]))]
    #[case::claimed_and_still_owned(snapshot(&["a"], &[claim()]), &[holder("a")], Judgement::Check(vec![claim()]))]
    #[case::claimed_before_its_holder_is_there(snapshot(&[], &[claim()]), &[old_holder("a")], Judgement::Rest)]
    #[case::claimed_by_a_forger(snapshot(&[], &[forged()]), &[holder("a")], Judgement::Own)]
    #[case::owned_and_claimed_by_a_forger(snapshot(&["a"], &[forged()]), &[holder("a")], Judgement::Own)]
    #[case::claimed_by_a_forger_before_its_holder_is_there(snapshot(&[], &[forged()]), &[old_holder("a")], Judgement::Rest)]
    #[case::restored_without_owners(snapshot(&[], &[]), &[holder("a")], Judgement::Own)]
    #[case::unowned_before_its_holder_is_there(snapshot(&[], &[]), &[old_holder("a")], Judgement::Rest)]
    fn judges_what_a_workload_names(
        #[case] snapshot: SnapshotState,
        #[case] holders: &[Holder],
        #[case] expected: Judgement,
    ) {
        assert_eq!(judge(&snapshot, &[naming(workload())], &arcs(holders)), expected);
    }

    #[rstest]
    #[case::unused(snapshot(&[], &[]), &[], Judgement::Unused)]
    #[case::claimed(snapshot(&[], &[claim()]), &[], Judgement::Unused)]
    #[case::left_to_the_collector(snapshot(&["gone"], &[]), &[], Judgement::Rest)]
    #[case::of_old_revisions(snapshot(&[], &[]), &[old_holder("a")], Judgement::Own)]
    fn judges_what_no_workload_names(
        #[case] snapshot: SnapshotState,
        #[case] holders: &[Holder],
        #[case] expected: Judgement,
    ) {
        assert_eq!(judge(&snapshot, &[], &arcs(holders)), expected);
    }

    #[test]
    fn a_controller_that_is_behind_covers_nothing() {
        let behind = WorkloadState { observed_generation: 2, ..workload() };
        assert_eq!(judge(&snapshot(&[], &[]), &[naming(behind)], &arcs(&[holder("a")])), Judgement::Rest);
    }

    #[test]
    fn a_rollout_by_reference_must_have_seen_the_deployment() {
        let rollout = |seen| WorkloadState {
            kind: &ROLLOUT,
            pod_hash: Some("5d".into()),
            observed_workload_generation: seen,
            ..workload()
        };
        let holders = arcs(&[Holder { pod_hash: Some("5d".into()), ..holder("a") }]);
        for (seen, expected) in [(2, Judgement::Rest), (3, Judgement::Own)] {
            let naming = Naming { workload: Arc::new(rollout(seen)), by_reference: Some(Arc::new(workload())) };
            assert_eq!(judge(&snapshot(&[], &[]), &[naming], &holders), expected);
        }
    }

    #[test]
    fn owning_adds_what_is_missing_and_removes_the_claims() {
        let patch = own(&snapshot(&["a"], &[claim()]), &arcs(&[holder("a"), holder("b")]));
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        assert_eq!(
            patch["metadata"]["ownerReferences"],
            json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "b", "uid": "b",
                    "controller": false, "blockOwnerDeletion": false}])
        );
        assert_eq!(patch["metadata"]["annotations"], json!({claim().annotation().0: null}));
    }

    #[rstest]
    #[case::stored(claim(), Some(workload()), 1, true)]
    #[case::not_yet_stored(Claim { generation: 4, ..claim() }, Some(workload()), 149, false)]
    #[case::never_stored(Claim { generation: 4, ..claim() }, Some(workload()), 150, true)]
    #[case::not_yet_observed(claim(), Some(WorkloadState { observed_generation: 2, ..workload() }), 999, false)]
    #[case::workload_gone(claim(), None, 0, true)]
    #[case::workload_replaced(Claim { uid: Some("old".into()), generation: 9, ..claim() }, Some(workload()), 0, true)]
    #[case::created(Claim { uid: None, generation: 1, ..claim() }, Some(workload()), 1, true)]
    #[case::not_yet_created(Claim { uid: None, generation: 1, ..claim() }, None, 149, false)]
    #[case::never_created(Claim { uid: None, generation: 1, ..claim() }, None, 150, true)]
    #[case::an_older_one_of_that_name(Claim { uid: None, generation: 1, at: time(61), ..claim() }, Some(workload()), 62, false)]
    #[case::forged_with_the_earliest_time(Claim { at: Timestamp::MIN, ..forged() }, Some(workload()), 1, true)]
    #[case::forged_with_the_latest_time(forged(), Some(workload()), 1, false)]
    fn settles(
        #[case] claim: Claim,
        #[case] workload: Option<WorkloadState>,
        #[case] now: i64,
        #[case] expected: bool,
    ) {
        assert_eq!(is_settled(&claim, workload.as_ref(), time(now)), expected);
    }

    #[test]
    fn no_time_of_a_claim_overflows() {
        for (at, now) in [(Timestamp::MIN, Timestamp::MAX), (Timestamp::MAX, Timestamp::MIN)] {
            let claim = Claim { at, ..forged() };
            assert_eq!(until_expiry(&claim, now).is_zero(), now == Timestamp::MAX);
            assert_eq!(is_settled(&claim, None, now), now == Timestamp::MAX);
        }
    }

    #[test]
    fn unused_since_the_last_claim() {
        let created = SnapshotState { created: Some(time(5)), ..snapshot(&[], &[claim()]) };
        assert_eq!(unused_since(&created), Some(time(5)));
        assert_eq!(unused_since(&snapshot(&[], &[Claim { at: time(9), ..claim() }])), Some(time(9)));
        assert_eq!(until_expiry(&claim(), time(50)), SignedDuration::from_secs(100));
    }
}
