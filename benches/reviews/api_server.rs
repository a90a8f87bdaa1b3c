//! An API server that has one namespace's sources, and snapshots of some of them, and answers at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Result;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::reviews::{pinned_source, source};

/// It ends when it is dropped.
pub struct ApiServer {
    port: u16,
    task: JoinHandle<()>,
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

type Stored = Arc<BTreeMap<String, Value>>;

impl ApiServer {
    /// Starts it.
    pub async fn start() -> Result<Self> {
        let (pinned, snapshot) = pinned_source()?;
        let mut stored = BTreeMap::new();
        for configmap in [source("new")?, pinned, snapshot] {
            let name = configmap.metadata.name.clone().unwrap_or_default();
            stored.insert(name, serde_json::to_value(configmap)?);
        }
        let routes = Router::new()
            .route("/api/v1/namespaces/{namespace}", get(namespace))
            .route("/api/v1/namespaces/{namespace}/configmaps", axum::routing::post(create))
            .route("/api/v1/namespaces/{namespace}/configmaps/{name}", get(configmap))
            .with_state(Arc::new(stored));
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        // It serves until it is aborted.
        let task = tokio::spawn(async move { drop(axum::serve(listener, routes).await) });
        Ok(Self { port, task })
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }
}

async fn namespace(Path(name): Path<String>) -> Json<Value> {
    let labels = json!({"confpin.dev/pin": "enabled"});
    Json(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}))
}

async fn configmap(State(stored): State<Stored>, Path((_, name)): Path<(String, String)>) -> Response {
    match stored.get(&name) {
        Some(found) => Json(found.clone()).into_response(),
        None => {
            let status = json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "NotFound",
                                "message": "not found", "code": 404});
            (StatusCode::NOT_FOUND, Json(status)).into_response()
        }
    }
}

/// Stores nothing, so that the next one is new again.
async fn create(Json(mut configmap): Json<ConfigMap>) -> Response {
    configmap.metadata.uid = Some("made".to_owned());
    configmap.metadata.resource_version = Some("2".to_owned());
    (StatusCode::CREATED, Json(configmap)).into_response()
}
