//! A cluster and the confpin that serves it.

use anyhow::{Context, Result};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
use kube::{Api, Client, api::PostParams};
use testcluster::{Builder, Cluster, wait_for};

use super::{SOON, Shop, configmap, confpin::Confpin, deployment, rights};

/// Opts a namespace in.
pub const LABEL: (&str, &str) = ("confpin.dev/pin", "enabled");

/// A cluster and the confpin that serves it, with the rights that an installation grants it.
pub struct World {
    // Dropped first: nothing is to be seen of a cluster that goes.
    pub confpin: Confpin,
    pub client: Client,
    pub cluster: Cluster,
}

impl World {
    /// Starts a cluster and a confpin, and waits until each admission is asked.
    pub async fn start(cluster: Builder) -> Result<Self> {
        Self::with_arguments(cluster, &[]).await
    }

    /// The same with more arguments of confpin.
    pub async fn with_arguments(cluster: Builder, arguments: &[&str]) -> Result<Self> {
        let cluster = cluster.start().await?;
        let confpin = Confpin::new(&cluster, arguments)?.with_kubeconfig(rights::install(&cluster).await?);
        let world = Self { confpin, client: cluster.client(), cluster };
        world.start_confpin().await?;
        Ok(world)
    }

    /// Starts confpin, and waits until the API server asks it: it takes a moment to see a new registration.
    pub async fn start_confpin(&self) -> Result<()> {
        self.confpin.start().await?;
        self.wait_until_asked().await.with_context(|| format!("the end of confpin's log: {}", self.confpin.log_end()))
    }

    /// Waits until the API server asks a confpin, wherever it runs.
    pub async fn wait_until_asked(&self) -> Result<()> {
        let namespace = self.cluster.namespace("probe").label(LABEL.0, LABEL.1).create().await?;
        let configmaps: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace.name());
        let source: ConfigMap = serde_json::from_value(configmap("probe", "1"))?;
        configmaps.create(&PostParams::default(), &source).await?;
        let workloads: Api<Deployment> = Api::namespaced(self.client.clone(), namespace.name());
        let workload: Deployment = serde_json::from_value(deployment("probe").uses("probe").json())?;
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        let sent = serde_json::to_value(&workload.spec)?["template"]["spec"]["volumes"].clone();
        wait_for("the API server to ask confpin", SOON, async || {
            let answer = workloads.create(&dry_run, &workload).await?;
            let got = serde_json::to_value(&answer.spec)?["template"]["spec"]["volumes"].clone();
            Ok((got[0]["configMap"]["name"] != sent[0]["configMap"]["name"]).then_some(()))
        })
        .await
    }

    /// A namespace that confpin serves.
    pub async fn shop(&self, prefix: &str) -> Result<Shop<'_>> {
        let namespace = self.cluster.namespace(prefix).label(LABEL.0, LABEL.1).create().await?;
        Ok(Shop::new(self, namespace.name()))
    }

    /// A namespace that confpin leaves alone.
    pub async fn unlabelled_shop(&self, prefix: &str) -> Result<Shop<'_>> {
        let namespace = self.cluster.namespace(prefix).create().await?;
        Ok(Shop::new(self, namespace.name()))
    }

    /// Keeps the logs for whoever looks into a failure.
    pub fn keep(&self) {
        let folder = self.cluster.folder();
        // Read by the shell that would remove the folder.
        if std::fs::write(folder.join("keep"), "").is_ok() {
            eprintln!("the logs of the cluster and of confpin are kept in {}", folder.display());
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // A watch is in the audit log when it has ended. A log that cannot be read would show as rights that nobody used.
        let _ = self.confpin.kill();
        if let Err(error) = rights::note(&self.cluster) {
            eprintln!("{error:#}");
        }
    }
}
