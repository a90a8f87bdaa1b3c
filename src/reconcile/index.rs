//! What the reconciler knows: snapshots, and the workloads and holders that concern them. Every question is answered by a
//! look-up, so that the work for an event does not grow with the number of objects.

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
use crate::pin::snapshot_state::SnapshotState;
use crate::reconcile::many::Many;
use crate::reconcile::texts::Texts;

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

    /// The key of `name` in `namespace`, of the very texts.
    #[must_use]
    pub fn shared(namespace: &Arc<str>, name: &Arc<str>) -> Self {
        Self { namespace: namespace.clone(), name: name.clone() }
    }
}

/// A workload's kind and key.
pub type WorkloadKey = (&'static WorkloadKind, Key);

/// The key of a workload.
#[must_use]
pub fn workload_key(workload: &WorkloadState) -> WorkloadKey {
    (workload.kind, Key::shared(&workload.namespace, &workload.name))
}

/// The workload that a claim on a snapshot of `namespace` is of.
#[must_use]
pub fn claimant(namespace: &str, claim: &Claim) -> Option<WorkloadKey> {
    let (kind, group) = claim.kind.split_once('.')?;
    Some((kinds::find(group, kind)?, Key::new(namespace, &claim.name)))
}

/// Snapshots, workloads and holders, by themselves and by what they name.
#[derive(Debug, Default)]
pub struct Index {
    snapshots: HashMap<Key, Arc<SnapshotState>>,
    workloads: HashMap<WorkloadKey, Arc<WorkloadState>>,
    holders: HashMap<Key, Arc<Holder>>,
    workloads_by_configmap: Many<Key, WorkloadKey>,
    holders_by_configmap: Many<Key, Key>,
    workloads_by_source: Many<Key, WorkloadKey>,
    workloads_by_namespace: Many<Arc<str>, WorkloadKey>,
    rollouts_by_deployment: Many<Key, WorkloadKey>,
    snapshots_by_claimant: Many<WorkloadKey, Key>,
    superseded: HashMap<Key, Box<str>>,
    namespaces: HashMap<String, NamespaceFacts>,
    unpinned: HashSet<WorkloadKey>,
    exemptions: Exemptions,
    texts: Texts,
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

    /// A snapshot.
    #[must_use]
    pub fn snapshot(&self, key: &Key) -> Option<&Arc<SnapshotState>> {
        self.snapshots.get(key)
    }

    /// Every snapshot.
    pub fn snapshots(&self) -> impl Iterator<Item = (&Key, &Arc<SnapshotState>)> {
        self.snapshots.iter()
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
    pub fn put_workload(&mut self, mut workload: WorkloadState) -> BTreeSet<Key> {
        self.texts.share([&mut workload.namespace, &mut workload.name]);
        self.texts.share(&mut workload.configmaps);
        self.texts.share(&mut workload.workload_ref);
        let key = workload_key(&workload);
        let mut concerned = self.remove_workload(&key);
        let in_namespace = |name: &Arc<str>| Key::shared(&workload.namespace, name);
        for name in &workload.configmaps {
            self.workloads_by_configmap.insert(in_namespace(name), key.clone());
        }
        for source in recorded_sources(&workload) {
            self.workloads_by_source.insert(in_namespace(&self.texts.get(&source)), key.clone());
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
            let in_namespace = |name: &Arc<str>| Key::shared(&workload.namespace, name);
            for name in &workload.configmaps {
                self.workloads_by_configmap.remove(&in_namespace(name), key);
            }
            for source in recorded_sources(&workload) {
                self.workloads_by_source.remove(&in_namespace(&source.into()), key);
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
        let in_namespace = |name: &Arc<str>| Key::shared(&workload.namespace, name);
        let deployment = workload.workload_ref.as_ref();
        let deployment = deployment.and_then(|name| self.workloads.get(&(&kinds::DEPLOYMENT, in_namespace(name))));
        let names = workload.configmaps.iter().chain(deployment.into_iter().flat_map(|it| &it.configmaps));
        let named = names.map(in_namespace);
        named.chain(self.snapshots_by_claimant.get(key).cloned()).collect()
    }

    /// Takes in a holder. Returns the ConfigMaps that it names or named.
    pub fn put_holder(&mut self, mut holder: Holder) -> BTreeSet<Key> {
        self.texts.share([&mut holder.namespace]);
        self.texts.share(&mut holder.configmaps);
        self.texts.share(holder.controller.as_mut().map(|controller| &mut controller.name));
        let key = Key::shared(&holder.namespace, &holder.name);
        let mut concerned = self.remove_holder(&key);
        // Of a whole cluster's ReplicaSets only those that may name a snapshot are worth their memory.
        if !holder.configmaps.iter().any(|name| snapshot::looks_like_one(name)) {
            return concerned;
        }
        for name in &holder.configmaps {
            let configmap = Key::shared(&holder.namespace, name);
            self.holders_by_configmap.insert(configmap.clone(), key.clone());
            concerned.insert(configmap);
        }
        self.holders.insert(key, Arc::new(holder));
        concerned
    }

    /// Forgets a holder. Returns the ConfigMaps that it named.
    pub fn remove_holder(&mut self, key: &Key) -> BTreeSet<Key> {
        let Some(holder) = self.holders.remove(key) else { return BTreeSet::new() };
        let in_namespace = |name: &Arc<str>| Key::shared(&holder.namespace, name);
        let named: BTreeSet<_> = holder.configmaps.iter().map(in_namespace).collect();
        for configmap in &named {
            self.holders_by_configmap.remove(configmap, key);
        }
        named
    }

    /// Takes in a snapshot. Returns its key.
    pub fn put_snapshot(&mut self, mut snapshot: SnapshotState) -> Key {
        self.texts.share([&mut snapshot.namespace, &mut snapshot.name]);
        let key = Key::shared(&snapshot.namespace, &snapshot.name);
        self.remove_snapshot(&key);
        for claimant in claimants(&snapshot) {
            self.snapshots_by_claimant.insert(claimant, key.clone());
        }
        self.snapshots.insert(key.clone(), Arc::new(snapshot));
        key
    }

    /// Forgets a snapshot.
    pub fn remove_snapshot(&mut self, key: &Key) {
        self.superseded.remove(key);
        let Some(snapshot) = self.snapshots.remove(key) else { return };
        for claimant in claimants(&snapshot) {
            self.snapshots_by_claimant.remove(&claimant, key);
        }
    }

    /// Notes that a write has made `after` of a snapshot's resourceVersion `before`.
    pub fn written(&mut self, snapshot: &Key, before: &str, after: Option<&str>) {
        // A patch that changes nothing is followed by no event.
        if Some(before) != after {
            self.superseded.insert(snapshot.clone(), before.into());
        }
    }

    /// Whether a snapshot is known to be past this resourceVersion, so that its watch is about to bring another.
    #[must_use]
    pub fn is_superseded(&self, snapshot: &Key, version: &str) -> bool {
        self.superseded.get(snapshot).is_some_and(|superseded| **superseded == *version)
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

    /// Forgets the snapshots that `seen` lacks, after a fresh list. Returns them.
    pub fn retain_snapshots(&mut self, seen: &HashSet<Key>) -> Vec<Key> {
        let gone: Vec<_> = self.snapshots.keys().filter(|key| !seen.contains(key)).cloned().collect();
        gone.iter().for_each(|key| self.remove_snapshot(key));
        gone
    }
}

fn claimants(snapshot: &SnapshotState) -> impl Iterator<Item = WorkloadKey> {
    snapshot.claims().filter_map(|claim| claimant(&snapshot.namespace, claim))
}

fn recorded_sources(workload: &WorkloadState) -> impl Iterator<Item = String> + use<> {
    let record = workload.annotation(meta::RECORD).map(Record::parse).unwrap_or_default();
    record.0.into_keys()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot() -> SnapshotState {
        SnapshotState::new(
            &kube::api::ObjectMeta {
                namespace: Some("shop".into()),
                name: Some("app-config-0000000000".into()),
                resource_version: Some("1".into()),
                ..<_>::default()
            },
            jiff::Timestamp::UNIX_EPOCH,
        )
    }

    #[test]
    fn a_version_is_superseded_until_the_watch_shows_the_next() {
        let mut index = Index::default();
        let key = index.put_snapshot(snapshot());
        assert!(!index.is_superseded(&key, "1"));
        index.written(&key, "1", Some("2"));
        assert!(index.is_superseded(&key, "1"));
        assert!(!index.is_superseded(&key, "2"));
        assert!(!index.is_superseded(&Key::new("other", &key.name), "1"));
        index.put_snapshot(snapshot());
        assert!(!index.is_superseded(&key, "1"));
    }

    #[test]
    fn a_write_that_changed_nothing_supersedes_nothing() {
        let mut index = Index::default();
        let key = index.put_snapshot(snapshot());
        index.written(&key, "1", Some("1"));
        assert!(!index.is_superseded(&key, "1"));
    }

    #[test]
    fn a_claimant_is_known_while_the_claim_is() {
        let claim = Claim {
            kind: kinds::DEPLOYMENT.qualified(),
            name: "web".into(),
            uid: None,
            generation: 1,
            at: jiff::Timestamp::UNIX_EPOCH,
        };
        let workload = (&kinds::DEPLOYMENT, Key::new("shop", "web"));
        let claimed = SnapshotState { claims: [("key".to_owned(), Some(claim))].into(), ..snapshot() };
        let mut index = Index::default();
        let key = index.put_snapshot(claimed);
        assert_eq!(index.remove_workload(&workload), BTreeSet::from([key]));
        index.put_snapshot(snapshot());
        assert_eq!(index.remove_workload(&workload), BTreeSet::new());
    }

    #[test]
    fn what_a_fresh_list_lacks_is_gone() {
        let mut index = Index::default();
        let key = index.put_snapshot(snapshot());
        assert!(index.retain_snapshots(&HashSet::from([key.clone()])).is_empty());
        assert!(index.retain_snapshots(&HashSet::new()).contains(&key));
        assert!(index.snapshot(&key).is_none());
    }
}
