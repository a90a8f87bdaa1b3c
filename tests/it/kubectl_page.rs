//! The commands of the guide's page on kubectl, pruning among them. What `kubectl apply` does step by step is in other
//! files.

use std::{collections::BTreeSet, fs, path::PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::support::{Shop, World, configmap, deployment, docs, shop::file, tests};

tests! {
    Shared the_commands_of_the_page_on_kubectl,
    Shared pruning_by_label_deletes_no_snapshot,
    Shared pruning_by_applyset_deletes_no_snapshot,
}

/// A file that the page's commands read.
fn write(shop: &Shop<'_>, objects: impl IntoIterator<Item = Value>) -> Result<PathBuf> {
    let path = shop.world.cluster.folder().join(format!("{}.yaml", shop.name()));
    fs::write(&path, file(objects.into_iter().map(labelled)))?;
    Ok(path)
}

fn labelled(mut object: Value) -> Value {
    object["metadata"]["labels"] = json!({"app.kubernetes.io/part-of": "shop"});
    object
}

/// Runs the commands of a block of the page, and returns the exit code and the output of each.
async fn run(shop: &Shop<'_>, block: &str) -> Result<Vec<(i32, String)>> {
    let path = shop.world.cluster.folder().join(format!("{}.yaml", shop.name()));
    let mut done = Vec::new();
    for command in docs::commands("kubectl.md", block)? {
        let command = command.replace("shop.yaml", &path.display().to_string());
        let (environment, arguments) = command.split_once("kubectl ").context("the page's commands are kubectl's")?;
        let mut kubectl = shop.world.cluster.command(testcluster::Program::Kubectl).await?;
        kubectl.args(["--namespace", shop.name()]).args(arguments.split(' ')).kill_on_drop(true);
        kubectl.envs(environment.split_whitespace().filter_map(|pair| pair.split_once('=')));
        let output = kubectl.output().await?;
        let code = output.status.code().context("it was killed")?;
        let told = [output.stdout, output.stderr].concat();
        let told = String::from_utf8_lossy(&told).into_owned();
        ensure!(code == 0 || (code == 1 && arguments.starts_with("diff")), "`{command}` failed: {told}");
        done.push((code, told));
    }
    Ok(done)
}

async fn the_commands_of_the_page_on_kubectl(world: &World) -> Result<()> {
    let shop = world.shop("page").await?;
    let web = shop.deployment("web");
    let objects = |value| [configmap("app-config", value), deployment("web").uses("app-config").json()];
    for (value, sets) in [("v1", 1), ("v2", 2)] {
        write(&shop, objects(value))?;
        let done = run(&shop, "apply").await?;
        ensure!(done[0].0 == 1, "there was nothing to see for {value}: {}", done[0].1);
        assert_eq!((web.value().await?, web.replica_sets().await?.len()), (value.into(), sets));
    }
    let generation = web.generation().await?;
    let done = run(&shop, "apply").await?;
    ensure!(done[0].0 == 0 && done[0].1.is_empty(), "there was something to see: {}", done[0].1);
    assert_eq!(web.generation().await?, generation);

    run(&shop, "undo").await?;
    web.wait_rolled_out().await?;
    assert_eq!(web.value().await?, "v1");
    run(&shop, "restart").await?;
    web.wait_rolled_out().await?;
    assert_eq!((web.value().await?, web.replica_sets().await?.len()), ("v2".into(), 3));

    let other = world.shop("page").await?;
    let web = other.deployment("web");
    for (value, sets) in [("v1", 1), ("v1", 1), ("v2", 2)] {
        write(&other, objects(value))?;
        run(&other, "server-side").await?;
        web.wait_rolled_out().await?;
        assert_eq!((web.value().await?, web.replica_sets().await?.len()), (value.into(), sets));
    }
    Ok(())
}

async fn pruning_by_label_deletes_no_snapshot(world: &World) -> Result<()> {
    prune(world, "prune").await
}

async fn pruning_by_applyset_deletes_no_snapshot(world: &World) -> Result<()> {
    prune(world, "applyset").await
}

/// A workload that changes from one ConfigMap to another, which is how the first comes to be pruned.
async fn prune(world: &World, block: &str) -> Result<()> {
    let shop = world.shop("prune").await?;
    let web = shop.deployment("web");
    for source in ["first", "second"] {
        write(&shop, [configmap(source, source), deployment("web").uses(source).json()])?;
        for _ in 0..2 {
            run(&shop, block).await?;
            web.wait_rolled_out().await?;
            assert_eq!(web.value().await?, source);
        }
    }
    shop.wait_owned().await?;
    let names: BTreeSet<_> = shop.configmaps().await?.into_iter().filter_map(|object| object.metadata.name).collect();
    ensure!(!names.contains("first") && names.contains("second"), "the first was not pruned: {names:?}");
    assert_eq!(shop.snapshots().await?.len(), 2);
    shop.run("rollout undo deployment/web").await?;
    web.wait_rolled_out().await?;
    assert_eq!(web.value().await?, "first");
    Ok(())
}
