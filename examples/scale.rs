//! Measures how confpin bears numbers: `cargo run --release --example scale -- 1000 10000 50000`.
//!
//! For each number: that many ReplicaSets in a hundred namespaces, each of which names its namespace's snapshot, made
//! while confpin is down. Then confpin starts: how long until it is ready and until every snapshot has all its owners,
//! how much memory it takes, how soon one more ReplicaSet owns its snapshot and how many requests that costs. The
//! table goes to `docs/scale.md`.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::stream::{self, TryStreamExt};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{ListParams, PostParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource};
use serde_json::{Value, json};
use testcluster::{Cluster, free_port, wait_for};
use tokio::process::{Child, Command};

const NAMESPACES: usize = 100;
const PARALLEL: usize = 32;
const LONG: Duration = Duration::from_secs(600);

#[tokio::main]
async fn main() -> Result<()> {
    let mut numbers: Vec<usize> = std::env::args().skip(1).map(|text| text.parse()).collect::<Result<_, _>>()?;
    if numbers.is_empty() {
        numbers = vec![1_000, 10_000, 50_000];
    }
    // Without the ReplicaSet controller: the sets stay as they are, and the machine's time is confpin's.
    let flags = ["--controllers=deployment-controller,namespace-controller,serviceaccount-controller"];
    let cluster = Cluster::builder().controller_manager_flags(flags).start().await?;
    let client = cluster.client();
    let confpin = Confpin::new(&cluster)?;
    let mut running = confpin.start(&cluster).await?;
    for index in 0..NAMESPACES {
        make_namespace(&client, index).await?;
    }
    wait_owners(&client, 1).await?;
    println!("| ReplicaSets | ready after | all owned after | memory | one more owned after | its requests |");
    println!("|---|---|---|---|---|---|");
    let mut there = 0;
    for number in numbers {
        running.kill().await?;
        make_sets(&client, there..number).await?;
        there = number;
        let begin = Instant::now();
        running = confpin.start(&cluster).await?;
        let ready = begin.elapsed();
        wait_owners(&client, 1 + number / NAMESPACES).await?;
        let owned = begin.elapsed();
        let memory = resident_mib(&running)?;
        let (delay, requests) = one_more(&cluster, &client, number).await?;
        there += 1;
        println!("| {number} | {ready:.1?} | {owned:.1?} | {memory} MiB | {delay:.0?} | {requests} |");
    }
    running.kill().await?;
    Ok(())
}

struct Confpin {
    kubeconfig: std::path::PathBuf,
    port: u16,
    admin: u16,
}

impl Confpin {
    fn new(cluster: &Cluster) -> Result<Self> {
        Ok(Self { kubeconfig: cluster.kubeconfig().to_owned(), port: free_port()?, admin: free_port()? })
    }

    /// Starts the program that was built beside this one, and waits until it is ready.
    async fn start(&self, cluster: &Cluster) -> Result<Child> {
        let own = std::env::current_exe()?;
        let folder = own.parent().and_then(Path::parent).context("an example lies below the programs")?;
        let child = Command::new(folder.join("confpin"))
            .args(["serve", "--log=warn", "--drain=0"])
            .arg(format!("--listen=127.0.0.1:{}", self.port))
            .arg(format!("--admin-listen=127.0.0.1:{}", self.admin))
            .arg(format!("--webhook-url=https://127.0.0.1:{}", self.port))
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("failed to start confpin; run cargo build --release first")?;
        wait_for("confpin to be ready", LONG, async || {
            cluster.probe(&format!("http://127.0.0.1:{}", self.admin), "/readyz").await.map(Some)
        })
        .await?;
        Ok(child)
    }
}

fn namespace(index: usize) -> String {
    format!("scale-{index}")
}

