//! Every state, told from metadata.

use serde_json::{Value, json};

use super::*;
use crate::pin::content::{Content, ContentHash};
use crate::pin::kinds::DEPLOYMENT;
use crate::pin::objects::NamespaceFacts;

fn hash(value: &str) -> ContentHash {
    Content { data: [("k".to_owned(), value.to_owned())].into(), ..<_>::default() }.hash("app")
}

fn snapshot(value: &str) -> String {
    snapshot::names("app", &hash(value))[0].clone()
}

/// A namespace `n` with a Deployment that names `name`, and with these ConfigMaps.
fn facts(name: &str, workload: Value, configmaps: &[ObjectMeta]) -> Facts {
    let object = json!({
        "metadata": {"namespace": "n", "name": "web", "annotations": workload["annotations"]},
        "spec": {"template": {"spec": {"volumes": [{"configMap": {"name": name, "optional": workload["optional"]}}]}}},
    });
    let object = serde_json::from_value(object).expect("an object");
    let mut facts = Facts { workloads: vec![Seen::new(&DEPLOYMENT, &object)], ..Facts::default() };
    facts.namespaces.insert("n".into(), NamespaceFacts { enabled: true, ..<_>::default() });
    facts.configmaps.extend(configmaps.iter().map(|meta| (Key::new("n", meta.name.as_ref().unwrap()), meta.clone())));
    facts
}

fn source(version: &str) -> ObjectMeta {
    let object = json!({"name": "app", "uid": "u", "resourceVersion": version});
    serde_json::from_value(object).expect("metadata")
}

fn copy(value: &str, version: &str) -> ObjectMeta {
    let made_of =
        serde_json::from_value(json!({"metadata": source(version), "data": {"k": value}})).expect("a ConfigMap");
    snapshot::Source::new("app", &made_of).snapshot(&snapshot(value), None).metadata
}

fn state(facts: &Facts) -> (State, Option<&'static str>) {
    let status = status(facts, &Exemptions::default(), true, |_| true);
    let using = &status.workloads[0].uses[0];
    assert_eq!(using.source, "app");
    assert_eq!(status.needs_attention, using.state.needs_attention());
    (using.state, using.reason)
}

#[test]
fn a_snapshot_that_was_made_of_the_source_as_it_is_needs_no_reading() {
    let facts = facts(&snapshot("1"), json!({}), &[source("5"), copy("1", "5")]);
    assert!(sources_to_read(&facts).is_empty());
    assert_eq!(state(&facts), (State::Newest, None));
}

#[test]
fn a_source_that_was_written_since_is_judged_by_its_content() {
    let mut facts = facts(&snapshot("1"), json!({}), &[source("6"), copy("1", "5")]);
    let key = Key::new("n", "app");
    assert_eq!(sources_to_read(&facts), BTreeSet::from([key.clone()]));
    assert_eq!(state(&facts), (State::Unknown, None));
    facts.hashes.insert(key.clone(), hash("1"));
    assert_eq!(state(&facts), (State::Newest, None));
    facts.hashes.insert(key, hash("2"));
    assert_eq!(state(&facts), (State::Behind, None));
}

#[test]
fn tells_what_is_gone() {
    assert_eq!(state(&facts(&snapshot("1"), json!({}), &[copy("1", "5")])), (State::SourceGone, None));
    let record = Record([("app".to_owned(), Some(hash("2")))].into()).text();
    let recorded = json!({"annotations": {meta::RECORD: record}});
    assert_eq!(state(&facts(&snapshot("1"), recorded, &[source("5")])), (State::Lost, None));
    assert_eq!(state(&facts("app", json!({}), &[])), (State::Missing, None));
    assert_eq!(state(&facts("app", json!({"optional": true}), &[])), (State::Absent, None));
}

#[test]
fn tells_what_is_left_alone_and_why() {
    assert_eq!(state(&facts("app", json!({}), &[source("5")])), (State::Unpinned, None));
    let out = json!({"annotations": {meta::PIN: meta::DISABLED}});
    assert_eq!(state(&facts("app", out.clone(), &[source("5")])), (State::OptedOut, Some("workload")));
    assert_eq!(state(&facts(&snapshot("1"), out, &[source("5"), copy("1", "5")])), (State::OptedOut, Some("workload")));

    let annotated: ObjectMeta =
        serde_json::from_value(json!({"name": "app", "annotations": {meta::PIN: meta::DISABLED}})).expect("metadata");
    assert_eq!(state(&facts("app", json!({}), &[annotated])), (State::OptedOut, Some("configmap")));
    let marked: ObjectMeta =
        serde_json::from_value(json!({"name": "app", "labels": {"istio.io/config": "true"}})).expect("metadata");
    assert_eq!(state(&facts("app", json!({}), &[marked])), (State::Exempt, Some("mark")));

    for (namespace, expected) in [
        (NamespaceFacts::default(), (State::NotEnabled, Some("no label"))),
        (NamespaceFacts { enabled: true, opts_out: true, on_change: false }, (State::OptedOut, Some("namespace"))),
    ] {
        let mut facts = facts("app", json!({}), &[source("5")]);
        facts.namespaces.insert("n".into(), namespace);
        assert_eq!(state(&facts), expected);
    }
}

#[test]
fn a_namespace_that_is_not_opted_in_is_told_of_only_when_asked() {
    let mut facts = facts("app", json!({}), &[source("5")]);
    facts.namespaces.insert("n".into(), NamespaceFacts::default());
    assert!(status(&facts, &Exemptions::default(), false, |_| true).workloads.is_empty());
    assert_eq!(status(&facts, &Exemptions::default(), true, |_| true).namespaces["n"][&State::NotEnabled], 1);
}
