//! The revisions of a workload, and the configuration of each.

use jiff::Timestamp;
use kube::api::DynamicObject;
use serde::Serialize;
use serde_json::Value;

use crate::inspect::facts::Facts;
use crate::pin::kinds::WorkloadKind;
use crate::pin::meta;
use crate::pin::objects::{Holder, WorkloadState};
use crate::pin::record::Record;
use crate::pin::snapshot;

/// Where the workloads' controllers number the revisions, on their ReplicaSets.
const REVISION: [&str; 2] = ["deployment.kubernetes.io/revision", "rollout.argoproj.io/revision"];

/// What a revision is to its workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// It is that of the workload's template.
    Current,
    /// A Rollout's that is not in question.
    Stable,
    /// A Rollout's that is being tried.
    Canary,
}

/// A ConfigMap that a revision names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Configuration {
    /// Its name as it stands in the template.
    pub name: String,
    /// The source that it is a snapshot of, or itself.
    pub source: String,
    /// What it is now.
    pub is: Kind,
}

/// What a name in a template stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A snapshot.
    Snapshot,
    /// An ordinary ConfigMap, whose content can change.
    Live,
    /// Nothing has that name.
    Gone,
}

/// One revision.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Revision {
    /// Its number; 0 where the controller has given none yet.
    pub number: i64,
    /// What it is to its workload.
    pub roles: Vec<Role>,
    /// How many pods it has.
    pub replicas: i64,
    /// The images of its containers.
    pub images: Vec<String>,
    /// The ConfigMaps that it names.
    pub configuration: Vec<Configuration>,
    /// When its ReplicaSet was created.
    pub created: Option<Timestamp>,
    /// Its ReplicaSet.
    pub replica_set: String,
    /// Its pod template.
    #[serde(skip)]
    pub template: Value,
}

/// The revisions of `workload` among these ReplicaSets, the newest first.
#[must_use]
pub fn history(
    kind: &'static WorkloadKind,
    workload: &DynamicObject,
    replica_sets: &[DynamicObject],
    facts: &Facts,
) -> Vec<Revision> {
    let state = WorkloadState::new(kind, workload);
    let stable = workload.data["status"]["stableRS"].as_str().filter(|hash| !hash.is_empty());
    let mut revisions: Vec<_> = replica_sets
        .iter()
        .map(|object| (Holder::new(object), object))
        .filter(|(holder, _)| holder.controller.as_ref().is_some_and(|controller| controller.uid == state.uid))
        .map(|(holder, object)| {
            let is_stable = stable.is_some() && holder.pod_hash.as_deref() == stable;
            let template = &object.data["spec"]["template"];
            Revision {
                number: number(object),
                roles: roles(state.is_current_holder(&holder), is_stable, stable.is_some()),
                replicas: object.data["status"]["replicas"].as_i64().unwrap_or_default(),
                images: images(template),
                configuration: configuration(&state, &holder, facts),
                created: holder.created,
                replica_set: holder.name.to_string(),
                template: template.clone(),
            }
        })
        .collect();
    revisions.sort_by_key(|revision| (std::cmp::Reverse(revision.number), std::cmp::Reverse(revision.created)));
    revisions
}

/// The current revision of a workload that has another, stable one is its canary.
fn roles(is_current: bool, is_stable: bool, has_stable: bool) -> Vec<Role> {
    let canary = is_current && has_stable && !is_stable;
    let all = [(canary, Role::Canary), (is_current && !canary, Role::Current), (is_stable, Role::Stable)];
    all.into_iter().filter(|(holds, _)| *holds).map(|(_, role)| role).collect()
}

fn number(object: &DynamicObject) -> i64 {
    let annotations = object.metadata.annotations.as_ref();
    let text = annotations.and_then(|annotations| REVISION.iter().find_map(|key| annotations.get(*key)));
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn images(template: &Value) -> Vec<String> {
    let containers = template["spec"]["containers"].as_array().into_iter().flatten();
    containers.filter_map(|container| container["image"].as_str()).map(str::to_owned).collect()
}

fn configuration(state: &WorkloadState, holder: &Holder, facts: &Facts) -> Vec<Configuration> {
    let record = state.annotation(meta::RECORD).map(Record::parse).unwrap_or_default();
    let names = holder.configmaps.iter().map(|name| name.to_string());
    names
        .map(|name| match facts.configmap(&state.namespace, &name) {
            Some(found) => match snapshot::recognise_metadata(found) {
                Some(provenance) => Configuration { name, source: provenance.source, is: Kind::Snapshot },
                None => Configuration { source: name.clone(), name, is: Kind::Live },
            },
            None => {
                let source = record.source_of(&name).unwrap_or_else(|| name.clone());
                Configuration { name, source, is: Kind::Gone }
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::pin::kinds::{DEPLOYMENT, ROLLOUT};

    fn object(value: Value) -> DynamicObject {
        serde_json::from_value(value).expect("an object")
    }

    fn replica_set(number: &str, controller: &str, hash: &str, image: &str) -> DynamicObject {
        object(json!({
            "metadata": {
                "name": format!("web-{hash}"),
                "annotations": {"rollout.argoproj.io/revision": number},
                "labels": {"rollouts-pod-template-hash": hash},
                "ownerReferences": [{"controller": true, "uid": controller, "kind": "K", "name": "web", "apiVersion": "a/v1"}],
            },
            "spec": {"template": template(image)},
            "status": {"replicas": 2},
        }))
    }

    fn template(image: &str) -> Value {
        json!({"spec": {"containers": [{"image": image, "envFrom": [{"configMapRef": {"name": "app"}}]}]}})
    }

    #[test]
    fn a_rollout_in_mid_canary_has_a_stable_revision_and_a_canary() {
        let rollout = |current: &str| {
            object(json!({"metadata": {"uid": "u"}, "status": {"stableRS": "a", "currentPodHash": current}}))
        };
        let sets = [
            replica_set("1", "u", "z", "web:0"),
            replica_set("2", "u", "a", "web:1"),
            replica_set("3", "u", "b", "web:2"),
            replica_set("9", "another", "c", "web:9"),
        ];
        let roles = |current: &str| -> Vec<(i64, Vec<Role>)> {
            let revisions = history(&ROLLOUT, &rollout(current), &sets, &Facts::default());
            revisions.into_iter().map(|revision| (revision.number, revision.roles)).collect()
        };
        assert_eq!(roles("b"), [(3, vec![Role::Canary]), (2, vec![Role::Stable]), (1, vec![])]);
        assert_eq!(roles("a"), [(3, vec![]), (2, vec![Role::Current, Role::Stable]), (1, vec![])]);
    }

    #[test]
    fn a_deployments_current_revision_has_its_template() {
        let deployment = object(json!({"metadata": {"uid": "u"}, "spec": {"template": template("web:2")}}));
        let sets = [replica_set("1", "u", "a", "web:1"), replica_set("2", "u", "b", "web:2")];
        let revisions = history(&DEPLOYMENT, &deployment, &sets, &Facts::default());
        assert_eq!(revisions[0].roles, [Role::Current]);
        assert_eq!(revisions[0].images, ["web:2"]);
        assert_eq!(revisions[0].configuration[0].is, Kind::Gone);
        assert_eq!(revisions[1].roles, []);
    }
}
