//! `kubectl confpin release`: leaving, with the webhook there and without.

use std::collections::BTreeSet;

use anyhow::Result;
use kube::ResourceExt;
use serde_json::json;

use crate::support::{World, configmap, deployment, plugin::assert_told, rollout, tests};

tests! {
    Shared workloads_are_released_and_stay_so_while_the_webhook_runs,
    Shared a_release_that_stops_goes_on_with_another_run,
    Shared a_release_needs_no_webhook,
}

async fn workloads_are_released_and_stay_so_while_the_webhook_runs(world: &World) -> Result<()> {
    let shop = world.shop("release").await?;
    let workloads = [
        deployment("a").uses("app-config").env_from("app-config").json(),
        deployment("b").uses("app-config").uses("features").json(),
        deployment("c").uses("gone").json(),
        rollout("shop").uses("app-config").json(),
    ];
    let sources = [configmap("app-config", "1"), configmap("features", "1"), configmap("gone", "1")];
    shop.apply(sources.into_iter().chain(workloads)).await?;
    let all = [shop.deployment("a"), shop.deployment("b"), shop.deployment("c"), shop.rollout("shop")];
    for workload in &all {
        workload.wait_rolled_out().await?;
    }
    shop.apply([configmap("features", "2")]).await?;
    shop.run("delete configmap gone").await?;
    let mut versions = Vec::new();
    for workload in &all {
        versions.push(workload.generation().await?);
    }
    assert_told!(shop, "release dry run", shop.plugin("release --dry-run").await?.text()?);
    for (workload, generation) in all.iter().zip(&versions) {
        assert_eq!(workload.generation().await?, *generation, "{workload}");
    }

    assert_told!(shop, "release", shop.plugin("release").await?.text()?);
    let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<BTreeSet<String>>();
    assert_eq!(all[0].names().await?, names(&["app-config"]));
    assert_eq!(all[1].names().await?, names(&["app-config", "features"]));
    assert!(all[2].name().await?.starts_with("gone-"));
    assert_eq!(all[3].names().await?, names(&["app-config"]));
    let object = all[0].object().await?;
    let annotations: BTreeSet<_> = object.annotations().keys().filter(|key| key.starts_with("confpin.dev/")).collect();
    assert_eq!(annotations, BTreeSet::from([&"confpin.dev/pin".to_owned()]));

    // The webhook runs, and leaves them alone.
    shop.run("rollout restart deployment/a").await?;
    assert_eq!(all[0].names().await?, names(&["app-config"]));
    let told = shop.plugin("release").await?;
    assert_eq!((told.code, told.stdout.lines().count()), (1, 2), "{}", told.stdout);
    Ok(())
}

async fn a_release_that_stops_goes_on_with_another_run(world: &World) -> Result<()> {
    let shop = world.shop("resume").await?;
    // The first of them waits for somebody in the middle of its rollout.
    let first = rollout("a").replicas(2).uses("app-config").with(|object| {
        object["spec"]["strategy"]["canary"]["steps"] = json!([{"setWeight": 50}, {"pause": {}}]);
    });
    shop.apply([configmap("app-config", "1"), first.json(), rollout("b").uses("app-config").json()]).await?;
    let (a, b) = (shop.rollout("a"), shop.rollout("b"));
    a.wait_rolled_out().await?;
    b.wait_rolled_out().await?;

    let told = shop.plugin("release --timeout 3s").await?;
    assert_told!(shop, "release that stops", told.text()?);
    assert_eq!(a.name().await?, "app-config");
    assert_ne!(b.name().await?, "app-config");

    shop.argo_rollouts("promote a --full").await?;
    a.wait_rolled_out().await?;
    let told = shop.plugin("release --parallel 4").await?;
    assert_eq!((told.code, told.stdout), (0, format!("{}/rollout/b is released\n", shop.name())));
    assert_eq!(b.name().await?, "app-config");
    Ok(())
}

async fn a_release_needs_no_webhook(world: &World) -> Result<()> {
    let shop = world.shop("alone").await?;
    shop.apply([configmap("app-config", "1"), deployment("web").uses("app-config").json()]).await?;
    shop.deployment("web").wait_rolled_out().await?;
    // Nothing of this namespace is sent to the webhook from then on.
    world.cluster.kubectl(["label", "namespace", shop.name(), "confpin.dev/pin-"]).run().await?;
    assert_eq!(shop.plugin("release --wait=false").await?.code, 0);
    assert_eq!(shop.deployment("web").name().await?, "app-config");
    let told = shop.plugin("release").await?;
    assert_eq!((told.code, told.stderr.as_str()), (0, "No workload names a snapshot.\n"));
    Ok(())
}
