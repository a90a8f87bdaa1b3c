//! The sample's pods: which ConfigMap each names, and what its process reads.

use anyhow::{Result, bail, ensure};
use serde_json::Value;
use testcluster::Cluster;

use crate::objects::{Objects, text};
use crate::output;
use crate::terminal::NAMESPACE;

/// The image that the sample's manifests name.
const IMAGE: &str = "docker.io/library/busybox:1.37";
/// Prints the variable of the first process, and the file.
const READ: &str = r"tr '\0' '\n' < /proc/1/environ | sed -n s/^COLOUR=//p; cat /config/COLOUR";
/// Shown in place of what a simulated pod would read.
const SIMULATED: &str = "-";

/// One pod.
#[derive(Debug, Clone)]
pub struct Pod {
    /// Its name.
    pub name: String,
    /// The hash of its template, by which a Rollout tells its revisions apart.
    pub hash: String,
    /// The ConfigMap that it names, for its environment and its volume.
    pub configmap: String,
}

/// Puts the sample's image on the node, where no registry can be reached: Debian's busybox, under that name.
pub async fn load_sample_image(cluster: &Cluster) -> Result<()> {
    cluster.node()?.load_image(IMAGE, &[]).await
}

/// The pods of an app, if there are `count` of them, all ready, and none that is ending.
pub async fn ready(objects: &Objects, app: &str, count: usize) -> Result<Vec<Pod>> {
    let pods = objects.list("api/v1", "pods", &format!("app={app}")).await?;
    let is_ready = |pod: &&Value| {
        let conditions = pod["status"]["conditions"].as_array();
        conditions.into_iter().flatten().any(|it| it["type"] == "Ready" && it["status"] == "True")
    };
    let ready = pods.iter().filter(is_ready).count();
    let ending = pods.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_string()).count();
    let found = pods.len();
    ensure!((found, ready, ending) == (count, count, 0), "{found} of {count} pods, {ready} ready, {ending} ending");
    pods.iter().map(pod).collect()
}

fn pod(object: &Value) -> Result<Pod> {
    let name = text(&object["metadata"]["name"]);
    let configmap = text(&object["spec"]["volumes"][0]["configMap"]["name"]);
    let by_environment = text(&object["spec"]["containers"][0]["envFrom"][0]["configMapRef"]["name"]);
    ensure!(configmap == by_environment, "{name} names {configmap} in one place and {by_environment} in another");
    let hash = text(&object["metadata"]["labels"]["rollouts-pod-template-hash"]);
    Ok(Pod { name, hash, configmap })
}

/// Looks into pods, shows what they read, and holds them to it. `expected` tells a pod's revision and colour.
pub async fn show(
    cluster: &Cluster,
    objects: &Objects,
    pods: &[Pod],
    expected: impl Fn(&Pod) -> (&'static str, &'static str),
) -> Result<()> {
    let mut rows = Vec::new();
    let mut wrong = Vec::new();
    for pod in pods {
        let (revision, colour) = expected(pod);
        let named = objects.get("api/v1", "configmaps", &pod.configmap).await?;
        let (environment, file) = read(cluster, pod).await?;
        let seen = [text(&named["data"]["COLOUR"]), environment.clone(), file.clone()];
        if seen.iter().any(|it| it != colour && it != SIMULATED) {
            wrong.push(format!("{} should read {colour} everywhere, and reads {seen:?}", pod.name));
        }
        let configmap = match environment.as_str() {
            SIMULATED => format!("{}, which is {}", pod.configmap, seen[0]),
            _ => pod.configmap.clone(),
        };
        rows.push([pod.name.clone(), revision.to_owned(), configmap, environment, file]);
    }
    rows.sort_by(|one, other| one[1..3].cmp(&other[1..3]));
    output::table(["POD", "REVISION", "CONFIGMAP", "ENVIRONMENT", "FILE"], &rows);
    ensure!(wrong.is_empty(), "{}", wrong.join("; "));
    Ok(())
}

async fn read(cluster: &Cluster, pod: &Pod) -> Result<(String, String)> {
    let Ok(node) = cluster.node() else { return Ok((SIMULATED.to_owned(), SIMULATED.to_owned())) };
    let text = node.exec(NAMESPACE, &pod.name, &["sh", "-c", READ]).await?;
    let Some((environment, file)) = text.split_once('\n') else { bail!("{} reads {text:?}", pod.name) };
    Ok((environment.to_owned(), file.to_owned()))
}
