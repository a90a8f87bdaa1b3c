//! Objects of others at a snapshot's name are never trusted and never overwritten.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{ResourceExt, api::PostParams};
use serde_json::Value;

use crate::support::{Shop, World, configmap, configmaps, deployment, tests, workload::only};

tests! {
    Shared a_mutable_copy_at_the_snapshots_name_is_not_used,
    Shared other_content_with_a_forged_label_is_not_used,
    Shared an_unmarked_immutable_copy_is_not_used,
    Shared a_name_that_becomes_free_again_moves_nothing,
}

/// The name that a dry run says the snapshot of `app-config` will have.
async fn foreseen(shop: &Shop<'_>) -> Result<String> {
    let web = deployment("web").uses("app-config").json();
    let printed = shop.send(["apply", "--dry-run=server", "--output=json"], [web]).run().await?;
    let object: Value = serde_json::from_str(&printed)?;
    only(configmaps::names(object["items"].get(0).unwrap_or(&object)))
}

/// What a genuine snapshot of `app-config` with this value looks like, made in another namespace.
async fn genuine(world: &World, value: &str) -> Result<ConfigMap> {
    let shop = world.shop("model").await?;
    shop.apply([configmap("app-config", value), deployment("web").uses("app-config").replicas(0).json()]).await?;
    let mut snapshot = shop.configmap(&shop.deployment("web").name().await?).await?;
    let metadata = std::mem::take(&mut snapshot.metadata);
    snapshot.metadata.name = metadata.name;
    snapshot.metadata.labels = metadata.labels;
    snapshot.metadata.annotations = metadata.annotations;
    Ok(snapshot)
}

/// Puts `foreign` where the snapshot would be, and expects a longer name and an untouched object.
async fn is_avoided(world: &World, change: impl FnOnce(&mut ConfigMap)) -> Result<()> {
    let mut foreign = genuine(world, "v1").await?;
    change(&mut foreign);
    let shop = world.shop("foreign").await?;
    shop.apply([configmap("app-config", "v1")]).await?;
    assert_eq!(foreseen(&shop).await?, foreign.name_any());
    let foreign = shop.api::<ConfigMap>().create(&PostParams::default(), &foreign).await?;

    let longer = foreseen(&shop).await?;
    assert!(longer.starts_with(&foreign.name_any()) && longer.len() > foreign.name_any().len(), "{longer}");
    shop.apply([deployment("web").uses("app-config").json()]).await?;
    assert_eq!(shop.deployment("web").name().await?, longer);
    assert_eq!(shop.deployment("web").value().await?, "v1");

    shop.deployment("web").wait_rolled_out().await?;
    let snapshot = shop.configmap(&longer).await?;
    assert_eq!(snapshot.annotations().get("confpin.dev/source").map(String::as_str), Some("app-config"));
    assert_eq!(shop.configmap(&foreign.name_any()).await?.resource_version(), foreign.resource_version());
    Ok(())
}

async fn a_mutable_copy_at_the_snapshots_name_is_not_used(world: &World) -> Result<()> {
    is_avoided(world, |foreign| foreign.immutable = None).await
}

async fn other_content_with_a_forged_label_is_not_used(world: &World) -> Result<()> {
    is_avoided(world, |foreign| foreign.data = Some([("value".to_owned(), "poison".to_owned())].into())).await
}

async fn an_unmarked_immutable_copy_is_not_used(world: &World) -> Result<()> {
    is_avoided(world, |foreign| (foreign.metadata.labels, foreign.metadata.annotations) = (None, None)).await
}

async fn a_name_that_becomes_free_again_moves_nothing(world: &World) -> Result<()> {
    let shop = world.shop("freed").await?;
    shop.apply([configmap("app-config", "v1")]).await?;
    let usual = foreseen(&shop).await?;
    shop.run(&format!("create configmap {usual}")).await?;
    let web = deployment("web").uses("app-config").json();
    shop.apply([web.clone()]).await?;
    shop.deployment("web").wait_rolled_out().await?;
    let (name, generation) = (shop.deployment("web").name().await?, shop.deployment("web").generation().await?);
    assert_ne!(name, usual);

    shop.run(&format!("delete configmap {usual}")).await.context("it is nobody's")?;
    shop.apply([web]).await?;
    assert_eq!((shop.deployment("web").name().await?, shop.deployment("web").generation().await?), (name, generation));
    Ok(())
}
