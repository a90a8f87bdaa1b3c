//! Argo Rollouts: its kinds and its controller.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api,
    api::{ObjectMeta, PostParams},
};

use crate::{cluster::Cluster, components::Component, programs::Program};

/// Where the controller looks for its own settings.
const NAMESPACE: &str = "argo-rollouts";

impl Cluster {
    /// Installs Argo Rollouts into the running cluster: first its kinds, then its controller.
    ///
    /// The garbage collector of Kubernetes looks for new kinds every 30 s only. Where a test is not about that, ask for
    /// them at the start, by [`Builder::rollouts`](crate::Builder::rollouts).
    ///
    /// # Errors
    /// If they are there already, or do not become ready.
    pub async fn install_rollouts(&self) -> Result<()> {
        Program::RolloutsController.path().await?;
        self.create_rollouts_kinds().await?;
        self.start_component(Component::Rollouts).await
    }

    /// Creates the kinds of Argo Rollouts, and waits until they are served.
    pub(crate) async fn create_rollouts_kinds(&self) -> Result<()> {
        let folder = Program::RolloutsController.entry().await?.join("crds");
        self.create_kinds(&folder, "v1alpha1").await.context("failed to create the kinds of Argo Rollouts")?;
        let namespace = Namespace {
            metadata: ObjectMeta { name: Some(NAMESPACE.into()), ..ObjectMeta::default() },
            ..Namespace::default()
        };
        Api::all(self.client())
            .create(&PostParams::default(), &namespace)
            .await
            .with_context(|| format!("failed to create the namespace {NAMESPACE}"))?;
        Ok(())
    }
}
