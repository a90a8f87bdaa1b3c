//! cert-manager: its kinds, its controllers and its CA injector.

use anyhow::{Context, Result};

use crate::{
    cluster::Cluster,
    components::{Component, Layout, path_flag},
    credentials::User,
    process::Launch,
    programs::Program,
};

impl Cluster {
    /// Installs cert-manager into the running cluster: first its kinds, then its controllers and its CA injector. What is
    /// left out is its webhook, which refuses mistakes in its objects.
    ///
    /// # Errors
    /// If they are there already, or do not become ready.
    pub async fn install_cert_manager(&self) -> Result<()> {
        let folder = Program::CertManager.entry().await?.join("crds");
        self.create_kinds(&folder, "v1").await.context("failed to create the kinds of cert-manager")?;
        self.start_component(Component::CertManager).await
    }
}

impl Layout {
    pub(crate) async fn cert_manager(&self) -> Result<Launch> {
        Ok(self.launch(Component::CertManager, Program::CertManager.path().await?).arguments([
            path_flag("--kubeconfig", &self.kubeconfig(User::CertManager)),
            format!("--health-probe-bind-address=127.0.0.1:{}", self.ports.cert_manager_health),
        ]))
    }
}
