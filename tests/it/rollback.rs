//! Going back, and what moves forward again.

use anyhow::Result;
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::support::{Kind, Shop, Workload, World, configmap, deployment, manifest, rollout, tests};

tests! {
    Shared an_undo_keeps_the_old_configuration_until_somebody_moves_forward,
    Shared an_undo_to_a_revision_brings_back_its_configuration,
    Shared setting_an_image_and_restarting_take_the_newest,
    Shared undoing_a_rollout_keeps_the_old_configuration,
    Shared a_rollout_in_mid_canary_has_no_second_revision,
    Shared a_snapshots_name_that_no_revision_has_is_refreshed,
}

async fn an_undo_keeps_the_old_configuration_until_somebody_moves_forward(world: &World) -> Result<()> {
    let shop = world.shop("undo").await?;
    let web = shop.deployment("web");
    let manifest = deployment("web").uses("app-config").env_from("app-config").json();
    for value in ["v1", "v2"] {
        shop.apply([configmap("app-config", value), manifest.clone()]).await?;
        web.wait_rolled_out().await?;
    }
    shop.run("rollout undo deployment/web").await?;
    web.wait_rolled_out().await?;
    assert_eq!((web.value().await?, web.replica_sets().await?.len()), ("v1".into(), 2));

    // Nothing of this takes the newest.
    let template = web.template().await?;
    shop.run("scale deployment/web --replicas=2").await?;
    shop.run("annotate deployment/web note=this").await?;
    shop.run("label deployment/web colour=blue").await?;
    shop.run("rollout pause deployment/web").await?;
    shop.run("rollout resume deployment/web").await?;
    web.wait_rolled_out().await?;
    assert_eq!(web.template().await?, template);

    // The manifest names the source again.
    shop.apply([manifest]).await?;
    web.wait_rolled_out().await?;
    assert_eq!((web.value().await?, web.replica_sets().await?.len()), ("v2".into(), 2));
    Ok(())
}

async fn an_undo_to_a_revision_brings_back_its_configuration(world: &World) -> Result<()> {
    let shop = world.shop("revision").await?;
    let web = shop.deployment("web");
    for value in ["v1", "v2", "v3"] {
        shop.apply([configmap("app-config", value), deployment("web").uses("app-config").json()]).await?;
        web.wait_rolled_out().await?;
    }
    shop.run("delete configmap/app-config").await?;
    for (revision, value) in [(1, "v1"), (2, "v2"), (3, "v3")] {
        shop.run(&format!("rollout undo deployment/web --to-revision={revision}")).await?;
        web.wait_rolled_out().await?;
        assert_eq!(web.value().await?, value);
    }
    assert_eq!(web.replica_sets().await?.len(), 3);
    shop.wait_owned().await
}

/// Runs a command that changes a workload, and expects what its dry run foretold.
async fn as_foretold(web: &Workload<'_>, command: &str) -> Result<()> {
    let printed = web.shop.run(&format!("{command} --dry-run=server --output=json")).await?;
    let foretold: Value = serde_json::from_str(&printed)?;
    web.shop.run(command).await?;
    assert_eq!(web.template().await?, foretold["spec"]["template"], "{command}");
    Ok(())
}

async fn setting_an_image_and_restarting_take_the_newest(world: &World) -> Result<()> {
    let shop = world.shop("newest").await?;
    let web = shop.deployment("web");
    shop.apply([configmap("app-config", "v1"), deployment("web").uses("app-config").json()]).await?;
    web.wait_rolled_out().await?;
    shop.apply([configmap("app-config", "v2")]).await?;
    as_foretold(&web, "set image deployment/web main=web:2").await?;
    assert_eq!(web.value().await?, "v2");
    shop.apply([configmap("app-config", "v3")]).await?;
    shop.run("rollout restart deployment/web").await?;
    assert_eq!(web.value().await?, "v3");
    web.wait_rolled_out().await?;

    shop.run("rollout undo deployment/web --to-revision=1").await?;
    web.wait_rolled_out().await?;
    assert_eq!(web.value().await?, "v1");
    as_foretold(&web, "set env deployment/web A=b").await?;
    assert_eq!(web.value().await?, "v3");
    web.wait_rolled_out().await?;
    assert_eq!(web.replica_sets().await?.len(), 4);
    Ok(())
}

