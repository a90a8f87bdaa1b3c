//! Many workloads on one ConfigMap.

use std::collections::BTreeMap;

use anyhow::Result;
use kube::ResourceExt;

use crate::support::{Shop, World, configmap, deployment, shop::owner_names, tests, workload::Version};

tests! {
    Shared of_forty_workloads_on_one_configmap_only_the_one_that_is_applied_rolls,
}

const WORKLOADS: usize = 40;

async fn of_forty_workloads_on_one_configmap_only_the_one_that_is_applied_rolls(world: &World) -> Result<()> {
    let shop = world.shop("forty").await?;
    let manifests: Vec<_> = (0..WORKLOADS).map(|number| manifest(number).json()).collect();
    shop.apply([configmap("app-config", "v1")].into_iter().chain(manifests.clone())).await?;
    shop.wait_owned().await?;
    let first = shop.deployment("web-0").name().await?;
    let snapshot = shop.configmap(&first).await?;
    assert_eq!((shop.snapshots().await?.len(), owner_names(&snapshot).len()), (1, WORKLOADS));
    for number in 0..WORKLOADS {
        shop.deployment(&name(number)).wait_rolled_out().await?;
    }
    let before = versions(&shop).await?;

    shop.apply([configmap("app-config", "v2"), manifests[7].clone()]).await?;
    let one = shop.deployment(&name(7));
    one.wait_rolled_out().await?;
    shop.wait_owned().await?;
    assert_eq!((one.value().await?, one.replica_sets().await?.len()), ("v2".into(), 2));
    let others = |mut versions: BTreeMap<String, Version>| {
        versions.remove(&name(7));
        versions
    };
    assert_eq!(others(versions(&shop).await?), others(before));
    assert_eq!(shop.replica_sets().await?.len(), WORKLOADS + 1);

    // All that go take only their own reference with them.
    let gone: Vec<_> = (0..WORKLOADS - 1).map(|number| format!("deployment/{}", name(number))).collect();
    shop.run(&format!("delete {}", gone.join(" "))).await?;
    shop.wait_snapshots([first.as_str()]).await?;
    shop.wait_owned().await?;
    assert_eq!(shop.configmap(&first).await?.uid(), snapshot.uid());
    assert_eq!(shop.deployment(&name(WORKLOADS - 1)).value().await?, "v1");
    Ok(())
}

fn name(number: usize) -> String {
    format!("web-{number}")
}

fn manifest(number: usize) -> crate::support::manifest::Manifest {
    deployment(&name(number)).uses("app-config").replicas(0)
}

async fn versions(shop: &Shop<'_>) -> Result<BTreeMap<String, Version>> {
    let mut versions = BTreeMap::new();
    for number in 0..WORKLOADS {
        versions.insert(name(number), shop.deployment(&name(number)).version().await?);
    }
    Ok(versions)
}
