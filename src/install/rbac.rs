//! The rights that confpin needs, and no others: what [`crate::cluster`] and the watches do. The tests take the audit log
//! of the whole suite for the measure: nothing refused, nothing granted in vain.

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject};
use kube::api::ObjectMeta;

use super::{CA_SECRET, LEASE, NAME};
use crate::pin::kinds::{WORKLOADS, WorkloadKind};
use crate::pin::webhook_configuration;

/// The name of the roles that only self-managed certificates need.
const CERTIFICATES: &str = "confpin-certificates";
/// The name of the role in a namespace that is served without a ClusterRole.
const SERVED: &str = "confpin-served";

/// What every replica does, in all namespaces.
#[must_use]
pub fn cluster_role() -> ClusterRole {
    let rules = pinning(&["get", "list", "watch"]);
    ClusterRole { metadata: named(NAME, None), rules: Some(rules), aggregation_rule: None }
}

/// What every replica does in a namespace that it serves, where it has no ClusterRole (`--watch-namespace`). In
/// whichever namespace the role is put.
#[must_use]
pub fn served_role() -> Role {
    // A list or a watch of namespaces is never one of a namespace, so that no Role can grant it.
    Role { metadata: named(SERVED, None), rules: Some(pinning(&["get"])) }
}

fn pinning(namespaces: &[&str]) -> Vec<PolicyRule> {
    let workloads = |kind: &&WorkloadKind| {
        // "patch" sets the refresh annotation.
        rule(kind.group, &[kind.plural], &["get", "list", "watch", "patch"])
    };
    let rules = [
        // Sources are read; snapshots are made, claimed, owned and, when nothing names them, deleted.
        rule("", &["configmaps"], &["get", "list", "watch", "create", "patch", "delete"]),
        rule("", &["namespaces"], namespaces),
        // Looked at before an orphan is deleted.
        rule("", &["pods"], &["list"]),
        rule("apps", &["replicasets"], &["list", "watch"]),
        events(),
    ];
    rules.into_iter().chain(WORKLOADS.iter().map(workloads)).collect()
}

/// What every replica does in the installation's own namespace: the Lease.
#[must_use]
pub fn role(namespace: &str) -> Role {
    let rules = own_object("coordination.k8s.io", "leases", LEASE, &["get", "update"]);
    Role { metadata: named(NAME, Some(namespace)), rules: Some(rules) }
}

/// What self-managed certificates need in all namespaces: the CA in the webhook configuration.
#[must_use]
pub fn certificates_cluster_role() -> ClusterRole {
    let configuration = PolicyRule {
        resource_names: Some(vec![webhook_configuration::NAME.to_owned()]),
        ..rule(
            "admissionregistration.k8s.io",
            &["mutatingwebhookconfigurations"],
            // A list and a watch of one name: by a field selector.
            &["list", "watch", "patch"],
        )
    };
    ClusterRole { metadata: named(CERTIFICATES, None), rules: Some(vec![configuration]), aggregation_rule: None }
}

/// What self-managed certificates need in the installation's own namespace: the Secret of the CA, and Events about it.
#[must_use]
pub fn certificates_role(namespace: &str) -> Role {
    let mut rules = own_object("", "secrets", CA_SECRET, &["list", "watch", "update"]);
    rules.push(events());
    Role { metadata: named(CERTIFICATES, Some(namespace)), rules: Some(rules) }
}

/// Gives a ClusterRole to confpin's ServiceAccount in `namespace`.
#[must_use]
pub fn bind_cluster_role(role: &ClusterRole, namespace: &str) -> ClusterRoleBinding {
    let name = role.metadata.name.as_deref().unwrap_or_default();
    ClusterRoleBinding {
        metadata: named(name, None),
        role_ref: role_ref("ClusterRole", name),
        subjects: Some(vec![account(namespace)]),
    }
}

/// Gives a Role, in its namespace, to confpin's ServiceAccount in `namespace`.
#[must_use]
pub fn bind_role(role: &Role, namespace: &str) -> RoleBinding {
    let name = role.metadata.name.as_deref().unwrap_or_default();
    RoleBinding {
        metadata: named(name, role.metadata.namespace.as_deref()),
        role_ref: role_ref("Role", name),
        subjects: Some(vec![account(namespace)]),
    }
}

fn events() -> PolicyRule {
    rule("events.k8s.io", &["events"], &["create", "patch"])
}

/// Rights on one object by its name, and the one to create it: RBAC cannot bind that to a name, the policy can.
fn own_object(group: &str, resource: &str, name: &str, verbs: &[&str]) -> Vec<PolicyRule> {
    let on_it = PolicyRule { resource_names: Some(vec![name.to_owned()]), ..rule(group, &[resource], verbs) };
    vec![rule(group, &[resource], &["create"]), on_it]
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

fn named(name: &str, namespace: Option<&str>) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), namespace: namespace.map(str::to_owned), ..ObjectMeta::default() }
}

fn role_ref(kind: &str, name: &str) -> RoleRef {
    RoleRef { api_group: Some("rbac.authorization.k8s.io".to_owned()), kind: kind.to_owned(), name: name.to_owned() }
}

fn account(namespace: &str) -> Subject {
    Subject {
        kind: "ServiceAccount".to_owned(),
        name: NAME.to_owned(),
        namespace: Some(namespace.to_owned()),
        api_group: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_served_namespace_grants_what_a_role_can_grant_of_the_cluster_role() {
        let split = |rules: Option<Vec<PolicyRule>>| -> (Vec<_>, Vec<_>) {
            rules
                .unwrap_or_default()
                .into_iter()
                .partition(|rule| rule.resources == Some(vec!["namespaces".to_owned()]))
        };
        let (everywhere, served) = (split(cluster_role().rules), split(served_role().rules));
        assert_eq!(everywhere.1, served.1);
        assert_eq!(served.0.iter().flat_map(|rule| &rule.verbs).collect::<Vec<_>>(), ["get"]);
    }

    #[test]
    fn a_role_is_bound_where_it_is_to_the_account_where_that_is() {
        let binding = bind_role(&role("confpin-system"), "confpin-system");
        assert_eq!(binding.metadata.namespace.as_deref(), Some("confpin-system"));
        let binding = bind_role(&served_role(), "confpin-system");
        assert_eq!(binding.metadata.namespace, None);
        assert_eq!(binding.subjects.unwrap_or_default(), [account("confpin-system")]);
    }
}
