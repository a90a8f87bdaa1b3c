//! The pods of a workload on the real node, and what they see.

use std::{collections::BTreeMap, path::PathBuf};

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    ResourceExt,
    api::{DeleteParams, ListParams},
};
use testcluster::{Node, wait_for};

use super::{SOON, Shop, World};

impl Shop<'_> {
    /// The real node.
    pub fn node(&self) -> Result<Node<'_>> {
        self.world.cluster.node()
    }

    /// The pods of a workload that are not on their way out, by name.
    pub async fn pods(&self, app: &str) -> Result<BTreeMap<String, Pod>> {
        let list = self.api::<Pod>().list(&ListParams::default().labels(&format!("app={app}"))).await?;
        let living = list.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
        Ok(living.map(|pod| (pod.name_any(), pod)).collect())
    }

    /// Waits until just so many pods of a workload are there, ready.
    pub async fn wait_pods(&self, app: &str, count: usize) -> Result<BTreeMap<String, Pod>> {
        wait_for(&format!("{count} pods of {app}"), SOON, async || {
            let pods = self.pods(app).await?;
            let ready = pods.values().filter(|pod| is_ready(pod)).count();
            if (pods.len(), ready) != (count, count) {
                bail!("{ready} of {} are ready", pods.len());
            }
            Ok(Some(pods))
        })
        .await
    }

    /// Deletes a pod, and waits until another one of its ReplicaSet is ready in its place. Returns that one's name.
    pub async fn replace_pod(&self, app: &str, pod: &str) -> Result<String> {
        let before = self.pods(app).await?;
        let set = owner(before.get(pod).context("there is no such pod")?)?;
        self.api::<Pod>().delete(pod, &DeleteParams::default()).await?;
        wait_for(&format!("a pod in the place of {pod}"), SOON, async || {
            let pods = self.pods(app).await?;
            let mut new = pods.iter().filter(|(name, _)| !before.contains_key(*name));
            let replaced = new.find(|(_, pod)| owner(pod).is_ok_and(|owner| owner == set) && is_ready(pod));
            Ok(replaced.map(|(name, _)| name.clone()))
        })
        .await
    }

    /// The `value` that a pod sees: in a file, and in its environment. Both have to be the same.
    pub async fn value_in(&self, pod: &str, source: &str) -> Result<String> {
        let file = self.node()?.read_volume_file(self.name(), pod, &format!("/etc/{source}/value")).await?;
        let variable = self.node()?.environment(self.name(), pod).await?.remove("value").context("no such variable")?;
        ensure!(file == variable, "{pod} has {file} in its file and {variable} in its environment");
        Ok(file)
    }

    /// How many pods of a workload see each value.
    pub async fn values(&self, app: &str, source: &str) -> Result<BTreeMap<String, usize>> {
        let mut values = BTreeMap::new();
        for pod in self.pods(app).await?.into_keys() {
            *values.entry(self.value_in(&pod, source).await?).or_default() += 1;
        }
        Ok(values)
    }
}

/// The ReplicaSet of a pod.
pub fn owner(pod: &Pod) -> Result<String> {
    Ok(pod.owner_references().first().context("the pod has no owner")?.name.clone())
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Builds the program that watches files by inotify and tells what it sees, and puts it on the node as an image.
pub async fn load_watcher(world: &World) -> Result<&'static str> {
    const IMAGE: &str = "confpin.test/watcher:1";
    let source: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests/it/programs/watcher.go"].iter().collect();
    let program = world.cluster.folder().join("watcher");
    let built = tokio::process::Command::new("go")
        .args(["build", "-trimpath", "-o"])
        .arg(&program)
        .arg(&source)
        .env("CGO_ENABLED", "0")
        .output()
        .await?;
    ensure!(built.status.success(), "failed to build the watcher: {}", String::from_utf8_lossy(&built.stderr));
    world.cluster.node()?.load_image(IMAGE, &[("/bin/watcher", &program)]).await?;
    Ok(IMAGE)
}
