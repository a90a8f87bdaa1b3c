//! A running cluster, and what a test can ask of it.

use std::{
    collections::BTreeMap,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use anyhow::{Context, Result};
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
};
use kube::{Api, Client, Config, api::PostParams};

use crate::{
    audit::Audit,
    builder::Builder,
    components::{Component, Layout},
    credentials::write_kubeconfig,
    data::Data,
    process::Process,
    random,
    real_node::RealNode,
};

/// How long the tokens of [`Cluster::service_account_token`] are valid.
const TOKEN_SECONDS: i64 = 6 * 3600;

/// A cluster of the test process. Everything of it ends when it is dropped, and when the process ends in any way.
#[derive(Debug)]
pub struct Cluster {
    // Dropped first, so that nothing writes to the data when they are removed.
    pub(crate) processes: Mutex<BTreeMap<Component, Process>>,
    // All processes of the node end with this.
    pub(crate) real_node: Option<RealNode>,
    /// Whether Argo CD's kinds are there.
    pub(crate) argo_cd_kinds: tokio::sync::Mutex<bool>,
    pub(crate) options: Builder,
    pub(crate) config: Config,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) layout: Layout,
    pub(crate) data: Data,
}

impl Cluster {
    /// A cluster of etcd, API server and controller manager.
    ///
    /// # Errors
    /// See [`Builder::start`].
    pub async fn start() -> Result<Self> {
        Self::builder().start().await
    }

    /// A cluster with other parts.
    pub fn builder() -> Builder {
        Builder::new()
    }

    pub(crate) fn real_node(&self) -> Result<&RealNode> {
        self.real_node.as_ref().context("the cluster has no real node: ask for it by Cluster::builder().real_node()")
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(crate) fn has_controller_manager(&self) -> bool {
        self.processes().contains_key(&Component::ControllerManager)
    }

    pub(crate) fn processes(&self) -> MutexGuard<'_, BTreeMap<Component, Process>> {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a test asks of the whole cluster.
impl Cluster {
    /// A new client as admin, for the async runtime that calls this. Do not share one between tests: each has a
    /// runtime of its own.
    ///
    /// # Panics
    /// Outside of an async runtime.
    #[must_use]
    pub fn client(&self) -> Client {
        Client::try_from(self.config.clone()).expect("the configuration made the client that saw the cluster start")
    }

    /// The configuration of [`Cluster::client`], to change before making a client of it.
    #[must_use]
    pub fn config(&self) -> Config {
        self.config.clone()
    }

    /// The kubeconfig file of the admin.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// A new kubeconfig file for the bearer of a token.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn kubeconfig_for_token(&self, token: &str) -> Result<PathBuf> {
        let path = self.folder().join(format!("token-{}.kubeconfig", random::suffix()?));
        write_kubeconfig(&path, &self.server_url(), &self.layout.certificates.authority, token)?;
        Ok(path)
    }

    /// A token of a ServiceAccount, as a pod of it would have.
    ///
    /// # Errors
    /// If there is no such account.
    pub async fn service_account_token(&self, namespace: &str, name: &str) -> Result<String> {
        let request = TokenRequest {
            spec: Some(TokenRequestSpec { expiration_seconds: Some(TOKEN_SECONDS), ..TokenRequestSpec::default() }),
            ..TokenRequest::default()
        };
        let answer: TokenRequest = Api::<ServiceAccount>::namespaced(self.client(), namespace)
            .create_subresource("token", name, &PostParams::default(), &request)
            .await
            .with_context(|| format!("failed to get a token of the ServiceAccount {namespace}/{name}"))?;
        answer.status.and_then(|status| status.token).context("the answer to a token request has no token")
    }

    /// The API server's address: on loopback, or on the link to the real node.
    #[must_use]
    pub fn server_url(&self) -> String {
        self.layout.server_url()
    }

    /// The certificate of the authority that signed the API server's.
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        &self.layout.certificates.authority_pem
    }

    /// An address of this machine by which pods, and the endpoints of a Service, can name a server of the test process.
    /// None without a real node: there is only loopback then, which webhooks can call by URL.
    #[must_use]
    pub fn host_address(&self) -> Option<Ipv4Addr> {
        self.layout.network.as_ref().map(|network| network.host)
    }

    /// The folder of the cluster's files: data, logs, keys.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.data.path()
    }

    /// The list of requests that the API server answered.
    #[must_use]
    pub fn audit(&self) -> Audit {
        Audit::new(self.layout.audit_log(), self.config.clone())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // All at once; each is then waited for as it is dropped.
        for process in self.processes().values_mut() {
            process.kill();
        }
    }
}
