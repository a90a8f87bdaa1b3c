//! The canary with real pods: what a stable pod sees never changes, whatever happens to it and to the source.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use serde_json::json;
use testcluster::wait_for;

use crate::support::{SOON, Workload, World, configmap, manifest::Manifest, pods, rollout, tests};

tests! {
    Real a_canary_keeps_the_stable_pods_on_the_old_configuration,
}

/// A Rollout whose containers tell each change of their files, and pause at 20 and at 50 percent.
fn web(image: &str) -> Manifest {
    rollout("web").replicas(3).on_real_node().image(image).uses("app-config").env_from("app-config").with(|object| {
        object["spec"]["strategy"]["canary"] = json!({
            "maxSurge": 1,
            "maxUnavailable": 0,
            "steps": [{"setWeight": 20}, {"pause": {}}, {"setWeight": 50}, {"pause": {}}],
        });
        object["spec"]["template"]["spec"]["containers"][0]["command"] = watch_command();
    })
}

/// The folder shows when the files are exchanged, the files show when they are written to.
fn watch_command() -> serde_json::Value {
    json!(["/bin/watcher", "/etc/app-config", "/etc/app-config/..data/", "/etc/app-config/value"])
}

async fn a_canary_keeps_the_stable_pods_on_the_old_configuration(world: &World) -> Result<()> {
    let image = pods::load_watcher(world).await?;
    let shop = world.shop("canary").await?;
    let (manifest, canary) = (web(image), shop.rollout("web"));
    shop.apply([configmap("app-config", "old"), manifest.json(), live_pod(image)]).await?;
    canary.wait_rolled_out().await?;
    let stable: Vec<_> = shop.wait_pods("web", 3).await?.into_keys().collect();
    assert_eq!(shop.values("web", "app-config").await?, counts(&[("old", 3)]));
    shop.wait_pods("live", 1).await?;

    // The canary has the new value, and the stable pods are as they were.
    shop.apply([configmap("app-config", "new"), manifest.json()]).await?;
    wait_paused_at(&canary, 1).await?;
    shop.wait_pods("web", 4).await?;
    assert_eq!(shop.values("web", "app-config").await?, counts(&[("new", 1), ("old", 3)]));

    // A stable pod that is recreated has the old value, also when the source is gone.
    let reborn = shop.replace_pod("web", &stable[0]).await?;
    assert_eq!(shop.value_in(&reborn, "app-config").await?, "old");
    wait_for("the kubelet to bring the change to a pod that is not pinned", SOON, async || {
        Ok(shop.node()?.pod_logs(shop.name(), "live").await?.contains("saw").then_some(()))
    })
    .await?;
    shop.run("delete configmap/app-config").await?;
    let reborn = shop.replace_pod("web", &stable[1]).await?;
    assert_eq!(shop.value_in(&reborn, "app-config").await?, "old");

    // A process in a stable pod that watches its files has seen nothing all along.
    assert_eq!(shop.node()?.pod_logs(shop.name(), &stable[2]).await?, "watching\n");

    shop.argo_rollouts("abort web").await?;
    canary.wait_status("aborted", |status| status["phase"] == "Degraded" && status["replicas"] == 3).await?;
    shop.wait_pods("web", 3).await?;
    assert_eq!(shop.values("web", "app-config").await?, counts(&[("old", 3)]));

    // The same once more, to the end.
    shop.apply([configmap("app-config", "new"), manifest.json()]).await?;
    shop.argo_rollouts("retry rollout web").await?;
    wait_paused_at(&canary, 1).await?;
    shop.argo_rollouts("promote web").await?;
    wait_paused_at(&canary, 3).await?;
    let values = shop.values("web", "app-config").await?;
    ensure!(values.contains_key("old") && values.contains_key("new"), "at 50 percent the pods have {values:?}");
    shop.argo_rollouts("promote web").await?;
    canary.wait_rolled_out().await?;
    shop.wait_pods("web", 3).await?;
    assert_eq!(shop.values("web", "app-config").await?, counts(&[("new", 3)]));
    assert_eq!(canary.replica_sets().await?.len(), 2);
    shop.wait_owned().await
}

/// A pod that names the source itself. It shows that the watcher sees what there is to see, and when the kubelet has
/// looked at the change.
fn live_pod(image: &str) -> serde_json::Value {
    let template = web(image).json()["spec"]["template"].clone();
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "live", "labels": {"app": "live"}}});
    pod["spec"] = template["spec"].clone();
    pod
}

fn counts(values: &[(&str, usize)]) -> BTreeMap<String, usize> {
    values.iter().map(|(value, count)| ((*value).to_owned(), *count)).collect()
}

async fn wait_paused_at(canary: &Workload<'_>, step: i64) -> Result<()> {
    let what = format!("paused at step {step}");
    canary.wait_status(&what, |status| status["phase"] == "Paused" && status["currentStepIndex"] == step).await
}
