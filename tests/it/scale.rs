//! Many workloads, and many requests for one.

use anyhow::Result;
use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use testcluster::wait_for;

use crate::support::{SOON, World, configmap, deployment, tests};

tests! {
    Shared a_thousand_readmissions_change_nothing,
    Shared of_forty_deployments_with_one_source_only_the_one_that_is_applied_rolls,
}

async fn a_thousand_readmissions_change_nothing(world: &World) -> Result<()> {
    const TIMES: usize = 1_000;
    let shop = world.shop("again").await?;
    let web = deployment("web").uses("app-config").env_from("app-config").replicas(0).json();
    shop.apply([configmap("app-config", "v1")]).await?;
    let workloads: Api<Deployment> = shop.api();
    let (params, patch) = (PatchParams::apply("client").force(), Patch::Apply(&web));
    workloads.patch("web", &params, &patch).await?;
    shop.deployment("web").wait_rolled_out().await?;
    shop.wait_owned().await?;

    let version = shop.deployment("web").version().await?;
    let mark = shop.mark().await?;
    for _ in 0..TIMES {
        workloads.patch("web", &params, &patch).await?;
    }
    assert_eq!(shop.deployment("web").version().await?, version);
    assert_eq!(shop.deployment("web").replica_sets().await?.len(), 1);
    let traffic = shop.since(&mark).await?;
    let asked = traffic.of_confpin().iter().filter(|event| event.is("get", "configmaps")).count();
    assert!(asked >= TIMES, "confpin was asked {asked} times only");
    let written: Vec<_> = traffic.writes().into_iter().filter(|write| write.contains("by confpin/")).collect();
    assert!(written.is_empty(), "{written:?}");
    Ok(())
}

async fn of_forty_deployments_with_one_source_only_the_one_that_is_applied_rolls(world: &World) -> Result<()> {
    const MANY: usize = 40;
    let shop = world.shop("forty").await?;
    let web = |index: usize| deployment(&format!("web-{index}")).uses("app-config").replicas(0).json();
    shop.apply([configmap("app-config", "v1")].into_iter().chain((0..MANY).map(web))).await?;
    for index in 0..MANY {
        shop.deployment(&format!("web-{index}")).wait_rolled_out().await?;
    }
    shop.wait_owned().await?;
    assert_eq!(shop.snapshots().await?.len(), 1);

    shop.apply([configmap("app-config", "v2"), web(7)]).await?;
    shop.deployment("web-7").wait_rolled_out().await?;
    wait_for("the one to have both ReplicaSets", SOON, async || {
        Ok((shop.deployment("web-7").replica_sets().await?.len() == 2).then_some(()))
    })
    .await?;
    for index in 0..MANY {
        let expected = if index == 7 { ("v2", 2) } else { ("v1", 1) };
        let web = shop.deployment(&format!("web-{index}"));
        assert_eq!((web.value().await?.as_str(), web.generation().await?), expected, "{web}");
    }
    shop.wait_owned().await
}
