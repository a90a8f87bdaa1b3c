//! Refreshes that nobody asked for by a new template, and snapshots that somebody deleted.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use testcluster::{Cluster, wait_for};

use crate::support::{Kind, SOON, Workload, World, configmap, deployment, manifest, shop::owner_names, tests};

tests! {
    Shared a_source_that_appears_pins_the_workload,
    Shared a_workload_that_asks_for_it_follows_its_source,
    Shared a_deleted_snapshot_is_made_again,
    Own a_configmap_applied_after_its_deployment_is_taken,
    Own a_workload_refused_after_confpin_leaves_no_snapshot,
}

async fn wait_value(web: &Workload<'_>, value: &str) -> Result<()> {
    wait_for(&format!("{web} to have {value}"), SOON, async || Ok((web.value().await? == value).then_some(()))).await?;
    web.wait_rolled_out().await
}

async fn a_source_that_appears_pins_the_workload(world: &World) -> Result<()> {
    let shop = world.shop("appears").await?;
    for kind in [Kind::Deployment, Kind::Rollout] {
        let (web, source) = (shop.workload(kind, "web"), format!("config-{kind:?}").to_lowercase());
        shop.apply([manifest::workload(kind, "web").uses(&source).json()]).await?;
        assert_eq!(web.names().await?, BTreeSet::from([source.clone()]));
        shop.apply([configmap(&source, "v1")]).await?;
        wait_value(&web, "v1").await?;
        assert_eq!(web.replica_sets().await?.len(), 2);
        wait_for("the snapshot to be owned", SOON, async || {
            let snapshot = shop.configmap(&web.name().await?).await?;
            Ok((owner_names(&snapshot).len() == 1).then_some(()))
        })
        .await?;
    }
    Ok(())
}

async fn a_workload_that_asks_for_it_follows_its_source(world: &World) -> Result<()> {
    let shop = world.shop("on-change").await?;
    for kind in [Kind::Deployment, Kind::Rollout] {
        let following = manifest::workload(kind, "following").uses("app-config").on_change();
        let staying = manifest::workload(kind, "staying").uses("app-config");
        shop.apply([configmap("app-config", "v1"), following.json(), staying.json()]).await?;
        for name in ["following", "staying"] {
            shop.workload(kind, name).wait_rolled_out().await?;
        }
        shop.apply([configmap("app-config", "v2")]).await?;
        let following = shop.workload(kind, "following");
        wait_value(&following, "v2").await?;
        assert_eq!(following.replica_sets().await?.len(), 2);
        assert_eq!(shop.workload(kind, "staying").value().await?, "v1");
        shop.wait_owned().await?;
    }
    Ok(())
}

async fn a_deleted_snapshot_is_made_again(world: &World) -> Result<()> {
    let shop = world.shop("heal").await?;
    shop.apply([configmap("app-config", "v1"), deployment("web").uses("app-config").json()]).await?;
    let web = shop.deployment("web");
    web.wait_rolled_out().await?;
    shop.wait_owned().await?;
    let (name, generation) = (web.name().await?, web.generation().await?);
    let before = shop.configmap(&name).await?;
    shop.run(&format!("delete configmap {name}")).await?;
    let after =
        wait_for("the snapshot to be back", SOON, async || Ok(shop.api::<ConfigMap>().get_opt(&name).await?)).await?;
    assert_ne!(after.uid(), before.uid());
    assert_eq!((after.data, after.immutable), (before.data, before.immutable));
    shop.wait_owned().await?;
    assert_eq!(web.generation().await?, generation);
    Ok(())
}

/// In one `kubectl apply`, the Deployment's file first.
async fn a_configmap_applied_after_its_deployment_is_taken() -> Result<()> {
    let world = World::start(Cluster::builder().fake_node()).await?;
    let shop = world.shop("order").await?;
    let (web, manifest) = (shop.deployment("web"), deployment("web").uses("app-config"));
    shop.apply([manifest.json(), configmap("app-config", "v1")]).await?;
    wait_value(&web, "v1").await?;
    let sets = web.replica_sets().await?.len();
    assert!(sets <= 2, "{sets} ReplicaSets for the first version");

    shop.apply([manifest.image("web:2").json(), configmap("app-config", "v2")]).await?;
    wait_value(&web, "v2").await?;
    assert_eq!(web.replica_sets().await?.len(), sets + 2);
    Ok(())
}

/// What a later admission step refuses, nothing names: the snapshot goes after the grace period.
async fn a_workload_refused_after_confpin_leaves_no_snapshot() -> Result<()> {
    let world = World::with_arguments(Cluster::builder(), &["--orphan-grace=1s"]).await?;
    let shop = world.shop("refused").await?;
    // The quota for Deployments counts after all webhooks.
    shop.set_quota("count/deployments.apps", 0).await?;
    shop.apply([configmap("app-config", "v1")]).await?;
    let mark = shop.mark().await?;
    let output = shop.send(["apply"], [deployment("web").uses("app-config").json()]).run_any().await?;
    assert!(!output.status.success(), "it was admitted");
    let made = shop.since(&mark).await?.writes().iter().any(|write| write.starts_with("create configmaps/app-config-"));
    assert!(made, "the snapshot was not made, so there is nothing to collect");
    wait_for("the snapshot to be collected", SOON * 2, async || Ok(shop.snapshots().await?.is_empty().then_some(())))
        .await
        .context("the claim of a creation that never came is void after two and a half minutes")
}
