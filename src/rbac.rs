//! The rights that confpin needs, and no more: what [`crate::cluster`] and the watches do.

use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use kube::api::ObjectMeta;

use crate::pin::kinds::{WORKLOADS, WorkloadKind};

/// The ClusterRole of confpin's ServiceAccount.
#[must_use]
pub fn cluster_role() -> ClusterRole {
    let workloads = |kind: &&WorkloadKind| {
        // "patch" sets the refresh annotation.
        rule(kind.group, &[kind.plural], &["get", "list", "watch", "patch"])
    };
    let rules = [
        // Sources are read; snapshots are made, claimed, owned and, when nothing names them, deleted.
        rule("", &["configmaps"], &["get", "list", "watch", "create", "patch", "delete"]),
        rule("", &["namespaces"], &["get", "list", "watch"]),
        // Looked at before an orphan is deleted.
        rule("", &["pods"], &["list"]),
        rule("apps", &["replicasets"], &["list", "watch"]),
        rule("events.k8s.io", &["events"], &["create", "patch"]),
    ];
    ClusterRole {
        metadata: ObjectMeta { name: Some("confpin".to_owned()), ..ObjectMeta::default() },
        rules: Some(rules.into_iter().chain(WORKLOADS.iter().map(workloads)).collect()),
        aggregation_rule: None,
    }
}

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> PolicyRule {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(owned(resources)),
        verbs: owned(verbs),
        ..PolicyRule::default()
    }
}
