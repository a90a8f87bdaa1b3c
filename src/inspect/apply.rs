//! What `kubectl apply` would make of a stored pod template: the manifest's fields over the stored ones.

use serde_json::{Map, Value};

use crate::pin::kinds::WorkloadKind;

/// Where `kubectl apply` keeps what it applied last.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Lists whose items are merged one by one, and the field that tells which is which
/// (`patchMergeKey` of Kubernetes' types).
const MERGED: [(&str, &str); 9] = [
    ("containers", "name"),
    ("initContainers", "name"),
    ("volumes", "name"),
    ("env", "name"),
    ("imagePullSecrets", "name"),
    ("volumeMounts", "mountPath"),
    ("volumeDevices", "devicePath"),
    ("ports", "containerPort"),
    ("hostAliases", "ip"),
];

/// Fields whose values are quantities, which the API server writes in its own way.
const QUANTITIES: [&str; 5] = ["requests", "limits", "sizeLimit", "divisor", "storage"];

/// The stored value with the manifest's fields. Fields that the last apply had and the manifest no longer has are removed. A custom
/// resource's lists are replaced as a whole, since nothing tells how to merge them.
#[must_use]
pub fn applied(kind: &WorkloadKind, stored: &Value, wanted: &Value, last: &Value) -> Value {
    merge("", stored, wanted, last, kind.group == "apps")
}

fn merge(field: &str, stored: &Value, wanted: &Value, last: &Value, typed: bool) -> Value {
    match (stored, wanted) {
        (_, Value::Null) => Value::Null,
        (Value::Object(stored), Value::Object(wanted)) => {
            let mut merged: Map<String, Value> = stored.clone();
            for key in last.as_object().into_iter().flat_map(Map::keys).filter(|key| !wanted.contains_key(*key)) {
                merged.remove(key);
            }
            for (key, value) in wanted {
                // A quantity's own field is its parent's: `limits: {cpu: …}`.
                let name = if QUANTITIES.contains(&field) { field } else { key };
                let stored = stored.get(key).unwrap_or(&Value::Null);
                merged.insert(key.clone(), merge(name, stored, value, &last[key], typed));
            }
            Value::Object(merged)
        }
        (Value::Array(stored), Value::Array(wanted)) if typed => merge_lists(field, stored, wanted, last),
        _ if QUANTITIES.contains(&field) && is_same_quantity(stored, wanted) => stored.clone(),
        _ => wanted.clone(),
    }
}

fn merge_lists(field: &str, stored: &[Value], wanted: &[Value], last: &Value) -> Value {
    let none = Value::Null;
    let Some((_, key)) = MERGED.iter().find(|(list, _)| *list == field) else {
        // Replaced as a whole; defaults of items that stay are the same again.
        let same_length = stored.len() == wanted.len();
        let item = |(index, wanted)| match stored.get(index).filter(|_| same_length) {
            Some(stored) => merge("", stored, wanted, &last[index], true),
            None => wanted.clone(),
        };
        return wanted.iter().enumerate().map(item).collect();
    };
    let find = |list: &[Value], item: &Value| list.iter().position(|other| other[*key] == item[*key]);
    let last_items = last.as_array().map(Vec::as_slice).unwrap_or_default();
    let merged = wanted.iter().map(|item| {
        let before = find(last_items, item).and_then(|index| last_items.get(index)).unwrap_or(&none);
        match find(stored, item).and_then(|index| stored.get(index)) {
            Some(stored) => merge("", stored, item, before, true),
            None => item.clone(),
        }
    });
    // Items of other clients stay; those of the last apply that the manifest no longer has do not.
    let others = stored.iter().filter(|item| find(wanted, item).is_none() && find(last_items, item).is_none());
    merged.chain(others.cloned()).collect()
}

/// `500m` and `0.5`, `1` and `"1"`.
fn is_same_quantity(one: &Value, other: &Value) -> bool {
    let number = |value: &Value| quantity(&value.as_str().map_or_else(|| value.to_string(), str::to_owned));
    matches!((number(one), number(other)), (Some(one), Some(other)) if one == other)
}

/// A quantity's value in thousandths
/// (<https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/>); `None` for one that is too exact
/// or too large to be compared.
fn quantity(text: &str) -> Option<i128> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '-').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let factor: i128 = match unit {
        "m" => 1,
        "" => 1000,
        "k" => 1000 * 1000,
        "M" => 1000 * 1000_i128.pow(2),
        "G" => 1000 * 1000_i128.pow(3),
        "T" => 1000 * 1000_i128.pow(4),
        "Ki" => 1000 << 10,
        "Mi" => 1000 << 20,
        "Gi" => 1000 << 30,
        "Ti" => 1000 << 40,
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let scale = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let value = digits.checked_mul(factor)?;
    (value % scale == 0).then_some(value / scale)
}