/// `kubectl argo rollouts undo` puts the template of an old ReplicaSet into the Rollout.
async fn undoing_a_rollout_keeps_the_old_configuration(world: &World) -> Result<()> {
    let shop = world.shop("argo-undo").await?;
    let web = shop.rollout("web");
    for value in ["v1", "v2"] {
        shop.apply([configmap("app-config", value), rollout("web").uses("app-config").json()]).await?;
        web.wait_rolled_out().await?;
    }
    shop.argo_rollouts("undo web").await?;
    web.wait_rolled_out().await?;
    assert_eq!((web.value().await?, web.replica_sets().await?.len()), ("v1".into(), 2));
    shop.wait_owned().await?;

    shop.argo_rollouts("restart web").await?;
    web.wait_rolled_out().await?;
    assert_eq!(web.value().await?, "v1");
    shop.argo_rollouts("set image web main=web:2").await?;
    web.wait_rolled_out().await?;
    assert_eq!((web.value().await?, web.replica_sets().await?.len()), ("v2".into(), 3));
    Ok(())
}

/// The Rollouts controller writes the Rollout while the canary runs; the source has changed in the meantime.
async fn a_rollout_in_mid_canary_has_no_second_revision(world: &World) -> Result<()> {
    let shop = world.shop("mid-canary").await?;
    let web = shop.rollout("web");
    let manifest = rollout("web").uses("app-config").replicas(3).with(|object| {
        object["spec"]["strategy"]["canary"]["steps"] = json!([{"setWeight": 20}, {"pause": {}}]);
    });
    shop.apply([configmap("app-config", "v1"), manifest.json()]).await?;
    web.wait_rolled_out().await?;
    shop.apply([configmap("app-config", "v2"), manifest.json()]).await?;
    web.wait_status("paused", |status| status["phase"] == "Paused").await?;
    let template = web.template().await?;

    shop.apply([configmap("app-config", "v3")]).await?;
    touch(&shop, &web).await?;
    shop.argo_rollouts("abort web").await?;
    web.wait_status("aborted", |status| status["phase"] == "Degraded").await?;
    shop.argo_rollouts("retry rollout web").await?;
    web.wait_status("paused", |status| status["phase"] == "Paused").await?;
    shop.argo_rollouts("promote web --full").await?;
    web.wait_rolled_out().await?;
    assert_eq!(web.template().await?, template);
    assert_eq!((web.value().await?, web.replica_sets().await?.len()), ("v2".into(), 2));
    Ok(())
}

/// Replaces the object by itself, as controllers do.
async fn touch(shop: &Shop<'_>, web: &Workload<'_>) -> Result<()> {
    let mut object: Value = serde_json::to_value(web.object().await?)?;
    object["metadata"]["annotations"]["touched"] = "yes".into();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("resourceVersion");
        metadata.remove("managedFields");
    }
    shop.send(["replace"], [object]).run().await?;
    Ok(())
}

/// A template that merely happens to carry the name of a snapshot is none of an old revision.
async fn a_snapshots_name_that_no_revision_has_is_refreshed(world: &World) -> Result<()> {
    let shop = world.shop("stray").await?;
    for kind in [Kind::Deployment, Kind::Rollout] {
        shop.apply([configmap("app-config", "v1"), manifest::workload(kind, "web").uses("app-config").json()]).await?;
        let web = shop.workload(kind, "web");
        web.wait_rolled_out().await?;
        let old = web.name().await?;
        shop.apply([configmap("app-config", "v2"), manifest::workload(kind, "web").uses("app-config").json()]).await?;
        web.wait_rolled_out().await?;

        // Mixed names of one source end on one version, the newest.
        let mixed = manifest::workload(kind, "web").uses("app-config").image("web:2").with_pod(|pod| {
            pod["containers"][0]["envFrom"] = json!([{"configMapRef": {"name": old}}]);
        });
        shop.apply([mixed.json()]).await?;
        assert_eq!(web.value().await?, "v2", "{web}");
        assert!(shop.configmap(&old).await.is_ok_and(|snapshot| snapshot.name_any() == old));
        shop.run(&format!("delete {web}")).await?;
    }
    Ok(())
}
