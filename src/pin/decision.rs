//! The four rules of admission, as pure functions over the facts that the caller has gathered.
//!
//! [`assess`] settles what needs no reading (rules 1 and 2). Otherwise it hands out a [`Question`], which tells what
//! to read, and from the [`Facts`] read makes a [`Plan`] (rules 3 and 4): which snapshots must exist. Once the caller
//! has made sure of them and knows their names, [`Plan::decide`] tells what to change in the workload.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::ConfigMap;

use crate::pin::exempt::Exemptions;
use crate::pin::meta;
use crate::pin::record::Record;
use crate::pin::references::Reference;
use crate::pin::request::Request;
use crate::pin::snapshot::{self, Source};
use crate::pin::template::Template;
use crate::pin::warning::Warning;

/// What can be said of a request before any ConfigMap has been read.
#[derive(Debug)]
pub enum Assessment<'a> {
    /// Rule 1: the template names no ConfigMap that could be pinned.
    NoReferences,
    /// Rule 2: the template is the stored one and nobody asks for a refresh.
    Unchanged {
        /// The stored record, when the request would remove or change it: it is to be written again.
        record: Option<String>,
    },
    /// The ConfigMaps must be read.
    Ask(Question<'a>),
}

/// Applies rules 1 and 2.
#[must_use]
pub fn assess<'a>(request: &'a Request, exemptions: &'a Exemptions) -> Assessment<'a> {
    let opted_out = request.namespace_opts_out || request.new.metadata.annotations.as_ref().is_some_and(meta::opts_out);
    let wanted = |name: &str| !exemptions.name(name) && (!opted_out || snapshot::looks_like_one(name));
    let references = request.template().references().iter().filter(|reference| wanted(&reference.name));
    let references: Vec<_> = references.cloned().collect();
    if references.is_empty() {
        return Assessment::NoReferences;
    }
    if request.old.is_some() && !request.changes_template() && !request.is_refresh() {
        let stored = request.old_annotation(meta::RECORD);
        let record = stored.filter(|stored| request.new.annotation(meta::RECORD) != Some(*stored));
        return Assessment::Unchanged { record: record.map(str::to_owned) };
    }
    Assessment::Ask(Question { request, exemptions, references, opted_out })
}

/// The ConfigMaps that were read, and what they showed.
#[derive(Debug, Default)]
pub struct Facts {
    /// By name, what a live read found; `None` when there is no such ConfigMap.
    pub configmaps: BTreeMap<String, Option<ConfigMap>>,
    /// Whether the template is that of one of the workload's ReplicaSets (rule 3).
    pub rollback: bool,
}

/// A request that rules 1 and 2 leave open.
#[derive(Debug)]
pub struct Question<'a> {
    request: &'a Request,
    exemptions: &'a Exemptions,
    references: Vec<Reference>,
    opted_out: bool,
}

/// What a name in the template stands for.
struct Identity {
    source: String,
    is_snapshot: bool,
}

