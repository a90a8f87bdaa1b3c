//! Fast flips between two contents while Kubernetes collects: nothing that is named may ever be missing.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use testcluster::{Cluster, Component, wait_for};

use crate::support::{SOON, Shop, World, configmap, deployment, history::History, tests};

tests! {
    Own flips_at_the_history_limit_never_lose_a_named_snapshot,
    Own flips_over_restarts_of_confpin_and_the_controllers_never_lose_a_named_snapshot,
}

/// Changes of the configuration by each of the two clients.
const FLIPS: usize = 160;
/// How long a client tries again where confpin does not run.
const PATIENCE: Duration = Duration::from_secs(120);
/// The two workloads and how many old ReplicaSets each keeps.
const WORKLOADS: [(&str, u32); 2] = [("none", 0), ("one", 1)];

async fn flips_at_the_history_limit_never_lose_a_named_snapshot() -> Result<()> {
    let world = start().await?;
    let shop = world.shop("race").await?;
    let history = History::watch(&shop).await?;
    let [none, one] = WORKLOADS;
    tokio::try_join!(flip(&shop, none, FLIPS), flip(&shop, one, FLIPS))?;
    converge(&shop).await?;
    history.check(&shop).await
}

async fn flips_over_restarts_of_confpin_and_the_controllers_never_lose_a_named_snapshot() -> Result<()> {
    let world = start().await?;
    let shop = world.shop("race").await?;
    let history = History::watch(&shop).await?;
    let [none, one] = WORKLOADS;
    let faults = async {
        for _ in 0..2 {
            world.confpin.kill()?;
            world.start_confpin().await?;
            flip(&shop, ("third", 0), 10).await?;
            world.cluster.restart(Component::ControllerManager).await?;
            flip(&shop, ("third", 0), 10).await?;
        }
        Ok(())
    };
    tokio::try_join!(flip(&shop, none, FLIPS / 2), flip(&shop, one, FLIPS / 2), faults)?;
    converge(&shop).await?;
    history.check(&shop).await
}

/// Unused snapshots go after a second: where confpin is wrong about that, it shows.
async fn start() -> Result<World> {
    World::with_arguments(Cluster::builder(), &["--orphan-grace=1s"]).await
}

/// Sets the common source to one of two contents and applies the Deployment, again and again.
async fn flip(shop: &Shop<'_>, (name, limit): (&str, u32), times: usize) -> Result<()> {
    let sources: Api<ConfigMap> = shop.api();
    let workloads: Api<Deployment> = shop.api();
    let params = PatchParams::apply("client").force();
    let manifest = deployment(name).uses("app-config").replicas(0).history(limit).json();
    for round in 0..times {
        let source = configmap("app-config", if round % 2 == 0 { "a" } else { "b" });
        wait_for("confpin to admit it", PATIENCE, async || {
            sources.patch("app-config", &params, &Patch::Apply(&source)).await?;
            workloads.patch(name, &params, &Patch::Apply(&manifest)).await?;
            Ok(Some(()))
        })
        .await?;
    }
    Ok(())
}

/// In the end everything is rolled out, owned, and what is unused is gone.
async fn converge(shop: &Shop<'_>) -> Result<()> {
    for deployment in shop.api::<Deployment>().list(&<_>::default()).await? {
        shop.deployment(deployment.metadata.name.as_deref().unwrap_or_default()).wait_rolled_out().await?;
    }
    for (name, limit) in WORKLOADS {
        wait_for("the old ReplicaSets to go", SOON, async || {
            let sets = shop.deployment(name).replica_sets().await?.len();
            ensure!(sets <= 1 + limit as usize, "{name} has {sets}");
            Ok(Some(()))
        })
        .await?;
    }
    shop.wait_owned().await
}
