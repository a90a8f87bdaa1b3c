//! A workload of a test, as the API server has it.

use std::{collections::BTreeSet, fmt};

use anyhow::{Context, Result, bail};
use k8s_openapi::api::apps::v1::ReplicaSet;
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
    core::GroupVersionKind,
};
use serde_json::Value;
use testcluster::wait_for;

use super::{Kind, SOON, Shop, configmaps};

/// A workload of a test.
#[derive(Clone)]
pub struct Workload<'a> {
    pub shop: &'a Shop<'a>,
    pub kind: Kind,
    pub name: String,
}

/// What changes when anything of an object does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    pub resource_version: String,
    pub generation: i64,
}

impl fmt::Display for Workload<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.kind.plural(), self.name)
    }
}

impl<'a> Workload<'a> {
    pub fn new(shop: &'a Shop<'a>, kind: Kind, name: &str) -> Self {
        Self { shop, kind, name: name.to_owned() }
    }

    fn api(&self) -> Api<DynamicObject> {
        let kind = match self.kind {
            Kind::Deployment => GroupVersionKind::gvk("apps", "v1", "Deployment"),
            Kind::Rollout => GroupVersionKind::gvk("argoproj.io", "v1alpha1", "Rollout"),
        };
        Api::namespaced_with(self.shop.world.client.clone(), self.shop.name(), &ApiResource::from_gvk(&kind))
    }

    /// The whole object.
    pub async fn object(&self) -> Result<DynamicObject> {
        self.api().get(&self.name).await.with_context(|| format!("failed to read {self}"))
    }

    /// Whether it is there.
    pub async fn exists(&self) -> Result<bool> {
        Ok(self.api().get_opt(&self.name).await?.is_some())
    }

    /// Its spec and status.
    pub async fn data(&self) -> Result<Value> {
        Ok(self.object().await?.data)
    }

    /// Its resourceVersion and generation.
    pub async fn version(&self) -> Result<Version> {
        let object = self.object().await?;
        Ok(Version {
            resource_version: object.resource_version().unwrap_or_default(),
            generation: object.metadata.generation.unwrap_or_default(),
        })
    }

    /// Its generation.
    pub async fn generation(&self) -> Result<i64> {
        Ok(self.version().await?.generation)
    }

    /// Its pod template.
    pub async fn template(&self) -> Result<Value> {
        Ok(self.data().await?["spec"]["template"].clone())
    }

    /// The ConfigMaps that its template names.
    pub async fn names(&self) -> Result<BTreeSet<String>> {
        Ok(configmaps::names(&self.template().await?))
    }

    /// The one ConfigMap that its template names.
    pub async fn name(&self) -> Result<String> {
        only(self.names().await?).with_context(|| format!("{self} names not just one ConfigMap"))
    }

    /// The `value` in the one snapshot that its template names: the configuration that its new pods have.
    pub async fn value(&self) -> Result<String> {
        let snapshot = self.shop.configmap(&self.name().await?).await?;
        anyhow::ensure!(snapshot.immutable == Some(true), "{} is no snapshot", snapshot.name_any());
        snapshot.data.unwrap_or_default().remove("value").context("the snapshot has no such key")
    }

    /// The ReplicaSets that it controls, the oldest first.
    pub async fn replica_sets(&self) -> Result<Vec<ReplicaSet>> {
        let uid = self.object().await?.metadata.uid.unwrap_or_default();
        let mut found = self.shop.replica_sets().await?;
        found.retain(|set| set.owner_references().iter().any(|owner| owner.uid == uid));
        found.sort_by_key(revision);
        Ok(found)
    }

    /// The ConfigMap that each of its ReplicaSets names.
    pub async fn replica_set_names(&self) -> Result<BTreeSet<String>> {
        let templates: Result<Vec<_>, _> =
            self.replica_sets().await?.iter().map(|set| serde_json::to_value(&set.spec)).collect();
        Ok(templates?.iter().flat_map(|spec| configmaps::names(&spec["template"])).collect())
    }

    /// Server-side apply of a manifest of it.
    pub async fn apply(&self, manifest: &Value) -> Result<()> {
        let params = PatchParams::apply("client").force();
        self.api().patch(&self.name, &params, &Patch::Apply(manifest)).await?;
        Ok(())
    }

    /// A merge patch of it.
    pub async fn patch(&self, patch: &Value) -> Result<()> {
        self.api().patch(&self.name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// `kubectl rollout restart`, which refuses a second one within a second: it marks the template with the time in seconds.
    pub async fn restart(&self) -> Result<()> {
        let command = format!("rollout restart {self}");
        wait_for("kubectl to restart it", SOON, async || self.shop.run(&command).await.map(Some)).await.map(drop)
    }

    /// Waits until its controller has seen it and its status is as wanted.
    pub async fn wait_status(&self, what: &str, mut is: impl FnMut(&Value) -> bool) -> Result<()> {
        wait_for(&format!("{self} to be {what}"), SOON, async || {
            let object = self.object().await?;
            let status = &object.data["status"];
            if number(&status["observedGeneration"]) < object.metadata.generation || !is(status) {
                bail!("its generation is {:?} and its status {status}", object.metadata.generation);
            }
            Ok(Some(()))
        })
        .await
    }

    /// Waits until all its pods are of the newest template.
    pub async fn wait_rolled_out(&self) -> Result<()> {
        // Tried again, for tests that take the API server away.
        let data = wait_for("the workload to be read", SOON, async || self.data().await.map(Some)).await?;
        let wanted = data["spec"]["replicas"].as_i64().unwrap_or(1);
        let is = |status: &Value, field: &str| status[field].as_i64().unwrap_or_default() == wanted;
        match self.kind {
            Kind::Deployment => {
                self.wait_status("rolled out", |status| {
                    let complete = status["conditions"].as_array().into_iter().flatten().any(|condition| {
                        condition["type"] == "Progressing" && condition["reason"] == "NewReplicaSetAvailable"
                    });
                    complete
                        && ["updatedReplicas", "replicas", "availableReplicas"].iter().all(|field| is(status, field))
                })
                .await
            }
            Kind::Rollout => {
                self.wait_status("rolled out", |status| {
                    status["phase"] == "Healthy"
                        && status["stableRS"] == status["currentPodHash"]
                        && ["updatedReplicas", "replicas", "availableReplicas"].iter().all(|field| is(status, field))
                })
                .await
            }
        }
    }
}

/// The number that the workload's controller gave a ReplicaSet.
pub fn revision(set: &ReplicaSet) -> u64 {
    let number = |key: &str| set.annotations().get(key).and_then(|text| text.parse().ok());
    number("deployment.kubernetes.io/revision").or_else(|| number("rollout.argoproj.io/revision")).unwrap_or_default()
}

/// Rollouts write their observed generation as a text.
fn number(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_str()?.parse().ok())
}

/// The one element.
pub fn only<T: fmt::Debug>(items: impl IntoIterator<Item = T>) -> Result<T> {
    let mut items: Vec<T> = items.into_iter().collect();
    match (items.len(), items.pop()) {
        (1, Some(item)) => Ok(item),
        (_, last) => bail!("expected one, found {items:?} and {last:?}"),
    }
}
