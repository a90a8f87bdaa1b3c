//! The JSON patch of a decision (RFC 6902).

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation, RemoveOperation, ReplaceOperation, TestOperation};
use serde_json::{Value, json};

use crate::pin::decision::Rename;
use crate::pin::kinds::WorkloadKind;
use crate::pin::meta;
use crate::pin::request::Workload;

/// The patch that makes `renames` in `workload` and writes `record`: it replaces single names and adds one
/// annotation, and rewrites no list, so that other webhooks' patches and field owners are not disturbed.
#[must_use]
pub fn patch(kind: &WorkloadKind, workload: &Workload, renames: &[Rename], record: Option<&str>) -> Patch {
    let template = kind.template_pointer();
    let renames = renames.iter().map(|rename| {
        PatchOperation::Replace(ReplaceOperation {
            path: pointer(&format!("{template}{}", rename.pointer)),
            value: Value::String(rename.to.clone()),
        })
    });
    let record = record.map(|record| {
        // "add" replaces a member that is there, but needs the map around it.
        let (path, value) = match &workload.metadata.annotations {
            Some(_) => (annotation_pointer(meta::RECORD), json!(record)),
            None => ("/metadata/annotations".to_owned(), json!({ meta::RECORD: record })),
        };
        PatchOperation::Add(AddOperation { path: pointer(&path), value })
    });
    Patch(renames.chain(record).collect())
}

/// The patch that makes `renames` in `workload`, opts it out and removes what confpin has noted on it. It fails if the
/// names are others by then, or the workload is another one.
#[must_use]
pub fn release(kind: &WorkloadKind, workload: &Workload, renames: &[Rename]) -> Patch {
    let test = |path: &str, value: Value| PatchOperation::Test(TestOperation { path: pointer(path), value });
    let template = kind.template_pointer();
    let mut operations = vec![test("/metadata/uid", json!(workload.metadata.uid))];
    operations.extend(renames.iter().map(|rename| test(&format!("{template}{}", rename.pointer), json!(rename.from))));
    operations.extend(patch(kind, workload, renames, None).0);
    let (path, value) = match &workload.metadata.annotations {
        Some(_) => (annotation_pointer(meta::PIN), json!(meta::DISABLED)),
        None => ("/metadata/annotations".to_owned(), json!({ meta::PIN: meta::DISABLED })),
    };
    operations.push(PatchOperation::Add(AddOperation { path: pointer(&path), value }));
    let notes = [meta::RECORD, meta::REFRESH].into_iter().filter(|key| workload.annotation(key).is_some());
    operations
        .extend(notes.map(|key| PatchOperation::Remove(RemoveOperation { path: pointer(&annotation_pointer(key)) })));
    Patch(operations)
}

/// The JSON pointer of an annotation, from the object's root.
fn annotation_pointer(key: &str) -> String {
    format!("/metadata/annotations/{}", key.replace('~', "~0").replace('/', "~1"))
}

/// Every pointer here is made from field names, indexes and an escaped key, so it parses; the root, where a patch
/// would be refused, stands in for the impossible.
fn pointer(text: &str) -> PointerBuf {
    PointerBuf::parse(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pin::kinds::DEPLOYMENT;

    fn apply(object: &Value, record: Option<&str>) -> Value {
        let workload = Workload::of(&DEPLOYMENT, object).expect("a workload");
        let rename = Rename { pointer: "/spec/volumes/0/configMap/name".into(), from: "a".into(), to: "a-1".into() };
        let mut patched = object.clone();
        json_patch::patch(&mut patched, &patch(&DEPLOYMENT, &workload, &[rename], record)).expect("the patch applies");
        patched
    }

    #[test]
    fn releasing_opts_out_and_fails_where_the_workload_has_changed() {
        let object = |name: &str, uid: &str| {
            json!({
                "metadata": {"uid": uid, "annotations": {"x": "y", meta::RECORD: "r"}},
                "spec": {"template": {"spec": {"volumes": [{"configMap": {"name": name}}]}}},
            })
        };
        let workload = Workload::of(&DEPLOYMENT, &object("a-1", "u")).expect("a workload");
        let rename = Rename { pointer: "/spec/volumes/0/configMap/name".into(), from: "a-1".into(), to: "a".into() };
        let patch = release(&DEPLOYMENT, &workload, &[rename]);
        let mut patched = object("a-1", "u");
        json_patch::patch(&mut patched, &patch).expect("the patch applies");
        let mut expected = object("a", "u");
        expected["metadata"]["annotations"] = json!({"x": "y", meta::PIN: meta::DISABLED});
        assert_eq!(patched, expected);
        for mut changed in [object("a-2", "u"), object("a-1", "another")] {
            assert!(json_patch::patch(&mut changed, &patch).is_err());
        }
    }

    #[test]
    fn replaces_the_name_and_adds_the_record() {
        let spec =
            |name: &str| json!({"template": {"spec": {"volumes": [{"configMap": {"name": name, "optional": true}}]}}});
        for (before, after) in [
            (json!({}), json!({"annotations": {meta::RECORD: "r"}})),
            (json!({"annotations": null}), json!({"annotations": {meta::RECORD: "r"}})),
            (json!({"annotations": {"x": "y"}}), json!({"annotations": {"x": "y", meta::RECORD: "r"}})),
            (json!({"annotations": {meta::RECORD: "q"}}), json!({"annotations": {meta::RECORD: "r"}})),
        ] {
            let patched = apply(&json!({"metadata": before, "spec": spec("a")}), Some("r"));
            assert_eq!(patched, json!({"metadata": after, "spec": spec("a-1")}));
        }
        assert_eq!(
            apply(&json!({"metadata": {}, "spec": spec("a")}), None),
            json!({"metadata": {}, "spec": spec("a-1")})
        );
    }
}
