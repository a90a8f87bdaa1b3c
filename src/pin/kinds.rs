//! The table of workload kinds. A new kind is one row here; the webhook configuration, the watches and the
//! roles are made from it.

use serde_json::Value;

/// One kind of object that has a pod template and that admission pins.
#[derive(Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkloadKind {
    /// API group, as in `apps`.
    pub group: &'static str,
    /// API version, as in `v1`.
    pub version: &'static str,
    /// Kind, as in `Deployment`.
    pub kind: &'static str,
    /// Resource, as in `deployments`.
    pub plural: &'static str,
    /// The short name that `kubectl` takes, as in `deploy`.
    pub short_name: &'static str,
    /// Where the pod template is: the field names from the object's root.
    pub template: &'static [&'static str],
    /// How the workload's controller marks the ReplicaSet of the current template.
    pub current_holder: CurrentHolder,
}

/// How to tell which ReplicaSet belongs to a workload's current template.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CurrentHolder {
    /// Its template equals the workload's, less the hash label: both have been defaulted by the API server.
    EqualTemplate,
    /// Its hash label equals the workload's `status.currentPodHash`: a custom resource's template is stored without
    /// the defaults that its ReplicaSet's has, so the two cannot be compared.
    PodHash,
}

/// Label that the Deployment controller adds to a ReplicaSet's template.
pub const DEPLOYMENT_HASH_LABEL: &str = "pod-template-hash";
/// Label that the Rollouts controller adds to a ReplicaSet's template.
pub const ROLLOUT_HASH_LABEL: &str = "rollouts-pod-template-hash";

/// Deployments of `apps/v1`.
pub static DEPLOYMENT: WorkloadKind = WorkloadKind {
    group: "apps",
    version: "v1",
    kind: "Deployment",
    plural: "deployments",
    short_name: "deploy",
    template: &["spec", "template"],
    current_holder: CurrentHolder::EqualTemplate,
};

/// Rollouts of Argo Rollouts. One with a `workloadRef` has no template of its own: the Deployment is pinned and the
/// ReplicaSets that the Rollout makes from it are holders like any other.
pub static ROLLOUT: WorkloadKind = WorkloadKind {
    group: "argoproj.io",
    version: "v1alpha1",
    kind: "Rollout",
    plural: "rollouts",
    short_name: "ro",
    template: &["spec", "template"],
    current_holder: CurrentHolder::PodHash,
};

/// All kinds that admission pins.
pub static WORKLOADS: [&WorkloadKind; 2] = [&DEPLOYMENT, &ROLLOUT];

/// The row for a group and kind, if it is one that confpin pins.
#[must_use]
pub fn find(group: &str, kind: &str) -> Option<&'static WorkloadKind> {
    WORKLOADS.into_iter().find(|row| row.group == group && row.kind == kind)
}

impl WorkloadKind {
    /// `apps/v1` and the like.
    #[must_use]
    pub fn api_version(&self) -> String {
        format!("{}/{}", self.group, self.version)
    }

    /// `Deployment.apps`: the kind's name without its version, as `kubectl` takes it.
    #[must_use]
    pub fn qualified(&self) -> String {
        format!("{}.{}", self.kind, self.group)
    }

    /// The pod template of an object; `null` where there is none.
    #[must_use]
    pub fn template_of<'a>(&self, object: &'a Value) -> &'a Value {
        self.template.iter().fold(object, |value, field| &value[*field])
    }

    /// JSON pointer of the pod template from the object's root, `/spec/template`.
    #[must_use]
    pub fn template_pointer(&self) -> String {
        self.template.iter().flat_map(|field| ["/", field]).collect()
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("apps", "Deployment", Some(&DEPLOYMENT))]
    #[case("argoproj.io", "Rollout", Some(&ROLLOUT))]
    #[case("apps", "StatefulSet", None)]
    #[case("argoproj.io", "Deployment", None)]
    fn finds_a_row_by_group_and_kind(
        #[case] group: &str,
        #[case] kind: &str,
        #[case] expected: Option<&'static WorkloadKind>,
    ) {
        assert_eq!(find(group, kind), expected);
    }

    #[test]
    fn a_row_tells_its_names() {
        assert_eq!(DEPLOYMENT.api_version(), "apps/v1");
        assert_eq!(ROLLOUT.qualified(), "Rollout.argoproj.io");
        assert_eq!(DEPLOYMENT.template_pointer(), "/spec/template");
    }
}
