//! A workload whose name the API server makes up.

use anyhow::{Context, Result, bail};
use kube::ResourceExt;
use serde_json::json;
use testcluster::{Cluster, wait_for};

use crate::support::{SOON, World, configmap, deployment, lives::REFUSED, shop::owner_names, tests};

tests! {
    Own a_workload_with_a_generated_name_gets_its_snapshot_owned,
}

/// The API server makes up the name only after admission.
async fn a_workload_with_a_generated_name_gets_its_snapshot_owned() -> Result<()> {
    let world = World::with_arguments(Cluster::builder(), &["--orphan-grace=1s"]).await?;
    let shop = world.shop("generated").await?;
    let unnamed = deployment("web")
        .uses("app-config")
        .replicas(0)
        .with(|object| object["metadata"] = json!({"generateName": "web-"}));
    shop.apply([configmap("app-config", "v1")]).await?;
    shop.send(["create"], [unnamed.json()]).run().await?;
    let sets =
        wait_for("its ReplicaSet", SOON, async || Ok(Some(shop.replica_sets().await?).filter(|sets| !sets.is_empty())))
            .await?;
    let snapshot = shop.snapshots().await?.into_keys().next().context("it was not pinned")?;
    wait_for("the snapshot to be owned", REFUSED, async || {
        let owners = owner_names(&shop.configmap(&snapshot).await?);
        if owners != [sets[0].name_any()] {
            bail!("{owners:?} own it: {}", world.confpin.log_end());
        }
        Ok(Some(()))
    })
    .await
}