/// The fields in which two values differ, as people write them: `spec.containers[main].image`. That a map is empty, or a
/// field `null`, is no difference.
#[must_use]
pub fn differing_fields(one: &Value, other: &Value) -> Vec<String> {
    let mut found = Vec::new();
    compare(&mut found, String::new(), one, other);
    found
}

fn compare(found: &mut Vec<String>, path: String, one: &Value, other: &Value) {
    match (one, other) {
        (Value::Object(a), Value::Object(b)) => {
            let more = b.keys().filter(|key| !a.contains_key(*key));
            for key in a.keys().chain(more) {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                compare(found, path, &one[key], &other[key]);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (one, other)) in a.iter().zip(b).enumerate() {
                let name = other["name"].as_str().map_or_else(|| index.to_string(), str::to_owned);
                compare(found, format!("{path}[{name}]"), one, other);
            }
        }
        _ if one == other || is_nothing(one) && is_nothing(other) => {}
        _ => found.push(path),
    }
}

fn is_nothing(value: &Value) -> bool {
    value.is_null() || value.as_object().is_some_and(Map::is_empty)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::pin::kinds::{DEPLOYMENT, ROLLOUT};

    /// As the API server stores a manifest: with defaults.
    fn stored() -> Value {
        json!({
            "metadata": {"creationTimestamp": null, "labels": {"app": "web"}},
            "spec": {
                "containers": [
                    {
                        "name": "main", "image": "web:1", "imagePullPolicy": "IfNotPresent",
                        "resources": {"limits": {"cpu": "500m", "memory": "1Gi"}},
                        "envFrom": [{"configMapRef": {"name": "app-1"}}],
                    },
                    {"name": "injected", "image": "proxy"},
                ],
                "dnsPolicy": "ClusterFirst",
                "volumes": [{"name": "v", "configMap": {"name": "app-1", "defaultMode": 420}}],
            },
        })
    }

    fn manifest() -> Value {
        json!({
            "metadata": {"labels": {"app": "web"}},
            "spec": {
                "containers": [{
                    "name": "main", "image": "web:1",
                    "resources": {"limits": {"cpu": 0.5, "memory": "1024Mi"}},
                    "envFrom": [{"configMapRef": {"name": "app-1"}}],
                }],
                "volumes": [{"name": "v", "configMap": {"name": "app-1"}}],
            },
        })
    }

    fn changes(manifest: &Value, last: &Value) -> Vec<String> {
        differing_fields(&stored(), &applied(&DEPLOYMENT, &stored(), manifest, last))
    }

    #[test]
    fn an_unchanged_manifest_changes_nothing() {
        assert_eq!(changes(&manifest(), &Value::Null), [""; 0]);
        assert_eq!(changes(&manifest(), &manifest()), [""; 0]);
    }

    #[test]
    fn changes_are_told_by_field() {
        let mut new = manifest();
        new["spec"]["containers"][0]["image"] = "web:2".into();
        new["spec"]["volumes"][0]["configMap"]["name"] = "app".into();
        assert_eq!(changes(&new, &manifest()), ["spec.containers[main].image", "spec.volumes[v].configMap.name"]);
    }

    #[test]
    fn what_the_manifest_has_no_more_goes() {
        let mut last = manifest();
        last["metadata"]["labels"]["old"] = "yes".into();
        last["spec"]["dnsPolicy"] = "ClusterFirst".into();
        assert_eq!(changes(&manifest(), &last), ["spec.dnsPolicy"]);
        let mut with_injected = manifest();
        let injected = json!({"name": "injected", "image": "proxy"});
        with_injected["spec"]["containers"].as_array_mut().expect("a list").push(injected);
        assert_eq!(changes(&manifest(), &with_injected), ["spec.containers"]);
    }

    #[test]
    fn a_custom_resources_lists_are_replaced() {
        let applied = applied(&ROLLOUT, &stored(), &manifest(), &Value::Null);
        assert_eq!(applied["spec"]["containers"], manifest()["spec"]["containers"]);
    }

    #[test]
    fn quantities_are_compared_by_value() {
        for (one, other, same) in [
            (json!("500m"), json!(0.5), true),
            (json!("1"), json!(1), true),
            (json!("1Gi"), json!("1024Mi"), true),
            (json!("1.5Gi"), json!("1536Mi"), true),
            (json!("1G"), json!("1Gi"), false),
            (json!("x"), json!("x1"), false),
        ] {
            assert_eq!(is_same_quantity(&one, &other), same, "{one} {other}");
        }
    }
}
