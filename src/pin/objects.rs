//! What the decisions use of workloads and holders: small structs, made from whole objects as these come in. There may
//! be tens of thousands, so that they have lists where a map of one entry would take half a kilobyte.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference};
use kube::api::{DynamicObject, ObjectMeta};
use kube::core::Selector;
use serde::Deserialize;
use serde_json::Value;

use crate::pin::kinds::{self, CurrentHolder, DEPLOYMENT, ROLLOUT, ROLLOUT_HASH_LABEL, WorkloadKind};
use crate::pin::meta;
use crate::pin::template::{Template, TemplateDigest};
use crate::pin::uid::Uid;

/// A workload as the API server stores it.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkloadState {
    /// Its kind.
    pub kind: &'static WorkloadKind,
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// Its UID.
    pub uid: Uid,
    /// Its generation: counts the changes of its spec.
    pub generation: i64,
    /// The generation that its controller has dealt with.
    pub observed_generation: i64,
    /// When it was created.
    pub created: Option<jiff::Timestamp>,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Our annotations.
    pub annotations: Box<[(&'static str, Box<str>)]>,
    /// The ConfigMaps that its template names, in order.
    pub configmaps: Box<[Arc<str>]>,
    /// Its template, to be compared with its ReplicaSets'.
    pub template: TemplateDigest,
    /// `status.currentPodHash` of a Rollout.
    pub pod_hash: Option<Box<str>>,
    /// The Deployment whose template this Rollout uses (`workloadRef`).
    pub workload_ref: Option<Arc<str>>,
    /// The generation of that Deployment that the Rollout's controller has dealt with.
    pub observed_workload_generation: i64,
    /// The label selector of its ReplicaSets.
    pub selector: Option<Box<str>>,
}

impl WorkloadState {
    /// Reads what is used of `object`.
    #[must_use]
    pub fn new(kind: &'static WorkloadKind, object: &DynamicObject) -> Self {
        let (meta, data) = (&object.metadata, &object.data);
        let template = Template::of(kind.template_of(data));
        let reference = &data["spec"]["workloadRef"];
        let status = &data["status"];
        Self {
            kind,
            namespace: meta.namespace.as_deref().unwrap_or_default().into(),
            name: meta.name.as_deref().unwrap_or_default().into(),
            uid: meta.uid.as_deref().into(),
            generation: meta.generation.unwrap_or_default(),
            observed_generation: number(&status["observedGeneration"]),
            created: meta.creation_timestamp.as_ref().map(|time| time.0),
            deleting: meta.deletion_timestamp.is_some(),
            annotations: own_annotations(meta),
            configmaps: template.names().into_iter().map(Arc::from).collect(),
            template: template.digest(),
            pod_hash: text(&status["currentPodHash"]).map(Box::from),
            workload_ref: text(&reference["name"])
                .filter(|_| reference["kind"] == DEPLOYMENT.kind && *kind == ROLLOUT)
                .map(Arc::from),
            observed_workload_generation: number(&status["workloadObservedGeneration"]),
            selector: LabelSelector::deserialize(&data["spec"]["selector"])
                .ok()
                .and_then(label_selector)
                .map(Box::from),
        }
    }

    /// The value of one of our annotations.
    #[must_use]
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.iter().find(|(own, _)| *own == key).map(|(_, value)| &**value)
    }

    /// Whether its template names a ConfigMap.
    #[must_use]
    pub fn names(&self, configmap: &str) -> bool {
        self.configmaps.iter().any(|name| **name == *configmap)
    }

    /// Whether its own annotation opts it out.
    #[must_use]
    pub fn opts_out(&self) -> bool {
        self.annotation(meta::PIN) == Some(meta::DISABLED)
    }

    /// Whether `holder` is the ReplicaSet of this workload's current template.
    #[must_use]
    pub fn is_current_holder(&self, holder: &Holder) -> bool {
        holder.controller.as_ref().is_some_and(|controller| controller.uid == self.uid)
            && match self.kind.current_holder {
                CurrentHolder::EqualTemplate => holder.template == self.template,
                CurrentHolder::PodHash => self.pod_hash.is_some() && holder.pod_hash == self.pod_hash,
            }
    }
}

/// The object that controls a ReplicaSet.
#[derive(Debug, Clone, PartialEq)]
pub struct Controller {
    /// Its kind, if it is one that confpin pins.
    pub kind: Option<&'static WorkloadKind>,
    /// Its name.
    pub name: Arc<str>,
    /// Its UID.
    pub uid: Uid,
}

