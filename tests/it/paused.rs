//! Admissions go on while the reconciler is frozen, killed and started again, and while the controllers of Kubernetes
//! are: nothing that is named may ever be missing.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
};

use anyhow::{Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
use kube::{
    ResourceExt,
    api::{Patch, PatchParams},
};
use rustix::process::Signal;
use testcluster::{Cluster, Component, wait_for};

use crate::support::{
    SOON, Shop, World, configmap, configmaps, confpin::Confpin, deployment, history::History, tests, workload::only,
};

tests! {
    Own flips_while_the_reconciler_is_frozen_and_killed_never_lose_a_named_snapshot,
}

/// Workloads that share a source, and what it contains in turn: so that each change takes a ReplicaSet away, and many come
/// back to a snapshot whose owners are on their way out.
struct Group {
    source: &'static str,
    workloads: [&'static str; 2],
    history: u32,
    contents: &'static [&'static str],
}

const GROUPS: [Group; 2] = [
    Group { source: "none", workloads: ["none-1", "none-2"], history: 0, contents: &["a", "b", "a", "b", "c", "b"] },
    Group { source: "one", workloads: ["one-1", "one-2"], history: 1, contents: &["a", "b", "c", "a", "b", "a", "d"] },
];

/// Changes of templates in all, at least.
const FLIPS: usize = 500;

async fn flips_while_the_reconciler_is_frozen_and_killed_never_lose_a_named_snapshot() -> Result<()> {
    let world = World::with_arguments(Cluster::builder(), &["--reconcile=false"]).await?;
    // Unused snapshots go after a second: where the reconciler is wrong about that, it shows.
    let reconciler = world.reconciler(&["--orphan-grace=1s"])?;
    reconciler.start().await?;
    let shop = world.shop("paused").await?;
    let history = History::watch(&shop).await?;

    let (flips, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let faults = async {
        faults(&world, &reconciler, &flips).await?;
        over.store(true, Relaxed);
        Ok(())
    };
    let [none, one] = &GROUPS;
    tokio::try_join!(flip(&shop, none, &flips, &over), flip(&shop, one, &flips, &over), faults)?;

    for group in &GROUPS {
        for name in group.workloads {
            let workload = shop.deployment(name);
            workload.wait_rolled_out().await?;
            wait_trimmed(&shop, name, group.history).await?;
        }
    }
    eprintln!("{} changes of templates", flips.load(Relaxed));
    shop.wait_owned().await?;
    assert!(reconciler.metric("confpin_owner_patches_total", "").await? > 0.0);
    assert_eq!(world.confpin.metric("confpin_owner_patches_total", "").await?, 0.0, "the webhook's process reconciled");
    history.check().await
}

/// Changes a group's source and applies its workloads side by side, until `over`. Every third time it waits until an old
/// ReplicaSet is gone, to come back to its snapshot just when the collector is after that.
async fn flip(shop: &Shop<'_>, group: &Group, flips: &AtomicUsize, over: &AtomicBool) -> Result<()> {
    let params = PatchParams::apply("client").force();
    let mut names = BTreeMap::new();
    for (round, content) in group.contents.iter().cycle().enumerate() {
        if over.load(Relaxed) {
            break;
        }
        let source = configmap(group.source, content);
        shop.api::<ConfigMap>().patch(group.source, &params, &Patch::Apply(&source)).await?;
        let applied = group.workloads.map(async |name| {
            let manifest = deployment(name).uses(group.source).replicas(0).history(group.history).json();
            shop.api::<Deployment>().patch(name, &params, &Patch::Apply(&manifest)).await
        });
        for workload in try_join_all(applied).await? {
            let spec = serde_json::to_value(&workload.spec)?;
            let (name, now) = (workload.name_any(), only(configmaps::names(&spec["template"]))?);
            let before = names.insert(name, now.clone());
            ensure!(before.as_ref() != Some(&now), "{now} was named already, so this was no change");
            flips.fetch_add(1, Relaxed);
        }
        if round % 3 == 1 {
            for name in group.workloads {
                wait_trimmed(shop, name, group.history).await?;
            }
        }
    }
    Ok(())
}

/// Waits until a workload has no more ReplicaSets than it keeps.
async fn wait_trimmed(shop: &Shop<'_>, name: &str, history: u32) -> Result<()> {
    wait_for("the old ReplicaSets to go", SOON, async || {
        let sets = shop.deployment(name).replica_sets().await?.len();
        ensure!(sets <= 1 + history as usize, "{name} has {sets}");
        Ok(Some(()))
    })
    .await
}

/// Freezes and kills the reconciler, and restarts the controllers, each for a number of changes.
async fn faults(world: &World, reconciler: &Confpin, flips: &AtomicUsize) -> Result<()> {
    for _ in 0..2 {
        // Short ones stop it in the middle of whatever it does.
        for _ in 0..15 {
            freeze(reconciler, flips, 4).await?;
            after(flips, 4).await?;
        }
        freeze(reconciler, flips, 40).await?;
        after(flips, 20).await?;

        reconciler.signal(Signal::STOP)?;
        world.cluster.restart(Component::ControllerManager).await?;
        after(flips, 10).await?;
        reconciler.signal(Signal::CONT)?;
        after(flips, 10).await?;

        reconciler.kill()?;
        after(flips, 40).await?;
        reconciler.start().await?;
        after(flips, 10).await?;
        world.cluster.restart(Component::ControllerManager).await?;
    }
    let left = FLIPS.saturating_sub(flips.load(Relaxed));
    after(flips, left).await
}

async fn freeze(reconciler: &Confpin, flips: &AtomicUsize, for_flips: usize) -> Result<()> {
    reconciler.signal(Signal::STOP)?;
    after(flips, for_flips).await?;
    reconciler.signal(Signal::CONT)
}

/// Waits until there have been so many more changes.
async fn after(flips: &AtomicUsize, more: usize) -> Result<()> {
    let goal = flips.load(Relaxed) + more;
    wait_for("the clients to go on", SOON, async || Ok((flips.load(Relaxed) >= goal).then_some(()))).await
}
