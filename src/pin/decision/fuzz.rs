//! The walk and the decision against templates of every shape, also of none that Kubernetes would accept.
//!
//! Bounded under `cargo test`. For a long run: `BOLERO_RANDOM_ITERATIONS=10000000 cargo test --release --lib fuzz`.

use bolero::{TypeGenerator, check};
use serde_json::{Value, json};

use super::tests::Namespace;
use super::*;
use crate::pin::references::{is_configmap_name, names, references};
use crate::pin::template::Template;

/// A piece of JSON, biased towards what stands in pod templates.
#[derive(Debug, Clone, TypeGenerator)]
enum Piece {
    Null,
    Flag(bool),
    Number(i16),
    Name(u8),
    List(#[generator(bolero::produce::<Vec<Piece>>().with().len(0usize..4))] Vec<Piece>),
    Fields(#[generator(bolero::produce::<Vec<(u8, Piece)>>().with().len(0usize..5))] Vec<(u8, Piece)>),
    Volume(u8),
    Projected(u8, u8),
    Container(u8, u8, bool),
}

const FIELDS: [&str; 16] = [
    "spec",
    "volumes",
    "containers",
    "initContainers",
    "configMap",
    "name",
    "projected",
    "sources",
    "env",
    "envFrom",
    "configMapRef",
    "configMapKeyRef",
    "valueFrom",
    "optional",
    "items",
    "key",
];

const NAMES: [&str; 8] =
    ["app", "other", "none", "kube-root-ca.crt", "app-0123456789", "..", "A", "other-0123456789abcdef"];

fn pick<T: Copy>(from: &[T], index: u8) -> T {
    from[usize::from(index) % from.len()]
}

impl Piece {
    fn value(&self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Flag(flag) => json!(flag),
            Self::Number(number) => json!(number),
            Self::Name(name) => json!(pick(&NAMES, *name)),
            Self::List(list) => list.iter().map(Self::value).collect(),
            Self::Fields(fields) => Value::Object(
                fields.iter().map(|(key, piece)| (pick(&FIELDS, *key).to_owned(), piece.value())).collect(),
            ),
            Self::Volume(name) => json!({"configMap": {"name": pick(&NAMES, *name)}}),
            Self::Projected(one, two) => json!({"projected": {"sources": [
                {"configMap": {"name": pick(&NAMES, *one)}}, {"configMap": {"name": pick(&NAMES, *two), "optional": true}}]}}),
            Self::Container(one, two, optional) => json!({
                "envFrom": [{"configMapRef": {"name": pick(&NAMES, *one), "optional": optional}}],
                "env": [{"valueFrom": {"configMapKeyRef": {"name": pick(&NAMES, *two), "key": "key"}}}]}),
        }
    }
}

/// A workload, and what happens to it.
#[derive(Debug, Clone, TypeGenerator)]
struct Case {
    volumes: Piece,
    containers: Piece,
    init_containers: Piece,
    whole: Option<Piece>,
    opts_out: bool,
    rollback: bool,
    edited: bool,
}

impl Case {
    fn workload(&self, image: &str) -> Value {
        let template = match &self.whole {
            Some(whole) => whole.value(),
            None => json!({"spec": {"image": image, "volumes": self.volumes.value(),
                "containers": self.containers.value(), "initContainers": self.init_containers.value()}}),
        };
        let mut annotations = serde_json::Map::new();
        if self.opts_out {
            annotations.insert(meta::PIN.to_owned(), json!(meta::DISABLED));
        }
        json!({"metadata": {"name": "web", "annotations": annotations}, "spec": {"template": template}})
    }
}

fn template(workload: &Value) -> &Value {
    &workload["spec"]["template"]
}

#[test]
fn fuzz_the_reference_walk() {
    check!().with_type::<Piece>().for_each(|piece| {
        let template = piece.value();
        for reference in references(&template) {
            assert_eq!(template.pointer(&reference.pointer), Some(&json!(reference.name)));
        }
    });
}

/// The walk in the plain way, over the whole tree.
fn references_of_tree(template: &Value) -> Vec<Reference> {
    fn items(list: &Value) -> impl Iterator<Item = (usize, &Value)> {
        list.as_array().into_iter().flatten().enumerate()
    }
    fn push(found: &mut Vec<Reference>, pointer: String, selector: &Value, keys: &str) {
        let Some(name) = selector["name"].as_str().filter(|name| is_configmap_name(name)) else { return };
        let keys = match selector.get(keys) {
            Some(Value::String(key)) => vec![key.clone()],
            Some(Value::Array(list)) => {
                list.iter().filter_map(|item| item["key"].as_str()).map(str::to_owned).collect()
            }
            _ => Vec::new(),
        };
        let (name, keys) = (name.to_owned(), keys.into_iter().collect());
        found.push(Reference { pointer, name, optional: selector["optional"] == true, keys });
    }
    let (mut found, spec) = (Vec::new(), &template["spec"]);
    for (i, volume) in items(&spec["volumes"]) {
        push(&mut found, format!("/spec/volumes/{i}/configMap/name"), &volume["configMap"], "items");
        for (j, source) in items(&volume["projected"]["sources"]) {
            let pointer = format!("/spec/volumes/{i}/projected/sources/{j}/configMap/name");
            push(&mut found, pointer, &source["configMap"], "items");
        }
    }
    for list in ["initContainers", "containers"] {
        for (i, container) in items(&spec[list]) {
            for (j, from) in items(&container["envFrom"]) {
                let pointer = format!("/spec/{list}/{i}/envFrom/{j}/configMapRef/name");
                push(&mut found, pointer, &from["configMapRef"], "");
            }
            for (j, variable) in items(&container["env"]) {
                let pointer = format!("/spec/{list}/{i}/env/{j}/valueFrom/configMapKeyRef/name");
                push(&mut found, pointer, &variable["valueFrom"]["configMapKeyRef"], "key");
            }
        }
    }
    found
}

/// What two equal templates share, as a text: serde_json's maps are sorted (a test says so).
fn canonical(template: &Value) -> String {
    fn drop_empty(value: &mut Value) {
        match value {
            Value::Object(map) => {
                map.values_mut().for_each(drop_empty);
                let is_empty = |key: &str, value: &Value| ["labels", "metadata"].contains(&key) && *value == json!({});
                map.retain(|key, value| !value.is_null() && !is_empty(key, value));
            }
            Value::Array(list) => list.iter_mut().for_each(drop_empty),
            _ => {}
        }
    }
    let mut template = template.clone();
    drop_empty(&mut template);
    template.to_string()
}

#[test]
fn fuzz_the_template() {
    check!().with_type::<(Piece, Piece)>().for_each(|(one, other)| {
        let (one, other) = (one.value(), other.value());
        let template = Template::of(&one);
        assert_eq!(template.references(), references_of_tree(&one));
        assert_eq!(template == Template::of(&other), canonical(&one) == canonical(&other));
        let read: Template = serde_json::from_str(&one.to_string()).expect("JSON");
        assert_eq!((&read, read.references()), (&template, template.references()));
    });
}

#[test]
fn fuzz_the_decision() {
    check!().with_type::<Case>().for_each(|case| {
        let mut namespace = Namespace::with(&[("app", "1"), ("other", "2"), ("app-0123456789", "3")]);
        let workload = case.workload("a");
        let (stored, _) = namespace.admit(None, &workload, false);

        // Only names of ConfigMaps differ, and each is a snapshot of the name that stood there.
        let (before, after) = (references(template(&workload)), references(template(&stored)));
        let mut restored = template(&stored).clone();
        assert_eq!(before.len(), after.len());
        for (before, after) in before.iter().zip(&after) {
            assert!(before.name == after.name || snapshot::may_be_of(&after.name, &before.name));
            assert!(before.name == after.name || !case.opts_out);
            *restored.pointer_mut(&after.pointer).unwrap() = json!(before.name);
        }
        assert_eq!(&restored, template(&workload));
        for source in ["app", "other"] {
            let versions = names(template(&stored)).into_iter().filter(|name| snapshot::may_be_of(name, source));
            let versions = versions.filter(|name| !NAMES.contains(&name.as_str()));
            assert!(versions.count() <= 1, "one version of one source");
        }

        // A second pass, and applying the same again, change nothing.
        assert_eq!(namespace.admit(None, &stored, false).0, stored);
        let mut applied = stored.clone();
        applied["spec"] = workload["spec"].clone();
        assert_eq!(namespace.admit(Some(&stored), &applied, false).0, stored);

        // A change: the newest, or, for a rollback, whatever stands there.
        if case.edited {
            namespace.put("app", "4");
        }
        let mut changed = stored.clone();
        if let Some(spec) = changed.pointer_mut("/spec/template/spec").and_then(Value::as_object_mut) {
            spec.insert("image".to_owned(), json!("b"));
        }
        let (next, decision) = namespace.admit(Some(&stored), &changed, case.rollback);
        if case.rollback && decision.is_some() {
            assert_eq!(template(&next), template(&changed));
        }
        for name in names(template(&next)) {
            let dangling =
                !namespace.contains(&name) && namespace.contains(name.rsplit_once('-').map_or("", |it| it.0));
            assert!(!dangling || NAMES.contains(&name.as_str()), "{name} is named and is not there");
        }
    });
}