impl Controller {
    fn new(owner: &OwnerReference) -> Self {
        let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
        Self { kind: kinds::find(group, &owner.kind), name: owner.name.as_str().into(), uid: owner.uid.as_str().into() }
    }
}

/// A ReplicaSet: its life bounds that of the snapshots that it names.
#[derive(Debug, Clone, PartialEq)]
pub struct Holder {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// Its UID.
    pub uid: Uid,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// When it was created.
    pub created: Option<jiff::Timestamp>,
    /// The object that controls it.
    pub controller: Option<Controller>,
    /// The ConfigMaps that its template names, in order.
    pub configmaps: Box<[Arc<str>]>,
    /// Its template, less the hash label.
    pub template: TemplateDigest,
    /// The hash label that the Rollouts controller gave it.
    pub pod_hash: Option<Box<str>>,
}

impl Holder {
    /// Reads what is used of a ReplicaSet.
    #[must_use]
    pub fn new(object: &DynamicObject) -> Self {
        let meta = &object.metadata;
        let template = Template::of(&object.data["spec"]["template"]);
        let mut owners = meta.owner_references.iter().flatten();
        Self {
            namespace: meta.namespace.as_deref().unwrap_or_default().into(),
            name: meta.name.as_deref().unwrap_or_default().into(),
            uid: meta.uid.as_deref().into(),
            deleting: meta.deletion_timestamp.is_some(),
            created: meta.creation_timestamp.as_ref().map(|time| time.0),
            controller: owners.find(|owner| owner.controller == Some(true)).map(Controller::new),
            configmaps: template.names().into_iter().map(Arc::from).collect(),
            template: template.digest(),
            pod_hash: meta
                .labels
                .as_ref()
                .and_then(|labels| labels.get(ROLLOUT_HASH_LABEL))
                .map(|hash| hash.as_str().into()),
        }
    }

    /// Whether its template names a ConfigMap.
    #[must_use]
    pub fn names(&self, configmap: &str) -> bool {
        self.configmaps.iter().any(|name| **name == *configmap)
    }

    /// The owner reference that a snapshot gets for this holder: just what the garbage collector needs.
    /// `blockOwnerDeletion` is false, so that no right on finalizers is needed
    /// (OwnerReferencesPermissionEnforcement) and no foreground deletion waits for us.
    #[must_use]
    pub fn owner_reference(&self) -> OwnerReference {
        OwnerReference {
            api_version: "apps/v1".to_owned(),
            kind: "ReplicaSet".to_owned(),
            name: self.name.to_string(),
            uid: self.uid.to_string(),
            controller: Some(false),
            block_owner_deletion: Some(false),
        }
    }
}

/// What a namespace's metadata says about its workloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NamespaceFacts {
    /// Its label opts it in.
    pub enabled: bool,
    /// Its annotation opts it out.
    pub opts_out: bool,
    /// Its workloads follow their sources.
    pub on_change: bool,
}

impl NamespaceFacts {
    /// Reads what is used of a namespace.
    #[must_use]
    pub fn new(meta: &ObjectMeta) -> Self {
        let is = |map: &Option<BTreeMap<String, String>>, key: &str, value: &str| {
            map.as_ref().and_then(|map| map.get(key)).is_some_and(|found| found == value)
        };
        Self {
            enabled: is(&meta.labels, meta::PIN, meta::ENABLED),
            opts_out: is(&meta.annotations, meta::PIN, meta::DISABLED),
            on_change: is(&meta.annotations, meta::ROLLOUT, meta::ON_CHANGE),
        }
    }
}

