//! Argo Rollouts installed after confpin.

use anyhow::Result;
use testcluster::Cluster;

use crate::support::{World, configmap, deployment, rollout, tests};

tests! {
    Own rollouts_that_are_installed_later_are_pinned_without_a_restart,
}

async fn rollouts_that_are_installed_later_are_pinned_without_a_restart() -> Result<()> {
    let world = World::start(Cluster::builder().fake_node()).await?;
    let shop = world.shop("late").await?;
    shop.apply([configmap("app-config", "v1"), deployment("web").uses("app-config").json()]).await?;
    shop.deployment("web").wait_rolled_out().await?;
    shop.wait_owned().await?;

    world.cluster.install_rollouts().await?;
    shop.apply([configmap("other", "v1"), rollout("canary").uses("other").json()]).await?;
    assert_eq!(shop.rollout("canary").value().await?, "v1");
    shop.rollout("canary").wait_rolled_out().await?;
    shop.wait_owned().await?;
    assert_eq!(shop.snapshots().await?.len(), 2);
    Ok(())
}
