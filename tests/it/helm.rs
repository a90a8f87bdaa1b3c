//! Helm: install, each kind of upgrade, an upgrade that fails, rollback, uninstall.

use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use serde_json::json;
use testcluster::{Program, wait_for};

use crate::support::{
    Kind, SOON, Shop, Workload, World, configmap, deployment, docs,
    manifest::{self, Manifest},
    tests,
    workload::revision,
};

tests! {
    Shared helm_3_with_a_deployment,
    Shared helm_4_with_a_deployment,
    Shared helm_3_with_a_rollout,
    Shared helm_4_with_a_rollout,
}

async fn helm_3_with_a_deployment(world: &World) -> Result<()> {
    story(world, Program::Helm3, Kind::Deployment).await
}

async fn helm_4_with_a_deployment(world: &World) -> Result<()> {
    story(world, Program::Helm4, Kind::Deployment).await
}

async fn helm_3_with_a_rollout(world: &World) -> Result<()> {
    story(world, Program::Helm3, Kind::Rollout).await
}

async fn helm_4_with_a_rollout(world: &World) -> Result<()> {
    story(world, Program::Helm4, Kind::Rollout).await
}

/// A ConfigMap, the workload that uses it, and a Deployment that does not: Helm 3 waits for no Rollout, and by the other
/// it sees an upgrade fail.
fn chart(shop: &Shop<'_>, kind: Kind) -> Result<String> {
    let on = |it: Manifest| it.with_pod(|pod| pod["nodeSelector"] = json!({"kubernetes.io/os": "{{ .Values.os }}"}));
    let web = manifest::workload(kind, "web").uses("app-config").env_from("app-config").image("{{ .Values.image }}");
    let objects = [configmap("app-config", "{{ .Values.value }}"), on(web).json(), on(deployment("beside")).json()];
    Ok(shop.chart(objects)?.display().to_string())
}

/// A Helm release of one Deployment or Rollout.
struct Release<'a> {
    shop: &'a Shop<'a>,
    web: Workload<'a>,
    helm: Program,
    chart: String,
}

impl Release<'_> {
    /// Runs a command of the guide's page. Returns whether it succeeded.
    async fn run(&self, name: &str, options: &str) -> Result<bool> {
        let commands = docs::commands("helm.md", "commands")?;
        let command = commands.iter().find(|command| command.split(' ').nth(1) == Some(name));
        self.helm(command.with_context(|| format!("the page has no `helm {name}`"))?, options).await
    }

    /// Runs the page's command for an upgrade that is taken back when it fails.
    async fn upgrade_safely(&self, options: &str) -> Result<bool> {
        let block = match (self.helm, self.web.kind) {
            (Program::Helm3, _) => "safely-3",
            (_, Kind::Deployment) => "safely-4",
            (_, Kind::Rollout) => "safely-4-rollout",
        };
        self.helm(&docs::command("helm.md", block)?, options).await
    }

    async fn helm(&self, command: &str, options: &str) -> Result<bool> {
        let command = command.replace("./chart", &self.chart);
        let arguments = format!("{command} {options}").trim_start_matches("helm ").trim_end().to_owned();
        let done = self.shop.run_client_any(self.helm, &arguments).await?;
        eprint!("{}", String::from_utf8_lossy(&done.stderr));
        Ok(done.status.success())
    }

    /// Installs or upgrades, and expects the configuration and the number of ReplicaSets at the end.
    async fn expect(&self, name: &str, (image, value): (u32, &str), expected: (&str, usize)) -> Result<()> {
        let step = format!("{name} to image {image} and {value}");
        ensure!(self.run(name, &values(image, value, "linux")).await?, "{step} failed");
        self.expect_state(&step, expected).await
    }

    async fn expect_state(&self, step: &str, expected: (&str, usize)) -> Result<()> {
        self.web.wait_rolled_out().await?;
        let found = (self.web.value().await?, self.web.replica_sets().await?.len());
        ensure!(found == (expected.0.to_owned(), expected.1), "after the {step} it has {found:?}");
        Ok(())
    }
}

fn values(image: u32, value: &str, os: &str) -> String {
    format!("--set value={value},image=web:{image},os={os}")
}

async fn story(world: &World, helm: Program, kind: Kind) -> Result<()> {
    let shop = world.shop("helm").await?;
    let (chart, web) = (chart(&shop, kind)?, shop.workload(kind, "web"));
    let release = Release { shop: &shop, web: web.clone(), helm, chart };
    release.expect("install", (1, "v1"), ("v1", 1)).await?;
    let generation = web.generation().await?;
    release.expect("upgrade", (1, "v1"), ("v1", 1)).await?;
    if kind == Kind::Deployment {
        assert_eq!(web.generation().await?, generation);
    }
    // Helm 3 sends no empty patch of a custom resource.
    let sets = if helm == Program::Helm3 && kind == Kind::Rollout {
        release.expect("upgrade", (1, "v2"), ("v1", 1)).await?;
        let command = docs::command("helm.md", "on-change")?.replace("shop", shop.name());
        world.cluster.kubectl(command.split(' ').skip(1)).run().await?;
        wait_for("the Rollout to follow", SOON, async || Ok((web.value().await? == "v2").then_some(()))).await?;
        web.wait_rolled_out().await?;
        web.replica_sets().await?.len()
    } else {
        release.expect("upgrade", (1, "v2"), ("v2", 2)).await?;
        2
    };
    assert_eq!(sets, 2);
    release.expect("upgrade", (2, "v2"), ("v2", 3)).await?;
    ensure!(release.upgrade_safely(&values(3, "v3", "linux")).await?, "the upgrade failed");
    release.expect_state("upgrade", ("v3", 4)).await?;
    let current = async || {
        let newest = web.replica_sets().await?.into_iter().max_by_key(revision).context("there is a ReplicaSet")?;
        anyhow::Ok(newest.name_any())
    };

    // No node has this system, so the upgrade fails: back to the old snapshot and the old ReplicaSet.
    let before = current().await?;
    let failing = format!("{} --timeout 6s", values(4, "v4", "none"));
    assert!(!release.upgrade_safely(&failing).await?);
    release.expect_state("failed upgrade", ("v3", 5)).await?;
    assert_eq!(current().await?, before);

    assert!(release.run("rollback", "").await?);
    release.expect_state("rollback", ("v1", 5)).await?;
    shop.wait_owned().await?;

    assert!(release.run("uninstall", "").await?);
    wait_for("everything to be gone", SOON, async || {
        let left = (web.exists().await?, shop.replica_sets().await?.len(), shop.snapshots().await?.len());
        ensure!(left == (false, 0, 0), "left are: {left:?}");
        Ok(Some(()))
    })
    .await
}
