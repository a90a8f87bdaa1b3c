//! The client of the API server.

use std::time::Duration;

use anyhow::{Context, Result};
use axum::http::{HeaderValue, header};
use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config as ClientConfig};
use tower::util::AndThenLayer;

use crate::cluster::retry_after;
use crate::config::ClusterAccess;

/// How long a new connection may take, with its handshake. Short enough that an admission has time for a second one.
const CONNECT: Duration = Duration::from_secs(4);

/// How long a connection may take nothing of what is sent on it.
const WRITE: Duration = Duration::from_secs(30);

/// How long nothing may come on a connection. More than a watch may be silent, which kube ends after 295 seconds: this is the
/// net below the timeouts of single requests.
const READ: Duration = Duration::from_secs(330);

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
    config.connect_timeout = Some(CONNECT);
    config.write_timeout = Some(WRITE);
    config.read_timeout = Some(READ);
    config.reset_reader_on_write = true;
    // Ours know of deadlines and of leadership (`cluster::retry`). kube's retries would continue below them for minutes.
    config.default_retry = false;
    config.headers.push((header::USER_AGENT, HeaderValue::from_static(user_agent)));
    let builder = ClientBuilder::try_from(config).context("failed to make a client")?;
    Ok(builder.with_layer(&AndThenLayer::new(retry_after::keep)).build())
}
