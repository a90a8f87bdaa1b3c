//! What a deploy costs the API server, by its audit log.

use std::collections::BTreeMap;

use anyhow::Result;
use futures::future::try_join_all;
use k8s_openapi::api::apps::v1::Deployment;
use kube::{Api, api::PostParams};
use testcluster::AuditEvent;

use crate::support::{World, audit::Traffic, configmap, deployment, tests};

tests! {
    Shared a_deploy_costs_one_read_a_source_and_one_write_a_snapshot,
    Shared an_unchanged_manifest_costs_reads_only,
    Shared a_new_replica_set_costs_one_patch_a_snapshot,
    Shared forty_replica_sets_own_one_snapshot_after_a_few_requests,
}

const SOURCES: [&str; 3] = ["new", "newer", "shared"];

/// How often confpin asked what: `get configmaps new`. What else it asks is the reconciler's: whether the claims are
/// settled, and Events.
fn asked(traffic: &Traffic) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for (event, object) in
        traffic.of_confpin().into_iter().filter_map(|event| Some((event, event.object_ref.as_ref()?)))
    {
        if !["configmaps", "namespaces"].contains(&object.resource.as_str()) {
            continue;
        }
        *counts.entry(format!("{} {} {}", event.verb, object.resource, object.name)).or_insert(0) += 1;
    }
    counts
}

/// Once each.
fn once(requests: impl IntoIterator<Item = String>) -> BTreeMap<String, usize> {
    requests.into_iter().map(|request| (request, 1)).collect()
}

async fn a_deploy_costs_one_read_a_source_and_one_write_a_snapshot(world: &World) -> Result<()> {
    let shop = world.shop("cost").await?;
    shop.apply(SOURCES.map(|name| configmap(name, name))).await?;
    shop.apply([deployment("other").uses("shared").replicas(0).json()]).await?;
    shop.wait_owned().await?;
    let reused = shop.deployment("other").name().await?;

    // It names one of them twice. Paused, it has no ReplicaSet, so that all requests are the webhook's.
    let web = deployment("web").uses("new").uses("newer").uses("shared").env_from("new");
    let web = web.with(|object| object["spec"]["paused"] = true.into()).json();
    let mark = shop.mark().await?;
    shop.apply([web]).await?;
    let traffic = shop.since(&mark).await?;

    let names = shop.deployment("web").names().await?;
    let reads =
        SOURCES.iter().copied().chain(names.iter().map(String::as_str)).map(|name| format!("get configmaps {name}"));
    let writes = names.iter().map(|name| match *name == reused {
        true => format!("patch configmaps {name}"),
        false => format!("create configmaps {name}"),
    });
    assert_eq!(asked(&traffic), once(reads.chain(writes).chain([format!("get namespaces {}", shop.name())])));
    Ok(())
}

async fn an_unchanged_manifest_costs_reads_only(world: &World) -> Result<()> {
    let shop = world.shop("cost").await?;
    let web = || deployment("web").uses("new").uses("newer").uses("shared").replicas(0).json();
    shop.apply(SOURCES.map(|name| configmap(name, name)).into_iter().chain([web()])).await?;
    shop.deployment("web").wait_rolled_out().await?;
    shop.wait_owned().await?;

    let mark = shop.mark().await?;
    shop.apply([web()]).await?;
    let traffic = shop.since(&mark).await?;
    let names = shop.deployment("web").names().await?;
    let reads =
        SOURCES.iter().copied().chain(names.iter().map(String::as_str)).map(|name| format!("get configmaps {name}"));
    assert_eq!(asked(&traffic), once(reads.chain([format!("get namespaces {}", shop.name())])));
    Ok(())
}

async fn a_new_replica_set_costs_one_patch_a_snapshot(world: &World) -> Result<()> {
    let shop = world.shop("cost").await?;
    let web = |image: &str| deployment("web").uses("new").uses("newer").uses("shared").replicas(0).image(image).json();
    shop.apply(SOURCES.map(|name| configmap(name, name))).await?;
    // New snapshots are created with the claim; those that stand are claimed by a patch.
    for (image, claims) in [("web:1", 0), ("web:2", SOURCES.len())] {
        let mark = shop.mark().await?;
        shop.apply([web(image)]).await?;
        shop.deployment("web").wait_rolled_out().await?;
        shop.wait_owned().await?;
        let patches = count(&shop.since(&mark).await?, |event| event.is("patch", "configmaps"));
        assert_eq!(patches, claims + SOURCES.len(), "{image}");
    }
    Ok(())
}

async fn forty_replica_sets_own_one_snapshot_after_a_few_requests(world: &World) -> Result<()> {
    const MANY: usize = 40;
    let shop = world.shop("burst").await?;
    shop.apply([configmap("app-config", "v1"), deployment("first").uses("app-config").replicas(0).json()]).await?;
    shop.wait_owned().await?;
    let api: Api<Deployment> = shop.api();
    let workloads: Vec<Deployment> = (0..MANY)
        .map(|index| serde_json::from_value(deployment(&format!("web-{index}")).uses("app-config").replicas(0).json()))
        .collect::<Result<_, _>>()?;

    let mark = shop.mark().await?;
    let params = PostParams::default();
    try_join_all(workloads.iter().map(|workload| api.create(&params, workload))).await?;
    for index in 0..MANY {
        shop.deployment(&format!("web-{index}")).wait_rolled_out().await?;
    }
    shop.wait_owned().await?;
    let traffic = shop.since(&mark).await?;
    // Those that come together are claimed by one patch, and owned by one.
    let patches = count(&traffic, |event| event.is("patch", "configmaps"));
    let looks = count(&traffic, |event| event.is("get", "deployments") || event.is("list", "replicasets"));
    assert!(patches <= MANY, "{patches} patches for {MANY} workloads");
    assert!(looks <= 8 * MANY, "{looks} looks at claims for {MANY} workloads");
    Ok(())
}

fn count(traffic: &Traffic, is: impl Fn(&AuditEvent) -> bool) -> usize {
    traffic.of_confpin().into_iter().filter(|event| is(event)).count()
}
