//! Fast flips between two contents while Kubernetes collects: nothing that is named may ever be missing.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use testcluster::{Builder, Cluster, Component, wait_for};

use crate::support::{Kind, SOON, Shop, Workload, World, configmap, history::History, manifest, tests};

tests! {
    Own flips_at_the_history_limit_never_lose_a_named_snapshot,
    Own flips_over_restarts_of_confpin_and_of_kubernetes_never_lose_a_named_snapshot,
    Own flips_of_rollouts_never_lose_a_named_snapshot,
}

/// Changes of the configuration by each of the two clients.
const FLIPS: usize = 180;
/// Likewise of Rollouts, whose controller needs some seconds for each.
const ROLLOUT_FLIPS: usize = 24;
/// How long a client tries again where confpin does not run.
const PATIENCE: Duration = Duration::from_secs(120);

/// A workload, how many old ReplicaSets it keeps, and how many contents its source goes through: one more than there
/// are ReplicaSets, so that Kubernetes collects a snapshot while the client is about to go back to it.
#[derive(Clone, Copy)]
struct Client {
    kind: Kind,
    name: &'static str,
    limit: usize,
    contents: usize,
}

impl Client {
    fn workload<'a>(self, shop: &'a Shop<'a>) -> Workload<'a> {
        shop.workload(self.kind, self.name)
    }
}

const NONE: Client = Client { kind: Kind::Deployment, name: "none", limit: 0, contents: 2 };
const ONE: Client = Client { kind: Kind::Deployment, name: "one", limit: 1, contents: 3 };
const THIRD: Client = Client { kind: Kind::Deployment, name: "third", limit: 0, contents: 2 };

async fn flips_at_the_history_limit_never_lose_a_named_snapshot() -> Result<()> {
    let world = start(Cluster::builder()).await?;
    let shop = world.shop("race").await?;
    let history = History::watch(&shop).await?;
    tokio::try_join!(flip(&shop, NONE, FLIPS), flip(&shop, ONE, FLIPS))?;
    converge(&shop, [NONE, ONE]).await?;
    history.check().await
}

async fn flips_over_restarts_of_confpin_and_of_kubernetes_never_lose_a_named_snapshot() -> Result<()> {
    let world = start(Cluster::builder()).await?;
    let shop = world.shop("race").await?;
    let history = History::watch(&shop).await?;
    let faults = async {
        for _ in 0..2 {
            world.confpin.kill()?;
            world.start_confpin().await?;
            flip(&shop, THIRD, 10).await?;
            for component in [Component::ControllerManager, Component::ApiServer] {
                world.cluster.kill(component)?;
                world.cluster.start_component(component).await?;
                flip(&shop, THIRD, 10).await?;
            }
        }
        Ok(())
    };
    tokio::try_join!(flip(&shop, NONE, FLIPS / 2), flip(&shop, ONE, FLIPS / 2), faults)?;
    converge(&shop, [NONE, ONE]).await?;
    history.check().await
}

async fn flips_of_rollouts_never_lose_a_named_snapshot() -> Result<()> {
    let world = start(Cluster::builder().rollouts()).await?;
    let shop = world.shop("race").await?;
    let history = History::watch(&shop).await?;
    let clients = [NONE, ONE].map(|client| Client { kind: Kind::Rollout, ..client });
    // A Deployment flips with them: it shares a source.
    let (none, one) = (flip(&shop, clients[0], ROLLOUT_FLIPS), flip(&shop, clients[1], ROLLOUT_FLIPS));
    tokio::try_join!(none, one, flip(&shop, THIRD, FLIPS / 2))?;
    converge(&shop, clients).await?;
    history.check().await
}

/// Unused snapshots go after a second: where confpin is wrong about that, it shows.
async fn start(cluster: Builder) -> Result<World> {
    World::with_arguments(cluster, &["--orphan-grace=1s"]).await
}

/// Changes a source of its own and the one that all share, and applies the Deployment, again and again: at once, or
/// just when the old ReplicaSets have gone and their snapshots are about to, or when all is at rest.
async fn flip(shop: &Shop<'_>, client: Client, times: usize) -> Result<()> {
    let Client { kind, name, limit, contents } = client;
    let sources: Api<ConfigMap> = shop.api();
    let workload = client.workload(shop);
    let params = PatchParams::apply("client").force();
    let own = format!("{name}-config");
    let manifest = manifest::workload(kind, name).uses(&own).uses("common").replicas(0).history(limit as u32).json();
    for round in 0..times {
        wait_for("confpin to admit it", PATIENCE, async || {
            for source in [own.as_str(), "common"] {
                let content = configmap(source, &format!("v{}", round % contents));
                sources.patch(source, &params, &Patch::Apply(&content)).await?;
            }
            workload.apply(&manifest).await?;
            Ok(Some(()))
        })
        .await?;
        match round % 4 {
            1 | 2 => wait_collected(shop, client).await?,
            3 => workload.wait_rolled_out().await?,
            _ => {}
        }
    }
    Ok(())
}

/// Waits until a workload has no more old ReplicaSets than it keeps.
async fn wait_collected(shop: &Shop<'_>, client: Client) -> Result<()> {
    wait_for(&format!("the old ReplicaSets of {} to go", client.name), SOON, async || {
        let sets = client.workload(shop).replica_sets().await?.len();
        ensure!(sets <= 1 + client.limit, "there are {sets}");
        Ok(Some(()))
    })
    .await
}

/// In the end everything is rolled out, owned, and what is unused is gone.
async fn converge(shop: &Shop<'_>, clients: [Client; 2]) -> Result<()> {
    for client in clients {
        client.workload(shop).wait_rolled_out().await?;
        wait_collected(shop, client).await?;
    }
    shop.wait_owned().await
}
