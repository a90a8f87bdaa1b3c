//! How long snapshots live.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        apps::v1::{Deployment, ReplicaSet},
        core::v1::{ConfigMap, Namespace, Pod},
    },
};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, ListParams},
};
use serde::de::DeserializeOwned;
use testcluster::wait_for;

use super::{SOON, Shop, World};

/// How long a snapshot may stay whose workload was refused after confpin had made it: its claim is void after two and a
/// half minutes.
pub const REFUSED: std::time::Duration = std::time::Duration::from_secs(300);

impl Shop<'_> {
    /// Waits until the snapshots are just these.
    pub async fn wait_snapshots<'b>(&self, names: impl IntoIterator<Item = &'b str>) -> Result<()> {
        self.wait_long_for_snapshots(SOON, names).await
    }

    /// The same, for as long as is said.
    pub async fn wait_long_for_snapshots<'b>(
        &self,
        deadline: std::time::Duration,
        names: impl IntoIterator<Item = &'b str>,
    ) -> Result<()> {
        let expected: BTreeSet<String> = names.into_iter().map(str::to_owned).collect();
        wait_for(&format!("the snapshots to be {expected:?}"), deadline, async || {
            let found: BTreeSet<_> = self.snapshots().await?.into_keys().collect();
            ensure!(found == expected, "they are {found:?}");
            Ok(Some(()))
        })
        .await
    }

    /// Fails if anything here has a finalizer.
    pub async fn has_no_finalizers(&self) -> Result<()> {
        self.kind_has_no_finalizers::<ConfigMap>().await?;
        self.kind_has_no_finalizers::<Deployment>().await?;
        self.kind_has_no_finalizers::<ReplicaSet>().await?;
        self.kind_has_no_finalizers::<Pod>().await
    }

    async fn kind_has_no_finalizers<K>(&self) -> Result<()>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
    {
        for object in self.api::<K>().list(&ListParams::default()).await?.items {
            ensure!(object.finalizers().is_empty(), "{} has {:?}", object.name_any(), object.finalizers());
        }
        Ok(())
    }

    /// Deletes the namespace, and waits until it is gone.
    pub async fn delete(&self) -> Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.world.client.clone());
        namespaces.delete(self.name(), &DeleteParams::default()).await?;
        wait_for(&format!("the namespace {} to be gone", self.name()), SOON, async || {
            let Some(left) = namespaces.get_opt(self.name()).await? else { return Ok(Some(())) };
            anyhow::bail!("it is {:?}", left.status)
        })
        .await
    }
}

impl World {
    /// Kills confpin and starts it again.
    pub async fn restart_confpin(&self) -> Result<()> {
        self.confpin.kill()?;
        self.start_confpin().await.context("confpin did not come back")
    }
}
