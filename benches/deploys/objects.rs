//! What is deployed.

use anyhow::Result;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, PodSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::json;

/// The name of the source with this number.
pub fn source_name(index: usize) -> String {
    format!("app-config-{index}")
}

/// A ConfigMap of about `bytes` bytes that differs from those of other versions.
pub fn configmap(name: &str, bytes: usize, version: usize) -> Result<ConfigMap> {
    let line = format!("setting.{version} = a value as they are\n");
    let value: String = line.chars().cycle().take(bytes).collect();
    Ok(serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"application.properties": value},
    }))?)
}

/// A Deployment without pods that mounts these ConfigMaps.
pub fn deployment(name: &str, configmaps: &[String], version: usize) -> Result<Deployment> {
    let volumes: Vec<_> = (0..).zip(configmaps).map(volume).collect();
    Ok(serde_json::from_value(json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "containers": [{"name": "main", "image": format!("shop.example/web:{version}")}],
                    "volumes": volumes,
                },
            },
        },
    }))?)
}

fn volume((index, configmap): (usize, &String)) -> serde_json::Value {
    json!({"name": format!("v{index}"), "configMap": {"name": configmap}})
}

/// The ConfigMaps that a Deployment mounts.
pub fn names(deployment: &Deployment) -> Vec<String> {
    named(deployment.spec.as_ref().and_then(|spec| spec.template.spec.as_ref()))
}

/// The ConfigMaps that a pod mounts.
pub fn named(pod: Option<&PodSpec>) -> Vec<String> {
    let volumes = pod.and_then(|pod| pod.volumes.as_ref()).into_iter().flatten();
    volumes.filter_map(|volume| Some(volume.config_map.as_ref()?.name.clone())).collect()
}

/// Creates a ConfigMap, or replaces the one of its name.
pub async fn put(client: &Client, namespace: &str, configmap: &ConfigMap) -> Result<()> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let name = configmap.metadata.name.as_deref().unwrap_or_default();
    match api.replace(name, &PostParams::default(), configmap).await {
        Err(kube::Error::Api(status)) if status.code == 404 => {
            api.create(&PostParams::default(), configmap).await?;
        }
        replaced => drop(replaced?),
    }
    Ok(())
}
