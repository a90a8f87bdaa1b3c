//! Finds every place of a pod template that names a ConfigMap.

use std::collections::BTreeSet;

use serde_json::Value;

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

/// Lists the references of a pod template, in the order of the template.
///
/// Covers `volumes[].configMap`, `volumes[].projected.sources[].configMap`, and `envFrom[].configMapRef` and
/// `env[].valueFrom.configMapKeyRef` of containers and init containers (so native sidecars too). Shapes that
/// Kubernetes would refuse are passed over, it will say so better than we can; so are names that are no valid
/// ConfigMap names, which also keeps them out of request paths.
#[must_use]
pub fn references(template: &Value) -> Vec<Reference> {
    let mut found = Vec::new();
    let spec = &template["spec"];
    for (i, volume) in items(&spec["volumes"]) {
        push(&mut found, format!("/spec/volumes/{i}/configMap/name"), &volume["configMap"], "items");
        for (j, source) in items(&volume["projected"]["sources"]) {
            push(
                &mut found,
                format!("/spec/volumes/{i}/projected/sources/{j}/configMap/name"),
                &source["configMap"],
                "items",
            );
        }
    }
    for list in ["initContainers", "containers"] {
        for (i, container) in items(&spec[list]) {
            for (j, from) in items(&container["envFrom"]) {
                push(&mut found, format!("/spec/{list}/{i}/envFrom/{j}/configMapRef/name"), &from["configMapRef"], "");
            }
            for (j, variable) in items(&container["env"]) {
                push(
                    &mut found,
                    format!("/spec/{list}/{i}/env/{j}/valueFrom/configMapKeyRef/name"),
                    &variable["valueFrom"]["configMapKeyRef"],
                    "key",
                );
            }
        }
    }
    found
}

/// The distinct ConfigMap names of a pod template.
#[must_use]
pub fn names(template: &Value) -> BTreeSet<String> {
    references(template).into_iter().map(|reference| reference.name).collect()
}

fn items(list: &Value) -> impl Iterator<Item = (usize, &Value)> {
    list.as_array().into_iter().flatten().enumerate()
}

/// `keys` names the field that says which keys are taken: a list of objects with a `key`, or one string.
fn push(found: &mut Vec<Reference>, pointer: String, selector: &Value, keys: &str) {
    let Some(name) = selector["name"].as_str().filter(|name| is_configmap_name(name)) else { return };
    let keys = match selector.get(keys) {
        Some(Value::String(key)) => BTreeSet::from([key.clone()]),
        Some(Value::Array(list)) => list.iter().filter_map(|item| item["key"].as_str()).map(str::to_owned).collect(),
        _ => BTreeSet::new(),
    };
    found.push(Reference { pointer, name: name.to_owned(), optional: selector["optional"] == true, keys });
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
