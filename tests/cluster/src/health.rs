//! When a component is ready.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use http::Request;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::{Api, Client};

use crate::{cluster::Cluster, components::Component, process::log_end, wait_for};

/// How long a part may take to become ready on a loaded machine.
pub(crate) const READY: Duration = Duration::from_secs(90);
/// How long a component may take to answer whether it is ready.
const ANSWER: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(25);

impl Cluster {
    /// Waits until the component says that it is ready, or has ended.
    pub(crate) async fn wait_until_ready(&self, component: Component) -> Result<()> {
        let name = component.name();
        let deadline = Instant::now() + READY;
        loop {
            self.check(component)?;
            let error = match self.ready(component).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            if Instant::now() > deadline {
                let log = self.logs(component);
                let end = log_end(&log);
                return Err(error.context(format!(
                    "{name} is not ready after {READY:?}; the end of its log {}:\n{end}",
                    log.display()
                )));
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// An error if any of the components that this one needs is not running.
    fn check(&self, component: Component) -> Result<()> {
        let mut processes = self.processes();
        let needed = if component == Component::ApiServer { [Component::Etcd, component] } else { [component; 2] };
        for component in needed {
            if let Some(process) = processes.get_mut(&component) {
                process.check().with_context(|| format!("{} does not run", component.name()))?;
            }
        }
        Ok(())
    }

    async fn ready(&self, component: Component) -> Result<()> {
        let ports = &self.layout.ports;
        match component {
            Component::Etcd => self.probe(&loopback("http", ports.etcd), "/health").await,
            Component::ApiServer => self.probe(&self.server_url(), "/readyz").await,
            Component::ControllerManager => self.probe(&loopback("https", ports.controller_manager), "/healthz").await,
            Component::Scheduler => self.probe(&loopback("https", ports.scheduler), "/readyz").await,
            Component::Rollouts => self.probe(&loopback("http", ports.rollouts_health), "/healthz").await,
            Component::CertManager => self.probe(&loopback("http", ports.cert_manager_health), "/healthz").await,
            Component::FakeNode => self.node_ready("fake").await,
            Component::Containerd => self.real_node()?.runtime_ready().await,
            Component::Kubelet => {
                // The Node object is still ready from before a restart.
                self.probe(&self.server_url(), "/api/v1/nodes/real/proxy/healthz").await?;
                self.node_ready("real").await
            }
        }
    }

    /// Asks a component of the cluster, or another program on this machine, for its health: `server` is its URL.
    ///
    /// # Errors
    /// If it does not answer, or with another status than success.
    pub async fn probe(&self, server: &str, path: &str) -> Result<()> {
        self.read(server, path).await.map(drop)
    }

    /// What such a program answers, for example with its metrics.
    ///
    /// # Errors
    /// If it does not answer, or with another status than success.
    pub async fn read(&self, server: &str, path: &str) -> Result<String> {
        let mut config = self.config.clone();
        config.cluster_url = server.parse()?;
        config.default_retry = false;
        config.read_timeout = Some(ANSWER);
        let client = Client::try_from(config)?;
        Ok(client.request_text(Request::get(path).body(Vec::new())?).await?)
    }

    /// Waits until pods can be made in the namespace.
    pub(crate) async fn wait_for_service_account(&self, namespace: &str) -> Result<()> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client(), namespace);
        wait_for("the default ServiceAccount", READY, async || Ok(accounts.get_opt("default").await?)).await?;
        Ok(())
    }
}

pub(crate) fn loopback(scheme: &str, port: u16) -> String {
    format!("{scheme}://127.0.0.1:{port}")
}
