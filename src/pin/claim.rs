//! Claims: how admission keeps a snapshot alive until its ReplicaSet is there.
//!
//! A snapshot can be reused while its only owner is on its way out (A→B→A at the history limit), and Kubernetes'
//! garbage collector would take it with the owner. So admission *un-owns* every snapshot that it reuses and leaves a
//! claim on it, in one write. An object without owners is never collected; the collector's own delete carries the
//! resourceVersion that it judged by, so one that is under way fails. The reconciler owns the snapshot again when
//! every claim on it is settled, see [`crate::reconcile`].

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::pin::meta;

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
}

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

/// The claims on a snapshot, by annotation key. `None` for one that cannot be read: somebody edited it.
#[must_use]
pub fn claims(metadata: &ObjectMeta) -> BTreeMap<String, Option<Claim>> {
    let annotations = metadata.annotations.iter().flatten();
    annotations
        .filter(|(key, _)| key.starts_with(meta::CLAIM_PREFIX))
        .map(|(key, text)| (key.clone(), serde_json::from_str(text).ok()))
        .collect()
}

/// Whether `snapshot` already carries an equal or later claim of the same template: a second pass of admission
/// (reinvocation) need not write again.
#[must_use]
pub fn stands(snapshot: &ConfigMap, claim: &Claim) -> bool {
    let metadata = &snapshot.metadata;
    let unowned = metadata.owner_references.as_ref().is_none_or(Vec::is_empty);
    let held = claims(metadata).remove(&key(claim)).flatten();
    unowned
        && held.is_some_and(|held| {
            held.uid == claim.uid && held.generation == claim.generation && claim.at.duration_since(held.at) < FRESH
        })
}

/// How young a claim must be to stand for another: well inside the time after which one expires unfulfilled.
const FRESH: jiff::SignedDuration = jiff::SignedDuration::from_secs(30);

#[cfg(test)]
mod tests {
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
        assert_eq!(claims(&metadata).into_values().collect::<Vec<_>>(), [Some(claim())]);
    }

    #[test]
    fn an_edited_claim_is_still_seen() {
        let key = key(&claim());
        let metadata = ObjectMeta {
            annotations: Some(BTreeMap::from([(key.clone(), "x".into()), ("other".into(), "y".into())])),
            ..<_>::default()
        };
        assert_eq!(claims(&metadata), BTreeMap::from([(key, None)]));
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
