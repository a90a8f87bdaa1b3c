//! The time just after an admission, in which a workload picks up changes of its ConfigMaps, and when it must not.

use anyhow::Result;
use kube::ResourceExt;
use serde_json::json;
use testcluster::{Cluster, wait_for};

use crate::support::{Kind, SOON, Shop, Workload, World, configmap, deployment, manifest, tests};

tests! {
    Own an_undo_within_the_time_of_settling_stays,
    Own a_workload_whose_last_reference_is_removed_comes_to_rest,
}

async fn wait_value(web: &Workload<'_>, value: &str) -> Result<()> {
    wait_for(&format!("{web} to have {value}"), SOON, async || Ok((web.value().await? == value).then_some(()))).await
}

/// With the default of `--settle`. Another workload, which is admitted just before the edit, shows that the edit was seen.
async fn an_undo_within_the_time_of_settling_stays() -> Result<()> {
    let world = World::start(Cluster::builder().fake_node().rollouts()).await?;
    for kind in [Kind::Deployment, Kind::Rollout] {
        let shop = world.shop("undo").await?;
        let (web, witness) = (shop.workload(kind, "web"), shop.deployment("witness"));
        let manifest = manifest::workload(kind, "web").uses("app-config").history(5);
        for value in ["v1", "v2"] {
            shop.apply([configmap("app-config", value), manifest.json()]).await?;
            web.wait_rolled_out().await?;
        }
        let apply = |image: &str| {
            let witness = deployment("witness").uses("app-config").replicas(0).image(image).json();
            [manifest.clone().image(image).json(), witness]
        };
        shop.apply(apply("web:2")).await?;
        undo(&shop, kind).await?;
        shop.apply([configmap("app-config", "v3")]).await?;
        wait_value(&witness, "v3").await?;
        assert_eq!(web.value().await?, "v1", "{kind:?}: the undo was taken back");
    }
    Ok(())
}

/// To the first revision, as `undo` does: by the template of its ReplicaSet.
async fn undo(shop: &Shop<'_>, kind: Kind) -> Result<()> {
    if kind == Kind::Deployment {
        return shop.run("rollout undo deployment/web --to-revision=1").await.map(drop);
    }
    let web = shop.workload(kind, "web");
    let first = web.replica_sets().await?.into_iter().next();
    let mut template = serde_json::to_value(first.and_then(|set| set.spec))?["template"].clone();
    if let Some(labels) = template["metadata"]["labels"].as_object_mut() {
        labels.remove("rollouts-pod-template-hash");
    }
    web.patch(&json!({"spec": {"template": template}})).await
}

/// Its record still has the source, which no template references any more: nothing that confpin does could change that.
async fn a_workload_whose_last_reference_is_removed_comes_to_rest() -> Result<()> {
    let world =
        World::with_arguments(Cluster::builder().fake_node().rollouts(), &["--min-interval=1s", "--settle=0s"]).await?;
    for kind in [Kind::Deployment, Kind::Rollout] {
        let shop = world.shop("rest").await?;
        let (web, witness) = (shop.workload(kind, "web"), shop.deployment("witness"));
        let following = manifest::workload(kind, "web").uses("app-config").replicas(0).on_change();
        let referenced = deployment("referenced").replicas(0).json();
        let other = deployment("witness").uses("app-config").replicas(0).on_change().json();
        shop.apply([configmap("app-config", "v0"), following.json(), referenced, other]).await?;
        web.wait_rolled_out().await?;
        match kind {
            Kind::Deployment => {
                web.patch(&json!({"spec": {"template": {"spec": {"volumes": null, "containers": [
                {"name": "main", "image": "web:1"}]}}}}))
                    .await?
            }
            Kind::Rollout => {
                web.patch(&json!({"spec": {"template": null, "workloadRef": {
                "apiVersion": "apps/v1", "kind": "Deployment", "name": "referenced"}}}))
                    .await?
            }
        }
        let version = web.version().await?.generation;
        let record = web.object().await?.annotations().get("confpin.dev/record").cloned();
        assert!(record.is_some_and(|record| record.contains("app-config")), "{kind:?}: the record is rewritten");
        for value in ["v1", "v2", "v3"] {
            shop.apply([configmap("app-config", value)]).await?;
            wait_value(&witness, value).await?;
        }
        let web = web.object().await?;
        assert_eq!(web.annotations().get("confpin.dev/refresh"), None, "{kind:?}");
        assert_eq!(web.metadata.generation, Some(version), "{kind:?}");
    }
    Ok(())
}
