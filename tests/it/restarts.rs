//! Crashes and restarts of confpin change no template; what changed while it was down is not missed.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use kube::ResourceExt;
use testcluster::{AuditEvent, Cluster, wait_for};

use crate::support::{
    Kind, SOON, Shop, Workload, World, configmap, deployment, duration,
    manifest::{self, Manifest},
    tests,
};

tests! {
    Own a_restart_rolls_nothing_and_misses_nothing,
    Own after_an_outage_everything_converges_and_nothing_rolls_by_itself,
    Own an_api_server_that_knows_no_streaming_lists_is_asked_for_pages,
}

const RESTARTS: usize = 3;
/// A claim that is not fulfilled is void after 150 seconds.
const VOID: Duration = Duration::from_secs(240);
/// Workloads that nobody touches while confpin restarts.
const QUIET: [(Kind, &str); 6] = [
    (Kind::Deployment, "following"),
    (Kind::Deployment, "staying"),
    (Kind::Deployment, "undone"),
    (Kind::Deployment, "waiting"),
    (Kind::Rollout, "following-canary"),
    (Kind::Rollout, "undone-canary"),
];

async fn a_restart_rolls_nothing_and_misses_nothing() -> Result<()> {
    let world = World::with_arguments(Cluster::builder().rollouts(), &["--min-interval=1s", "--settle=0s"]).await?;
    let shop = world.shop("restarts").await?;
    begin(&shop).await?;
    let mut before = generations(&shop).await?;

    for round in 0..RESTARTS {
        world.restart_confpin().await?;
        all_looked_at(&shop, &format!("restart-{round}")).await?;
        assert_eq!(generations(&shop).await?, before, "restart {round} rolled something");
    }

    // Changed while nobody watched: just the workloads that follow it roll, once.
    world.confpin.kill()?;
    shop.apply([configmap("common", "v2")]).await?;
    world.start_confpin().await?;
    just_followers_roll(&shop, &mut before, "after-a-change").await?;
    assert_eq!(shop.deployment("undone").value().await?, "v1");
    assert_eq!(shop.rollout("undone-canary").value().await?, "v1");
    assert_eq!(shop.deployment("staying").value().await?, "v1");

    // Likewise what came into being.
    world.confpin.kill()?;
    shop.apply([configmap("missing", "v1")]).await?;
    world.start_confpin().await?;
    wait_value(&shop, "waiting", "v1").await?;
    all_looked_at(&shop, "after-a-creation").await?;
    bump(&mut before, "waiting");
    assert_eq!(generations(&shop).await?, before);

    // An undo holds until its source changes again.
    world.restart_confpin().await?;
    shop.apply([configmap("undoing", "v3")]).await?;
    for name in ["undone", "undone-canary"] {
        wait_value(&shop, name, "v3").await?;
        bump(&mut before, name);
    }
    all_looked_at(&shop, "in-the-end").await?;
    assert_eq!(generations(&shop).await?, before);
    wait_rolled_out(&shop).await
}

/// How long nobody answers. Ten minutes are longer than all of confpin's own times.
fn outage() -> Result<Duration> {
    duration("CONFPIN_TEST_OUTAGE", Duration::from_secs(10))
}

async fn after_an_outage_everything_converges_and_nothing_rolls_by_itself() -> Result<()> {
    let arguments = ["--min-interval=1s", "--settle=0s", "--orphan-grace=5s"];
    let world = World::with_arguments(Cluster::builder().rollouts(), &arguments).await?;
    let shop = world.shop("outage").await?;
    begin(&shop).await?;
    shop.apply([configmap("leaving", "v1"), deployment("leaving").uses("leaving").replicas(0).json()]).await?;
    shop.deployment("leaving").wait_rolled_out().await?;
    wait_all_owned(&shop).await?;
    let mut before = generations(&shop).await?;

    // Two claims that nobody settles: one of a workload that comes, one of a workload that never does.
    let late = |name: &str| [configmap(name, "v1"), deployment(name).uses(name).replicas(0).json()];
    shop.set_quota("count/deployments.apps", 0).await?;
    assert!(shop.apply(late("refused")).await.is_err(), "there is a quota");
    shop.run("delete resourcequota/few").await?;
    shop.apply(late("late")).await?;
    world.confpin.kill()?;

    let begin = Instant::now();
    shop.apply([configmap("common", "v2")]).await?;
    assert!(shop.apply([deployment("staying").uses("common").image("web:2").json()]).await.is_err(), "nobody answers");
    // Kubernetes goes on by itself: what is deleted leaves with its snapshot.
    let leaving = shop.deployment("leaving").name().await?;
    shop.run("delete deployment/leaving").await?;
    wait_for("its snapshot to be collected", SOON, async || {
        Ok((!shop.snapshots().await?.contains_key(&leaving)).then_some(()))
    })
    .await?;
    shop.deployment("late").wait_rolled_out().await?;
    tokio::time::sleep(outage()?.saturating_sub(begin.elapsed())).await;
    assert_eq!(generations(&shop).await?, before);

    world.start_confpin().await?;
    just_followers_roll(&shop, &mut before, "after-the-outage").await?;
    wait_rolled_out(&shop).await?;
    // Also that of the workload which was refused is gone, and the late one's has its owner.
    wait_all_owned(&shop).await?;
    let late = shop.deployment("late").name().await?;
    assert!(shop.snapshots().await?.contains_key(&late));
    Ok(())
}

