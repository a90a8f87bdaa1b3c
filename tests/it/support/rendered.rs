//! What kustomize and Helm make of the manifests.

use std::{collections::BTreeMap, path::PathBuf, process::Output};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use testcluster::{Cluster, Program};
use tokio::process::Command;

/// Helm, as people have it.
pub const HELMS: [Program; 2] = [Program::Helm3, Program::Helm4];
/// Helm, built by its module alone, takes itself for one of an old Kubernetes.
pub const KUBE_VERSION: &str = "--kube-version=1.36.3";

/// Objects by kind, namespace and name.
pub type Objects = BTreeMap<(String, String, String), Value>;

/// A folder of the manifests.
pub fn folder(path: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "manifests", path].iter().collect()
}

/// A shipped overlay.
pub fn overlay(name: &str) -> String {
    folder(&format!("overlays/{name}")).display().to_string()
}

/// The chart.
pub fn chart() -> String {
    folder("chart/confpin").display().to_string()
}

/// Runs a program that needs no cluster.
pub async fn run_any(program: Program, arguments: &[&str]) -> Result<Output> {
    let mut command = Command::new(program.path().await?);
    Ok(command.args(arguments).env_remove("KUBECONFIG").kill_on_drop(true).output().await?)
}

/// What such a program prints.
pub async fn run(program: Program, arguments: &[&str]) -> Result<String> {
    printed(run_any(program, arguments).await?, arguments)
}

/// Runs Helm against a cluster.
pub async fn run_helm(cluster: &Cluster, helm: Program, arguments: &[&str]) -> Result<String> {
    let output = cluster.command(helm).await?.args(arguments).kill_on_drop(true).output().await?;
    printed(output, arguments)
}

/// What a program printed that must have succeeded.
pub fn printed(output: Output, arguments: &[&str]) -> Result<String> {
    ensure!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The objects of a kustomization.
pub async fn by_kustomize(folder: &str) -> Result<Objects> {
    objects(&run(Program::Kubectl, &["kustomize", folder]).await?)
}

/// The objects of the chart, for an installation in a namespace.
pub async fn by_helm(helm: Program, namespace: &str, values: &str) -> Result<Objects> {
    let values = format!("--set={values}");
    let arguments = ["template", "confpin", &chart(), "--namespace", namespace, KUBE_VERSION, &values];
    objects(&run(helm, &arguments).await?)
}

/// The objects of a YAML file, less what Helm adds to mark them as its own.
fn objects(text: &str) -> Result<Objects> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).context("it is no YAML")?;
    let objects = documents.into_iter().filter(|object| !object.is_null()).map(|mut object| {
        if let Some(labels) = object["metadata"]["labels"].as_object_mut() {
            labels.retain(|key, _| {
                let helms = ["instance", "version", "managed-by"];
                key != "helm.sh/chart" && !helms.iter().any(|name| *key == format!("app.kubernetes.io/{name}"))
            });
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let metadata = &object["metadata"];
        ((text(&object["kind"]), text(&metadata["namespace"]), text(&metadata["name"])), object)
    });
    Ok(objects.collect())
}
