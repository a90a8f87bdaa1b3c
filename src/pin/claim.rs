//! Claims: how admission keeps a snapshot alive until its ReplicaSet is there.
//!
//! A snapshot can be reused while its only owner is on its way out (A→B→A at the history limit), and Kubernetes'
//! garbage collector would take it with the owner. So admission *un-owns* every snapshot that it reuses and leaves a
//! claim on it, in one write. An object without owners is never collected; the collector's own delete carries the
//! resourceVersion that it judged by, so one that is under way fails. The reconciler owns the snapshot again when
//! every claim on it is settled, see [`crate::reconcile`].

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::pin::references::is_configmap_name;
use crate::pin::{kinds, meta};

/// One workload's claim on a snapshot: "a template of mine that names you is about to be stored".
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Claim {
    /// The workload's kind, `Deployment.apps`.
    pub kind: String,
    /// The workload's name; empty when it is created with `generateName`.
    pub name: String,
    /// The workload's UID; absent when it is being created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// The `metadata.generation` that the workload has once the claimed template is stored.
    pub generation: i64,
    /// When the claim was made.
    pub at: Timestamp,
}

impl Claim {
    /// The key and text of the annotation that holds this claim.
    #[must_use]
    pub fn annotation(&self) -> (String, String) {
        // Serialising five plain fields cannot fail.
        (key(self), serde_json::to_string(self).unwrap_or_default())
    }

    /// Reads an annotation's text on an object that was created at `created`. `None` for a text that admission cannot
    /// have written: anyone who may edit ConfigMaps may write one.
    fn parse(text: &str, created: Option<Timestamp>, now: Timestamp) -> Option<Self> {
        if text.len() > MAX_TEXT {
            return None;
        }
        serde_json::from_str(text).ok().filter(|claim: &Self| claim.is_plausible(created, now))
    }

    fn is_plausible(&self, created: Option<Timestamp>, now: Timestamp) -> bool {
        let is_kind = kinds::WORKLOADS.iter().any(|kind| kind.qualified() == self.kind);
        let is_name = |name: &str| name.is_empty() || is_configmap_name(name);
        let is_uid = |uid: &String| uid.len() <= MAX_UID && uid.bytes().all(|byte| byte.is_ascii_graphic());
        is_kind
            && is_name(&self.name)
            && self.uid.as_ref().is_none_or(is_uid)
            && self.generation >= 1
            && self.at.duration_since(now) <= TOLERANCE
            && created.is_none_or(|created| created.duration_since(self.at) <= TOLERANCE)
    }
}

/// The longest text of a claim, in bytes: about twice what a workload with a name of 253 characters takes.
const MAX_TEXT: usize = 1 << 10;

/// The longest UID of a claim, in bytes. Kubernetes' own have 36.
const MAX_UID: usize = 128;

/// How far a claim may lie in the future, or before its snapshot's creation. It must be more than clocks differ, as a
/// claim that is discarded protects nothing; a claim holds its snapshot for so much longer at most.
const TOLERANCE: SignedDuration = SignedDuration::from_mins(5);

/// The merge patch that makes these claims on the snapshot with `uid`, un-owning it. Without a resourceVersion, so
/// that claims of several replicas do not conflict; the UID makes it fail when the snapshot has been replaced.
#[must_use]
pub fn merge_patch(claims: &[Claim], uid: &str) -> Value {
    let annotations: BTreeMap<_, _> = claims.iter().map(Claim::annotation).collect();
    json!({"metadata": {"uid": uid, "ownerReferences": null, "annotations": annotations}})
}

/// How many claims of one workload a snapshot can hold: more than it has requests under way at a time, and few enough
/// for the annotations of a snapshot that many workloads share.
const SLOTS: i64 = 8;

/// The key of a claim's annotation. A workload's name can be longer than an annotation key, so it is hashed.
///
/// Claims of several generations have keys of their own: a slow request that is going to fail, as it began from an old
/// generation, must not replace the claim of one that was stored meanwhile.
#[must_use]
pub fn key(claim: &Claim) -> String {
    let uid = claim.uid.as_deref().unwrap_or_default();
    let digest = Sha256::digest(format!("{}/{}/{uid}", claim.kind, claim.name));
    let digits: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("{}{digits}-{}", meta::CLAIM_PREFIX, claim.generation.rem_euclid(SLOTS))
}

/// The claims on a snapshot as it is at `now`, by annotation key. `None` for one that admission cannot have written. Such
/// a claim holds nothing: a workload that references the snapshot keeps it without owners until its ReplicaSet exists,
/// whatever the claims say, and the next write of owners removes the annotation.
#[must_use]
pub fn claims(metadata: &ObjectMeta, now: Timestamp) -> BTreeMap<String, Option<Claim>> {
    let created = metadata.creation_timestamp.as_ref().map(|time| time.0);
    let annotations = metadata.annotations.iter().flatten();
    annotations
        .filter(|(key, _)| key.starts_with(meta::CLAIM_PREFIX))
        .map(|(key, text)| (key.clone(), Claim::parse(text, created, now)))
        .collect()
}

/// Whether `snapshot` already carries an equal or later claim of the same template: a second pass of admission
/// (reinvocation) need not write again.
#[must_use]
pub fn stands(snapshot: &ConfigMap, claim: &Claim) -> bool {
    let metadata = &snapshot.metadata;
    let unowned = metadata.owner_references.as_ref().is_none_or(Vec::is_empty);
    let held = claims(metadata, claim.at).remove(&key(claim)).flatten();
    unowned
        && held.is_some_and(|held| {
            held.uid == claim.uid && held.generation == claim.generation && claim.at.duration_since(held.at) < FRESH
        })
}

