//! Flux: its apply engine, which first asks for everything by a dry run and then applies what would change.

use anyhow::{Result, ensure};
use serde_json::Value;
use testcluster::{Program, wait_for};

use crate::support::{Kind, SOON, Shop, World, configmap, docs, manifest, shop::file, tests};

tests! {
    Shared flux_with_a_deployment,
    Shared flux_with_a_rollout,
    Shared flux_follows_a_configmap_at_once_where_asked_to,
    Shared flux_follows_a_configmap_at_once_where_configmaps_have_a_stage_of_their_own,
    Shared flux_takes_an_undo_back,
}

async fn flux_with_a_deployment(world: &World) -> Result<()> {
    story(world, Kind::Deployment).await
}

async fn flux_with_a_rollout(world: &World) -> Result<()> {
    story(world, Kind::Rollout).await
}

fn objects(kind: Kind, image: &str, value: &str) -> [Value; 2] {
    [configmap("app-config", value), manifest::workload(kind, "web").image(image).uses_everywhere("app-config").json()]
}

/// One interval of a Kustomization. Returns what was done with each object: `ConfigMap created, Deployment created`.
async fn reconcile(shop: &Shop<'_>, arguments: &[&str], objects: impl IntoIterator<Item = Value>) -> Result<String> {
    let inventory = shop.world.cluster.folder().join(format!("{}-inventory", shop.name()));
    let mut arguments: Vec<_> = arguments.iter().map(ToString::to_string).collect();
    arguments.push(format!("--inventory={}", inventory.display()));
    let done = shop.run_client_with(Program::Flux, &arguments, &file(objects)).await?;
    let done = done.lines().filter_map(|line| Some((line.split_once('/')?.0, line.rsplit(' ').next()?)));
    let mut done: Vec<_> = done.map(|(kind, action)| format!("{kind} {action}")).collect();
    done.sort();
    Ok(done.join(", "))
}

async fn story(world: &World, kind: Kind) -> Result<()> {
    let shop = world.shop("flux").await?;
    let web = shop.workload(kind, "web");
    let expect = async |objects: [Value; 2], actions: &str, value: &str, sets: usize| {
        let done = reconcile(&shop, &[], objects).await?;
        ensure!(done == actions.replace("web", &format!("{kind:?}")), "done: {done}");
        web.wait_rolled_out().await?;
        let found = (web.value().await?, web.replica_sets().await?.len());
        ensure!(found == (value.into(), sets), "it has {found:?}");
        Ok(())
    };
    let first = objects(kind, "web:1", "v1");
    expect(first.clone(), "ConfigMap created, web created", "v1", 1).await?;
    expect(first, "ConfigMap unchanged, web unchanged", "v1", 1).await?;

    // The configuration only: when the workload was asked for, the ConfigMap was the old one. So at the next interval.
    let second = objects(kind, "web:1", "v2");
    expect(second.clone(), "ConfigMap configured, web unchanged", "v1", 1).await?;
    expect(second.clone(), "ConfigMap unchanged, web configured", "v2", 2).await?;
    expect(second, "ConfigMap unchanged, web unchanged", "v2", 2).await?;

    // Both: one rollout, at once.
    let third = objects(kind, "web:2", "v3");
    expect(third.clone(), "ConfigMap configured, web configured", "v3", 3).await?;
    expect(third, "ConfigMap unchanged, web unchanged", "v3", 3).await?;
    shop.wait_owned().await?;

    // What the repository has no more is pruned, and the snapshots go with the workload and not before.
    let done = reconcile(&shop, &[], [objects(kind, "web:2", "v3")[1].clone()]).await?;
    ensure!(done.contains("ConfigMap deleted"), "done: {done}");
    assert_eq!((web.value().await?, shop.snapshots().await?.len()), ("v3".into(), 3));
    reconcile(&shop, &[], [configmap("other", "v1")]).await?;
    wait_for("everything to be gone", SOON, async || {
        let left = (web.exists().await?, shop.replica_sets().await?.len(), shop.snapshots().await?.len());
        ensure!(left == (false, 0, 0), "left are: {left:?}");
        Ok(Some(()))
    })
    .await
}

async fn flux_follows_a_configmap_at_once_where_asked_to(world: &World) -> Result<()> {
    let shop = world.shop("flux").await?;
    let web = shop.deployment("web");
    let objects = |value| objects(Kind::Deployment, "web:1", value);
    let command = docs::command("flux.md", "on-change")?.replace("shop", shop.name());
    world.cluster.kubectl(command.split(' ').skip(1)).run().await?;
    reconcile(&shop, &[], objects("v1")).await?;
    web.wait_rolled_out().await?;
    assert_eq!(reconcile(&shop, &[], objects("v2")).await?, "ConfigMap configured, Deployment unchanged");
    wait_for("the workload to follow", SOON, async || Ok((web.value().await? == "v2").then_some(()))).await?;
    web.wait_rolled_out().await?;
    // The next interval finds nothing to do: confpin's annotation is no drift.
    assert_eq!(reconcile(&shop, &[], objects("v2")).await?, "ConfigMap unchanged, Deployment unchanged");
    assert_eq!(web.replica_sets().await?.len(), 2);
    Ok(())
}

async fn flux_follows_a_configmap_at_once_where_configmaps_have_a_stage_of_their_own(world: &World) -> Result<()> {
    let shop = world.shop("flux").await?;
    let (web, stage) = (shop.deployment("web"), ["--custom-stage-kinds=ConfigMap"]);
    reconcile(&shop, &stage, objects(Kind::Deployment, "web:1", "v1")).await?;
    web.wait_rolled_out().await?;
    let done = reconcile(&shop, &stage, objects(Kind::Deployment, "web:1", "v2")).await?;
    assert_eq!(done, "ConfigMap configured, Deployment configured");
    web.wait_rolled_out().await?;
    assert_eq!((web.value().await?, web.replica_sets().await?.len()), ("v2".into(), 2));
    Ok(())
}

async fn flux_takes_an_undo_back(world: &World) -> Result<()> {
    let shop = world.shop("flux").await?;
    let web = shop.deployment("web");
    for value in ["v1", "v2"] {
        reconcile(&shop, &[], objects(Kind::Deployment, &format!("web:{value}"), value)).await?;
        web.wait_rolled_out().await?;
    }
    shop.run("rollout undo deployment/web").await?;
    web.wait_rolled_out().await?;
    assert_eq!(web.value().await?, "v1");
    let done = reconcile(&shop, &[], objects(Kind::Deployment, "web:v2", "v2")).await?;
    assert_eq!(done, "ConfigMap unchanged, Deployment configured");
    web.wait_rolled_out().await?;
    assert_eq!((web.value().await?, web.replica_sets().await?.len()), ("v2".into(), 2));
    Ok(())
}
