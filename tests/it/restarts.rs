//! Crashes and restarts of confpin change no template; what changed while it was down is not missed.

use std::collections::BTreeMap;

use anyhow::Result;
use testcluster::{Cluster, wait_for};

use crate::support::{
    Kind, SOON, Shop, Workload, World, configmap, deployment,
    manifest::{self, Manifest},
    tests,
};

tests! {
    Own a_restart_rolls_nothing_and_misses_nothing,
}

const RESTARTS: usize = 3;
/// Workloads that nobody touches while confpin restarts.
const QUIET: [(Kind, &str); 6] = [
    (Kind::Deployment, "following"),
    (Kind::Deployment, "staying"),
    (Kind::Deployment, "undone"),
    (Kind::Deployment, "waiting"),
    (Kind::Rollout, "following-canary"),
    (Kind::Rollout, "undone-canary"),
];

async fn a_restart_rolls_nothing_and_misses_nothing() -> Result<()> {
    let world = World::with_arguments(Cluster::builder().rollouts(), &["--min-interval=1s", "--settle=0s"]).await?;
    let shop = world.shop("restarts").await?;
    begin(&shop).await?;
    let mut before = generations(&shop).await?;

    for round in 0..RESTARTS {
        world.restart_confpin().await?;
        all_looked_at(&shop, &format!("restart-{round}")).await?;
        assert_eq!(generations(&shop).await?, before, "restart {round} rolled something");
    }

    // Changed while nobody watched: just the workloads that follow it roll, once.
    world.confpin.kill()?;
    shop.apply([configmap("common", "v2")]).await?;
    world.start_confpin().await?;
    for name in ["following", "following-canary"] {
        wait_value(&shop, name, "v2").await?;
        bump(&mut before, name);
    }
    all_looked_at(&shop, "after-a-change").await?;
    assert_eq!(generations(&shop).await?, before);
    assert_eq!(shop.deployment("undone").value().await?, "v1");
    assert_eq!(shop.rollout("undone-canary").value().await?, "v1");
    assert_eq!(shop.deployment("staying").value().await?, "v1");

    // Likewise what came into being.
    world.confpin.kill()?;
    shop.apply([configmap("missing", "v1")]).await?;
    world.start_confpin().await?;
    wait_value(&shop, "waiting", "v1").await?;
    all_looked_at(&shop, "after-a-creation").await?;
    bump(&mut before, "waiting");
    assert_eq!(generations(&shop).await?, before);

    // An undo holds until its source changes again.
    world.restart_confpin().await?;
    shop.apply([configmap("undoing", "v3")]).await?;
    for name in ["undone", "undone-canary"] {
        wait_value(&shop, name, "v3").await?;
        bump(&mut before, name);
    }
    all_looked_at(&shop, "in-the-end").await?;
    assert_eq!(generations(&shop).await?, before);
    wait_rolled_out(&shop).await
}

/// Workloads that follow their source, that do not, that were undone, and whose source is missing.
async fn begin(shop: &Shop<'_>) -> Result<()> {
    let sources =
        [("common", "v1"), ("undoing", "v1"), ("witnessed", "v1")].map(|(name, value)| configmap(name, value));
    let workloads = [
        following(Kind::Deployment, "following", "common"),
        following(Kind::Rollout, "following-canary", "common"),
        deployment("staying").uses("common").replicas(0),
        following(Kind::Deployment, "undone", "undoing"),
        following(Kind::Rollout, "undone-canary", "undoing"),
        following(Kind::Deployment, "witness", "witnessed"),
        deployment("waiting").uses("missing").replicas(0),
    ];
    shop.apply(sources.into_iter().chain(workloads.map(|workload| workload.json()))).await?;
    wait_rolled_out(shop).await?;
    shop.apply([configmap("undoing", "v2")]).await?;
    wait_value(shop, "undone", "v2").await?;
    wait_value(shop, "undone-canary", "v2").await?;
    wait_rolled_out(shop).await?;
    shop.run("rollout undo deployment/undone").await?;
    shop.argo_rollouts("undo undone-canary").await?;
    for name in ["undone", "undone-canary"] {
        assert_eq!(workload(shop, name).value().await?, "v1");
    }
    wait_rolled_out(shop).await
}

fn following(kind: Kind, name: &str, source: &str) -> Manifest {
    manifest::workload(kind, name).uses(source).replicas(0).with(|object| {
        object["metadata"]["annotations"]["confpin.dev/rollout"] = "on-change".into();
    })
}

/// The workload of this name.
fn workload<'a>(shop: &'a Shop<'a>, name: &str) -> Workload<'a> {
    shop.workload(QUIET.into_iter().find(|(_, quiet)| *quiet == name).map_or(Kind::Deployment, |(kind, _)| kind), name)
}

async fn wait_rolled_out(shop: &Shop<'_>) -> Result<()> {
    for (kind, name) in QUIET {
        shop.workload(kind, name).wait_rolled_out().await?;
    }
    Ok(())
}

/// Waits until confpin has looked at every workload: they are looked at in the order in which they are asked for, so
/// all of them have been once another one that came later is done. The first of the two changes may be joined with
/// what the start of confpin asked for.
async fn all_looked_at(shop: &Shop<'_>, round: &str) -> Result<()> {
    for value in [format!("{round}-first"), format!("{round}-second")] {
        shop.apply([configmap("witnessed", &value)]).await?;
        wait_value(shop, "witness", &value).await?;
    }
    Ok(())
}

async fn wait_value(shop: &Shop<'_>, name: &str, value: &str) -> Result<()> {
    let workload = workload(shop, name);
    wait_for(&format!("{name} to have {value}"), SOON, async || Ok((workload.value().await? == value).then_some(())))
        .await
}

async fn generations(shop: &Shop<'_>) -> Result<BTreeMap<&'static str, i64>> {
    let mut generations = BTreeMap::new();
    for (kind, name) in QUIET {
        generations.insert(name, shop.workload(kind, name).generation().await?);
    }
    Ok(generations)
}

fn bump(generations: &mut BTreeMap<&'static str, i64>, name: &str) {
    if let Some(generation) = generations.get_mut(name) {
        *generation += 1;
    }
}
