//! Snapshots live as long as the ReplicaSets that name them, by Kubernetes' own controllers.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail, ensure};
use kube::ResourceExt;
use testcluster::wait_for;

use crate::support::{Kind, SOON, World, configmap, manifest, tests, workload::revision};

tests! {
    Shared the_snapshots_of_a_deployment_go_with_its_history,
    Shared the_snapshots_of_a_rollout_go_with_its_history,
}

const CONFIGURATIONS: usize = 15;
const HISTORY: usize = 10;

async fn the_snapshots_of_a_deployment_go_with_its_history(world: &World) -> Result<()> {
    collected_with_the_history(world, Kind::Deployment).await
}

async fn the_snapshots_of_a_rollout_go_with_its_history(world: &World) -> Result<()> {
    collected_with_the_history(world, Kind::Rollout).await
}

async fn collected_with_the_history(world: &World, kind: Kind) -> Result<()> {
    let shop = world.shop("collection").await?;
    let web = shop.workload(kind, "web");
    let manifest = manifest::workload(kind, "web").uses("app-config").replicas(2).history(HISTORY as u32);
    let mut names = Vec::new();
    for value in 0..CONFIGURATIONS {
        shop.apply([configmap("app-config", &format!("v{value}")), manifest.json()]).await?;
        web.wait_rolled_out().await?;
        names.push(web.name().await?);
    }
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), CONFIGURATIONS);

    let kept: BTreeSet<_> = names[CONFIGURATIONS - HISTORY - 1..].iter().cloned().collect();
    wait_for("just the snapshots of the history to be left", SOON, async || {
        let snapshots: BTreeSet<_> = shop.snapshots().await?.into_keys().collect();
        let named = web.replica_set_names().await?;
        ensure!(snapshots == kept && named == kept, "there are {snapshots:?}, ReplicaSets name {named:?}");
        Ok(Some(()))
    })
    .await?;
    shop.wait_owned().await?;

    // Back to an older content: its snapshot and its ReplicaSet are used again.
    let before = shop.configmap(&names[CONFIGURATIONS - 5]).await?;
    let sets: BTreeSet<_> = web.replica_sets().await?.iter().map(ResourceExt::uid).collect();
    shop.apply([configmap("app-config", &format!("v{}", CONFIGURATIONS - 5)), manifest.json()]).await?;
    web.wait_rolled_out().await?;
    assert_eq!(web.name().await?, before.name_any());
    assert_eq!(shop.configmap(&before.name_any()).await?.uid(), before.uid());
    let now: BTreeSet<_> = web.replica_sets().await?.iter().map(ResourceExt::uid).collect();
    assert_eq!(now, sets);
    let newest = web.replica_sets().await?.into_iter().max_by_key(revision).context("there is a ReplicaSet")?;
    ensure!(serde_json::to_string(&newest.spec)?.contains(&before.name_any()), "another ReplicaSet is the newest");
    shop.wait_owned().await?;

    shop.run(&format!("delete {web}")).await?;
    wait_for("all snapshots to be collected", SOON, async || {
        let left = shop.snapshots().await?;
        if !left.is_empty() {
            bail!("{:?} are left", left.keys());
        }
        Ok(Some(()))
    })
    .await
}
