//! The walk and the decision against templates of every shape, also of none that Kubernetes would accept.
//!
//! Bounded under `cargo test`. For a long run: `BOLERO_RANDOM_ITERATIONS=10000000 cargo test --release --lib fuzz`.

use bolero::{TypeGenerator, check};
use serde_json::{Value, json};

use super::tests::Namespace;
use super::*;
use crate::pin::references::names;

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
