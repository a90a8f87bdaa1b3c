//! The ConfigMaps that a pod template names, found by another way than confpin's.

use std::collections::BTreeSet;

use serde_json::Value;

/// The fields whose value names a ConfigMap, wherever they stand in a pod template.
const REFERENCES: [&str; 3] = ["configMap", "configMapRef", "configMapKeyRef"];

/// The names in a template.
pub fn names(template: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut template = template.clone();
    visit(&mut template, &mut |name| {
        found.extend(name.as_str().map(str::to_owned));
    });
    found
}

/// Calls `each` with every name that stands in a template, to be read or changed.
pub fn visit(value: &mut Value, each: &mut dyn FnMut(&mut Value)) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                if REFERENCES.contains(&key.as_str()) && value["name"].is_string() {
                    each(&mut value["name"]);
                }
                visit(value, each);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| visit(item, each)),
        _ => {}
    }
}
