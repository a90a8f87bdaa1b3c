//! Replicas, the leader, the API server and the whole cluster fail under load.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use testcluster::{Component, wait_for};
use tokio_util::sync::CancellationToken;

use crate::support::{SOON, Shop, configmap, configmaps, deployment, duration, installation::Installation, tests};

tests! {
    Loaded whoever_dies_nothing_is_left_unpinned_and_nothing_rolls_by_itself,
    Installed a_cluster_that_was_down_comes_up_with_confpin_in_it,
}

/// How many workloads are changed at a time.
const WORKLOADS: usize = 4;

/// How long replicas are killed.
fn chaos() -> Result<Duration> {
    duration("CONFPIN_TEST_CHAOS", Duration::from_secs(75))
}

async fn whoever_dies_nothing_is_left_unpinned_and_nothing_rolls_by_itself() -> Result<()> {
    // A source that changes soon after its workload would roll it, as it should: here is told whether anything else does.
    // What was made for a change that the API server then lost is nobody's: it is to be gone in the end.
    let installation = Installation::start(&["--settle=0s", "--orphan-grace=10s"]).await?;
    let shop = installation.world.shop("outages").await?;
    let (stop, accepted) = (CancellationToken::new(), AtomicUsize::new(0));
    let (begun, length) = (Instant::now(), chaos()?);
    let chaos = async {
        let _stop = stop.clone().drop_guard();
        let mut leaders = BTreeSet::new();
        for round in (0..).take_while(|_| begun.elapsed() < length) {
            kill_one(&installation, round, &mut leaders).await?;
            // Time to be hit in every state of coming up.
            tokio::time::sleep(Duration::from_secs(3)).await;
        }
        installation.world.cluster.kill(Component::ApiServer)?;
        installation.world.cluster.start_component(Component::ApiServer).await?;
        installation.world.cluster.kill(Component::Etcd)?;
        installation.world.cluster.start_component(Component::Etcd).await?;
        installation.wait_ready().await?;
        Ok::<_, anyhow::Error>(leaders)
    };
    let workers = async {
        let workers = (0..WORKLOADS).map(|number| change(&shop, number, &stop, &accepted));
        futures::future::try_join_all(workers).await
    };
    let (leaders, generations) = tokio::try_join!(chaos, workers)?;
    let accepted = accepted.into_inner();
    ensure!(accepted > 4 * WORKLOADS, "only {accepted} changes were accepted");
    ensure!(leaders.len() > 1, "the Lease did not move: {leaders:?}");

    shop.wait_owned().await?;
    for (number, generation) in generations.iter().enumerate() {
        let workload = shop.deployment(&format!("w{number}"));
        assert_eq!(workload.generation().await?, *generation, "w{number} was changed by somebody else");
        let names = workload.names().await?;
        assert!(names.iter().all(|name| name.starts_with(&format!("c{number}-"))), "{names:?}");
    }
    Ok(())
}

/// Kills the leader or another replica, the container or the whole pod, in turn.
async fn kill_one(installation: &Installation, round: usize, leaders: &mut BTreeSet<String>) -> Result<()> {
    let leader = installation.leader().await.unwrap_or_default();
    let pods: Vec<_> = installation.pods().await?.iter().map(ResourceExt::name_any).collect();
    let wants_leader = round.is_multiple_of(2);
    let Some(victim) = pods.iter().find(|pod| (**pod == leader) == wants_leader) else { return Ok(()) };
    // One that does not run yet, or is gone, has nothing to be killed.
    let _ = match round % 4 {
        0 | 1 => installation.kill(victim).await,
        _ => installation.take_away(victim).await,
    };
    leaders.insert(leader);
    Ok(())
}

/// Changes a workload and its source again and again, and returns the generation that it ends with.
async fn change(shop: &Shop<'_>, number: usize, stop: &CancellationToken, accepted: &AtomicUsize) -> Result<i64> {
    let (name, source) = (format!("w{number}"), format!("c{number}"));
    let api: Api<Deployment> = shop.api();
    let mut generation = 0;
    for round in 0.. {
        if stop.is_cancelled() {
            break;
        }
        if round % 3 == 0 {
            // Of another process than confpin, so that it may fail only with the API server.
            let _ = shop.apply([configmap(&source, &round.to_string())]).await;
        }
        let manifest = deployment(&name).uses(&source).replicas(0).history(2).image(&format!("image:{round}")).json();
        let params = PatchParams::apply("test").force();
        match api.patch(&name, &params, &Patch::Apply(&manifest)).await {
            Ok(stored) => {
                let template = serde_json::to_value(&stored.spec)?["template"].clone();
                let names = configmaps::names(&template);
                ensure!(
                    names.iter().all(|name| name.starts_with(&format!("{source}-"))),
                    "accepted unpinned: {names:?}"
                );
                generation = stored.metadata.generation.context("a generation")?;
                accepted.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => {
                ensure!(is_retryable(&error), "refused for good: {error}");
                // Whether it was stored is not known of a connection that broke.
                generation = wait_for("the workload to be read", SOON, async || {
                    let found = api.get_opt(&name).await?;
                    Ok(Some(found.and_then(|found| found.metadata.generation).unwrap_or(0)))
                })
                .await?;
            }
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(generation)
}

/// What a client may take for a reason to try again.
fn is_retryable(error: &kube::Error) -> bool {
    match error {
        // An API server that has just started knows no rights yet, and says so to confpin too.
        kube::Error::Api(status) if status.code == 403 => status.message.contains(" cannot "),
        kube::Error::Api(status) => matches!(status.code, 401 | 429) || status.code >= 500,
        // No answer.
        _ => true,
    }
}

async fn a_cluster_that_was_down_comes_up_with_confpin_in_it() -> Result<()> {
    let installation = Installation::start(&[]).await?;
    let shop = installation.world.shop("down").await?;
    let manifest = deployment("web").uses("app").json();
    shop.apply([configmap("app", "1"), manifest.clone()]).await?;
    shop.deployment("web").wait_rolled_out().await?;
    let before = (shop.deployment("web").generation().await?, shop.deployment("web").name().await?);

    let cluster = &installation.world.cluster;
    for pod in installation.pods().await? {
        installation.take_away(&pod.name_any()).await?;
    }
    let all = [Component::ControllerManager, Component::Scheduler, Component::ApiServer, Component::Etcd];
    for component in all {
        cluster.kill(component)?;
    }
    for component in all.into_iter().rev() {
        cluster.start_component(component).await?;
    }
    // Nobody answers the webhook until then, whose policy is to refuse.
    installation.wait_ready().await?;
    installation.world.wait_until_asked().await?;
    assert_eq!((shop.deployment("web").generation().await?, shop.deployment("web").name().await?), before);

    shop.apply([configmap("app", "2"), manifest]).await?;
    shop.run("rollout restart deployment/web").await?;
    shop.deployment("web").wait_rolled_out().await?;
    assert_eq!(shop.deployment("web").value().await?, "2");
    shop.wait_owned().await
}
