//! What admission would decide, from reads alone, or with no cluster at all.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::DynamicObject;
use serde_json::Value;

use crate::cluster::{self, Cluster};
use crate::pin::decision::{Assessment, Decision, Facts, Rename, assess};
use crate::pin::exempt::Exemptions;
use crate::pin::kinds::WorkloadKind;
use crate::pin::request::{Request, Workload};
use crate::pin::snapshot::Source;
use crate::reconcile::index::Key;

/// Why nothing can be foreseen: admission would refuse.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server refused or could not be asked.
    #[error(transparent)]
    Cluster(#[from] cluster::Error),
    /// Foreign objects have all of a snapshot's names.
    #[error("all names that a snapshot of ConfigMap {0} can have are taken by other objects")]
    NamesTaken(String),
}

/// Where ConfigMaps and ReplicaSets are read.
#[derive(Clone, Copy)]
pub struct Sources<'a> {
    /// The cluster, if one is asked.
    pub cluster: Option<&'a Cluster>,
    /// ConfigMaps as they will be; they come before the cluster's.
    pub applied: &'a BTreeMap<Key, ConfigMap>,
}

/// A decision, and the snapshots that it needs.
#[derive(Debug)]
pub struct Foreseen {
    /// What would be decided.
    pub decision: Decision,
    /// The snapshots that the template would name, by name.
    pub snapshots: BTreeMap<String, Source>,
}

impl Sources<'_> {
    async fn read(&self, namespace: &str, name: &str) -> Result<Option<ConfigMap>, cluster::Error> {
        match (self.applied.get(&Key::new(namespace, name)), self.cluster) {
            (Some(applied), _) => Ok(Some(applied.clone())),
            (None, Some(cluster)) => cluster.configmap(namespace, name).await,
            (None, None) => Ok(None),
        }
    }

    /// The decision about a request; `None` where nothing is to be pinned (rules 1 and 2).
    ///
    /// # Errors
    /// When the API server refuses or cannot be asked, or admission would refuse.
    pub async fn foresee(
        &self,
        namespace: &str,
        request: &Request,
        exemptions: &Exemptions,
    ) -> Result<Option<Foreseen>, Error> {
        let Assessment::Ask(question) = assess(request, exemptions) else { return Ok(None) };
        let mut facts = Facts::default();
        for name in question.names() {
            let found = self.read(namespace, &name).await?;
            facts.configmaps.insert(name, found);
        }
        for name in question.further_sources(&facts) {
            let found = self.read(namespace, &name).await?;
            facts.configmaps.insert(name, found);
        }
        if let (Some(cluster), true) = (self.cluster, question.may_be_rollback(&facts)) {
            facts.rollback = cluster.is_rollback(namespace, request).await?;
        }
        let plan = question.plan(&facts);
        let mut names = Vec::new();
        let mut snapshots = BTreeMap::new();
        for pin in &plan.pins {
            let mut free = None;
            for name in &pin.candidates {
                let found = match facts.configmaps.get(name) {
                    Some(found) => found.clone(),
                    None => self.read(namespace, name).await?,
                };
                if pin.can_have(found.as_ref()) {
                    free = Some(name.clone());
                    break;
                }
            }
            let name = free.ok_or_else(|| Error::NamesTaken(pin.source.name.clone()))?;
            snapshots.insert(name.clone(), pin.source.clone());
            names.push(name);
        }
        Ok(Some(Foreseen { decision: plan.decide(&names), snapshots }))
    }
}

/// A stored workload as admission sees it.
#[must_use]
pub fn workload(kind: &'static WorkloadKind, object: &DynamicObject) -> Option<Workload> {
    Workload::of(kind, &serde_json::to_value(object).ok()?).ok()
}

/// A pod template with the names changed.
#[must_use]
pub fn renamed(template: &Value, renames: &[Rename]) -> Value {
    let mut template = template.clone();
    for rename in renames {
        if let Some(name) = template.pointer_mut(&rename.pointer) {
            *name = Value::String(rename.to.clone());
        }
    }
    template
}
