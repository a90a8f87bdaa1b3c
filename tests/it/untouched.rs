//! What confpin is not even asked about.

use std::collections::BTreeSet;

use anyhow::Result;
use kube::ResourceExt;
use serde_json::json;
use testcluster::{Mark, wait_for};

use crate::support::{Kind, SOON, Shop, World, configmap, deployment, manifest, tests};

tests! {
    Shared a_namespace_without_the_label_is_left_alone,
    Shared kube_system_is_left_alone_even_with_the_label,
    Shared a_workload_without_configmaps_does_not_reach_confpin,
    Shared scaling_labels_and_pauses_do_not_reach_confpin,
    Shared a_new_template_with_a_configmap_reaches_confpin,
}

async fn a_namespace_without_the_label_is_left_alone(world: &World) -> Result<()> {
    let shop = world.unlabelled_shop("plain").await?;
    for kind in [Kind::Deployment, Kind::Rollout] {
        let mark = shop.mark().await?;
        shop.apply([configmap("app-config", "v1"), manifest::workload(kind, "web").uses("app-config").json()]).await?;
        let web = shop.workload(kind, "web");
        web.wait_rolled_out().await?;
        shop.apply([
            configmap("app-config", "v2"),
            manifest::workload(kind, "web").uses("app-config").image("web:2").json(),
        ])
        .await?;
        web.wait_rolled_out().await?;

        assert_eq!(web.names().await?, BTreeSet::from(["app-config".to_owned()]));
        let object = web.object().await?;
        assert!(!object.annotations().keys().any(|key| key.contains("confpin.dev")), "{:?}", object.annotations());
        assert_not_asked(&shop, &mark).await?;
    }
    assert!(shop.snapshots().await?.is_empty());
    Ok(())
}

async fn kube_system_is_left_alone_even_with_the_label(world: &World) -> Result<()> {
    let shop = Shop::new(world, "kube-system");
    world.cluster.kubectl(["label", "namespace", "kube-system", "confpin.dev/pin=enabled"]).run().await?;
    let mark = shop.mark().await?;
    shop.apply([configmap("app-config", "v1"), deployment("web").uses("app-config").json()]).await?;
    shop.deployment("web").wait_rolled_out().await?;

    assert_eq!(shop.deployment("web").names().await?, BTreeSet::from(["app-config".to_owned()]));
    assert_not_asked(&shop, &mark).await?;
    shop.run("delete deployment/web configmap/app-config").await?;
    world.cluster.kubectl(["label", "namespace", "kube-system", "confpin.dev/pin-"]).run().await?;
    Ok(())
}

async fn a_workload_without_configmaps_does_not_reach_confpin(world: &World) -> Result<()> {
    let shop = world.shop("none").await?;
    let mark = shop.mark().await?;
    for kind in [Kind::Deployment, Kind::Rollout] {
        shop.apply([manifest::workload(kind, "web").json()]).await?;
        shop.apply([manifest::workload(kind, "web").image("web:2").json()]).await?;
        shop.workload(kind, "web").wait_rolled_out().await?;
        assert!(!shop.workload(kind, "web").object().await?.annotations().contains_key("confpin.dev/record"));
    }
    assert_not_asked(&shop, &mark).await
}

async fn scaling_labels_and_pauses_do_not_reach_confpin(world: &World) -> Result<()> {
    let shop = world.shop("scale").await?;
    for kind in [Kind::Deployment, Kind::Rollout] {
        shop.apply([configmap("app-config", "v1"), manifest::workload(kind, "web").uses("app-config").json()]).await?;
        let web = shop.workload(kind, "web");
        web.wait_rolled_out().await?;
        shop.wait_owned().await?;
        let (template, sets) = (web.template().await?, web.replica_sets().await?.len());

        let mark = shop.mark().await?;
        shop.apply([configmap("app-config", "v2")]).await?;
        shop.run(&format!("scale {web} --replicas=3")).await?;
        shop.run(&format!("label {web} colour=blue")).await?;
        shop.run(&format!("annotate {web} note=this")).await?;
        web.patch(&json!({"spec": {"paused": true}})).await?;
        web.patch(&json!({"spec": {"paused": false, "minReadySeconds": 1, "revisionHistoryLimit": 3}})).await?;
        web.wait_rolled_out().await?;

        assert_eq!(web.template().await?, template);
        assert_eq!(web.replica_sets().await?.len(), sets);
        assert_not_asked(&shop, &mark).await?;
        shop.run(&format!("delete {web}")).await?;
        wait_for("the snapshot to be collected", SOON, async || Ok(shop.snapshots().await?.is_empty().then_some(())))
            .await?;
    }
    Ok(())
}

/// The other tests of this module would show nothing if it did not.
async fn a_new_template_with_a_configmap_reaches_confpin(world: &World) -> Result<()> {
    let shop = world.shop("asked").await?;
    for (kind, image) in
        [(Kind::Deployment, "web:1"), (Kind::Rollout, "web:1"), (Kind::Deployment, "web:2"), (Kind::Rollout, "web:2")]
    {
        let mark = shop.mark().await?;
        shop.apply([
            configmap("app-config", "v1"),
            manifest::workload(kind, "web").uses("app-config").image(image).json(),
        ])
        .await?;
        let traffic = shop.since(&mark).await?;
        assert!(traffic.of_confpin().iter().any(|event| event.is("get", "configmaps")), "{:#?}", traffic.0);
    }
    Ok(())
}

/// confpin reads something in the namespace whenever the API server asks it.
async fn assert_not_asked(shop: &Shop<'_>, mark: &Mark) -> Result<()> {
    let traffic = shop.since(mark).await?;
    assert!(!traffic.0.is_empty(), "the audit log has nothing");
    assert!(traffic.of_confpin().is_empty(), "{:#?}", traffic.of_confpin());
    Ok(())
}
