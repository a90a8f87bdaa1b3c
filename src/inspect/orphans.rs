//! Snapshots that nothing owns: when confpin's sweeper removes them, or why it does not.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};
use kube::api::ObjectMeta;
use serde::Serialize;

use crate::inspect::target::title;
use crate::pin::claim::Claim;
use crate::pin::ownership::{is_settled, until_expiry, unused_since};
use crate::pin::snapshot;
use crate::pin::snapshot_state::SnapshotState;
use crate::reconcile::index::{Index, Key, claimant};

/// What becomes of a snapshot that nothing owns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It is removed with the next look at it.
    Due,
    /// Nothing names it; it is removed once the grace period has passed.
    Grace {
        /// When that is.
        until: Timestamp,
    },
    /// Nothing names it, but a workload that was admitted with it may still come.
    Claimed {
        /// The workloads, with their kind.
        by: Vec<String>,
        /// When the last claim is void.
        until: Timestamp,
    },
    /// It stays, and is owned once the ReplicaSets of these are there.
    Named {
        /// The objects, with their kind.
        by: Vec<String>,
    },
}

/// A snapshot that nothing owns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unowned {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub snapshot: String,
    /// Its source.
    pub source: String,
    /// What becomes of it.
    pub verdict: Verdict,
}

/// What names ConfigMaps: workloads and ReplicaSets by the reconciler's index, and pods.
#[derive(Default)]
pub struct Names {
    /// Workloads and ReplicaSets.
    pub index: Index,
    /// The pods that name a ConfigMap.
    pub pods: HashMap<Key, Vec<String>>,
}

/// Judges a snapshot as the reconciler does; `None` if something owns it, or if it is no snapshot.
#[must_use]
pub fn judge(snapshot: &ObjectMeta, names: &Names, grace: SignedDuration, now: Timestamp) -> Option<Unowned> {
    let source = snapshot::recognise_metadata(snapshot)?.source;
    let state = SnapshotState::new(snapshot, now);
    if !state.owners.is_empty() {
        return None;
    }
    let key = Key::shared(&state.namespace, &state.name);
    let verdict = verdict(&state, &key, names, grace, now);
    Some(Unowned { namespace: key.namespace.to_string(), snapshot: key.name.to_string(), source, verdict })
}

fn verdict(snapshot: &SnapshotState, key: &Key, names: &Names, grace: SignedDuration, now: Timestamp) -> Verdict {
    let workloads = names.index.workloads_naming(key).into_iter();
    let workloads = workloads.map(|naming| title(naming.workload.kind, &naming.workload.name));
    let holders = names.index.holders_naming(key).into_iter().map(|holder| format!("replicaset/{}", holder.name));
    let pods = names.pods.get(key).into_iter().flatten().map(|pod| format!("pod/{pod}"));
    let by: Vec<_> = workloads.chain(holders).chain(pods).collect();
    if !by.is_empty() {
        return Verdict::Named { by };
    }
    let removed = unused_since(snapshot).map_or(now, |since| later(since, grace));
    if removed > now {
        return Verdict::Grace { until: removed };
    }
    let pending = snapshot.claims().filter(|claim| {
        let workload = claimant(&key.namespace, claim).and_then(|key| names.index.workload(&key).cloned());
        !is_settled(claim, workload.as_deref(), now)
    });
    let pending: Vec<_> = pending.collect();
    match pending.iter().map(|claim| later(now, until_expiry(claim, now))).max() {
        Some(until) => {
            let title = |claim: &&Claim| match claim.kind.split_once('.') {
                Some((kind, _)) => format!("{}/{}", kind.to_ascii_lowercase(), claim.name),
                None => claim.name.clone(),
            };
            Verdict::Claimed { by: pending.iter().map(title).collect(), until }
        }
        None => Verdict::Due,
    }
}

/// `time` after `duration`, or the latest time that can be written.
fn later(time: Timestamp, duration: SignedDuration) -> Timestamp {
    time.checked_add(duration).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    use super::*;
    use crate::pin::kinds::DEPLOYMENT;
    use crate::pin::objects::WorkloadState;

    const GRACE: SignedDuration = SignedDuration::from_secs(100);

    fn time(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + seconds).expect("a time")
    }

    fn snapshot(claim: Option<&Claim>) -> ObjectMeta {
        let configmap: ConfigMap = serde_json::from_value(json!({"data": {"k": "1"}})).expect("a ConfigMap");
        let source = snapshot::Source::new("app", &configmap);
        let name = snapshot::names("app", &source.hash)[0].clone();
        let mut meta = source.snapshot(&name, claim).metadata;
        meta.namespace = Some("n".into());
        meta.creation_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(time(0)));
        meta
    }

    fn claim(at: i64) -> Claim {
        Claim { kind: DEPLOYMENT.qualified(), name: "web".into(), uid: None, generation: 1, at: time(at) }
    }

    fn verdict_at(snapshot: &ObjectMeta, names: &Names, now: i64) -> Verdict {
        judge(snapshot, names, GRACE, time(now)).expect("unowned").verdict
    }

    #[test]
    fn what_nothing_names_goes_after_the_grace_period() {
        let names = Names::default();
        assert_eq!(verdict_at(&snapshot(None), &names, 99), Verdict::Grace { until: time(100) });
        assert_eq!(verdict_at(&snapshot(None), &names, 100), Verdict::Due);
    }

    #[test]
    fn a_claim_holds_it_until_it_is_void() {
        let claimed = snapshot(Some(&claim(10)));
        let names = Names::default();
        assert_eq!(verdict_at(&claimed, &names, 109), Verdict::Grace { until: time(110) });
        let expected = Verdict::Claimed { by: vec!["deployment/web".into()], until: time(160) };
        assert_eq!(verdict_at(&claimed, &names, 110), expected);
        assert_eq!(verdict_at(&claimed, &names, 160), Verdict::Due);
    }

    #[test]
    fn a_forged_claim_holds_nothing() {
        for at in [Timestamp::MIN, Timestamp::MAX] {
            let claimed = snapshot(Some(&Claim { at, ..claim(0) }));
            assert_eq!(verdict_at(&claimed, &Names::default(), 99), Verdict::Grace { until: time(100) });
            assert_eq!(verdict_at(&claimed, &Names::default(), 100), Verdict::Due);
        }
    }

    #[test]
    fn the_longest_grace_period_ends_with_time() {
        let verdict = judge(&snapshot(None), &Names::default(), SignedDuration::MAX, time(0)).expect("unowned").verdict;
        assert_eq!(verdict, Verdict::Grace { until: Timestamp::MAX });
    }

    #[test]
    fn what_something_names_stays() {
        let meta = snapshot(None);
        let mut names = Names::default();
        let object = json!({"metadata": {"namespace": "n", "name": "web"}, "spec": {"template": {"spec": {
            "volumes": [{"configMap": {"name": meta.name}}]}}}});
        let object = serde_json::from_value(object).expect("an object");
        names.index.put_workload(WorkloadState::new(&DEPLOYMENT, &object));
        let key = Key::new("n", meta.name.as_deref().expect("a name"));
        names.pods.insert(key, vec!["left".into()]);
        let by = vec!["deployment/web".to_owned(), "pod/left".to_owned()];
        assert_eq!(verdict_at(&meta, &names, 999), Verdict::Named { by });
    }

    #[test]
    fn what_is_owned_is_not_ours_to_sweep() {
        let owned = ObjectMeta { owner_references: Some(vec![<_>::default()]), ..snapshot(None) };
        assert_eq!(judge(&owned, &Names::default(), GRACE, time(999)), None);
    }
}
