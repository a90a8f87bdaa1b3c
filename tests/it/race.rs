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
const FLIPS: usize = 180;
/// How long a client tries again where confpin does not run.
const PATIENCE: Duration = Duration::from_secs(120);

/// A workload, how many old ReplicaSets it keeps, and how many contents its source goes through: one more than there
/// are ReplicaSets, so that Kubernetes collects a snapshot while the client is about to go back to it.
#[derive(Clone, Copy)]
struct Client {
    name: &'static str,
    limit: usize,
    contents: usize,
}

const CLIENTS: [Client; 2] =
    [Client { name: "none", limit: 0, contents: 2 }, Client { name: "one", limit: 1, contents: 3 }];
const THIRD: Client = Client { name: "third", limit: 0, contents: 2 };

async fn flips_at_the_history_limit_never_lose_a_named_snapshot() -> Result<()> {
    let world = start().await?;
    let shop = world.shop("race").await?;
    let history = History::watch(&shop).await?;
    let [none, one] = CLIENTS;
    tokio::try_join!(flip(&shop, none, FLIPS), flip(&shop, one, FLIPS))?;
    converge(&shop).await?;
    history.check(&shop).await
}

async fn flips_over_restarts_of_confpin_and_the_controllers_never_lose_a_named_snapshot() -> Result<()> {
    let world = start().await?;
    let shop = world.shop("race").await?;
    let history = History::watch(&shop).await?;
    let [none, one] = CLIENTS;
    let faults = async {
        for _ in 0..2 {
            world.confpin.kill()?;
            world.start_confpin().await?;
            flip(&shop, THIRD, 10).await?;
            world.cluster.restart(Component::ControllerManager).await?;
            flip(&shop, THIRD, 10).await?;
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

/// Changes a source of its own and the one that all share, and applies the Deployment, again and again: at once, or
/// just when the old ReplicaSets have gone and their snapshots are about to, or when all is at rest.
async fn flip(shop: &Shop<'_>, client: Client, times: usize) -> Result<()> {
    let Client { name, limit, contents } = client;
    let sources: Api<ConfigMap> = shop.api();
    let workloads: Api<Deployment> = shop.api();
    let params = PatchParams::apply("client").force();
    let own = format!("{name}-config");
    let manifest = deployment(name).uses(&own).uses("common").replicas(0).history(limit as u32).json();
    for round in 0..times {
        wait_for("confpin to admit it", PATIENCE, async || {
            for source in [own.as_str(), "common"] {
                let content = configmap(source, &format!("v{}", round % contents));
                sources.patch(source, &params, &Patch::Apply(&content)).await?;
            }
            workloads.patch(name, &params, &Patch::Apply(&manifest)).await?;
            Ok(Some(()))
        })
        .await?;
        match round % 4 {
            1 | 2 => wait_collected(shop, client).await?,
            3 => shop.deployment(name).wait_rolled_out().await?,
            _ => {}
        }
    }
    Ok(())
}

/// Waits until a workload has no more old ReplicaSets than it keeps.
async fn wait_collected(shop: &Shop<'_>, client: Client) -> Result<()> {
    wait_for(&format!("the old ReplicaSets of {} to go", client.name), SOON, async || {
        let sets = shop.deployment(client.name).replica_sets().await?.len();
        ensure!(sets <= 1 + client.limit, "there are {sets}");
        Ok(Some(()))
    })
    .await
}

/// In the end everything is rolled out, owned, and what is unused is gone.
async fn converge(shop: &Shop<'_>) -> Result<()> {
    for client in CLIENTS {
        shop.deployment(client.name).wait_rolled_out().await?;
        wait_collected(shop, client).await?;
    }
    shop.wait_owned().await
}
