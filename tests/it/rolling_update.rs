//! The same story for a Deployment: a rolling update that is held up, with real pods.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use serde_json::json;
use testcluster::wait_for;

use crate::support::{SOON, Shop, World, configmap, deployment, manifest::Manifest, tests};

tests! {
    Real a_rolling_update_keeps_the_old_pods_on_the_old_configuration,
    Real a_container_that_restarts_sees_its_old_configuration,
}

/// A Deployment whose pods are not ready while their configuration begins with `held`.
fn manifest() -> Manifest {
    deployment("web").replicas(3).on_real_node().uses("app-config").env_from("app-config").with(|object| {
        object["spec"]["strategy"] = json!({"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}});
        let gate = r#"case "$value" in held*) exit 1;; esac"#;
        object["spec"]["template"]["spec"]["containers"][0]["readinessProbe"] =
            json!({"exec": {"command": ["sh", "-c", gate]}, "periodSeconds": 1});
    })
}

async fn a_rolling_update_keeps_the_old_pods_on_the_old_configuration(world: &World) -> Result<()> {
    let shop = world.shop("rolling").await?;
    let web = shop.deployment("web");
    shop.apply([configmap("app-config", "old"), manifest().json()]).await?;
    web.wait_rolled_out().await?;
    let old: Vec<_> = shop.wait_pods("web", 3).await?.into_keys().collect();

    shop.apply([configmap("app-config", "held"), manifest().json()]).await?;
    wait_values(&shop, &[("held", 1), ("old", 3)]).await?;
    let reborn = shop.replace_pod("web", &old[0]).await?;
    assert_eq!(shop.value_in(&reborn, "app-config").await?, "old");
    shop.run("delete configmap/app-config").await?;
    let reborn = shop.replace_pod("web", &old[1]).await?;
    assert_eq!(shop.value_in(&reborn, "app-config").await?, "old");

    shop.run("rollout undo deployment/web").await?;
    assert_eq!(web.value().await?, "old");
    web.wait_rolled_out().await?;
    wait_values(&shop, &[("old", 3)]).await?;
    assert_eq!(web.replica_sets().await?.len(), 2);

    // Scaling up does not take the newest, restarting does.
    shop.apply([configmap("app-config", "new")]).await?;
    shop.run("scale deployment/web --replicas=4").await?;
    web.wait_rolled_out().await?;
    wait_values(&shop, &[("old", 4)]).await?;
    shop.run("rollout restart deployment/web").await?;
    web.wait_rolled_out().await?;
    wait_values(&shop, &[("new", 4)]).await?;
    shop.wait_owned().await
}

async fn a_container_that_restarts_sees_its_old_configuration(world: &World) -> Result<()> {
    let shop = world.shop("restart").await?;
    let web = manifest().replicas(1).with_pod(|pod| {
        pod["containers"][0]["volumeMounts"][0] =
            json!({"name": "v0", "mountPath": "/etc/app-config/value", "subPath": "value"});
    });
    shop.apply([configmap("app-config", "old"), web.json()]).await?;
    shop.deployment("web").wait_rolled_out().await?;
    shop.apply([configmap("app-config", "new")]).await?;
    for pod in shop.wait_pods("web", 1).await?.into_keys() {
        shop.node()?.restart_container(shop.name(), &pod).await?;
        assert_eq!(shop.value_in(&pod, "app-config").await?, "old");
    }
    Ok(())
}

/// Waits until so many pods run with each value.
async fn wait_values(shop: &Shop<'_>, expected: &[(&str, usize)]) -> Result<()> {
    let expected: BTreeMap<_, _> = expected.iter().map(|(value, count)| ((*value).to_owned(), *count)).collect();
    wait_for(&format!("pods with {expected:?}"), SOON, async || {
        let found = shop.values("web", "app-config").await?;
        ensure!(found == expected, "found {found:?}");
        Ok(Some(()))
    })
    .await
}
