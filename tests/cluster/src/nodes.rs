//! The Node objects: the fake one, and what both need.

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, api::PostParams};
use serde_json::json;

use crate::{cluster::Cluster, components::NODE_LABEL};

impl Cluster {
    pub(crate) async fn create_fake_node(&self) -> Result<()> {
        let node: Node = serde_json::from_value(json!({
            "metadata": {
                "name": "fake",
                "labels": {
                    NODE_LABEL: "fake",
                    "kubernetes.io/hostname": "fake",
                    "kubernetes.io/os": "linux",
                    "kubernetes.io/arch": "amd64",
                },
            },
        }))?;
        let nodes: Api<Node> = Api::all(self.client());
        nodes.create(&PostParams::default(), &node).await.context("failed to create the fake node")?;
        Ok(())
    }

    /// An error unless the node is ready and pods may be placed on it.
    pub(crate) async fn node_ready(&self, name: &str) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.client());
        let node = nodes.get(name).await?;
        let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
        if !conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True") {
            bail!("the node {name} is not ready");
        }
        let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
        if let Some(taint) = taints.iter().find(|taint| taint.key.starts_with("node.kubernetes.io/")) {
            bail!("the node {name} still has the taint {}", taint.key);
        }
        Ok(())
    }
}
