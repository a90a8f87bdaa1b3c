//! `kubectl confpin status` of a large cluster.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{Api, api::PostParams};
use serde_json::json;
use testcluster::{Cluster, usage};
use tokio::{io::AsyncReadExt, process::Command};

use crate::support::{configmap, deployment, plugin::PLUGIN, tests};

tests! {
    Own the_status_of_ten_thousand_workloads_takes_seconds,
}

const NAMESPACES: usize = 50;
const WORKLOADS: usize = 200;
/// Of processor time, which does not depend on what else the machine does. Measured: 8 s by a debug build, of which
/// most is the parsing of JSON. Quadratic work would take minutes.
const BOUND: Duration = Duration::from_secs(40);

async fn the_status_of_ten_thousand_workloads_takes_seconds() -> Result<()> {
    // No controller makes ReplicaSets or pods: the machine's time is the plugin's.
    let flags = ["--controllers=namespace-controller,serviceaccount-controller"];
    let cluster = Cluster::builder().controller_manager_flags(flags).start().await?;
    let client = cluster.client();
    let params = &PostParams::default();
    // What confpin would have made of them. Each namespace's source was written again since, so that its content counts.
    for index in 0..NAMESPACES {
        let name = format!("scale-{index}");
        let labelled = json!({"metadata": {"name": name, "labels": {"confpin.dev/pin": "enabled"}}});
        Api::<Namespace>::all(client.clone()).create(params, &serde_json::from_value(labelled)?).await?;
        let configmaps: Api<ConfigMap> = Api::namespaced(client.clone(), &name);
        let made = configmaps.create(params, &serde_json::from_value(configmap("app-config", "1"))?).await?;
        let source = confpin::pin::snapshot::Source::new("app-config", &made);
        let snapshot = confpin::pin::snapshot::names("app-config", &source.hash)[0].clone();
        configmaps.create(params, &source.snapshot(&snapshot, None)).await?;
        if index % 2 == 0 {
            configmaps.replace("app-config", params, &serde_json::from_value(configmap("app-config", "2"))?).await?;
        }
        let workloads: Api<Deployment> = Api::namespaced(client.clone(), &name);
        let workloads = &workloads;
        let snapshot = snapshot.as_str();
        let make = |index: usize| async move {
            let web = deployment(&format!("web-{index}")).replicas(0).uses(snapshot).json();
            anyhow::Ok(workloads.create(params, &serde_json::from_value(web)?).await.map(|_| ())?)
        };
        stream::iter((0..WORKLOADS).map(make).collect::<Vec<_>>()).buffer_unordered(32).try_collect::<()>().await?;
    }

    let begin = Instant::now();
    let mut status = Command::new(PLUGIN);
    status.args(["status", "-A"]).env("KUBECONFIG", cluster.kubeconfig()).stdout(Stdio::piped());
    let mut status = status.kill_on_drop(true).spawn()?;
    let mut told = String::new();
    status.stdout.take().context("a pipe")?.read_to_string(&mut told).await?;
    let (took, used) = (begin.elapsed(), usage::processor_time(&status)?);
    assert_eq!(status.wait().await?.code(), Some(1));
    let behind = told.lines().filter(|line| line.contains("  behind  ")).count();
    assert_eq!(behind, NAMESPACES / 2 * WORKLOADS);
    assert!(told.lines().last().context("a line")?.ends_with(": 200 newest"), "{told}");
    println!("the status of {} workloads took {took:.1?}, {used:.1?} of processor time", NAMESPACES * WORKLOADS);
    assert!(used < BOUND, "it took {used:?} of processor time");
    Ok(())
}