impl Question<'_> {
    /// The names to read first.
    #[must_use]
    pub fn names(&self) -> BTreeSet<String> {
        self.references.iter().map(|reference| reference.name.clone()).collect()
    }

    /// Names of the stored template that may be snapshots of what the new one names. A manifest that is applied again
    /// mostly ends with them, so to read them along with the names saves a round of reading.
    #[must_use]
    pub fn likely_snapshots(&self) -> BTreeSet<String> {
        let stored = self.request.old_template().map(Template::names).unwrap_or_default();
        let is_likely = |name: &String| self.references.iter().any(|it| snapshot::may_be_of(name, &it.name));
        stored.into_iter().filter(is_likely).collect()
    }

    /// The sources to read after the names: those of snapshots that the template names.
    #[must_use]
    pub fn further_sources(&self, facts: &Facts) -> BTreeSet<String> {
        let sources = self.references.iter().map(|reference| self.identify(&reference.name, facts).source);
        sources.filter(|source| !self.exemptions.name(source) && !facts.configmaps.contains_key(source)).collect()
    }

    /// Whether the template may be an old revision's: it is a change, and carries a snapshot's name. Only then are
    /// the workload's ReplicaSets worth a read.
    #[must_use]
    pub fn may_be_rollback(&self, facts: &Facts) -> bool {
        self.request.old.is_some()
            && self.request.changes_template()
            && self.references.iter().any(|reference| self.identify(&reference.name, facts).is_snapshot)
    }

    /// A snapshot stands for the source that it records. A name that nothing has any more stands for the source
    /// that the workload's record has, if it could be a snapshot's: the snapshot was deleted.
    fn identify(&self, name: &str, facts: &Facts) -> Identity {
        let source = match facts.configmaps.get(name) {
            Some(Some(configmap)) => snapshot::recognise(configmap).map(|provenance| provenance.source),
            Some(None) => self.recorded_source(name),
            None => None,
        };
        Identity { is_snapshot: source.is_some(), source: source.unwrap_or_else(|| name.to_owned()) }
    }

    fn recorded_source(&self, name: &str) -> Option<String> {
        let records = [self.request.old_annotation(meta::RECORD), self.request.new.annotation(meta::RECORD)];
        Record(records.into_iter().flatten().flat_map(|text| Record::parse(text).0).collect()).source_of(name)
    }

    /// Applies rules 3 and 4.
    #[must_use]
    pub fn plan(&self, facts: &Facts) -> Plan<'_> {
        let mut plan = Plan {
            request: self.request,
            references: &self.references,
            pins: Vec::new(),
            to_source: BTreeMap::new(),
            record: Record::default(),
            versions: BTreeMap::new(),
            warnings: Vec::new(),
            opted_out: self.opted_out,
            rollback: facts.rollback,
        };
        let mut by_source: BTreeMap<String, Vec<(usize, &Reference, bool)>> = BTreeMap::new();
        for (index, reference) in self.references.iter().enumerate() {
            let identity = self.identify(&reference.name, facts);
            by_source.entry(identity.source).or_default().push((index, reference, identity.is_snapshot));
        }
        for (name, uses) in by_source {
            self.plan_source(&mut plan, facts, &name, &uses);
        }
        plan
    }

    fn plan_source(&self, plan: &mut Plan, facts: &Facts, name: &str, uses: &[(usize, &Reference, bool)]) {
        let live = facts.configmaps.get(name).and_then(Option::as_ref);
        if self.exemptions.name(name) || live.is_some_and(|configmap| self.exemptions.configmap(configmap)) {
            if !facts.rollback {
                plan.to_source.extend(uses.iter().map(|(index, ..)| (*index, name.to_owned())));
            }
            return;
        }
        let source = live.map(|configmap| Source::new(name, configmap));
        if !self.opted_out {
            plan.record.0.insert(name.to_owned(), source.as_ref().map(|source| source.hash));
            let version = source.as_ref().and_then(|source| source.resource_version.clone());
            plan.versions.insert(name.to_owned(), version);
        }
        match source {
            Some(source) if facts.rollback => self.keep(plan, facts, Some(&source), uses),
            Some(_) if self.opted_out => {
                plan.to_source.extend(uses.iter().map(|(index, ..)| (*index, name.to_owned())));
            }
            Some(source) => {
                plan.warnings.extend(missing_keys(&source, uses));
                let candidates = self.in_order_of_preference(snapshot::names(name, &source.hash));
                plan.pins.push(Pin { candidates, at: uses.iter().map(|(index, ..)| *index).collect(), source });
            }
            None => {
                let mandatory =
                    |(_, reference, is_snapshot): &&(usize, &Reference, bool)| !is_snapshot && !reference.optional;
                if !self.opted_out && uses.iter().any(|used| mandatory(&used)) {
                    plan.warnings.push(Warning::SourceMissing { name: name.to_owned() });
                }
                self.keep(plan, facts, None, uses);
            }
        }
    }

    /// Keeps each snapshot name that `uses` have. A snapshot that is gone is recreated if `source` still has its
    /// content.
    fn keep(&self, plan: &mut Plan, facts: &Facts, source: Option<&Source>, uses: &[(usize, &Reference, bool)]) {
        let mut by_name: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (index, reference, _) in uses.iter().filter(|(.., is_snapshot)| *is_snapshot) {
            by_name.entry(&reference.name).or_default().push(*index);
        }
        for (name, at) in by_name {
            let kept = match facts.configmaps.get(name).and_then(Option::as_ref) {
                Some(configmap) => snapshot::recognise(configmap).map(|found| Source::new(&found.source, configmap)),
                None => source
                    .filter(|source| snapshot::names(&source.name, &source.hash).iter().any(|own| own == name))
                    .cloned(),
            };
            match kept {
                Some(source) => plan.pins.push(Pin { source, candidates: vec![name.to_owned()], at }),
                None => plan.warnings.push(Warning::SnapshotLost { name: name.to_owned() }),
            }
        }
    }

    /// The candidates that the stored or the new template names first: where a foreign object once forced a longer
    /// name, the workload stays with it.
    fn in_order_of_preference(&self, candidates: impl IntoIterator<Item = String>) -> Vec<String> {
        let mut named = self.request.template().names();
        if let Some(old) = self.request.old_template() {
            named.extend(old.names());
        }
        let (mut first, rest): (Vec<_>, Vec<_>) = candidates.into_iter().partition(|name| named.contains(name));
        first.extend(rest);
        first
    }
}

