//! What a test asks for.

use anyhow::{Context, Result};

use crate::cluster::Cluster;

/// Which parts a cluster has. Made by [`Cluster::builder`].
#[derive(Debug, Clone)]
#[must_use]
pub struct Builder {
    pub(crate) controller_manager: bool,
    pub(crate) scheduler: bool,
    pub(crate) fake_node: bool,
    pub(crate) rollouts: bool,
    pub(crate) real_node: bool,
    pub(crate) api_server_flags: Vec<String>,
    pub(crate) controller_manager_flags: Vec<String>,
}

impl Builder {
    pub(crate) fn new() -> Self {
        Self {
            controller_manager: true,
            scheduler: false,
            fake_node: false,
            rollouts: false,
            real_node: false,
            api_server_flags: Vec::new(),
            controller_manager_flags: Vec::new(),
        }
    }

    /// With or without the controllers of Kubernetes (default: with).
    pub fn controller_manager(mut self, wanted: bool) -> Self {
        self.controller_manager = wanted;
        self
    }

    /// With the scheduler.
    pub fn scheduler(mut self) -> Self {
        self.scheduler = true;
        self
    }

    /// With the scheduler and a node whose pods are ready at once and run nothing.
    pub fn fake_node(mut self) -> Self {
        self.scheduler = true;
        self.fake_node = true;
        self
    }

    /// With Argo Rollouts, its kinds being there before the garbage collector starts. See
    /// [`Cluster::install_rollouts`] for the other order.
    pub fn rollouts(mut self) -> Self {
        self.rollouts = true;
        self
    }

    /// With the scheduler and a node that runs containers. Needs root.
    pub fn real_node(mut self) -> Self {
        self.scheduler = true;
        self.real_node = true;
        self
    }

    /// More flags of kube-apiserver; the last of a kind counts.
    pub fn api_server_flags(mut self, flags: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.api_server_flags.extend(flags.into_iter().map(Into::into));
        self
    }

    /// More flags of kube-controller-manager; the last of a kind counts.
    pub fn controller_manager_flags(mut self, flags: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.controller_manager_flags.extend(flags.into_iter().map(Into::into));
        self
    }

    /// Starts the cluster and returns when all its parts are ready. Builds the programs first if they are not in the
    /// cache.
    ///
    /// # Errors
    /// If a program cannot be built or a part does not become ready; the message has the end of its log.
    pub async fn start(self) -> Result<Cluster> {
        Cluster::start_with(self).await.context("failed to start the test cluster")
    }
}
