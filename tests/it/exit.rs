//! The way out: what was rolled out goes on by Kubernetes alone, and takes its snapshots with it when it goes.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use k8s_openapi::api::{admissionregistration::v1::MutatingWebhookConfiguration, core::v1::Pod};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams},
};
use testcluster::{Cluster, wait_for};

use crate::support::{
    Kind, SOON, Shop, Workload, World, configmap, configmaps, deployment,
    manifest::{self, Manifest},
    tests,
};

tests! {
    Shared revisions_of_a_namespace_that_is_no_longer_labelled_go_on_and_leave,
    Shared revisions_of_a_workload_that_opted_out_go_on_and_leave,
    Own revisions_go_on_and_leave_when_confpin_is_removed,
}

const BOTH: [Kind; 2] = [Kind::Deployment, Kind::Rollout];

fn manifest(kind: Kind) -> Manifest {
    manifest::workload(kind, "web").uses("app-config").replicas(2).history(2)
}

/// Two revisions, and a newer content of the source that nobody asked for.
async fn begin(web: &Workload<'_>) -> Result<()> {
    let shop = web.shop;
    for value in ["v1", "v2"] {
        shop.apply([configmap("app-config", value), manifest(web.kind).json()]).await?;
        web.wait_rolled_out().await?;
    }
    shop.wait_owned().await?;
    shop.apply([configmap("app-config", "v3")]).await?;
    Ok(())
}

/// What was rolled out goes on: pods are made anew, an undo works, and each has its own configuration.
async fn goes_on(web: &Workload<'_>) -> Result<()> {
    let shop = web.shop;
    let snapshots: BTreeSet<_> = shop.snapshots().await?.into_keys().collect();
    for value in ["v2", "v1", "v2"] {
        assert_eq!(web.value().await?, value);
        replace_pods(shop).await?;
        let name = web.name().await?;
        for (pod, object) in shop.wait_pods("web", 2).await? {
            let names = configmaps::names(&serde_json::to_value(&object)?);
            assert!(names.contains(&name), "{pod} names {names:?}");
        }
        undo(web).await?;
        web.wait_rolled_out().await?;
    }
    assert_eq!(web.replica_sets().await?.len(), 2);
    assert_eq!(shop.snapshots().await?.into_keys().collect::<BTreeSet<_>>(), snapshots);
    shop.wait_owned().await?;
    shop.has_no_finalizers().await
}

async fn undo(web: &Workload<'_>) -> Result<String> {
    match web.kind {
        Kind::Deployment => web.shop.run("rollout undo deployment/web").await,
        Kind::Rollout => web.shop.argo_rollouts("undo web").await,
    }
}

async fn replace_pods(shop: &Shop<'_>) -> Result<()> {
    let before = shop.wait_pods("web", 2).await?;
    shop.api::<Pod>().delete_collection(&DeleteParams::default(), &ListParams::default().labels("app=web")).await?;
    wait_for("other pods", SOON, async || {
        let pods = shop.pods("web").await?;
        ensure!(!pods.keys().any(|name| before.contains_key(name)), "old pods are left");
        Ok(Some(()))
    })
    .await?;
    shop.wait_pods("web", 2).await?;
    Ok(())
}

/// New revisions name the source; as they push the old ones out of the history, the snapshots go with these.
async fn leaves(web: &Workload<'_>) -> Result<()> {
    let shop = web.shop;
    for image in ["web:2", "web:3", "web:4"] {
        shop.apply([manifest(web.kind).image(image).json()]).await?;
        assert_eq!(web.names().await?, BTreeSet::from(["app-config".to_owned()]));
        web.wait_rolled_out().await?;
    }
    shop.wait_snapshots([]).await?;
    assert_eq!(web.replica_sets().await?.len(), 3);
    shop.has_no_finalizers().await
}

/// Waits until the API server does not ask confpin about this namespace any more.
async fn wait_unasked(shop: &Shop<'_>) -> Result<()> {
    wait_for("the API server not to ask confpin", SOON, async || {
        let probe = deployment("probe").uses("app-config").json();
        let printed = shop.send(["create", "--dry-run=server", "--output=json"], [probe]).run().await?;
        Ok(printed.contains(r#""name": "app-config""#).then_some(()))
    })
    .await
}

async fn revisions_of_a_namespace_that_is_no_longer_labelled_go_on_and_leave(world: &World) -> Result<()> {
    for kind in BOTH {
        let shop = world.shop("unlabelled").await?;
        let web = shop.workload(kind, "web");
        begin(&web).await?;
        world.cluster.kubectl(["label", "namespace", shop.name(), "confpin.dev/pin-"]).run().await?;
        wait_unasked(&shop).await?;
        goes_on(&web).await?;
        leaves(&web).await?;
    }
    Ok(())
}

async fn revisions_of_a_workload_that_opted_out_go_on_and_leave(world: &World) -> Result<()> {
    for kind in BOTH {
        let shop = world.shop("opted-out").await?;
        let web = shop.workload(kind, "web");
        begin(&web).await?;
        let template = web.template().await?;
        shop.run(&format!("annotate {web} confpin.dev/pin=disabled")).await?;
        assert_eq!(web.template().await?, template, "opting out rolled it");
        goes_on(&web).await?;
        // `kubectl rollout undo` brings back the annotations too that the Deployment had with that revision.
        shop.run(&format!("annotate {web} confpin.dev/pin=disabled --overwrite")).await?;
        leaves(&web).await?;
    }
    Ok(())
}

async fn revisions_go_on_and_leave_when_confpin_is_removed() -> Result<()> {
    let world = World::with_arguments(Cluster::builder().fake_node().rollouts(), &["--settle=0s"]).await?;
    let (shop, other, third) =
        (world.shop("removed").await?, world.shop("deleted").await?, world.shop("deleted-later").await?);
    let canary = world.shop("removed-too").await?;
    let (web, rollout) = (shop.deployment("web"), canary.rollout("web"));
    for web in [&web, &rollout, &other.deployment("web"), &third.deployment("web")] {
        begin(web).await?;
    }
    // Dead, and still asked by the API server: what is there goes on, and a namespace can be deleted.
    world.confpin.kill()?;
    replace_pods(&shop).await?;
    replace_pods(&canary).await?;
    other.delete().await?;

    let registrations: Api<MutatingWebhookConfiguration> = Api::all(world.client.clone());
    for registration in registrations.list(&ListParams::default()).await? {
        registrations.delete(&registration.name_any(), &DeleteParams::default()).await?;
    }
    for web in [&web, &rollout] {
        wait_unasked(web.shop).await?;
        goes_on(web).await?;
        leaves(web).await?;
    }
    third.delete().await?;
    shop.delete().await
}
