//! Compares pod templates the way the controllers do.

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::pin::kinds::{DEPLOYMENT_HASH_LABEL, ROLLOUT_HASH_LABEL};

/// A pod template reduced to what two equal ones share, as a digest: small enough to keep one for each ReplicaSet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TemplateDigest([u8; 32]);

/// The digest of `template`: without the hash labels that a controller adds to its ReplicaSets' templates, and with
/// `null` the same as absent (`creationTimestamp: null` comes and goes with the client).
#[must_use]
pub fn digest(template: &Value) -> TemplateDigest {
    let mut template = template.clone();
    if let Some(labels) = template.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        labels.remove(DEPLOYMENT_HASH_LABEL);
        labels.remove(ROLLOUT_HASH_LABEL);
    }
    drop_empty(&mut template);
    // serde_json's maps are sorted (the feature preserve_order is off, a test says so), so this text is canonical.
    TemplateDigest(Sha256::digest(template.to_string()).into())
}

/// Drops nulls, and maps that are empty without them: `labels: {}` is no label.
fn drop_empty(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.values_mut().for_each(drop_empty);
            map.retain(|key, value| {
                !(value.is_null()
                    || ((key == "labels" || key == "metadata") && *value == Value::Object(<_>::default())))
            });
        }
        Value::Array(list) => list.iter_mut().for_each(drop_empty),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn equal(one: &Value, other: &Value) -> bool {
        digest(one) == digest(other)
    }

    #[test]
    fn a_hash_label_and_a_null_make_no_difference() {
        let stored = json!({"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "a"}]}});
        for label in [DEPLOYMENT_HASH_LABEL, ROLLOUT_HASH_LABEL] {
            let held = json!({"metadata": {"creationTimestamp": null, "labels": {"app": "x", label: "5d"}},
                              "spec": {"containers": [{"name": "a"}]}});
            assert!(equal(&stored, &held));
        }
        assert!(equal(&json!({"spec": {"a": [{"b": null}]}}), &json!({"spec": {"a": [{}]}})));
        assert!(equal(
            &json!({"spec": {}}),
            &json!({"metadata": {"labels": {DEPLOYMENT_HASH_LABEL: "1"}}, "spec": {}})
        ));
    }

    #[test]
    fn anything_else_does() {
        let stored = json!({"metadata": {"labels": {"app": "x"}}, "spec": {"volumes": [{"emptyDir": {}}]}});
        for other in [
            json!({"metadata": {"labels": {"app": "y"}}, "spec": {"volumes": [{"emptyDir": {}}]}}),
            json!({"metadata": {"labels": {"app": "x"}}, "spec": {"volumes": [{}]}}),
            json!({"metadata": {"labels": {"app": "x"}}, "spec": {"volumes": []}}),
        ] {
            assert!(!equal(&stored, &other));
        }
    }

    #[test]
    fn the_order_of_fields_makes_no_difference() {
        let parse = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
        assert!(equal(&parse(r#"{"a":1,"b":{"c":2,"d":3}}"#), &parse(r#"{"b":{"d":3,"c":2},"a":1}"#)));
    }
}