/// How young a claim must be to stand for another: well inside the time after which one expires unfulfilled.
const FRESH: SignedDuration = SignedDuration::from_secs(30);

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use rstest::rstest;

    use super::*;

    fn claim() -> Claim {
        Claim {
            kind: "Deployment.apps".into(),
            name: "web".into(),
            uid: Some("u".into()),
            generation: 4,
            at: Timestamp::UNIX_EPOCH,
        }
    }

    #[test]
    fn a_claim_goes_round_through_its_annotation() {
        let metadata = ObjectMeta { annotations: Some(BTreeMap::from([claim().annotation()])), ..<_>::default() };
        assert_eq!(claims(&metadata, claim().at).into_values().collect::<Vec<_>>(), [Some(claim())]);
    }

    #[test]
    fn an_edited_claim_is_still_seen() {
        let key = key(&claim());
        let metadata = ObjectMeta {
            annotations: Some(BTreeMap::from([(key.clone(), "x".into()), ("other".into(), "y".into())])),
            ..<_>::default()
        };
        assert_eq!(claims(&metadata, claim().at), BTreeMap::from([(key, None)]));
    }

    fn time(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    #[rstest]
    #[case::genuine(claim(), true)]
    #[case::at_creation_by_a_clock_that_is_behind(Claim { at: time("1969-12-31T23:55:00Z"), ..claim() }, true)]
    #[case::long_before_creation(Claim { at: time("1969-12-31T23:54:59Z"), ..claim() }, false)]
    #[case::by_a_clock_that_is_ahead(Claim { at: time("1970-01-01T01:05:00Z"), ..claim() }, true)]
    #[case::in_the_future(Claim { at: time("1970-01-01T01:05:01Z"), ..claim() }, false)]
    #[case::at_the_beginning_of_time(Claim { at: Timestamp::MIN, ..claim() }, false)]
    #[case::at_the_end_of_time(Claim { at: Timestamp::MAX, ..claim() }, false)]
    #[case::without_a_name(Claim { name: String::new(), ..claim() }, true)]
    #[case::not_a_name(Claim { name: "../web".into(), ..claim() }, false)]
    #[case::unknown_kind(Claim { kind: "Pod.".into(), ..claim() }, false)]
    #[case::no_such_generation(Claim { generation: 0, ..claim() }, false)]
    #[case::negative_generation(Claim { generation: i64::MIN, ..claim() }, false)]
    #[case::not_a_uid(Claim { uid: Some("a\n".into()), ..claim() }, false)]
    #[case::huge(Claim { uid: Some("u".repeat(2000)), ..claim() }, false)]
    fn only_what_admission_can_have_written_is_a_claim(#[case] claim: Claim, #[case] expected: bool) {
        let annotation = claim.annotation();
        let metadata = ObjectMeta {
            creation_timestamp: Some(Time(Timestamp::UNIX_EPOCH)),
            annotations: Some(BTreeMap::from([annotation])),
            ..Default::default()
        };
        let found = claims(&metadata, time("1970-01-01T01:00:00Z"));
        assert_eq!(found.into_values().collect::<Vec<_>>(), [expected.then_some(claim)]);
    }

    #[test]
    fn the_key_is_a_valid_annotation_key_and_one_for_each_workload_and_generation() {
        let keys = [
            claim(),
            Claim { name: "a".repeat(253), ..claim() },
            Claim { kind: "Rollout.argoproj.io".into(), ..claim() },
            Claim { uid: None, ..claim() },
            Claim { uid: Some("other".into()), ..claim() },
            Claim { generation: 5, ..claim() },
        ]
        .map(|claim| key(&claim));
        let distinct: std::collections::BTreeSet<_> = keys.iter().collect();
        assert_eq!(distinct.len(), keys.len());
        assert!(keys.iter().all(|key| key.len() == meta::CLAIM_PREFIX.len() + 18));
        let many: std::collections::BTreeSet<_> =
            (0..100).map(|generation| key(&Claim { generation, ..claim() })).collect();
        assert_eq!(many.len(), 8, "however often it changes");
    }

    #[test]
    fn the_patch_un_owns() {
        let patch = merge_patch(&[claim()], "snapshot-uid");
        assert_eq!(patch["metadata"]["ownerReferences"], Value::Null);
        assert_eq!(patch["metadata"]["uid"], "snapshot-uid");
    }

    #[test]
    fn a_fresh_claim_on_an_unowned_snapshot_stands_for_a_second_pass() {
        let with = |claim: &Claim, owned: bool| ConfigMap {
            metadata: ObjectMeta {
                annotations: Some(BTreeMap::from([claim.annotation()])),
                owner_references: owned.then(|| vec![<_>::default()]),
                ..<_>::default()
            },
            ..<_>::default()
        };
        let later = |seconds| Claim { at: Timestamp::from_second(seconds).expect("a time"), ..claim() };
        assert!(stands(&with(&claim(), false), &later(29)));
        assert!(!stands(&with(&claim(), false), &later(30)));
        assert!(!stands(&with(&claim(), true), &later(0)));
        assert!(!stands(&with(&claim(), false), &Claim { generation: 5, ..claim() }));
        assert!(!stands(&with(&claim(), false), &Claim { uid: None, ..claim() }));
        assert!(!stands(&ConfigMap::default(), &claim()));
    }
}
