//! Measures how confpin bears numbers: `cargo run --release --example scale -- 200 2000 10000`.
//!
//! For each number: that many Deployments in a hundred namespaces, each with five ReplicaSets and two snapshots of
//! 4 KB, made while confpin is down. Then confpin starts: how long until it is ready and until every snapshot has all
//! its owners, how much memory it takes, what it does when nothing happens, how soon one more ReplicaSet owns its
//! snapshot and how many requests that costs. The table goes to `docs/scale.md`.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use confpin::pin::meta;
use confpin::pin::record::Record;
use confpin::pin::snapshot::{Source, names};
use confpin::pin::webhook_configuration;
use futures::stream::{self, TryStreamExt};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::{Value, json};
use testcluster::{Cluster, free_port, usage, wait_for};
use tokio::process::{Child, Command};

const NAMESPACES: usize = 100;
/// How many ReplicaSets a workload has, and how many snapshots these name.
const REVISIONS: usize = 5;
const CONTENTS: usize = 2;
const BYTES: usize = 4_096;
const PARALLEL: usize = 32;
const LONG: Duration = Duration::from_secs(900);
const REST: Duration = Duration::from_secs(20);

#[tokio::main]
async fn main() -> Result<()> {
    let mut numbers: Vec<usize> = std::env::args().skip(1).map(|text| text.parse()).collect::<Result<_, _>>()?;
    if numbers.is_empty() {
        numbers = vec![200, 2_000, 10_000];
    }
    // Without the workloads' controllers: all stays as it is made, and the machine's time is confpin's.
    let flags = ["--controllers=namespace-controller,serviceaccount-controller"];
    let cluster = Cluster::builder().controller_manager_flags(flags).start().await?;
    let client = cluster.client();
    for index in 0..NAMESPACES {
        let labels = json!({"confpin.dev/pin": "enabled"});
        let object = json!({"metadata": {"name": namespace(index), "labels": labels}});
        let object: Namespace = serde_json::from_value(object)?;
        Api::all(client.clone()).create(&PostParams::default(), &object).await?;
    }
    let confpin = Confpin::new(&cluster)?;
    println!(
        "| workloads | ReplicaSets | snapshots | ready after | all owned after | memory | at most | CPU at rest | one more \
         owned after | its requests |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    let mut there = 0;
    for number in numbers {
        let made = stream::iter((there..number).map(anyhow::Ok));
        made.try_for_each_concurrent(PARALLEL, async |index| make_workload(&client, index).await).await?;
        there = number;
        let begin = Instant::now();
        let mut running = confpin.start(&cluster).await?;
        let ready = begin.elapsed();
        wait_owned(&client, number).await?;
        let owned = begin.elapsed();
        let at_rest = processor_time_at_rest(&running).await?;
        let (memory, peak) = (usage::memory_mib(&running, "VmRSS:")?, usage::memory_mib(&running, "VmHWM:")?);
        let (delay, requests) = one_more(&cluster, &client, number).await?;
        running.kill().await?;
        // Else nobody could make the next Deployments.
        let registered: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
        registered.delete(webhook_configuration::NAME, &DeleteParams::default()).await?;
        println!(
            "| {number} | {} | {} | {ready:.1?} | {owned:.1?} | {memory} MiB | {peak} MiB | {at_rest:.1} % | {delay:.0?} | \
             {requests} |",
            REVISIONS * number,
            CONTENTS * number,
        );
    }
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
    format!("scale-{}", index % NAMESPACES)
}

/// A Deployment with its ReplicaSets and snapshots.
async fn make_workload(client: &Client, index: usize) -> Result<()> {
    let (space, name) = (namespace(index), format!("web-{index}"));
    let (mut snapshots, mut record) = (Vec::new(), Record::default());
    for content in 0..CONTENTS {
        let text: String = format!("setting = {content}\n").chars().cycle().take(BYTES).collect();
        let source: ConfigMap = serde_json::from_value(json!({"data": {"application.properties": text}}))?;
        let source = Source::new(&name, &source);
        let snapshot = source.snapshot(&names(&name, &source.hash)[0], None);
        create(client, &space, &snapshot).await?;
        record.0.insert(name.clone(), Some(source.hash));
        snapshots.push(snapshot.name_any());
    }
    let mut spec = workload_spec(&name, &snapshots[0], 0);
    spec["replicas"] = 0.into();
    let record = json!({meta::RECORD: record.text()});
    let deployment: Deployment =
        serde_json::from_value(json!({"metadata": {"name": name, "annotations": record}, "spec": spec}))?;
    let deployment = create(client, &space, &deployment).await?;
    for revision in 0..REVISIONS {
        make_set(client, &deployment, &snapshots[revision % CONTENTS], revision).await?;
    }
    // As its controller tells when it has made them all.
    let status = json!({"status": {"observedGeneration": 1}});
    let api: Api<Deployment> = Api::namespaced(client.clone(), &space);
    api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status)).await?;
    Ok(())
}

