//! A namespace of one test, and what happens in it.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        apps::v1::ReplicaSet,
        core::v1::{ConfigMap, ResourceQuota},
    },
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{Api, Resource, ResourceExt, api::ListParams};
use serde_json::{Value, json};
use testcluster::{Kubectl, wait_for};

use super::{Kind, SOON, Workload, World};

/// A namespace of one test.
#[derive(Clone)]
pub struct Shop<'a> {
    pub world: &'a World,
    name: String,
}

impl<'a> Shop<'a> {
    pub fn new(world: &'a World, name: &str) -> Self {
        Self { world, name: name.to_owned() }
    }

    /// The namespace's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The objects of a kind.
    pub fn api<K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>>(&self) -> Api<K> {
        Api::namespaced(self.world.client.clone(), &self.name)
    }

    /// `kubectl` in this namespace.
    pub fn kubectl<'b>(&self, arguments: impl IntoIterator<Item = &'b str>) -> Kubectl<'a> {
        let namespace = format!("--namespace={}", self.name);
        self.world.cluster.kubectl([namespace].into_iter().chain(arguments.into_iter().map(str::to_owned)))
    }

    /// Runs `kubectl` in this namespace, with the command's words parted by blanks.
    pub async fn run(&self, command: &str) -> Result<String> {
        self.kubectl(command.split(' ')).run().await
    }

    /// `kubectl COMMAND -f` a file with these objects.
    pub fn send<'b>(
        &self,
        command: impl IntoIterator<Item = &'b str>,
        objects: impl IntoIterator<Item = Value>,
    ) -> Kubectl<'a> {
        self.kubectl(command.into_iter().chain(["--filename", "-"])).stdin(file(objects))
    }

    /// `kubectl apply` of a file with these objects.
    pub async fn apply(&self, objects: impl IntoIterator<Item = Value>) -> Result<String> {
        self.send(["apply"], objects).run().await
    }

    /// A workload of this namespace.
    pub fn workload(&self, kind: Kind, name: &str) -> Workload<'_> {
        Workload::new(self, kind, name)
    }

    /// A Deployment of this namespace.
    pub fn deployment(&self, name: &str) -> Workload<'_> {
        self.workload(Kind::Deployment, name)
    }

    /// A Rollout of this namespace.
    pub fn rollout(&self, name: &str) -> Workload<'_> {
        self.workload(Kind::Rollout, name)
    }

    /// The ConfigMap of this name.
    pub async fn configmap(&self, name: &str) -> Result<ConfigMap> {
        self.api().get(name).await.with_context(|| format!("failed to read the ConfigMap {name}"))
    }

    /// All ConfigMaps.
    pub async fn configmaps(&self) -> Result<Vec<ConfigMap>> {
        Ok(self.api::<ConfigMap>().list(&ListParams::default()).await?.items)
    }

    /// The snapshots by name.
    pub async fn snapshots(&self) -> Result<BTreeMap<String, ConfigMap>> {
        let labelled = ListParams::default().labels("confpin.dev/snapshot=true");
        let list = self.api::<ConfigMap>().list(&labelled).await?;
        Ok(list.into_iter().map(|snapshot| (snapshot.name_any(), snapshot)).collect())
    }

    /// The ReplicaSets of whatever workload.
    pub async fn replica_sets(&self) -> Result<Vec<ReplicaSet>> {
        Ok(self.api::<ReplicaSet>().list(&ListParams::default()).await?.items)
    }

    /// Sets the namespace's one quota, called `few`, for a resource, and waits until it counts.
    pub async fn set_quota(&self, resource: &str, most: usize) -> Result<()> {
        let (most, name) = (most.to_string(), "few");
        let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name},
                           "spec": {"hard": {resource: most}}});
        self.apply([quota]).await?;
        wait_for("the quota to count", SOON, async || {
            let status = self.api::<ResourceQuota>().get(name).await?.status.unwrap_or_default();
            let hard = status.hard.unwrap_or_default().remove(resource);
            Ok((hard.is_some_and(|hard| hard.0 == most)).then_some(()))
        })
        .await
    }

    /// Waits until each snapshot is owned by just the ReplicaSets that name it and each name of a ReplicaSet has its
    /// snapshot.
    pub async fn wait_owned(&self) -> Result<()> {
        wait_for("the snapshots to be owned by those that name them", SOON, async || {
            let expected = self.expected_owners().await?;
            let found: BTreeMap<_, _> =
                self.snapshots().await?.into_iter().map(|(name, snapshot)| (name, identities(&snapshot))).collect();
            if found != expected {
                bail!("found {found:?}, expected {expected:?}");
            }
            Ok(Some(()))
        })
        .await
    }

    /// Names of snapshots, and the ReplicaSets that name them.
    async fn expected_owners(&self) -> Result<BTreeMap<String, Vec<Identity>>> {
        let mut expected: BTreeMap<String, Vec<Identity>> = BTreeMap::new();
        for replica_set in self.replica_sets().await? {
            let template = serde_json::to_value(&replica_set.spec)?["template"].clone();
            for name in super::configmaps::names(&template) {
                expected.entry(name).or_default().push((replica_set.name_any(), replica_set.uid().unwrap_or_default()));
            }
        }
        expected.values_mut().for_each(|owners| owners.sort());
        Ok(expected)
    }
}

/// Name and UID: a ReplicaSet that is made anew has the old one's name.
type Identity = (String, String);

/// The owners of an object, in order.
fn identities(object: &impl Resource) -> Vec<Identity> {
    let mut found: Vec<_> = owners(object).into_iter().map(|owner| (owner.name, owner.uid)).collect();
    found.sort();
    found
}

/// The owners of an object.
pub fn owners(object: &impl Resource) -> Vec<OwnerReference> {
    object.meta().owner_references.clone().unwrap_or_default()
}

/// The names of an object's owners, in order.
pub fn owner_names(object: &impl Resource) -> Vec<String> {
    let mut names: Vec<_> = owners(object).into_iter().map(|owner| owner.name).collect();
    names.sort();
    names
}

/// A file that `kubectl` reads.
pub fn file(objects: impl IntoIterator<Item = Value>) -> String {
    let objects: Vec<_> = objects.into_iter().collect();
    json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string()
}
