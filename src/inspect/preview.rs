//! What would roll if these manifests were applied: the decision of admission, against the cluster as it is but with the
//! files' ConfigMaps applied first.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::ConfigMap;
use serde::Serialize;
use serde_json::Value;

use crate::cluster::{self, Cluster};
use crate::inspect::apply::{LAST_APPLIED, applied, differing_fields};
use crate::inspect::difference::{Side, SourceDiff, Version, differences};
use crate::inspect::facts::{Facts, Seen};
use crate::inspect::foresee::{self, Sources, renamed};
use crate::inspect::manifests::{self, File, Object};
use crate::inspect::render::brought;
use crate::inspect::target::title;
use crate::pin::content::Content;
use crate::pin::exempt::Exemptions;
use crate::pin::kinds::WorkloadKind;
use crate::pin::meta;
use crate::pin::objects::NamespaceFacts;
use crate::pin::record::Record;
use crate::pin::references::{names, references};
use crate::pin::refresh::{Current, Follows, due};
use crate::pin::request::{Request, Workload};
use crate::pin::snapshot::{self, Source};
use crate::reconcile::index::Key;

/// Why nothing can be foreseen.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be used.
    #[error(transparent)]
    Manifests(#[from] manifests::Error),
    /// The API server refused or could not be asked.
    #[error(transparent)]
    Cluster(#[from] cluster::Error),
    /// Admission would refuse.
    #[error(transparent)]
    Foresee(#[from] foresee::Error),
}

/// What becomes of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// It is created.
    Created,
    /// Its template changes, so it rolls out.
    Rolls,
    /// It is not in the files, and follows a ConfigMap that is.
    Follows,
    /// Its template stays.
    Stays,
}

/// A workload, and what becomes of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Preview {
    /// Its namespace.
    pub namespace: String,
    /// Its kind and name.
    pub workload: String,
    /// What becomes of it.
    pub effect: Effect,
    /// The fields of its template that change, other than names of ConfigMaps.
    pub fields: Vec<String>,
    /// What changes in its configuration.
    pub configuration: Vec<SourceDiff>,
    /// Whether it is not pinned, so that its pods take a changed ConfigMap without a rollout.
    pub live: bool,
    /// What the client would be told.
    pub warnings: Vec<String>,
}

/// What would happen to a cluster.
pub struct Previewer<'a> {
    cluster: &'a Cluster,
    exemptions: &'a Exemptions,
    namespace: &'a str,
    configmaps: BTreeMap<Key, ConfigMap>,
    facts: BTreeMap<String, NamespaceFacts>,
}

impl<'a> Previewer<'a> {
    /// Takes in what the files bring along. `namespace` is that of objects that say none.
    ///
    /// # Errors
    /// When a file cannot be used, or the cluster cannot be asked.
    pub async fn new(
        cluster: &'a Cluster,
        exemptions: &'a Exemptions,
        namespace: &'a str,
        files: &[File],
    ) -> Result<Self, Error> {
        let (configmaps, _) = brought(files, namespace)?;
        let mut facts = BTreeMap::new();
        for (object, new) in files.iter().map(File::namespaces).collect::<Result<Vec<_>, _>>()?.into_iter().flatten() {
            facts.insert(object.name().to_owned(), NamespaceFacts::new(&new.metadata));
        }
        let objects = files.iter().flat_map(|file| &file.objects);
        let used: BTreeSet<_> = objects.filter_map(Object::namespace).chain([namespace]).map(str::to_owned).collect();
        for name in used {
            if let Some(found) = cluster.namespace_metadata(&name).await? {
                // Of a namespace that is there and in the files, what either says.
                let (found, new) = (NamespaceFacts::new(&found), facts.get(&name).copied().unwrap_or_default());
                let both = NamespaceFacts {
                    enabled: found.enabled || new.enabled,
                    opts_out: found.opts_out || new.opts_out,
                    on_change: found.on_change || new.on_change,
                };
                facts.insert(name, both);
            }
        }
        Ok(Self { cluster, exemptions, namespace, configmaps, facts })
    }

    fn facts(&self, namespace: &str) -> NamespaceFacts {
        self.facts.get(namespace).copied().unwrap_or_default()
    }

