//! Leaving confpin: which workloads name snapshots, what moves them back to their sources, and whether they have rolled
//! out since.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::DynamicObject;
use serde_json::Value;

use crate::cluster::Cluster;
use crate::inspect::facts::{Facts, Seen};
use crate::inspect::foresee::{self, Sources, workload};
use crate::pin::decision::Rename;
use crate::pin::exempt::Exemptions;
use crate::pin::kinds::WorkloadKind;
use crate::pin::meta;
use crate::pin::objects::WorkloadState;
use crate::pin::patch;
use crate::pin::request::Request;
use crate::pin::snapshot;
use crate::reconcile::index::Key;

/// What moves one workload back.
#[derive(Debug)]
pub struct Step {
    /// The names to change.
    pub renames: Vec<Rename>,
    /// The change as a whole: names, and the annotation that opts the workload out, so that nothing pins it again.
    pub patch: json_patch::Patch,
    /// The snapshots whose names stay, as their sources are gone.
    pub stays: Vec<String>,
}

/// Whether a workload names a snapshot, so that there is something to do.
#[must_use]
pub fn names_a_snapshot(facts: &Facts, seen: &Seen) -> bool {
    let mut found = seen.state.configmaps.iter().filter_map(|name| facts.configmap(&seen.state.namespace, name));
    found.any(|meta| snapshot::recognise_metadata(meta).is_some())
}

/// What moves a workload back to its sources, by the decision of admission about a workload that opts out. Where a source
/// is gone, the snapshot's name stays.
///
/// # Errors
/// When the cluster cannot be asked.
pub async fn step(
    cluster: &Cluster,
    kind: &'static WorkloadKind,
    object: &DynamicObject,
) -> Result<Option<Step>, foresee::Error> {
    let Some(stored) = workload(kind, object) else { return Ok(None) };
    let mut new = stored.clone();
    new.metadata.annotations.get_or_insert_default().insert(meta::PIN.to_owned(), meta::DISABLED.to_owned());
    let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
    let name = object.metadata.name.clone().unwrap_or_default();
    // As a creation: the template does not change by itself, and rule 2 would leave it alone.
    let request = Request { kind, name, new, old: None, namespace_opts_out: false };
    let none = std::collections::BTreeMap::<Key, ConfigMap>::new();
    let sources = Sources { cluster: Some(cluster), applied: &none };
    let foreseen = sources.foresee(namespace, &request, &Exemptions::default()).await?;
    Ok(foreseen.map(|foreseen| {
        let (renames, stays) = (foreseen.decision.renames, foreseen.snapshots.into_keys().collect());
        Step { patch: patch::release(kind, &stored, &renames), renames, stays }
    }))
}

/// How far a workload's rollout is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// All pods are of the current template.
    Done,
    /// In progress, or waiting for a person; in words.
    Waiting(String),
    /// The rollout does not continue until it is resumed.
    Paused,
    /// It has failed; in words.
    Failed(String),
}

/// Tells from a workload's status how far its rollout is.
#[must_use]
pub fn progress(kind: &'static WorkloadKind, object: &DynamicObject) -> Progress {
    let state = WorkloadState::new(kind, object);
    let (spec, status) = (&object.data["spec"], &object.data["status"]);
    if spec["paused"] == true {
        return Progress::Paused;
    }
    if state.observed_generation < state.generation {
        return Progress::Waiting("its controller has not seen the change".to_owned());
    }
    match status["phase"].as_str() {
        Some("Healthy") => return Progress::Done,
        Some("Degraded") => return Progress::Failed(text(&status["message"], "degraded")),
        Some(phase) => return Progress::Waiting(format!("it is {phase}")),
        None => {}
    }
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let mut progressing = conditions.filter(|condition| condition["type"] == "Progressing");
    if let Some(failed) = progressing.find(|condition| condition["reason"] == "ProgressDeadlineExceeded") {
        return Progress::Failed(text(&failed["message"], "its progress deadline has passed"));
    }
    let wanted = spec["replicas"].as_i64().unwrap_or(1);
    let count = |field: &str| status[field].as_i64().unwrap_or_default();
    let done = ["updatedReplicas", "replicas", "availableReplicas"].iter().all(|field| count(field) == wanted);
    match done {
        true => Progress::Done,
        false => Progress::Waiting(format!("{} of {wanted} pods are new and available", count("updatedReplicas"))),
    }
}

fn text(value: &Value, otherwise: &str) -> String {
    value.as_str().unwrap_or(otherwise).to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::pin::kinds::{DEPLOYMENT, ROLLOUT};

    fn told(kind: &'static WorkloadKind, spec: Value, status: Value) -> Progress {
        let object = json!({"metadata": {"generation": 2}, "spec": spec, "status": status});
        progress(kind, &serde_json::from_value(object).expect("an object"))
    }

    #[test]
    fn a_deployment_is_done_when_all_pods_are_new_and_available() {
        let status = |seen: i64, updated: i64, all: i64| json!({"observedGeneration": seen, "updatedReplicas": updated, "replicas": all, "availableReplicas": all});
        let spec = json!({"replicas": 2});
        assert_eq!(told(&DEPLOYMENT, spec.clone(), status(2, 2, 2)), Progress::Done);
        for status in [status(1, 2, 2), status(2, 1, 2), status(2, 2, 3)] {
            assert!(matches!(told(&DEPLOYMENT, spec.clone(), status), Progress::Waiting(_)));
        }
        assert_eq!(told(&DEPLOYMENT, json!({"paused": true}), status(1, 0, 0)), Progress::Paused);
        let late = json!({"type": "Progressing", "reason": "ProgressDeadlineExceeded", "message": "too late"});
        let late = json!({"observedGeneration": 2, "conditions": [late]});
        assert_eq!(told(&DEPLOYMENT, spec, late), Progress::Failed("too late".into()));
    }

    #[test]
    fn a_rollout_is_done_when_it_is_healthy() {
        let status = |phase: &str, seen: &str| json!({"phase": phase, "observedGeneration": seen, "message": "m"});
        assert_eq!(told(&ROLLOUT, json!({}), status("Healthy", "2")), Progress::Done);
        assert!(matches!(told(&ROLLOUT, json!({}), status("Healthy", "1")), Progress::Waiting(_)));
        assert_eq!(told(&ROLLOUT, json!({}), status("Paused", "2")), Progress::Waiting("it is Paused".into()));
        assert_eq!(told(&ROLLOUT, json!({}), status("Degraded", "2")), Progress::Failed("m".into()));
    }
}
