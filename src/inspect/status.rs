//! Which snapshot each workload is pinned to, and whether something needs attention.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ObjectMeta;
use serde::Serialize;

use crate::inspect::facts::{Facts, Seen};
use crate::inspect::target::title;
use crate::pin::exempt::Exemptions;
use crate::pin::meta;
use crate::pin::record::Record;
use crate::pin::snapshot;
use crate::reconcile::index::Key;

/// How it stands between a workload and one ConfigMap that its template names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Pinned to the snapshot of what the source contains now.
    Newest,
    /// Pinned to a snapshot of older content.
    Behind,
    /// Pinned, and the source could not be read.
    Unknown,
    /// Pinned, and the source is gone: it runs on.
    SourceGone,
    /// The snapshot that the template names was deleted: new pods cannot start.
    Lost,
    /// The source does not exist: pods wait for it.
    Missing,
    /// The source does not exist, and the reference is optional.
    Absent,
    /// The template names the source itself, though it could be pinned.
    Unpinned,
    /// The ConfigMap is never pinned.
    Exempt,
    /// The ConfigMap, the workload or its namespace opts out.
    OptedOut,
    /// The namespace has not the label that opts it in.
    NotEnabled,
}

impl State {
    /// Whether the workload needs attention: it does not run with the current sources, or does not run at all.
    #[must_use]
    pub fn needs_attention(self) -> bool {
        matches!(self, Self::Behind | Self::Lost | Self::Missing | Self::Unpinned)
    }

    /// As people read it.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Newest => "newest",
            Self::Behind => "behind",
            Self::Unknown => "unknown",
            Self::SourceGone => "source gone",
            Self::Lost => "lost",
            Self::Missing => "missing",
            Self::Absent => "absent",
            Self::Unpinned => "unpinned",
            Self::Exempt => "exempt",
            Self::OptedOut | Self::NotEnabled => "off",
        }
    }
}

/// One ConfigMap that a workload's template names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Use {
    /// The source.
    pub source: String,
    /// The snapshot; `None` where the template names the source itself.
    pub snapshot: Option<String>,
    /// How it stands.
    pub state: State,
    /// Why, where it is a choice: what exempts it or opts out.
    pub reason: Option<&'static str>,
    /// Since when this content is pinned: the snapshot's creation, or the workload's if that is later.
    pub since: Option<Timestamp>,
}

/// A workload and what it uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadStatus {
    /// Its namespace.
    pub namespace: String,
    /// Its kind and name, `deployment/app`.
    pub workload: String,
    /// The Deployment that a Rollout takes its template from.
    pub template_of: Option<String>,
    /// The ConfigMaps that its template names.
    pub uses: Vec<Use>,
}

/// How often each state occurs among the workloads of a namespace.
pub type Summary = BTreeMap<State, usize>;

/// What `status` tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Workloads that name a ConfigMap.
    pub workloads: Vec<WorkloadStatus>,
    /// By namespace, how often each state occurs.
    pub namespaces: BTreeMap<String, Summary>,
    /// Whether something needs attention.
    pub needs_attention: bool,
}

/// The sources whose content must be read to tell newest from behind: those of which a snapshot that is in use does not
/// tell that it is of just this object and resourceVersion.
#[must_use]
pub fn sources_to_read(facts: &Facts) -> BTreeSet<Key> {
    let mut keys = BTreeSet::new();
    for seen in &facts.workloads {
        let namespace = &seen.state.namespace;
        for snapshot in seen.state.configmaps.iter().filter_map(|name| facts.configmap(namespace, name)) {
            let Some(found) = snapshot::recognise_metadata(snapshot) else { continue };
            let source = facts.configmap(namespace, &found.source);
            if source.is_some_and(|source| !is_copy_of(snapshot, source)) {
                keys.insert(Key::new(namespace, &found.source));
            }
        }
    }
    keys
}

/// Whether a snapshot says that it was made of `source` as it is now.
fn is_copy_of(snapshot: &ObjectMeta, source: &ObjectMeta) -> bool {
    let says = |key: &str| snapshot.annotations.as_ref().and_then(|annotations| annotations.get(key));
    says(meta::SOURCE_UID).is_some_and(|uid| source.uid.as_ref() == Some(uid))
        && says(meta::SOURCE_RESOURCE_VERSION).is_some_and(|version| source.resource_version.as_ref() == Some(version))
}

