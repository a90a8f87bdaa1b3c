//! How often workloads that follow their sources are rolled at most.

use std::{
    fs,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use testcluster::{Cluster, Mark, wait_for};

use crate::support::{SOON, Shop, World, configmap, deployment, manifest::Manifest, tests};

tests! {
    Own a_source_that_flips_rolls_its_workload_at_most_once_an_interval,
    Own a_source_of_many_workloads_rolls_one_after_the_other,
    Own a_folder_with_the_deployment_before_its_configmap_ends_on_the_new_content,
    Shared who_applies_server_side_has_no_conflict_after_a_refresh,
    Shared an_annotation_of_the_namespace_makes_all_its_workloads_follow,
}

fn following(name: &str) -> Manifest {
    deployment(name).uses("app-config").replicas(0).on_change()
}

async fn a_source_that_flips_rolls_its_workload_at_most_once_an_interval() -> Result<()> {
    const INTERVAL: Duration = Duration::from_secs(5);
    const FLIPPING: Duration = Duration::from_secs(18);
    let world = World::with_arguments(Cluster::builder(), &["--min-interval=5s", "--settle=0s"]).await?;
    let shop = world.shop("flip").await?;
    let web = shop.deployment("web");
    shop.apply([configmap("app-config", "a"), following("web").json()]).await?;
    web.wait_rolled_out().await?;
    let (mark, generation) = (shop.mark().await?, web.generation().await?);

    let (begin, mut flips, mut delayed) = (Instant::now(), 0, false);
    while begin.elapsed() < FLIPPING {
        for value in ["b", "a"] {
            let source = configmap("app-config", value);
            let params = PatchParams::apply("client").force();
            shop.api::<ConfigMap>().patch("app-config", &params, &Patch::Apply(&source)).await?;
            flips += 1;
        }
        delayed |= world.confpin.metric("confpin_refreshes_delayed", "").await? > 0.0;
    }
    shop.apply([configmap("app-config", "b")]).await?;
    wait_for("it to end on the last content", SOON, async || Ok((web.value().await? == "b").then_some(()))).await?;
    web.wait_rolled_out().await?;
    shop.wait_owned().await?;

    let refreshes = refreshes(&shop, &mark).await?;
    let rollouts = web.generation().await? - generation;
    let pauses: Vec<_> = refreshes.windows(2).map(|pair| pair[1].duration_since(pair[0]).unsigned_abs()).collect();
    eprintln!("{flips} flips, {} refreshes, {rollouts} rollouts, pauses of {pauses:?}", refreshes.len());
    assert!(pauses.iter().all(|pause| *pause >= INTERVAL), "{pauses:?}");
    assert!((1..=i64::try_from(refreshes.len())?).contains(&rollouts), "{rollouts} of {refreshes:?}");
    assert!(delayed, "no refresh was seen to be delayed");
    let counted = world.confpin.metric("confpin_refreshes_total", r#"cause="on-change""#).await?;
    assert_eq!(counted as usize, refreshes.len());
    assert_eq!(web.replica_sets().await?.len(), 2, "two contents need two ReplicaSets");
    Ok(())
}

/// When confpin asked for refreshes, by the audit log.
async fn refreshes(shop: &Shop<'_>, mark: &Mark) -> Result<Vec<jiff::Timestamp>> {
    let traffic = shop.since(mark).await?;
    let of_confpin = traffic.of_confpin();
    let mut times: Vec<_> =
        of_confpin.iter().filter(|event| event.is("patch", "deployments")).map(|event| event.received.0).collect();
    times.sort();
    Ok(times)
}

/// They do not stampede.
async fn a_source_of_many_workloads_rolls_one_after_the_other() -> Result<()> {
    const WORKLOADS: usize = 30;
    const SPACING: Duration = Duration::from_millis(100);
    let world = World::with_arguments(Cluster::builder(), &["--settle=0s"]).await?;
    let shop = world.shop("many").await?;
    let names: Vec<_> = (0..WORKLOADS).map(|number| format!("web-{number}")).collect();
    let manifests = names.iter().map(|name| following(name).json());
    shop.apply([configmap("app-config", "v1")].into_iter().chain(manifests)).await?;
    shop.wait_owned().await?;
    let mark = shop.mark().await?;

    shop.apply([configmap("app-config", "v2")]).await?;
    wait_for("refreshes that wait for their turn", SOON, async || {
        Ok((world.confpin.metric("confpin_refreshes_delayed", "").await? > 0.0).then_some(()))
    })
    .await?;
    for name in &names {
        let web = shop.deployment(name);
        wait_for(&format!("{web} to follow"), SOON, async || Ok((web.value().await? == "v2").then_some(()))).await?;
    }
    shop.wait_owned().await?;
    assert_eq!(shop.replica_sets().await?.len(), 2 * WORKLOADS);
    let refreshes = refreshes(&shop, &mark).await?;
    assert_eq!(refreshes.len(), WORKLOADS, "each is rolled once");
    // They are sent at this distance, and several are under way at a time, so that two may arrive closer together.
    let span = refreshes[WORKLOADS - 1].duration_since(refreshes[0]).unsigned_abs();
    assert!(span + 2 * SPACING >= SPACING * (WORKLOADS as u32 - 1), "{WORKLOADS} refreshes within {span:?}");
    wait_for("none to wait any more", SOON, async || {
        Ok((world.confpin.metric("confpin_refreshes_delayed", "").await? == 0.0).then_some(()))
    })
    .await
}

/// A refresh takes no field away from whoever applies.
async fn who_applies_server_side_has_no_conflict_after_a_refresh(world: &World) -> Result<()> {
    let shop = world.shop("server-side").await?;
    let web = shop.deployment("web");
    let apply = async || shop.send(["apply", "--server-side"], [following("web").json()]).run().await;
    shop.apply([configmap("app-config", "v1")]).await?;
    apply().await?;
    web.wait_rolled_out().await?;
    shop.apply([configmap("app-config", "v2")]).await?;
    wait_for("it to follow", SOON, async || Ok((web.value().await? == "v2").then_some(()))).await?;
    web.wait_rolled_out().await?;
    let template = web.template().await?;
    for _ in 0..2 {
        apply().await?;
        assert_eq!(web.template().await?, template);
    }
    Ok(())
}

/// `kubectl apply -f DIRECTORY/` takes the files in the order of their names.
async fn a_folder_with_the_deployment_before_its_configmap_ends_on_the_new_content() -> Result<()> {
    let world = World::start(Cluster::builder()).await?;
    let shop = world.shop("folder").await?;
    let web = shop.deployment("web");
    let folder = tempfile::tempdir()?;
    let manifest = deployment("web").uses("app-config").replicas(0);
    let mut rollouts = 0;
    for (image, value) in [("web:1", "v1"), ("web:2", "v2"), ("web:3", "v3")] {
        fs::write(folder.path().join("a-deployment.json"), manifest.clone().image(image).json().to_string())?;
        fs::write(folder.path().join("b-configmap.json"), configmap("app-config", value).to_string())?;
        shop.kubectl(["apply", "--filename", &folder.path().display().to_string()]).run().await?;
        wait_for(&format!("it to have {value}"), SOON, async || Ok((web.value().await? == value).then_some(())))
            .await?;
        web.wait_rolled_out().await?;
        let sets = web.replica_sets().await?.len();
        ensure!(sets <= rollouts + 2, "{} rollouts of one version", sets - rollouts);
        rollouts = sets;
    }
    // And what is applied again changes nothing. The first time the API server sorts the managers of its fields anew.
    let apply = async || shop.kubectl(["apply", "--filename", &folder.path().display().to_string()]).run().await;
    let generation = web.generation().await?;
    apply().await?;
    let version = web.version().await?;
    apply().await?;
    assert_eq!((web.version().await?, version.generation), (version.clone(), generation));
    Ok(())
}

async fn an_annotation_of_the_namespace_makes_all_its_workloads_follow(world: &World) -> Result<()> {
    let shop = world.shop("namespace").await?;
    let names = ["one", "two"];
    let manifests = names.map(|name| deployment(name).uses("app-config").replicas(0).json());
    shop.apply([configmap("app-config", "v1")].into_iter().chain(manifests)).await?;
    for name in names {
        shop.deployment(name).wait_rolled_out().await?;
    }
    shop.apply([configmap("app-config", "v2")]).await?;
    for name in names {
        assert_eq!(shop.deployment(name).value().await?, "v1", "nobody asked for it yet");
    }
    // What changed before counts too.
    world.cluster.kubectl(["annotate", "namespace", shop.name(), "confpin.dev/rollout=on-change"]).run().await?;
    for name in names {
        let web = shop.deployment(name);
        wait_for(&format!("{name} to follow"), SOON, async || Ok((web.value().await? == "v2").then_some(()))).await?;
        web.wait_rolled_out().await?;
        assert_eq!(web.replica_sets().await?.len(), 2);
    }
    shop.wait_owned().await
}
