//! Finds every place of a pod template that names a ConfigMap.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::pin::template::Template;

/// One place that names a ConfigMap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// JSON pointer of the name, from the template's root.
    pub pointer: String,
    /// The ConfigMap's name as it stands there.
    pub name: String,
    /// Whether Kubernetes starts the pod without the ConfigMap.
    pub optional: bool,
    /// Keys that the reference takes from the ConfigMap; empty when it takes all that there are.
    pub keys: BTreeSet<String>,
}

/// A place of a pod template that references a ConfigMap.
#[derive(Debug)]
pub(crate) struct Place {
    /// The fields from the template's root to the object with the `name`; `*` is each item of a list.
    pub(crate) path: &'static [&'static str],
    /// The field that says which keys are used: a list of objects with a `key`, or one key. Without it, all are.
    pub(crate) keys: Option<&'static str>,
    /// Order among the places: by the list, then by its items, then by this, then by the inner list's items.
    pub(crate) order: [usize; 2],
}

impl Place {
    /// The JSON pointer of the name, with these indexes of the lists on the path.
    pub(crate) fn pointer(&self, indexes: [usize; 2]) -> String {
        let mut indexes = indexes.into_iter();
        let mut pointer = String::new();
        for step in self.path {
            pointer.push('/');
            if *step == "*" {
                pointer.push_str(&indexes.next().unwrap_or_default().to_string());
            } else {
                pointer.push_str(step);
            }
        }
        pointer + "/name"
    }
}

/// Every place of a pod template that can reference a ConfigMap
/// (<https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/>), except ephemeral containers, which a
/// template cannot have. Native sidecars are init containers.
pub(crate) const PLACES: [Place; 6] = [
    Place { path: &["spec", "volumes", "*", "configMap"], keys: Some("items"), order: [0, 0] },
    Place {
        path: &["spec", "volumes", "*", "projected", "sources", "*", "configMap"],
        keys: Some("items"),
        order: [0, 1],
    },
    Place { path: &["spec", "initContainers", "*", "envFrom", "*", "configMapRef"], keys: None, order: [1, 0] },
    Place {
        path: &["spec", "initContainers", "*", "env", "*", "valueFrom", "configMapKeyRef"],
        keys: Some("key"),
        order: [1, 1],
    },
    Place { path: &["spec", "containers", "*", "envFrom", "*", "configMapRef"], keys: None, order: [2, 0] },
    Place {
        path: &["spec", "containers", "*", "env", "*", "valueFrom", "configMapKeyRef"],
        keys: Some("key"),
        order: [2, 1],
    },
];

/// Lists the references of a pod template: those of volumes, of init containers and of containers, each in the order of its
/// list.
///
/// Shapes that Kubernetes would reject are ignored, since its own error is better than ours; so are names that are not valid
/// names of ConfigMaps, which also keeps them out of request paths.
#[must_use]
pub fn references(template: &Value) -> Vec<Reference> {
    Template::of(template).into_references()
}

/// The distinct ConfigMap names of a pod template.
#[must_use]
pub fn names(template: &Value) -> BTreeSet<String> {
    Template::of(template).names()
}

/// Longest name of a ConfigMap, in bytes.
pub const MAX_NAME: usize = 253;

/// Whether `name` is a DNS-1123 subdomain, as ConfigMap names are
/// (<https://kubernetes.io/docs/concepts/overview/working-with-objects/names/>).
#[must_use]
pub fn is_configmap_name(name: &str) -> bool {
    let label = |label: &str| {
        let bytes = label.as_bytes();
        let alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        bytes.first().is_some_and(alphanumeric)
            && bytes.last().is_some_and(alphanumeric)
            && bytes.iter().all(|byte| alphanumeric(byte) || *byte == b'-')
    };
    name.len() <= MAX_NAME && name.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn with_container(list: &str, container: &Value) -> Value {
        json!({"spec": {list: [{"name": "first"}, container]}})
    }

    #[rstest]
    #[case::volume(
        json!({"spec": {"volumes": [{"emptyDir": {}}, {"configMap": {"name": "a"}}]}}),
        "/spec/volumes/1/configMap/name"
    )]
    #[case::projected(
        json!({"spec": {"volumes": [{"projected": {"sources": [
            {"serviceAccountToken": {"path": "t"}}, {"configMap": {"name": "a"}}]}}]}}),
        "/spec/volumes/0/projected/sources/1/configMap/name"
    )]
    #[case::env_from(
        with_container("containers", &json!({"envFrom": [{"secretRef": {"name": "s"}},
            {"prefix": "P_", "configMapRef": {"name": "a"}}]})),
        "/spec/containers/1/envFrom/1/configMapRef/name"
    )]
    #[case::env(
        with_container("containers", &json!({"env": [{"name": "A", "value": "1"},
            {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "a", "key": "k"}}}]})),
        "/spec/containers/1/env/1/valueFrom/configMapKeyRef/name"
    )]
    #[case::init_env_from(
        with_container("initContainers", &json!({"envFrom": [{"configMapRef": {"name": "a"}}]})),
        "/spec/initContainers/1/envFrom/0/configMapRef/name"
    )]
    #[case::sidecar_env(
        with_container("initContainers", &json!({"restartPolicy": "Always",
            "env": [{"valueFrom": {"configMapKeyRef": {"name": "a", "key": "k"}}}]})),
        "/spec/initContainers/1/env/0/valueFrom/configMapKeyRef/name"
    )]
    fn finds_each_kind(#[case] template: Value, #[case] pointer: &str) {
        let found = references(&template);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].pointer, pointer);
        assert_eq!(found[0].name, "a");
        assert!(!found[0].optional);
        assert_eq!(template.pointer(pointer), Some(&json!("a")), "the pointer leads to the name");
    }

    #[test]
    fn reads_optional_and_keys() {
        let template = json!({"spec": {
            "volumes": [{"configMap": {"name": "v", "optional": true, "items": [{"key": "x", "path": "y"}]}}],
            "containers": [{"env": [{"valueFrom": {"configMapKeyRef": {"name": "e", "key": "k"}}}],
                            "envFrom": [{"configMapRef": {"name": "f"}}]}]}});
        let found = references(&template);
        assert!(found[0].optional);
        assert_eq!(found[0].keys, BTreeSet::from(["x".to_owned()]));
        let by_name = |name: &str| found.iter().find(|r| r.name == name).cloned().expect("found");
        assert_eq!(by_name("e").keys, BTreeSet::from(["k".to_owned()]));
        assert!(by_name("f").keys.is_empty());
    }

    #[rstest]
    #[case(json!(null))]
    #[case(json!([]))]
    #[case(json!({"spec": {"volumes": {"0": {}}, "containers": "x"}}))]
    #[case(json!({"spec": {"volumes": [null, 1, {"configMap": null}, {"configMap": {"name": 3}}]}}))]
    #[case(json!({"spec": {"volumes": [{"configMap": {"name": "../secrets/x"}}, {"configMap": {"name": ""}}]}}))]
    fn passes_over_odd_shapes(#[case] template: Value) {
        assert_eq!(references(&template), []);
    }

    #[rstest]
    #[case("a", true)]
    #[case("a.b-c.0", true)]
    #[case("", false)]
    #[case("a..b", false)]
    #[case("-a", false)]
    #[case("a-", false)]
    #[case("a-.b", false)]
    #[case("A", false)]
    #[case("a/b", false)]
    #[case(&"a".repeat(253), true)]
    #[case(&"a".repeat(254), false)]
    fn knows_configmap_names(#[case] name: &str, #[case] valid: bool) {
        assert_eq!(is_configmap_name(name), valid);
    }
}
