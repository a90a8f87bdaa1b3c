//! Reads of the sample's objects.

use anyhow::{Context, Result};
use http::Request;
use kube::Client;
use serde_json::Value;

use crate::terminal::NAMESPACE;

/// The objects of the sample's namespace.
pub struct Objects(pub Client);

impl Objects {
    /// One object.
    pub async fn get(&self, api: &str, resource: &str, name: &str) -> Result<Value> {
        self.read(&format!("/{api}/namespaces/{NAMESPACE}/{resource}/{name}")).await
    }

    /// Those with a label `key=value`.
    pub async fn list(&self, api: &str, resource: &str, label: &str) -> Result<Vec<Value>> {
        let selector = label.replace('/', "%2F").replace('=', "%3D");
        let path = format!("/{api}/namespaces/{NAMESPACE}/{resource}?labelSelector={selector}");
        Ok(self.read(&path).await?["items"].as_array().cloned().unwrap_or_default())
    }

    /// The snapshots.
    pub async fn snapshots(&self) -> Result<Vec<Value>> {
        self.list("api/v1", "configmaps", "confpin.dev/snapshot=true").await
    }

    async fn read(&self, path: &str) -> Result<Value> {
        let request = Request::get(path).body(Vec::new())?;
        self.0.request(request).await.with_context(|| format!("failed to read {path}"))
    }
}

/// A text, or nothing.
pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