fn own_annotations(meta: &ObjectMeta) -> Box<[(&'static str, Box<str>)]> {
    let value = |key| meta.annotations.as_ref().and_then(|annotations| annotations.get(key));
    meta::OWN.into_iter().filter_map(|key| Some((key, value(key)?.as_str().into()))).collect()
}

/// A selector as the API server takes it in a query; `None` for one that cannot be read.
#[must_use]
pub fn label_selector(selector: LabelSelector) -> Option<String> {
    Some(Selector::try_from(selector).ok()?.to_string())
}

fn text(value: &Value) -> Option<&str> {
    value.as_str().filter(|text| !text.is_empty())
}

/// A number, also where it is written as a text: Rollouts do so with `status.observedGeneration`.
fn number(value: &Value) -> i64 {
    value.as_i64().or_else(|| value.as_str()?.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> DynamicObject {
        serde_json::from_value(value).expect("an object")
    }

    #[test]
    fn reads_a_rollout_with_a_workload_ref() {
        let rollout = WorkloadState::new(
            &ROLLOUT,
            &object(json!({
            "metadata": {"name": "r", "namespace": "n", "uid": "u", "generation": 3,
                         "annotations": {meta::RECORD: "{}", "other": "x"}},
            "spec": {"workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}},
            "status": {"observedGeneration": "3", "workloadObservedGeneration": "7", "currentPodHash": "5d"}})),
        );
        assert_eq!(rollout.workload_ref.as_deref(), Some("d"));
        assert_eq!((rollout.observed_generation, rollout.observed_workload_generation), (3, 7));
        assert_eq!(rollout.annotations.len(), 1);
        assert!(rollout.configmaps.is_empty());
    }

    #[rstest]
    #[case(&ROLLOUT, "Deployment", Some("d"))]
    #[case(&ROLLOUT, "StatefulSet", None)]
    #[case(&DEPLOYMENT, "Deployment", None)]
    fn only_a_rollout_refers_and_only_to_a_deployment(
        #[case] kind: &'static WorkloadKind,
        #[case] referred: &str,
        #[case] expected: Option<&str>,
    ) {
        let workload = object(json!({"metadata": {}, "spec": {"workloadRef": {"kind": referred, "name": "d"}}}));
        assert_eq!(WorkloadState::new(kind, &workload).workload_ref.as_deref(), expected);
    }

    #[rstest]
    #[case::plain(json!({}), NamespaceFacts::default())]
    #[case::enabled(json!({"labels": {meta::PIN: "enabled"}}), NamespaceFacts { enabled: true, ..<_>::default() })]
    #[case::by_annotation(json!({"annotations": {meta::PIN: "enabled"}}), NamespaceFacts::default())]
    #[case::opted_out(
        json!({"labels": {meta::PIN: "enabled"}, "annotations": {meta::PIN: "disabled"}}),
        NamespaceFacts { enabled: true, opts_out: true, on_change: false }
    )]
    #[case::on_change(
        json!({"annotations": {meta::ROLLOUT: "on-change"}}),
        NamespaceFacts { on_change: true, ..<_>::default() }
    )]
    #[case::other_values(
        json!({"labels": {meta::PIN: "yes"}, "annotations": {meta::ROLLOUT: "never"}}),
        NamespaceFacts::default()
    )]
    fn reads_a_namespace(#[case] metadata: Value, #[case] expected: NamespaceFacts) {
        assert_eq!(NamespaceFacts::new(&serde_json::from_value(metadata).expect("metadata")), expected);
    }

    #[test]
    fn the_current_holder_of_a_deployment_has_its_template_and_of_a_rollout_its_hash() {
        let template = |label: Value| {
            json!({"metadata": {"labels": label},
            "spec": {"volumes": [{"configMap": {"name": "a-0123456789"}}]}})
        };
        let holder = Holder::new(&object(json!({
            "metadata": {"name": "h", "labels": {ROLLOUT_HASH_LABEL: "5d"},
                         "ownerReferences": [{"apiVersion": "x", "kind": "y", "name": "d", "uid": "u", "controller": true}]},
            "spec": {"template": template(json!({"a": "b", "pod-template-hash": "5d"}))}})));
        assert!(holder.names("a-0123456789") && holder.configmaps.len() == 1);
        let workload = |kind, label: Value, uid: &str, hash: &str| {
            WorkloadState::new(
                kind,
                &object(json!({
            "metadata": {"uid": uid}, "spec": {"template": template(label)}, "status": {"currentPodHash": hash}})),
            )
        };
        assert!(workload(&DEPLOYMENT, json!({"a": "b"}), "u", "").is_current_holder(&holder));
        assert!(!workload(&DEPLOYMENT, json!({"a": "c"}), "u", "").is_current_holder(&holder));
        assert!(!workload(&DEPLOYMENT, json!({"a": "b"}), "v", "").is_current_holder(&holder));
        assert!(workload(&ROLLOUT, json!({"a": "c"}), "u", "5d").is_current_holder(&holder));
        assert!(!workload(&ROLLOUT, json!({"a": "b"}), "u", "6f").is_current_holder(&holder));
        assert!(!workload(&ROLLOUT, json!({"a": "b"}), "u", "").is_current_holder(&holder));
    }
}
