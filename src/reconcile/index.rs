//! What the reconciler knows: workloads and holders, and by which snapshots they are concerned. Every question is
//! answered by a look-up, so that the work for an event does not grow with the number of objects.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use crate::pin::claim::Claim;
use crate::pin::exempt::Exemptions;
use crate::pin::kinds::{self, WorkloadKind};
use crate::pin::meta;
use crate::pin::objects::{Holder, NamespaceFacts, WorkloadState};
use crate::pin::ownership::Naming;
use crate::pin::record::Record;
use crate::pin::snapshot;
use crate::reconcile::many::Many;

/// Namespace and name of a ConfigMap or a ReplicaSet. Shared texts, as the indexes have the same key in several places.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The namespace.
    pub namespace: Arc<str>,
    /// The name.
    pub name: Arc<str>,
}

impl Key {
    /// The key of `name` in `namespace`.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

/// A workload's kind and key.
pub type WorkloadKey = (&'static WorkloadKind, Key);

/// The key of a workload.
#[must_use]
pub fn workload_key(workload: &WorkloadState) -> WorkloadKey {
    (workload.kind, Key { namespace: workload.namespace.clone(), name: workload.name.clone() })
}

/// The workload that a claim on a snapshot of `namespace` is of.
#[must_use]
pub fn claimant(namespace: &str, claim: &Claim) -> Option<WorkloadKey> {
    let (kind, group) = claim.kind.split_once('.')?;
    Some((kinds::find(group, kind)?, Key::new(namespace, &claim.name)))
}

/// Workloads and holders, by themselves and by what they name.
#[derive(Debug, Default)]
pub struct Index {
    workloads: HashMap<WorkloadKey, Arc<WorkloadState>>,
    holders: HashMap<Key, Arc<Holder>>,
    workloads_by_configmap: Many<Key, WorkloadKey>,
    holders_by_configmap: Many<Key, Key>,
    workloads_by_source: Many<Key, WorkloadKey>,
    workloads_by_namespace: Many<Arc<str>, WorkloadKey>,
    rollouts_by_deployment: Many<Key, WorkloadKey>,
    snapshots_by_claimant: Many<WorkloadKey, Key>,
    claimants: HashMap<Key, Vec<WorkloadKey>>,
    superseded: HashMap<Key, String>,
    namespaces: HashMap<String, NamespaceFacts>,
    unpinned: HashSet<WorkloadKey>,
    exemptions: Exemptions,
}

impl Index {
    /// An index that knows nothing but what is never pinned.
    #[must_use]
    pub fn new(exemptions: Exemptions) -> Self {
        Self { exemptions, ..Self::default() }
    }

    /// The workloads whose stored template names a ConfigMap, and the Rollouts that refer to one of these.
    #[must_use]
    pub fn workloads_naming(&self, configmap: &Key) -> Vec<Naming> {
        let mut found = Vec::new();
        for key in self.workloads_by_configmap.get(configmap) {
            let Some(workload) = self.workloads.get(key) else { continue };
            found.push(Naming { workload: workload.clone(), by_reference: None });
            for rollout in self.referring_rollouts(key).filter_map(|rollout| self.workloads.get(rollout)) {
                found.push(Naming { workload: rollout.clone(), by_reference: Some(workload.clone()) });
            }
        }
        found
    }

    /// The holders whose template names a ConfigMap.
    #[must_use]
    pub fn holders_naming(&self, configmap: &Key) -> Vec<Arc<Holder>> {
        self.holders_by_configmap.get(configmap).filter_map(|key| self.holders.get(key)).cloned().collect()
    }

    /// Every ConfigMap that a workload or a holder names.
    pub fn named(&self) -> impl Iterator<Item = &Key> {
        self.workloads_by_configmap.keys().chain(self.holders_by_configmap.keys())
    }

    /// A workload.
    #[must_use]
    pub fn workload(&self, key: &WorkloadKey) -> Option<&Arc<WorkloadState>> {
        self.workloads.get(key)
    }

    /// The workload that controls a holder.
    #[must_use]
    pub fn controller(&self, holder: &Holder) -> Option<&Arc<WorkloadState>> {
        let controller = holder.controller.as_ref()?;
        self.workloads.get(&(controller.kind?, Key::new(&holder.namespace, &controller.name)))
    }

    fn referring_rollouts(&self, deployment: &WorkloadKey) -> impl Iterator<Item = &WorkloadKey> {
        let is_deployment = *deployment.0 == kinds::DEPLOYMENT;
        self.rollouts_by_deployment.get(&deployment.1).filter(move |_| is_deployment)
    }

    /// The workloads whose record has this source.
    pub fn workloads_with_source(&self, source: &Key) -> impl Iterator<Item = &WorkloadKey> {
        self.workloads_by_source.get(source)
    }

    /// The workloads of a namespace.
    pub fn workloads_in(&self, namespace: &str) -> impl Iterator<Item = &WorkloadKey> {
        self.workloads_by_namespace.get(namespace)
    }

    /// Every workload.
    pub fn workloads(&self) -> impl Iterator<Item = &WorkloadKey> {
        self.workloads.keys()
    }

    /// What is known of a namespace; of one that is not known, the defaults.
    #[must_use]
    pub fn namespace(&self, name: &str) -> NamespaceFacts {
        self.namespaces.get(name).copied().unwrap_or_default()
    }

    /// How many workloads of namespaces that opt in have never been decided: they were there before confpin.
    #[must_use]
    pub fn unpinned(&self) -> usize {
        self.unpinned.len()
    }

    /// Takes in a namespace, or forgets it.
    pub fn put_namespace(&mut self, name: &str, facts: Option<NamespaceFacts>) {
        match facts {
            Some(facts) => self.namespaces.insert(name.to_owned(), facts),
            None => self.namespaces.remove(name),
        };
        let workloads: Vec<_> = self.workloads_by_namespace.get(name).cloned().collect();
        workloads.into_iter().for_each(|key| self.judge_pinned(key));
    }

    fn judge_pinned(&mut self, key: WorkloadKey) {
        let namespace = self.namespace(&key.1.namespace);
        let is_unpinned = self.workloads.get(&key).is_some_and(|workload| {
            namespace.enabled
                && !namespace.opts_out
                && !workload.opts_out()
                && workload.annotation(meta::RECORD).is_none()
                && workload.configmaps.iter().any(|name| !self.exemptions.name(name))
        });
        match is_unpinned {
            true => self.unpinned.insert(key),
            false => self.unpinned.remove(&key),
        };
    }

    /// Takes in a workload. Returns the ConfigMaps that it concerns: those that it names or named, and those that it
    /// has claims on.
    pub fn put_workload(&mut self, workload: WorkloadState) -> BTreeSet<Key> {
        let key = workload_key(&workload);
        let mut concerned = self.remove_workload(&key);
        let in_namespace = |name: &str| Key::new(&workload.namespace, name);
        for name in &workload.configmaps {
            self.workloads_by_configmap.insert(in_namespace(name), key.clone());
        }
        for source in recorded_sources(&workload) {
            self.workloads_by_source.insert(in_namespace(&source), key.clone());
        }
        if let Some(deployment) = &workload.workload_ref {
            self.rollouts_by_deployment.insert(in_namespace(deployment), key.clone());
        }
        self.workloads_by_namespace.insert(workload.namespace.clone(), key.clone());
        self.workloads.insert(key.clone(), Arc::new(workload));
        concerned.extend(self.concerned_by(&key));
        self.judge_pinned(key);
        concerned
    }

    /// Forgets a workload. Returns the ConfigMaps that it concerned.
    pub fn remove_workload(&mut self, key: &WorkloadKey) -> BTreeSet<Key> {
        let concerned = self.concerned_by(key);
        if let Some(workload) = self.workloads.remove(key) {
            let in_namespace = |name: &str| Key::new(&workload.namespace, name);
            for name in &workload.configmaps {
                self.workloads_by_configmap.remove(&in_namespace(name), key);
            }
            for source in recorded_sources(&workload) {
                self.workloads_by_source.remove(&in_namespace(&source), key);
            }
            if let Some(deployment) = &workload.workload_ref {
                self.rollouts_by_deployment.remove(&in_namespace(deployment), key);
            }
            self.workloads_by_namespace.remove(&workload.namespace, key);
        }
        self.unpinned.remove(key);
        concerned
    }

    fn concerned_by(&self, key: &WorkloadKey) -> BTreeSet<Key> {
        let Some(workload) = self.workloads.get(key) else {
            return self.snapshots_by_claimant.get(key).cloned().collect();
        };
        let deployment = workload
            .workload_ref
            .as_ref()
            .and_then(|name| self.workloads.get(&(&kinds::DEPLOYMENT, Key::new(&workload.namespace, name))));
        let names = workload.configmaps.iter().chain(deployment.into_iter().flat_map(|it| &it.configmaps));
        let named = names.map(|name| Key::new(&workload.namespace, name));
        named.chain(self.snapshots_by_claimant.get(key).cloned()).collect()
    }

    /// Takes in a holder. Returns the ConfigMaps that it names or named.
    pub fn put_holder(&mut self, holder: Holder) -> BTreeSet<Key> {
        let key = Key { namespace: holder.namespace.clone(), name: holder.name.clone() };
        let mut concerned = self.remove_holder(&key);
        // Of a whole cluster's ReplicaSets only those that may name a snapshot are worth their memory.
        if !holder.configmaps.iter().any(|name| snapshot::looks_like_one(name)) {
            return concerned;
        }
        for name in &holder.configmaps {
            let configmap = Key::new(&holder.namespace, name);
            self.holders_by_configmap.insert(configmap.clone(), key.clone());
            concerned.insert(configmap);
        }
        self.holders.insert(key, Arc::new(holder));
        concerned
    }

    /// Forgets a holder. Returns the ConfigMaps that it named.
    pub fn remove_holder(&mut self, key: &Key) -> BTreeSet<Key> {
        let Some(holder) = self.holders.remove(key) else { return BTreeSet::new() };
        let named: BTreeSet<_> = holder.configmaps.iter().map(|name| Key::new(&holder.namespace, name)).collect();
        for configmap in &named {
            self.holders_by_configmap.remove(configmap, key);
        }
        named
    }

    /// Notes that a write has made `after` of a snapshot's resourceVersion `before`.
    pub fn written(&mut self, snapshot: &Key, before: Option<&str>, after: Option<&str>) {
        // A patch that changes nothing is followed by no event.
        if let Some(before) = before.filter(|_| before != after) {
            self.superseded.insert(snapshot.clone(), before.to_owned());
        }
    }

    /// Whether a snapshot is known to be past this resourceVersion, so that its watch is about to bring another.
    #[must_use]
    pub fn is_superseded(&self, snapshot: &Key, version: Option<&str>) -> bool {
        version.is_some() && self.superseded.get(snapshot).map(String::as_str) == version
    }

    /// Takes in who has claims on a snapshot, as its watch shows it.
    pub fn put_claims<'a>(&mut self, snapshot: &Key, claims: impl IntoIterator<Item = &'a Claim>) {
        self.superseded.remove(snapshot);
        for claimant in self.claimants.remove(snapshot).into_iter().flatten() {
            self.snapshots_by_claimant.remove(&claimant, snapshot);
        }
        let claimants: Vec<_> = claims.into_iter().filter_map(|claim| claimant(&snapshot.namespace, claim)).collect();
        if claimants.is_empty() {
            return;
        }
        for claimant in &claimants {
            self.snapshots_by_claimant.insert(claimant.clone(), snapshot.clone());
        }
        self.claimants.insert(snapshot.clone(), claimants);
    }

    /// Forgets the workloads of `kind` that `seen` lacks, after a fresh list. Returns the ConfigMaps that they
    /// concerned.
    pub fn retain_workloads(&mut self, kind: &WorkloadKind, seen: &HashSet<Key>) -> BTreeSet<Key> {
        let gone: Vec<_> =
            self.workloads.keys().filter(|(own, key)| *own == kind && !seen.contains(key)).cloned().collect();
        gone.iter().flat_map(|key| self.remove_workload(key)).collect()
    }

    /// Forgets the holders that `seen` lacks, after a fresh list. Returns the ConfigMaps that they named.
    pub fn retain_holders(&mut self, seen: &HashSet<Key>) -> BTreeSet<Key> {
        let gone: Vec<_> = self.holders.keys().filter(|key| !seen.contains(key)).cloned().collect();
        gone.iter().flat_map(|key| self.remove_holder(key)).collect()
    }
}

fn recorded_sources(workload: &WorkloadState) -> impl Iterator<Item = String> + use<> {
    let record = workload.annotation(meta::RECORD).map(Record::parse).unwrap_or_default();
    record.0.into_keys()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_superseded_until_the_watch_shows_the_next() {
        let (key, mut index) = (Key::new("shop", "app-config-0000000000"), Index::default());
        assert!(!index.is_superseded(&key, Some("1")));
        index.written(&key, Some("1"), Some("2"));
        assert!(index.is_superseded(&key, Some("1")));
        assert!(!index.is_superseded(&key, Some("2")));
        assert!(!index.is_superseded(&Key::new("other", &key.name), Some("1")));
        index.put_claims(&key, []);
        assert!(!index.is_superseded(&key, Some("1")));
    }

    #[test]
    fn a_write_that_changed_nothing_supersedes_nothing() {
        let (key, mut index) = (Key::new("shop", "app-config-0000000000"), Index::default());
        index.written(&key, Some("1"), Some("1"));
        index.written(&key, None, Some("2"));
        assert!(!index.is_superseded(&key, Some("1")) && !index.is_superseded(&key, None));
    }
}
