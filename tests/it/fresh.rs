//! What was applied a millisecond ago is what is pinned.

use anyhow::Result;

use crate::support::{Kind, World, configmap, manifest, tests};

tests! {
    Shared a_deployment_applied_with_its_configmap_always_gets_the_new_content,
    Shared a_rollout_applied_with_its_configmap_always_gets_the_new_content,
}

const ROUNDS: usize = 50;

async fn a_deployment_applied_with_its_configmap_always_gets_the_new_content(world: &World) -> Result<()> {
    always_new(world, Kind::Deployment).await
}

async fn a_rollout_applied_with_its_configmap_always_gets_the_new_content(world: &World) -> Result<()> {
    always_new(world, Kind::Rollout).await
}

async fn always_new(world: &World, kind: Kind) -> Result<()> {
    let shop = world.shop("fresh").await?;
    let web = manifest::workload(kind, "web").uses("app-config").replicas(0).history(2);
    for round in 0..ROUNDS {
        let value = format!("v{round}");
        shop.apply([configmap("app-config", &value), web.json()]).await?;
        assert_eq!(shop.workload(kind, "web").value().await?, value);
    }
    shop.workload(kind, "web").wait_rolled_out().await?;
    shop.wait_owned().await
}
