//! The decision against every shape of request, without a cluster.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::pin::kinds::DEPLOYMENT;
use crate::pin::patch::patch;
use crate::pin::references::references;
use crate::pin::request::Workload;

/// The ConfigMaps of a namespace.
#[derive(Default)]
pub(super) struct Namespace(BTreeMap<String, ConfigMap>);

impl Namespace {
    pub(super) fn with(sources: &[(&str, &str)]) -> Self {
        let mut namespace = Self::default();
        for (name, value) in sources {
            namespace.put(name, value);
        }
        namespace
    }

    pub(super) fn put(&mut self, name: &str, value: &str) {
        let data = Some(BTreeMap::from([("key".to_owned(), value.to_owned())]));
        let metadata = kube::api::ObjectMeta { name: Some(name.to_owned()), ..<_>::default() };
        self.0.insert(name.to_owned(), ConfigMap { metadata, data, ..<_>::default() });
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Admits the request: the object as it would be stored, and what was decided.
    pub(super) fn admit(&mut self, old: Option<&Value>, new: &Value, rollback: bool) -> (Value, Option<Decision>) {
        let request = request(old, new);
        let exemptions = Exemptions::default();
        let question = match assess(&request, &exemptions) {
            Assessment::NoReferences | Assessment::Unchanged { record: None } => return (new.clone(), None),
            Assessment::Unchanged { record: Some(record) } => {
                let mut stored = new.clone();
                json_patch::patch(&mut stored, &patch(&DEPLOYMENT, &request.new, &[], Some(&record))).expect("applies");
                return (stored, None);
            }
            Assessment::Ask(question) => question,
        };
        let mut facts = Facts { rollback, ..Facts::default() };
        let read = |names: BTreeSet<String>, facts: &mut Facts| {
            for name in names {
                let found = self.0.get(&name).cloned();
                assert!(facts.configmaps.insert(name, found).is_none(), "nothing is read twice");
            }
        };
        read(question.names().into_iter().chain(question.likely_snapshots()).collect(), &mut facts);
        read(question.further_sources(&facts), &mut facts);
        assert!(question.further_sources(&facts).is_empty());
        let plan = question.plan(&facts);
        let names: Vec<String> = plan
            .pins
            .iter()
            .map(|pin| {
                let free = |name: &&String| pin.can_have(self.0.get(*name));
                pin.candidates.iter().find(free).expect("a free name").clone()
            })
            .collect();
        for (pin, name) in plan.pins.iter().zip(&names) {
            self.0.insert(name.clone(), pin.source.snapshot(name, None));
        }
        let decision = plan.decide(&names);
        let mut stored = new.clone();
        let patch = patch(&DEPLOYMENT, &request.new, &decision.renames, decision.record.as_deref());
        json_patch::patch(&mut stored, &patch).expect("the patch applies");
        (stored, Some(decision))
    }
}

fn request(old: Option<&Value>, new: &Value) -> Request {
    let workload = |value: &Value| Workload::of(&DEPLOYMENT, value).expect("a workload");
    Request {
        kind: &DEPLOYMENT,
        name: "web".into(),
        new: workload(new),
        old: old.map(workload),
        namespace_opts_out: false,
    }
}

/// A Deployment with an image, and a volume for each name.
fn deployment(image: &str, names: &[&str]) -> Value {
    let volumes: Vec<_> = names.iter().map(|name| json!({"name": "v", "configMap": {"name": name}})).collect();
    json!({"metadata": {"name": "web"},
           "spec": {"replicas": 1, "template": {"spec": {"containers": [{"image": image}], "volumes": volumes}}}})
}

fn volume_names(workload: &Value) -> Vec<String> {
    let volumes = workload["spec"]["template"]["spec"]["volumes"].as_array().expect("volumes");
    volumes.iter().map(|volume| volume["configMap"]["name"].as_str().expect("a name").to_owned()).collect()
}

fn with_image(workload: &Value, image: &str) -> Value {
    let mut workload = workload.clone();
    workload["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image);
    workload
}

fn with_annotation(workload: &Value, key: &str, value: &str) -> Value {
    let mut workload = workload.clone();
    workload["metadata"]["annotations"][key] = json!(value);
    workload
}

#[test]
fn a_new_workload_is_pinned() {
    let mut namespace = Namespace::with(&[("app", "1")]);
    let (stored, decision) = namespace.admit(None, &deployment("a", &["app", "app"]), false);
    let decision = decision.expect("a decision");
    assert_eq!(decision.outcome, Outcome::Pinned);
    assert!(decision.changes_template);
    let names = volume_names(&stored);
    assert!(snapshot::may_be_of(&names[0], "app"));
    assert_eq!(names[0], names[1], "one version of one source");
}

#[test]
fn applying_the_manifest_again_changes_nothing() {
    let mut namespace = Namespace::with(&[("app", "1")]);
    let (stored, _) = namespace.admit(None, &deployment("a", &["app"]), false);
    let mut applied = stored.clone();
    applied["spec"] = deployment("a", &["app"])["spec"].clone();
    let (again, decision) = namespace.admit(Some(&stored), &applied, false);
    assert_eq!(again, stored);
    assert_eq!(decision.expect("a decision").outcome, Outcome::Unchanged);
}

#[test]
fn a_new_image_takes_the_newest_configuration() {
    let mut namespace = Namespace::with(&[("app", "1")]);
    let (first, _) = namespace.admit(None, &deployment("a", &["app"]), false);
    let (same, decision) = namespace.admit(Some(&first), &with_image(&first, "b"), false);
    assert_eq!(decision.expect("a decision").outcome, Outcome::Current);
    assert_eq!(volume_names(&same), volume_names(&first));
    namespace.put("app", "2");
    let (second, decision) = namespace.admit(Some(&same), &with_image(&same, "c"), false);
    assert_eq!(decision.expect("a decision").outcome, Outcome::Refreshed);
    assert_ne!(volume_names(&second), volume_names(&first));
}

#[test]
fn an_unchanged_template_is_left_alone_unless_a_refresh_is_asked_for() {
    let mut namespace = Namespace::with(&[("app", "1")]);
    let (first, _) = namespace.admit(None, &deployment("a", &["app"]), false);
    namespace.put("app", "2");
    let mut scaled = first.clone();
    scaled["spec"]["replicas"] = json!(5);
    assert_eq!(namespace.admit(Some(&first), &scaled, false).0, scaled);
    let asked = with_annotation(&first, meta::REFRESH, "app@7");
    let (refreshed, decision) = namespace.admit(Some(&first), &asked, false);
    assert_eq!(decision.expect("a decision").outcome, Outcome::Refreshed);
    assert_ne!(volume_names(&refreshed), volume_names(&first));
}

#[test]
fn installing_rolls_nothing() {
    let mut namespace = Namespace::with(&[("app", "1")]);
    let running = deployment("a", &["app"]);
    let labelled = with_annotation(&running, "team", "x");
    assert_eq!(namespace.admit(Some(&running), &labelled, false).0, labelled);
}

#[test]
fn a_record_that_somebody_removed_is_written_again() {
    let mut namespace = Namespace::with(&[("app", "1")]);
    let (stored, _) = namespace.admit(None, &deployment("a", &["app"]), false);
    let mut bare = stored.clone();
    bare["metadata"]["annotations"].as_object_mut().expect("a map").remove(meta::RECORD);
    assert_eq!(namespace.admit(Some(&stored), &bare, false).0, stored);
    let edited = with_annotation(&stored, meta::RECORD, "{}");
    assert_eq!(namespace.admit(Some(&stored), &edited, false).0, stored);
}

#[test]
fn a_rollback_keeps_its_names_and_records_the_present() {
    let mut namespace = Namespace::with(&[("app", "1")]);
    let (first, _) = namespace.admit(None, &deployment("a", &["app"]), false);
    namespace.put("app", "2");
    let (second, _) = namespace.admit(Some(&first), &with_image(&first, "b"), false);
    let mut undone = second.clone();
    undone["spec"] = first["spec"].clone();
    let (stored, decision) = namespace.admit(Some(&second), &undone, true);
    let decision = decision.expect("a decision");
    assert_eq!(decision.outcome, Outcome::Kept);
    assert!(decision.changes_template, "so its snapshot is claimed");
    assert_eq!(volume_names(&stored), volume_names(&first));
    assert_eq!(stored["metadata"]["annotations"][meta::RECORD], second["metadata"]["annotations"][meta::RECORD]);
}

#[test]
fn a_rollback_to_a_snapshot_that_was_deleted() {
    let mut namespace = Namespace::with(&[("app", "1")]);
    let (first, _) = namespace.admit(None, &deployment("a", &["app"]), false);
    let (second, _) = namespace.admit(Some(&first), &with_image(&first, "b"), false);
    let mut undone = second.clone();
    undone["spec"] = first["spec"].clone();
    let name = volume_names(&first)[0].clone();

    namespace.0.remove(&name);
    let (stored, decision) = namespace.admit(Some(&second), &undone, true);
    assert_eq!(decision.expect("a decision").warnings, []);
    assert_eq!(volume_names(&stored), std::slice::from_ref(&name));
    assert!(namespace.0.contains_key(&name), "recreated: the source still has its content");

    namespace.0.remove(&name);
    namespace.put("app", "2");
    let (stored, decision) = namespace.admit(Some(&second), &undone, true);
    assert_eq!(decision.expect("a decision").warnings, [Warning::SnapshotLost { name: name.clone() }]);
    assert_eq!(volume_names(&stored), [name]);
}

#[test]
fn mixed_source_and_snapshot_names_end_on_one_version() {
    let mut namespace = Namespace::with(&[("app", "1")]);
    let (first, _) = namespace.admit(None, &deployment("a", &["app"]), false);
    namespace.put("app", "2");
    let old_name = volume_names(&first)[0].clone();
    let mixed = deployment("b", &[&old_name, "app"]);
    let (stored, _) = namespace.admit(Some(&first), &mixed, false);
    let names = volume_names(&stored);
    assert_eq!(names[0], names[1]);
    assert_ne!(names[0], old_name);
}

#[test]
fn a_missing_source_stays_with_a_warning_and_is_pinned_when_it_appears() {
    let mut namespace = Namespace::default();
    let (stored, decision) = namespace.admit(None, &deployment("a", &["app"]), false);
    let decision = decision.expect("a decision");
    assert_eq!(decision.outcome, Outcome::SourceMissing);
    assert_eq!(decision.warnings, [Warning::SourceMissing { name: "app".into() }]);
    assert_eq!(volume_names(&stored), ["app"]);
    assert_eq!(stored["metadata"]["annotations"][meta::RECORD], r#"{"app":null}"#);

    let mut optional = deployment("a", &["app"]);
    optional["spec"]["template"]["spec"]["volumes"][0]["configMap"]["optional"] = json!(true);
    assert_eq!(namespace.admit(None, &optional, false).1.expect("a decision").warnings, []);

    namespace.put("app", "1");
    let (pinned, decision) = namespace.admit(Some(&stored), &with_annotation(&stored, meta::REFRESH, "app@1"), false);
    assert_eq!(decision.expect("a decision").outcome, Outcome::Pinned);
    assert!(snapshot::may_be_of(&volume_names(&pinned)[0], "app"));
}

#[test]
fn a_deleted_source_leaves_snapshot_names() {
    let mut namespace = Namespace::with(&[("app", "1")]);
    let (first, _) = namespace.admit(None, &deployment("a", &["app"]), false);
    namespace.0.remove("app");
    let (stored, decision) = namespace.admit(Some(&first), &with_image(&first, "b"), false);
    assert_eq!(volume_names(&stored), volume_names(&first));
    assert_eq!(decision.expect("a decision").warnings, []);
}

#[test]
fn a_missing_key_warns() {
    let mut namespace = Namespace::with(&[("app", "1")]);
    let mut workload = deployment("a", &["app"]);
    workload["spec"]["template"]["spec"]["volumes"][0]["configMap"]["items"] = json!([{"key": "key"}, {"key": "nope"}]);
    let warnings = namespace.admit(None, &workload, false).1.expect("a decision").warnings;
    assert_eq!(warnings, [Warning::KeyMissing { name: "app".into(), key: "nope".into() }]);
}

#[test]
fn a_source_whose_name_looks_like_a_snapshots_is_a_source() {
    let mut namespace = Namespace::with(&[("app-0123456789", "1")]);
    let (stored, _) = namespace.admit(None, &deployment("a", &["app-0123456789"]), false);
    assert!(snapshot::may_be_of(&volume_names(&stored)[0], "app-0123456789"));
}

#[test]
fn a_foreign_object_with_the_snapshots_name_is_passed_by() {
    let mut namespace = Namespace::with(&[("app", "1")]);
    let usual = volume_names(&namespace.admit(None, &deployment("a", &["app"]), false).0)[0].clone();
    namespace.0.get_mut(&usual).expect("made").immutable = None;
    let (stored, _) = namespace.admit(None, &deployment("a", &["app"]), false);
    let name = volume_names(&stored)[0].clone();
    assert!(name.len() > usual.len() && name.starts_with(&usual));
    namespace.0.remove(&usual);
    let (again, _) = namespace.admit(Some(&stored), &with_image(&stored, "b"), false);
    assert_eq!(volume_names(&again), [name], "it stays with its name");
}

#[test]
fn exempt_configmaps_stay_live_beside_pinned_ones() {
    let mut namespace = Namespace::with(&[("app", "1"), ("live", "1"), ("kube-root-ca.crt", "ca")]);
    let annotations = Some(BTreeMap::from([(meta::PIN.to_owned(), meta::DISABLED.to_owned())]));
    namespace.0.get_mut("live").expect("there").metadata.annotations = annotations;
    let (stored, _) = namespace.admit(None, &deployment("a", &["kube-root-ca.crt", "live", "app"]), false);
    let names = volume_names(&stored);
    assert_eq!(names[..2], ["kube-root-ca.crt", "live"]);
    assert!(snapshot::may_be_of(&names[2], "app"));
}

#[test]
fn a_template_that_names_only_exempt_configmaps_asks_for_nothing() {
    let request = request(None, &deployment("a", &["kube-root-ca.crt"]));
    assert!(matches!(assess(&request, &Exemptions::default()), Assessment::NoReferences));
}

#[test]
fn only_a_changed_template_with_a_snapshots_name_may_be_a_rollback() {
    let mut namespace = Namespace::with(&[("app", "1")]);
    let live = deployment("a", &["app"]);
    let (pinned, _) = namespace.admit(None, &live, false);
    let may_be = |old: Option<&Value>, new: &Value| {
        let (request, exemptions) = (request(old, new), Exemptions::default());
        let Assessment::Ask(question) = assess(&request, &exemptions) else { panic!("it must be asked") };
        let configmaps = question.names().into_iter().map(|name| (name.clone(), namespace.0.get(&name).cloned()));
        question.may_be_rollback(&Facts { configmaps: configmaps.collect(), rollback: false })
    };
    assert!(may_be(Some(&pinned), &with_image(&pinned, "b")));
    assert!(!may_be(None, &pinned), "it has no revisions");
    assert!(!may_be(Some(&pinned), &with_annotation(&pinned, meta::REFRESH, "app@7")), "a refresh");
    assert!(!may_be(Some(&pinned), &with_image(&live, "b")), "it names the source");
}

#[test]
fn what_the_stored_template_names_is_likely_to_be_named_again() {
    let likely = |stored: &[&str], applied: &[&str]| {
        let (request, exemptions) =
            (request(Some(&deployment("a", stored)), &deployment("a", applied)), Exemptions::default());
        let Assessment::Ask(question) = assess(&request, &exemptions) else { panic!("it must be asked") };
        question.likely_snapshots()
    };
    let (app, other) = ("app-0123456789", "other-0123456789");
    assert_eq!(likely(&[app, other, "live"], &["app"]), BTreeSet::from([app.to_owned()]));
    assert_eq!(likely(&[app, other], &["other", "app"]), BTreeSet::from([app.to_owned(), other.to_owned()]));
    assert_eq!(likely(&["app"], &["app", "other"]), BTreeSet::new());
}

#[test]
fn a_pin_can_have_a_name_that_is_free_or_its_own() {
    let mut namespace = Namespace::with(&[("app", "1")]);
    let (stored, _) = namespace.admit(None, &deployment("a", &["app"]), false);
    let (app, snapshot) = (&namespace.0["app"], &namespace.0[&volume_names(&stored)[0]]);
    let pin = Pin { source: Source::new("app", app), candidates: Vec::new(), at: Vec::new() };
    assert!(pin.can_have(None));
    assert!(pin.can_have(Some(snapshot)));
    assert!(!pin.can_have(Some(app)));
}

#[test]
fn opting_out_moves_names_back_at_the_next_template_change() {
    let mut namespace = Namespace::with(&[("app", "1")]);
    let (first, _) = namespace.admit(None, &deployment("a", &["app"]), false);
    let opted_out = with_annotation(&first, meta::PIN, meta::DISABLED);
    assert_eq!(namespace.admit(Some(&first), &opted_out, false).0, opted_out, "not before");
    let (stored, decision) = namespace.admit(Some(&opted_out), &with_image(&opted_out, "b"), false);
    assert_eq!(volume_names(&stored), ["app"]);
    assert_eq!(decision.expect("a decision").outcome, Outcome::OptedOut);
    let fresh = with_annotation(&deployment("a", &["app"]), meta::PIN, meta::DISABLED);
    let (stored, decision) = namespace.admit(None, &fresh, false);
    assert_eq!(stored, fresh);
    assert!(decision.is_none(), "nothing is even read");
}

#[test]
fn a_source_that_becomes_exempt_is_named_itself_again() {
    let mut namespace = Namespace::with(&[("app", "1")]);
    let (first, _) = namespace.admit(None, &deployment("a", &["app"]), false);
    namespace.0.get_mut("app").expect("there").metadata.annotations =
        Some(BTreeMap::from([(meta::PIN.to_owned(), meta::DISABLED.to_owned())]));
    let (stored, _) = namespace.admit(Some(&first), &with_image(&first, "b"), false);
    assert_eq!(volume_names(&stored), ["app"]);
}

#[test]
fn a_deleted_snapshot_is_found_again_by_the_record() {
    let mut namespace = Namespace::with(&[("app", "1")]);
    let (first, _) = namespace.admit(None, &deployment("a", &["app"]), false);
    namespace.0.retain(|name, _| name == "app");
    namespace.put("app", "2");
    let (stored, decision) = namespace.admit(Some(&first), &with_image(&first, "b"), false);
    assert_eq!(decision.expect("a decision").warnings, []);
    assert_ne!(volume_names(&stored), volume_names(&first));
    assert!(snapshot::may_be_of(&volume_names(&stored)[0], "app"));
}

/// Pod templates with any mixture of references, over three source names.
fn template() -> impl Strategy<Value = Value> {
    let name = || prop::sample::select(vec!["app", "other", "none", "kube-root-ca.crt"]);
    let volume = prop_oneof![
        name().prop_map(|name| json!({"name": "v", "configMap": {"name": name, "defaultMode": 420}})),
        (name(), name()).prop_map(|(one, two)| json!({"name": "v", "projected": {"sources": [
            {"configMap": {"name": one}}, {"serviceAccountToken": {"path": "t"}},
            {"configMap": {"name": two, "optional": true, "items": [{"key": "key", "path": "p"}]}}]}})),
        Just(json!({"name": "v", "emptyDir": {}})),
    ];
    let container = (name(), name(), any::<bool>()).prop_map(|(one, two, optional)| {
        json!({"name": "c", "image": "i",
               "envFrom": [{"prefix": "P_", "configMapRef": {"name": one, "optional": optional}}],
               "env": [{"name": "E", "valueFrom": {"configMapKeyRef": {"name": two, "key": "key"}}}, {"name": "F"}]})
    });
    let containers = || prop::collection::vec(container.clone(), 0..3);
    (prop::collection::vec(volume, 0..4), containers(), containers()).prop_map(
        |(volumes, containers, init)| json!({"spec": {"volumes": volumes, "containers": containers, "initContainers": init}}),
    )
}

proptest! {
    #[test]
    fn patching_twice_is_patching_once(template in template()) {
        let mut namespace = Namespace::with(&[("app", "1"), ("other", "2")]);
        let workload = json!({"metadata": {}, "spec": {"template": template}});
        let (once, _) = namespace.admit(None, &workload, false);
        let (twice, decision) = namespace.admit(None, &once, false);
        prop_assert_eq!(&twice, &once);
        prop_assert!(decision.is_none_or(|decision| decision.renames.is_empty() && decision.record.is_none()));
    }

    #[test]
    fn nothing_but_names_and_our_annotation_differs(template in template()) {
        let mut namespace = Namespace::with(&[("app", "1"), ("other", "2")]);
        let workload = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"template": template, "replicas": 2}});
        let (mut stored, _) = namespace.admit(None, &workload, false);
        stored["metadata"].as_object_mut().expect("a map").remove("annotations");
        for (before, after) in references(&workload["spec"]["template"]).iter().zip(references(&stored["spec"]["template"])) {
            let expected = ["app", "other"].contains(&before.name.as_str());
            prop_assert_eq!(snapshot::may_be_of(&after.name, &before.name), expected);
            let place = stored["spec"]["template"].pointer_mut(&before.pointer).expect("the same place");
            *place = json!(before.name);
        }
        prop_assert_eq!(stored, workload);
    }

    #[test]
    fn every_reference_to_a_source_names_one_snapshot(template in template()) {
        let mut namespace = Namespace::with(&[("app", "1"), ("other", "2")]);
        let workload = json!({"metadata": {}, "spec": {"template": template}});
        let (stored, _) = namespace.admit(None, &workload, false);
        let names = crate::pin::references::names(&stored["spec"]["template"]);
        prop_assert!(names.iter().filter(|name| snapshot::may_be_of(name, "app")).count() <= 1);
    }
}
