//! Opting out, and what is exempt.

use std::collections::BTreeSet;

use anyhow::Result;
use serde_json::{Value, json};

use crate::support::{Kind, World, configmap, deployment, manifest, tests};

tests! {
    Shared a_configmap_can_opt_out_and_the_others_of_its_pod_stay_pinned,
    Shared a_workload_can_opt_out_and_in_again,
    Shared a_namespace_can_opt_out_by_annotation,
    Shared the_root_ca_of_a_projected_volume_stays_live,
    Shared a_missing_source_is_told_to_the_client,
}

fn annotated(mut object: Value, value: &str) -> Value {
    object["metadata"]["annotations"]["confpin.dev/pin"] = value.into();
    object
}

async fn a_configmap_can_opt_out_and_the_others_of_its_pod_stay_pinned(world: &World) -> Result<()> {
    let shop = world.shop("live").await?;
    let live = annotated(configmap("live", "v1"), "disabled");
    for kind in [Kind::Deployment, Kind::Rollout] {
        let web = manifest::workload(kind, "web").uses("live").uses("app-config");
        shop.apply([live.clone(), configmap("app-config", "v1"), web.json()]).await?;
        let names = shop.workload(kind, "web").names().await?;
        assert!(names.contains("live") && !names.contains("app-config") && names.len() == 2, "{names:?}");
    }
    assert_eq!(shop.snapshots().await?.len(), 1);
    Ok(())
}

async fn a_workload_can_opt_out_and_in_again(world: &World) -> Result<()> {
    let shop = world.shop("workload").await?;
    let web = |image: &str| deployment("web").uses("app-config").image(image);
    shop.apply([configmap("app-config", "v1"), annotated(web("web:1").json(), "disabled")]).await?;
    let names = async || shop.deployment("web").names().await;
    assert_eq!(names().await?, BTreeSet::from(["app-config".to_owned()]));

    shop.apply([annotated(web("web:2").json(), "enabled")]).await?;
    assert_eq!(shop.deployment("web").value().await?, "v1");

    // Out again: at the next change of the template the names are the sources' again.
    shop.apply([annotated(web("web:3").json(), "disabled")]).await?;
    assert_eq!(names().await?, BTreeSet::from(["app-config".to_owned()]));
    shop.run("set image deployment/web main=web:4").await?;
    assert_eq!(names().await?, BTreeSet::from(["app-config".to_owned()]));
    Ok(())
}

async fn a_namespace_can_opt_out_by_annotation(world: &World) -> Result<()> {
    let shop = world.shop("namespace").await?;
    world.cluster.kubectl(["annotate", "namespace", shop.name(), "confpin.dev/pin=disabled"]).run().await?;
    shop.apply([configmap("app-config", "v1"), deployment("web").uses("app-config").json()]).await?;
    assert_eq!(shop.deployment("web").names().await?, BTreeSet::from(["app-config".to_owned()]));
    assert!(shop.snapshots().await?.is_empty());

    world.cluster.kubectl(["annotate", "namespace", shop.name(), "confpin.dev/pin-"]).run().await?;
    shop.run("rollout restart deployment/web").await?;
    assert_eq!(shop.deployment("web").value().await?, "v1");
    Ok(())
}

async fn the_root_ca_of_a_projected_volume_stays_live(world: &World) -> Result<()> {
    let shop = world.shop("root-ca").await?;
    let web = deployment("web").with_pod(|pod| {
        pod["volumes"] = json!([{"name": "all", "projected": {"sources": [
            {"configMap": {"name": "kube-root-ca.crt"}},
            {"configMap": {"name": "app-config"}},
            {"serviceAccountToken": {"path": "token"}},
        ]}}]);
    });
    shop.apply([configmap("app-config", "v1"), web.json()]).await?;
    let names = shop.deployment("web").names().await?;
    assert!(names.contains("kube-root-ca.crt") && !names.contains("app-config"), "{names:?}");
    Ok(())
}

async fn a_missing_source_is_told_to_the_client(world: &World) -> Result<()> {
    let shop = world.shop("missing").await?;
    let output = shop.send(["apply"], [deployment("web").uses("app-config").json()]).run_any().await?;
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    assert!(
        told.contains(
            r#"Warning: ConfigMap "app-config" not found: pods wait for it, confpin pins it once it is there"#
        ),
        "{told}"
    );
    assert_eq!(shop.deployment("web").names().await?, BTreeSet::from(["app-config".to_owned()]));

    let optional = deployment("optional").uses("app-config").with_pod(|pod| {
        pod["volumes"][0]["configMap"]["optional"] = true.into();
    });
    let output = shop.send(["apply"], [optional.json()]).run_any().await?;
    assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));

    shop.apply([configmap("app-config", "v1"), deployment("web").uses("app-config").image("web:2").json()]).await?;
    assert_eq!(shop.deployment("web").value().await?, "v1");
    Ok(())
}
