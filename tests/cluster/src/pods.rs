//! What a test sees of the pods on the real node.

use std::{collections::BTreeMap, path::Path, time::Duration};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::Api;

use crate::{cluster::Cluster, real_node::RealNode, wait_for};

/// How long a container may take to come back.
const RESTARTED: Duration = Duration::from_secs(90);

/// The real node. Made by [`Cluster::node`].
#[derive(Debug, Clone, Copy)]
pub struct Node<'a> {
    cluster: &'a Cluster,
    node: &'a RealNode,
}

impl Cluster {
    /// The real node, which [`Builder::real_node`](crate::Builder::real_node) asks for.
    ///
    /// # Errors
    /// If the cluster has none.
    pub fn node(&self) -> Result<Node<'_>> {
        Ok(Node { cluster: self, node: self.real_node()? })
    }
}

impl Node<'_> {
    /// The environment of the first container's first process.
    ///
    /// # Errors
    /// If the container does not run.
    pub async fn environment(&self, namespace: &str, pod: &str) -> Result<BTreeMap<String, String>> {
        let text = self.exec(namespace, pod, &["cat", "/proc/1/environ"]).await?;
        let pairs = text.split('\0').filter_map(|pair| pair.split_once('='));
        Ok(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    /// A file as the first container sees it.
    ///
    /// # Errors
    /// If the container does not run, or has no such file.
    pub async fn read_volume_file(&self, namespace: &str, pod: &str, path: &str) -> Result<String> {
        self.exec(namespace, pod, &["cat", path]).await
    }

    /// Runs a command in the first container and returns what it printed.
    ///
    /// # Errors
    /// If the container does not run or the command fails.
    pub async fn exec(&self, namespace: &str, pod: &str, command: &[&str]) -> Result<String> {
        let kubectl = ["--namespace", namespace, "exec", pod, "--"];
        self.cluster.kubectl(kubectl.iter().chain(command)).run().await
    }

    /// What the first container wrote so far.
    ///
    /// # Errors
    /// If it never ran.
    pub async fn pod_logs(&self, namespace: &str, pod: &str) -> Result<String> {
        self.cluster.kubectl(["--namespace", namespace, "logs", pod]).run().await
    }

    /// Kills the first container's processes, and waits until the kubelet has started it again.
    ///
    /// The kubelet does so at once the first time, and after 10 s, 20 s, … when it happens again.
    ///
    /// # Errors
    /// If it does not run or does not come back.
    pub async fn restart_container(&self, namespace: &str, pod: &str) -> Result<()> {
        let pods: Api<Pod> = Api::namespaced(self.cluster.client(), namespace);
        let before = first_container(&pods, pod).await?;
        self.kill_container(namespace, pod).await?;
        wait_for(&format!("the first container of {namespace}/{pod} to run again"), RESTARTED, async || {
            let now = first_container(&pods, pod).await?;
            Ok((now.restart_count > before.restart_count && now.ready).then_some(()))
        })
        .await
    }

    /// Kills the first container's processes, and does not wait for what becomes of it.
    ///
    /// # Errors
    /// If it does not run.
    pub async fn kill_container(&self, namespace: &str, pod: &str) -> Result<()> {
        let container = first_container(&Api::namespaced(self.cluster.client(), namespace), pod).await?;
        let id = container.container_id.as_deref().and_then(|id| id.split_once("://")).context("it does not run")?.1;
        self.node.ctr(&["tasks", "kill", "--signal", "SIGKILL", "--all", id]).await.map(drop)
    }

    /// Puts the images of an archive on the node, as `docker save` and `buildah push … docker-archive:` write it.
    ///
    /// # Errors
    /// If containerd refuses it.
    pub async fn import_images(&self, archive: &Path) -> Result<()> {
        self.node.import_images(archive).await
    }

    /// Puts an image on the node that has busybox and the given files: paths in the image and where their content is.
    /// The shared libraries of programs come with them. Pods use the image with `imagePullPolicy: IfNotPresent`.
    ///
    /// # Errors
    /// If a file cannot be read or containerd refuses the image.
    pub async fn load_image(&self, name: &str, files: &[(&str, &Path)]) -> Result<()> {
        self.node.load_image(self.cluster.layout(), name, files).await
    }
}

async fn first_container(pods: &Api<Pod>, name: &str) -> Result<ContainerStatus> {
    let status = pods.get(name).await?.status.unwrap_or_default();
    status.container_statuses.unwrap_or_default().into_iter().next().context("the pod has no container yet")
}