async fn make_set(client: &Client, workload: &Deployment, snapshot: &str, revision: usize) -> Result<()> {
    let name = workload.name_any();
    let set: ReplicaSet = serde_json::from_value(json!({
        "metadata": {"name": format!("{name}-{revision}"), "labels": {"app": name},
                     "ownerReferences": [workload.controller_owner_ref(&())]},
        "spec": workload_spec(&name, snapshot, revision)}))?;
    create(client, &workload.namespace().unwrap_or_default(), &set).await?;
    Ok(())
}

fn workload_spec(name: &str, configmap: &str, revision: usize) -> Value {
    let labels = json!({"app": name});
    json!({"selector": {"matchLabels": labels}, "template": {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "web", "image": format!("example.invalid/web:{revision}")}],
                 "volumes": [{"name": "app", "configMap": {"name": configmap}}]}}})
}

async fn create<K>(client: &Client, namespace: &str, object: &K) -> Result<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + serde::de::DeserializeOwned,
    K: serde::Serialize + Clone + std::fmt::Debug,
{
    Ok(Api::namespaced(client.clone(), namespace).create(&PostParams::default(), object).await?)
}

/// Waits until every ReplicaSet of so many workloads owns its snapshot.
async fn wait_owned(client: &Client, workloads: usize) -> Result<()> {
    let api: Api<ConfigMap> = Api::all(client.clone());
    let list = ListParams::default().labels("confpin.dev/snapshot=true");
    wait_for("all owners", LONG, async || {
        let snapshots = api.list_metadata(&list).await?.items;
        let owners: usize = snapshots.iter().map(|it| it.owner_references().len()).sum();
        ensure!(owners >= REVISIONS * workloads, "{owners} owners of {} snapshots", snapshots.len());
        Ok(Some(()))
    })
    .await
}

/// How soon one more set owns its snapshot, and how many requests of confpin it takes.
async fn one_more(cluster: &Cluster, client: &Client, workloads: usize) -> Result<(Duration, usize)> {
    let (space, name) = (namespace(workloads - 1), format!("web-{}", workloads - 1));
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), &space);
    let configmaps: Api<ConfigMap> = Api::namespaced(client.clone(), &space);
    let deployment = deployments.get(&name).await?;
    let pod = deployment.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    let volume = pod.and_then(|pod| pod.volumes.as_ref()?.first()?.config_map.as_ref());
    let snapshot = volume.context("it names a snapshot")?.name.clone();
    let owners = async || Ok::<_, anyhow::Error>(configmaps.get_metadata(&snapshot).await?.owner_references().len());
    let before = owners().await?;
    let mark = cluster.audit().mark().await?;
    make_set(client, &deployment, &snapshot, REVISIONS + 1).await?;
    let begin = Instant::now();
    wait_for("the new owner", LONG, async || Ok((owners().await? > before).then_some(()))).await?;
    let delay = begin.elapsed();
    let events = cluster.audit().since(&mark).await?;
    Ok((delay, events.iter().filter(|event| event.user_agent.starts_with("confpin/")).count()))
}

/// The part of one core's time, in percent, that it takes when nothing happens.
async fn processor_time_at_rest(child: &Child) -> Result<f64> {
    let before = usage::processor_time(child)?;
    tokio::time::sleep(REST).await;
    Ok(100.0 * (usage::processor_time(child)? - before).as_secs_f64() / REST.as_secs_f64())
}