    fn sources(&self) -> Sources<'_> {
        Sources { cluster: Some(self.cluster), applied: &self.configmaps }
    }

    /// What becomes of the workloads of the files, and of those in the cluster that follow their ConfigMaps.
    ///
    /// # Errors
    /// When a file cannot be used, the cluster cannot be asked, or admission would refuse.
    pub async fn preview(&self, files: &[File]) -> Result<Vec<Preview>, Error> {
        let (mut previews, mut seen) = (Vec::new(), BTreeSet::new());
        for file in files {
            for object in &file.objects {
                let Some(kind) = object.workload_kind() else { continue };
                let preview = self.in_file(file, object, kind).await?;
                seen.insert((preview.namespace.clone(), preview.workload.clone()));
                previews.push(preview);
            }
        }
        let namespaces: BTreeSet<_> = self.configmaps.keys().map(|key| &*key.namespace).collect();
        for namespace in namespaces.into_iter().filter(|namespace| self.facts(namespace).enabled) {
            let mut facts = Facts::gather(self.cluster, Some(namespace)).await;
            if let Some(gap) = facts.gaps.pop() {
                return Err(gap.into());
            }
            for workload in &facts.workloads {
                let id = (namespace.to_owned(), title(workload.state.kind, &workload.state.name));
                if !seen.contains(&id) && self.follows(workload) {
                    previews.extend(self.following(workload).await?);
                }
            }
        }
        Ok(previews)
    }

    async fn in_file(&self, file: &File, object: &Object, kind: &'static WorkloadKind) -> Result<Preview, Error> {
        let namespace = object.namespace().unwrap_or(self.namespace);
        let wrong = || Error::from(file.wrong(object, kind.kind));
        let stored = self.cluster.workload_object(kind, namespace, object.name()).await?;
        let old = stored.as_ref().map(serde_json::to_value).transpose().map_err(|_| wrong())?;
        let mut new = object.value.clone();
        if let Some(old) = &old {
            let last = old["metadata"]["annotations"][LAST_APPLIED].as_str();
            let last = last.and_then(|text| serde_json::from_str::<Value>(text).ok()).unwrap_or_default();
            new["spec"] = applied(kind, &old["spec"], &new["spec"], &last["spec"]);
            new["metadata"]["annotations"] = applied_annotations(old, &new, &last);
        }
        self.decided(kind, namespace, object.name(), old, new).await?.ok_or_else(wrong)
    }

    /// The decision about a request that admission would get; `None` if an object does not have the shape of a workload.
    async fn decided(
        &self,
        kind: &'static WorkloadKind,
        namespace: &str,
        name: &str,
        old_object: Option<Value>,
        new_object: Value,
    ) -> Result<Option<Preview>, Error> {
        let Ok(new) = Workload::of(kind, &new_object) else { return Ok(None) };
        let Ok(old) = old_object.as_ref().map(|old| Workload::of(kind, old)).transpose() else { return Ok(None) };
        let facts = self.facts(namespace);
        let off = !facts.enabled || facts.opts_out || new.metadata.annotations.as_ref().is_some_and(meta::opts_out);
        let request = Request { kind, name: name.to_owned(), new, old, namespace_opts_out: facts.opts_out };
        // The webhook is not asked at all where the label is missing.
        let foreseen = match facts.enabled {
            true => self.sources().foresee(namespace, &request, self.exemptions).await?,
            false => None,
        };
        let renames = foreseen.as_ref().map(|foreseen| foreseen.decision.renames.as_slice()).unwrap_or_default();
        let template = renamed(kind.template_of(&new_object), renames);
        let before = old_object.as_ref().map(|old| kind.template_of(old));
        let changed = before.map(|before| differing_fields(before, &template));
        let effect = match &changed {
            None => Effect::Created,
            Some(changed) if changed.is_empty() => Effect::Stays,
            Some(_) => Effect::Rolls,
        };
        let is_name = |field: &String| {
            [".configMap.name", ".configMapRef.name", ".configMapKeyRef.name"].iter().any(|end| field.ends_with(end))
        };
        let fields = changed.unwrap_or_default().into_iter().filter(|field| !is_name(field)).collect();
        let from = match before {
            Some(before) => self.side(namespace, before, request.old.as_ref(), &BTreeMap::new(), false).await?,
            None => Side::new(),
        };
        let made = foreseen.as_ref().map(|foreseen| foreseen.snapshots.clone()).unwrap_or_default();
        let to = self.side(namespace, &template, Some(&request.new), &made, true).await?;
        let warnings = foreseen.iter().flat_map(|foreseen| &foreseen.decision.warnings).map(ToString::to_string);
        Ok(Some(Preview {
            namespace: namespace.to_owned(),
            workload: title(kind, name),
            effect,
            fields,
            configuration: differences(&from, &to),
            live: off && !references(&template).is_empty(),
            warnings: warnings.collect(),
        }))
    }

    /// What a template names: as it is in the cluster, or as it will be.
    async fn side(
        &self,
        namespace: &str,
        template: &Value,
        workload: Option<&Workload>,
        made: &BTreeMap<String, Source>,
        after: bool,
    ) -> Result<Side, Error> {
        let record = workload.and_then(|workload| workload.annotation(meta::RECORD));
        let record = record.map(Record::parse).unwrap_or_default();
        let mut side = Side::new();
        for name in names(template) {
            if let Some(source) = made.get(&name) {
                side.insert(source.name.clone(), Version { name, content: Some(source.content.clone()) });
                continue;
            }
            let applied = self.configmaps.get(&Key::new(namespace, &name)).filter(|_| after).cloned();
            let found = match applied {
                Some(applied) => Some(applied),
                None => self.cluster.configmap(namespace, &name).await?,
            };
            let source = match &found {
                Some(configmap) => snapshot::recognise(configmap).map(|provenance| provenance.source),
                None => record.source_of(&name),
            };
            let version = Version { content: found.as_ref().map(Content::of), name: name.clone() };
            side.insert(source.unwrap_or(name), version);
        }
        Ok(side)
    }

    /// Whether the reconciler would refresh a workload that is not in the files.
    fn follows(&self, seen: &Seen) -> bool {
        let state = &seen.state;
        let facts = self.facts(&state.namespace);
        let Some(record) = state.annotation(meta::RECORD).map(Record::parse) else { return false };
        let on_change = facts.on_change || state.annotation(meta::ROLLOUT) == Some(meta::ON_CHANGE);
        let current = |source: &String| {
            let configmap = self.configmaps.get(&Key::new(&state.namespace, source))?;
            Some(Current { hash: Source::new(source, configmap).hash, resource_version: String::new() })
        };
        let sources = record.0.keys().map(|source| (source.clone(), current(source))).collect();
        let off = facts.opts_out || state.opts_out();
        !off && due(&record, &state.configmaps, &sources, Follows { on_change, settling: false }, None).is_some()
    }

    /// The decision about the refresh of a workload that is not in the files.
    async fn following(&self, seen: &Seen) -> Result<Option<Preview>, Error> {
        let state = &seen.state;
        let object = self.cluster.workload_object(state.kind, &state.namespace, &state.name).await?;
        let old = object.as_ref().and_then(|object| serde_json::to_value(object).ok());
        // It was deleted since it was listed.
        let Some(old) = old else { return Ok(None) };
        let mut new = old.clone();
        new["metadata"]["annotations"][meta::REFRESH] = "preview".into();
        let preview = self.decided(state.kind, &state.namespace, &state.name, Some(old), new).await?;
        Ok(preview.map(|preview| {
            let rolls = preview.effect == Effect::Rolls;
            Preview { effect: if rolls { Effect::Follows } else { preview.effect }, ..preview }
        }))
    }
}

/// The annotations that an apply leaves: those of the manifest, and those of others; without those that the manifest of the
/// last apply had and this one has not.
fn applied_annotations(old: &Value, new: &Value, last: &Value) -> Value {
    let of = |object: &Value| object["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
    let (mut annotations, new, last) = (of(old), of(new), of(last));
    annotations.retain(|key, _| new.contains_key(key) || !last.contains_key(key));
    annotations.extend(new);
    Value::Object(annotations)
}