/// A namespace with a ConfigMap and a Deployment, whose snapshot the sets will name.
async fn make_namespace(client: &Client, index: usize) -> Result<()> {
    let name = namespace(index);
    let labels = json!({"confpin.dev/pin": "enabled"});
    let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}}))?;
    Api::all(client.clone()).create(&PostParams::default(), &namespace).await?;
    create::<ConfigMap>(client, &name, json!({"metadata": {"name": "app"}, "data": {"value": name}})).await?;
    create::<Deployment>(client, &name, json!({"metadata": {"name": "web"}, "spec": set_spec("app")})).await
}

fn set_spec(configmap: &str) -> Value {
    json!({"replicas": 0, "selector": {"matchLabels": {"app": "web"}}, "template": {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "web", "image": "example.invalid/web:1"}],
                 "volumes": [{"name": "app", "configMap": {"name": configmap}}]}}})
}

async fn create<K>(client: &Client, namespace: &str, object: Value) -> Result<()>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + serde::de::DeserializeOwned,
    K: serde::Serialize + Clone + std::fmt::Debug,
{
    let object: K = serde_json::from_value(object)?;
    Api::namespaced(client.clone(), namespace).create(&PostParams::default(), &object).await?;
    Ok(())
}

async fn snapshot_of(client: &Client, namespace: &str) -> Result<ConfigMap> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let list = api.list(&ListParams::default().labels("confpin.dev/snapshot=true")).await?;
    list.items.into_iter().next().context("the namespace has a snapshot")
}

async fn make_sets(client: &Client, range: std::ops::Range<usize>) -> Result<()> {
    let mut names = Vec::new();
    for index in 0..NAMESPACES {
        names.push(snapshot_of(client, &namespace(index)).await?.metadata.name.unwrap_or_default());
    }
    let names = &names;
    stream::iter(range.map(anyhow::Ok))
        .try_for_each_concurrent(PARALLEL, async |index| make_set(client, index, &names[index % NAMESPACES]).await)
        .await
}

async fn make_set(client: &Client, index: usize, snapshot: &str) -> Result<()> {
    let object = json!({"metadata": {"name": format!("set-{index}")}, "spec": set_spec(snapshot)});
    create::<ReplicaSet>(client, &namespace(index % NAMESPACES), object).await
}

/// Waits until every snapshot has at least so many owners.
async fn wait_owners(client: &Client, count: usize) -> Result<()> {
    let api: Api<ConfigMap> = Api::all(client.clone());
    let list = ListParams::default().labels("confpin.dev/snapshot=true");
    wait_for("all owners", LONG, async || {
        let snapshots = api.list_metadata(&list).await?.items;
        ensure!(snapshots.len() == NAMESPACES, "{} snapshots", snapshots.len());
        let least = snapshots.iter().map(|it| it.metadata.owner_references.as_ref().map_or(0, Vec::len)).min();
        ensure!(least >= Some(count), "the least has {least:?} owners of {count}");
        Ok(Some(()))
    })
    .await
}

/// How soon one more set owns its snapshot, and how many requests of confpin it takes.
async fn one_more(cluster: &Cluster, client: &Client, index: usize) -> Result<(Duration, usize)> {
    let space = namespace(index % NAMESPACES);
    let before = snapshot_of(client, &space).await?;
    let name = before.metadata.name.unwrap_or_default();
    let owners = before.metadata.owner_references.map_or(0, |owners| owners.len());
    let mark = cluster.audit().mark().await?;
    make_set(client, index, &name).await?;
    let begin = Instant::now();
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), &space);
    wait_for("the new owner", LONG, async || {
        let now = api.get_metadata(&name).await?.metadata.owner_references.map_or(0, |owners| owners.len());
        Ok((now > owners).then_some(()))
    })
    .await?;
    let delay = begin.elapsed();
    let events = cluster.audit().since(&mark).await?;
    Ok((delay, events.iter().filter(|event| event.user_agent.starts_with("confpin/")).count()))
}

fn resident_mib(child: &Child) -> Result<u64> {
    let id = child.id().context("confpin runs")?;
    let status = std::fs::read_to_string(format!("/proc/{id}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("a process has a size")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? / 1024)
}