/// The status of the workloads that `wanted` lets through. Those that name no ConfigMap, and those of namespaces that are
/// not opted in and that name no snapshot, are left out unless `all` is set.
#[must_use]
pub fn status(facts: &Facts, exemptions: &Exemptions, all: bool, wanted: impl Fn(&Seen) -> bool) -> Status {
    let seen = facts.workloads.iter().filter(|seen| wanted(seen));
    let workloads: Vec<_> = seen
        .map(|seen| workload_status(facts, exemptions, seen))
        .filter(|workload| all || workload.uses.iter().any(|using| using.state != State::NotEnabled))
        .collect();
    let mut namespaces: BTreeMap<String, Summary> = BTreeMap::new();
    for workload in &workloads {
        let summary = namespaces.entry(workload.namespace.clone()).or_default();
        workload.uses.iter().for_each(|using| *summary.entry(using.state).or_default() += 1);
    }
    let needs_attention = workloads.iter().flat_map(|workload| &workload.uses).any(|it| it.state.needs_attention());
    Status { workloads, namespaces, needs_attention }
}

fn workload_status(facts: &Facts, exemptions: &Exemptions, seen: &Seen) -> WorkloadStatus {
    let state = &seen.state;
    WorkloadStatus {
        namespace: state.namespace.to_string(),
        workload: title(state.kind, &state.name),
        template_of: state.workload_ref.as_ref().map(|name| title(&crate::pin::kinds::DEPLOYMENT, name)),
        uses: state.configmaps.iter().map(|name| judge(facts, exemptions, seen, name)).collect(),
    }
}

/// Why nothing of a workload is pinned, if that is so.
fn left_alone(facts: &Facts, seen: &Seen) -> Option<(State, Option<&'static str>)> {
    let namespace = facts.namespace(&seen.state.namespace);
    match () {
        () if !namespace.enabled => Some((State::NotEnabled, Some("no label"))),
        () if namespace.opts_out => Some((State::OptedOut, Some("namespace"))),
        () if seen.state.opts_out() => Some((State::OptedOut, Some("workload"))),
        () => None,
    }
}

/// Why `source` is never pinned, if that is so.
fn exempt(exemptions: &Exemptions, name: &str, source: Option<&ObjectMeta>) -> Option<(State, Option<&'static str>)> {
    if exemptions.name(name) {
        return Some((State::Exempt, Some("name")));
    }
    let source = source?;
    if source.annotations.as_ref().is_some_and(meta::opts_out) {
        return Some((State::OptedOut, Some("configmap")));
    }
    let configmap = ConfigMap { metadata: source.clone(), ..ConfigMap::default() };
    exemptions.configmap(&configmap).then_some((State::Exempt, Some("mark")))
}

fn judge(facts: &Facts, exemptions: &Exemptions, seen: &Seen, name: &str) -> Use {
    let namespace = &seen.state.namespace;
    let found = facts.configmap(namespace, name);
    if let Some((snapshot, provenance)) = found.and_then(|meta| Some((meta, snapshot::recognise_metadata(meta)?))) {
        let source = facts.configmap(namespace, &provenance.source);
        let current = facts.hashes.get(&Key::new(namespace, &provenance.source));
        let opted_out = left_alone(facts, seen).filter(|(state, _)| *state == State::OptedOut);
        // Pinned all the same: that changes with the next decision.
        let off = exempt(exemptions, &provenance.source, source).or(opted_out);
        let (state, reason) = match (off, source) {
            (Some(off), _) => off,
            (None, None) => (State::SourceGone, None),
            (None, Some(source)) if is_copy_of(snapshot, source) || current == Some(&provenance.hash) => {
                (State::Newest, None)
            }
            (None, Some(_)) if current.is_none() => (State::Unknown, None),
            (None, Some(_)) => (State::Behind, None),
        };
        let created = snapshot.creation_timestamp.as_ref().map(|time| time.0);
        let since = created.max(seen.state.created);
        return Use { source: provenance.source, snapshot: Some(name.to_owned()), state, reason, since };
    }
    let own = |state, reason| Use { source: name.to_owned(), snapshot: None, state, reason, since: None };
    if let Some((state, reason)) = exempt(exemptions, name, found) {
        return own(state, reason);
    }
    if found.is_none() {
        let record = seen.state.annotation(meta::RECORD).map(Record::parse).unwrap_or_default();
        if let Some(source) = record.source_of(name) {
            return Use { source, snapshot: Some(name.to_owned()), state: State::Lost, reason: None, since: None };
        }
        return own(if seen.is_optional(name) { State::Absent } else { State::Missing }, None);
    }
    let (state, reason) = left_alone(facts, seen).unwrap_or((State::Unpinned, None));
    own(state, reason)
}

#[cfg(test)]
mod tests;
