//! The client of the API server.

use anyhow::{Context, Result};
use axum::http::{HeaderValue, header};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config as ClientConfig};

use crate::config::ClusterAccess;

/// A client by the options, else by the pod's service account, else by the usual kubeconfig. It calls itself `user_agent` to
/// the API server, for its audit log.
///
/// # Errors
///
/// When nothing of these can be used; the message says which and what to do.
pub async fn connect(access: &ClusterAccess, user_agent: &'static str) -> Result<Client> {
    let options = KubeConfigOptions { context: access.context.clone(), ..KubeConfigOptions::default() };
    let mut config = match (&access.kubeconfig, &access.context) {
        (Some(path), _) => {
            let file = Kubeconfig::read_from(path)
                .with_context(|| format!("failed to read --kubeconfig {}", path.display()))?;
            ClientConfig::from_custom_kubeconfig(file, &options).await.context("failed to use the kubeconfig")?
        }
        (None, Some(_)) => ClientConfig::from_kubeconfig(&options).await.context("failed to use --context")?,
        (None, None) => ClientConfig::infer()
            .await
            .context("failed to find a cluster: give --kubeconfig, or run in one with a service account")?,
    };
    config.headers.push((header::USER_AGENT, HeaderValue::from_static(user_agent)));
    Client::try_from(config).context("failed to make a client")
}