/// The other tests are with an API server that does.
async fn an_api_server_that_knows_no_streaming_lists_is_asked_for_pages() -> Result<()> {
    let world = World::start(Cluster::builder().api_server_flags(["--feature-gates=WatchList=false"])).await?;
    let shop = world.shop("pages").await?;
    let web = |image| deployment("web").uses("app-config").image(image).json();
    shop.apply([configmap("app-config", "v1"), web("web:1")]).await?;
    shop.wait_owned().await?;

    // Now there is something to be listed.
    world.restart_confpin().await?;
    assert_eq!(world.confpin.metric("confpin_watches_listing", "").await?, 0.0);
    shop.apply([configmap("app-config", "v2"), web("web:2")]).await?;
    shop.wait_owned().await?;
    assert_eq!(shop.deployment("web").value().await?, "v2");

    let events = world.cluster.audit().logged()?;
    let watched = |event: &&AuditEvent| event.user_agent.starts_with("confpin/") && event.uri.contains("/replicasets?");
    let pages = events.iter().filter(watched).filter(|event| event.uri.contains("limit=")).count();
    ensure!(pages > 0, "no list of ReplicaSets in pages");
    Ok(())
}

/// Waits until no snapshot is without an owner, and none was made in vain.
async fn wait_all_owned(shop: &Shop<'_>) -> Result<()> {
    wait_for("all claims to be settled or void", VOID, async || {
        let snapshots = shop.snapshots().await?;
        let unowned: Vec<_> = snapshots.iter().filter(|(_, it)| it.owner_references().is_empty()).collect();
        ensure!(unowned.is_empty(), "nothing owns {:?}", unowned.iter().map(|(name, _)| name).collect::<Vec<_>>());
        ensure!(snapshots.keys().all(|name| !name.starts_with("refused-")), "the refused workload's is still there");
        Ok(Some(()))
    })
    .await
}

/// Workloads that follow their source, that do not, that were undone, and whose source is missing.
async fn begin(shop: &Shop<'_>) -> Result<()> {
    let sources =
        [("common", "v1"), ("undoing", "v1"), ("witnessed", "v1")].map(|(name, value)| configmap(name, value));
    let workloads = [
        following(Kind::Deployment, "following", "common"),
        following(Kind::Rollout, "following-canary", "common"),
        deployment("staying").uses("common").replicas(0),
        following(Kind::Deployment, "undone", "undoing"),
        following(Kind::Rollout, "undone-canary", "undoing"),
        following(Kind::Deployment, "witness", "witnessed"),
        deployment("waiting").uses("missing").replicas(0),
    ];
    shop.apply(sources.into_iter().chain(workloads.map(|workload| workload.json()))).await?;
    wait_rolled_out(shop).await?;
    shop.apply([configmap("undoing", "v2")]).await?;
    wait_value(shop, "undone", "v2").await?;
    wait_value(shop, "undone-canary", "v2").await?;
    wait_rolled_out(shop).await?;
    shop.run("rollout undo deployment/undone").await?;
    shop.argo_rollouts("undo undone-canary").await?;
    for name in ["undone", "undone-canary"] {
        assert_eq!(workload(shop, name).value().await?, "v1");
    }
    wait_rolled_out(shop).await
}

fn following(kind: Kind, name: &str, source: &str) -> Manifest {
    manifest::workload(kind, name).uses(source).replicas(0).on_change()
}

/// The workload of this name.
fn workload<'a>(shop: &'a Shop<'a>, name: &str) -> Workload<'a> {
    shop.workload(QUIET.into_iter().find(|(_, quiet)| *quiet == name).map_or(Kind::Deployment, |(kind, _)| kind), name)
}

async fn wait_rolled_out(shop: &Shop<'_>) -> Result<()> {
    for (kind, name) in QUIET {
        shop.workload(kind, name).wait_rolled_out().await?;
    }
    Ok(())
}

/// Waits until confpin has looked at every workload: they are looked at in the order in which they are asked for, so
/// all of them have been once another one that came later is done. The first of the two changes may be joined with
/// what the start of confpin asked for.
async fn all_looked_at(shop: &Shop<'_>, round: &str) -> Result<()> {
    for value in [format!("{round}-first"), format!("{round}-second")] {
        shop.apply([configmap("witnessed", &value)]).await?;
        wait_value(shop, "witness", &value).await?;
    }
    Ok(())
}

/// Waits until the workloads that follow the common source have its change, and fails if another one rolled.
async fn just_followers_roll(shop: &Shop<'_>, before: &mut BTreeMap<&'static str, i64>, round: &str) -> Result<()> {
    for name in ["following", "following-canary"] {
        wait_value(shop, name, "v2").await?;
        bump(before, name);
    }
    all_looked_at(shop, round).await?;
    assert_eq!(generations(shop).await?, *before);
    Ok(())
}

async fn wait_value(shop: &Shop<'_>, name: &str, value: &str) -> Result<()> {
    let workload = workload(shop, name);
    wait_for(&format!("{name} to have {value}"), SOON, async || Ok((workload.value().await? == value).then_some(())))
        .await
}

async fn generations(shop: &Shop<'_>) -> Result<BTreeMap<&'static str, i64>> {
    let mut generations = BTreeMap::new();
    for (kind, name) in QUIET {
        generations.insert(name, shop.workload(kind, name).generation().await?);
    }
    Ok(generations)
}

fn bump(generations: &mut BTreeMap<&'static str, i64>, name: &str) {
    if let Some(generation) = generations.get_mut(name) {
        *generation += 1;
    }
}