fn missing_keys(source: &Source, uses: &[(usize, &Reference, bool)]) -> BTreeSet<Warning> {
    let mandatory = uses.iter().filter(|(_, reference, _)| !reference.optional);
    let keys = mandatory.flat_map(|(_, reference, _)| &reference.keys);
    keys.filter(|key| !source.content.has_key(key))
        .map(|key| Warning::KeyMissing { name: source.name.clone(), key: key.clone() })
        .collect()
}

/// One snapshot that must exist, and the references that will name it.
#[derive(Debug)]
pub struct Pin {
    /// What it holds.
    pub source: Source,
    /// The names it may have, the preferred one first; the next one when a foreign object has the name.
    pub candidates: Vec<String>,
    /// Indexes of the references.
    at: Vec<usize>,
}

impl Pin {
    /// Whether the snapshot can have a name that `found` has: nothing, or the snapshot itself.
    #[must_use]
    pub fn can_have(&self, found: Option<&ConfigMap>) -> bool {
        found.is_none_or(|found| snapshot::serves(found, &self.source.name, &self.source.hash))
    }
}

/// The decision, except for the names of the snapshots: whether a name is free shows only when it is used.
#[derive(Debug)]
pub struct Plan<'a> {
    request: &'a Request,
    references: &'a [Reference],
    /// The snapshots that must exist.
    pub pins: Vec<Pin>,
    to_source: BTreeMap<usize, String>,
    record: Record,
    versions: BTreeMap<String, Option<String>>,
    warnings: Vec<Warning>,
    opted_out: bool,
    rollback: bool,
}

/// One name that the template is to have in another's place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rename {
    /// JSON pointer of the name, from the template's root.
    pub pointer: String,
    /// The name that stands there.
    pub from: String,
    /// The name to put there.
    pub to: String,
}

/// In one word, what admission did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Nothing to pin.
    NoReferences,
    /// The template stays the stored one.
    Unchanged,
    /// Pinning is turned off for the workload or its namespace.
    OptedOut,
    /// A source name was pinned.
    Pinned,
    /// A snapshot name was moved to a newer snapshot.
    Refreshed,
    /// The template changes, its snapshots are the newest already.
    Current,
    /// A rollback: every name was kept.
    Kept,
    /// No source exists: every name was kept.
    SourceMissing,
}

/// What to change in the workload.
#[derive(Debug)]
pub struct Decision {
    /// In one word.
    pub outcome: Outcome,
    /// The names to change in the template.
    pub renames: Vec<Rename>,
    /// The record's text to write; `None` to leave the annotation as it is.
    pub record: Option<String>,
    /// What each source contained.
    pub sources: Record,
    /// The resourceVersion of each source; `None` for one that does not exist.
    pub versions: BTreeMap<String, Option<String>>,
    /// What the client should know.
    pub warnings: Vec<Warning>,
    /// Whether the template, so changed, is another one than the stored: then every snapshot that it names needs a
    /// claim.
    pub changes_template: bool,
}

impl Plan<'_> {
    /// The decision with these names for the snapshots, in the order of [`Plan::pins`].
    #[must_use]
    pub fn decide(&self, names: &[String]) -> Decision {
        let pinned = self.pins.iter().zip(names).flat_map(|(pin, name)| pin.at.iter().map(move |at| (*at, name)));
        let targets: BTreeMap<usize, &String> =
            pinned.chain(self.to_source.iter().map(|(at, name)| (*at, name))).collect();
        let renames: Vec<_> = targets
            .into_iter()
            .filter_map(|(at, to)| Some((self.references.get(at)?, to)))
            .filter(|(reference, to)| reference.name != **to)
            .map(|(reference, to)| Rename {
                pointer: reference.pointer.clone(),
                from: reference.name.clone(),
                to: to.clone(),
            })
            .collect();

        let changes_template =
            self.request.old_template().is_none_or(|old| *old != self.request.template().renamed(&renames));
        let record = Some(self.record.text())
            .filter(|text| !self.record.0.is_empty() && self.request.new.annotation(meta::RECORD) != Some(text));
        Decision {
            outcome: self.outcome(&renames, changes_template),
            renames,
            record,
            sources: self.record.clone(),
            versions: self.versions.clone(),
            warnings: self.warnings.clone(),
            changes_template,
        }
    }

    fn outcome(&self, renames: &[Rename], changes_template: bool) -> Outcome {
        let was_source = |rename: &Rename| self.record.0.contains_key(&rename.from);
        match () {
            () if self.opted_out => Outcome::OptedOut,
            () if !changes_template => Outcome::Unchanged,
            () if self.rollback => Outcome::Kept,
            () if renames.iter().any(was_source) => Outcome::Pinned,
            () if !renames.is_empty() => Outcome::Refreshed,
            () if self.record.0.values().all(Option::is_none) && !self.record.0.is_empty() => Outcome::SourceMissing,
            () => Outcome::Current,
        }
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
