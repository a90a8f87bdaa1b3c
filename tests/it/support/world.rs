//! A cluster and the confpin that serves it.

use anyhow::{Context, Result};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
use kube::{Api, Client, api::PostParams};
use testcluster::{ArgoCd, Builder, Cluster, wait_for};
use tokio::sync::OnceCell;

use super::{SOON, Shop, configmap, confpin::Confpin, deployment, docs, rights};

/// Opts a namespace in.
pub const LABEL: (&str, &str) = ("confpin.dev/pin", "enabled");

/// A cluster and the confpin that serves it, with the rights that an installation grants it.
pub struct World {
    // Dropped first: nothing is to be seen of a cluster that goes.
    pub confpin: Confpin,
    argo_cd: OnceCell<ArgoCd>,
    patched_argo_cd: OnceCell<ArgoCd>,
    labelling_argo_cd: OnceCell<ArgoCd>,
    pub client: Client,
    pub cluster: Cluster,
}

impl World {
    /// Starts a cluster and a confpin, and waits until each admission is asked.
    pub async fn start(cluster: Builder) -> Result<Self> {
        Self::with_arguments(cluster, &[]).await
    }

    /// A cluster, and a confpin that is not started yet, or never, if another one serves the cluster.
    pub fn new(cluster: Cluster, confpin: Confpin) -> Self {
        Self {
            confpin,
            argo_cd: OnceCell::new(),
            patched_argo_cd: OnceCell::new(),
            labelling_argo_cd: OnceCell::new(),
            client: cluster.client(),
            cluster,
        }
    }

    /// The same with more arguments of confpin.
    pub async fn with_arguments(cluster: Builder, arguments: &[&str]) -> Result<Self> {
        let cluster = cluster.start().await?;
        let confpin = Confpin::new(&cluster, arguments)?.with_kubeconfig(rights::install(&cluster).await?);
        let world = Self::new(cluster, confpin);
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

    /// Argo CD as it is by default, installed for the first test that asks.
    pub async fn argo_cd(&self) -> Result<&ArgoCd> {
        let install = async || {
            self.cluster.create_argo_cd("argocd").await?;
            self.cluster.start_argo_cd("argocd").await
        };
        self.argo_cd.get_or_try_init(install).await
    }

    /// One that ignores the differences that confpin makes, as the guide's page says.
    pub async fn patched_argo_cd(&self) -> Result<&ArgoCd> {
        let install = async || {
            let namespace = "argocd-patched";
            self.cluster.create_argo_cd(namespace).await?;
            let command = docs::command("argo-cd.md", "patch")?;
            let command = command.replace("--namespace argocd", &format!("--namespace {namespace}"));
            let command = command.replace("manifests/", concat!(env!("CARGO_MANIFEST_DIR"), "/manifests/"));
            self.cluster.kubectl(command.split(' ').skip(1)).run().await?;
            self.cluster.start_argo_cd(namespace).await
        };
        self.patched_argo_cd.get_or_try_init(install).await
    }

    /// One that knows what it brought by a label, and not by an annotation.
    pub async fn labelling_argo_cd(&self) -> Result<&ArgoCd> {
        let install = async || {
            let namespace = "argocd-labelling";
            self.cluster.create_argo_cd(namespace).await?;
            let settings = r#"--patch={"data": {"application.resourceTrackingMethod": "label"}}"#;
            self.cluster.kubectl(["patch", "configmap", "argocd-cm", "--namespace", namespace, settings]).run().await?;
            self.cluster.start_argo_cd(namespace).await
        };
        self.labelling_argo_cd.get_or_try_init(install).await
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
