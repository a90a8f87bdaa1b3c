//! What happens to a workload that Argo CD brings, from the first synchronisation to the end.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use testcluster::{ArgoCd, Mark, wait_for};

use super::{
    Kind, SOON, Shop, Workload, World,
    application::{Application, Options},
    configmap, manifest,
};

/// The content of the repository: a source, and a workload that names it at each kind of place.
fn objects(kind: Kind, image: &str, value: &str) -> [Value; 2] {
    let web = manifest::workload(kind, "web").image(image).uses_everywhere("app-config");
    [configmap("app-config", value), web.json()]
}

/// Each kind of commit, and the end of the Application.
pub async fn tell(world: &World, argo_cd: &ArgoCd, options: &Options, kind: Kind) -> Result<()> {
    let shop = world.shop("argo").await?;
    let (web, begin) = (shop.workload(kind, "web"), shop.mark().await?);
    let application = Application::create(&shop, argo_cd, options, objects(kind, "web:1", "v1")).await?;
    ensure_rolled_out(&web, "v1", 1).await.context("the first sync")?;

    // Each commit: the configuration only, the image only, both.
    for (image, value, sets) in [("web:1", "v2", 2), ("web:2", "v2", 3), ("web:3", "v3", 4)] {
        application.commit(objects(kind, image, value)).await?;
        ensure_rolled_out(&web, value, sets).await.with_context(|| format!("{image} with {value}"))?;
    }
    // Back to the configuration and the ReplicaSet of before.
    let commit = application.repository.revert().await?;
    application.follow(&commit).await?;
    ensure_rolled_out(&web, "v2", 4).await.context("the revert")?;

    application.ensure_at_rest().await?;
    application.ensure_one_operation_each(5).await?;
    shop.wait_owned().await?;
    ensure_tree_shows_snapshots(&shop, &application).await?;

    application.delete().await?;
    wait_for("everything to be gone", SOON, async || {
        let left = (web.exists().await?, shop.replica_sets().await?.len(), shop.snapshots().await?.len());
        ensure!(left == (false, 0, 0), "left are: {left:?}");
        Ok(Some(()))
    })
    .await?;
    ensure_snapshots_left_alone(&shop, &begin).await
}

async fn ensure_rolled_out(web: &Workload<'_>, value: &str, sets: usize) -> Result<()> {
    web.wait_rolled_out().await?;
    let found = (web.value().await?, web.replica_sets().await?.len());
    ensure!(found == (value.to_owned(), sets), "it has {found:?}");
    Ok(())
}

/// Argo CD shows each snapshot below the ReplicaSets that name it, and calls none its own.
async fn ensure_tree_shows_snapshots(shop: &Shop<'_>, application: &Application<'_>) -> Result<()> {
    let snapshots: BTreeSet<String> = shop.snapshots().await?.into_keys().collect();
    wait_for("the snapshots to be in the resource tree", SOON, async || {
        let tree = application.tree().await?;
        let shown = tree.iter().filter(|node| node["kind"] == "ConfigMap" && node["name"] != "app-config");
        let below = shown.filter(|node| {
            let parents: Vec<_> = node["parentRefs"].as_array().into_iter().flatten().collect();
            !parents.is_empty() && parents.iter().all(|parent| parent["kind"] == "ReplicaSet")
        });
        let below: BTreeSet<_> = below.filter_map(|node| node["name"].as_str().map(str::to_owned)).collect();
        ensure!(below == snapshots, "below ReplicaSets are {below:?} of {snapshots:?}");
        Ok(Some(()))
    })
    .await?;
    let status = application.status().await?;
    let own: Vec<_> = status["resources"].as_array().into_iter().flatten().map(|resource| &resource["name"]).collect();
    ensure!(own == ["app-config", "web"], "the Application manages {own:?}");
    Ok(())
}

/// Neither did Argo CD change or delete a snapshot, nor try to.
async fn ensure_snapshots_left_alone(shop: &Shop<'_>, begin: &Mark) -> Result<()> {
    let traffic = shop.since(begin).await?;
    let by_argo_cd = traffic.0.iter().filter(|event| event.user.username.contains(":argocd:"));
    let writes = by_argo_cd.filter(|event| !matches!(event.verb.as_str(), "get" | "list" | "watch"));
    let written: BTreeSet<_> = writes
        .filter_map(|event| event.object_ref.as_ref())
        .filter(|object| object.resource == "configmaps")
        .map(|object| object.name.as_str())
        .collect();
    ensure!(written == BTreeSet::from(["app-config"]), "Argo CD wrote to {written:?}");
    Ok(())
}
