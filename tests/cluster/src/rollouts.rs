//! Argo Rollouts: its kinds and its controller.

use std::{fs, time::Duration};

use anyhow::{Context, Result};
use http::Request;
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};

use crate::{cluster::Cluster, components::Component, programs::Program, wait_for};

/// How long the API server may take to serve a new kind.
const SERVED: Duration = Duration::from_secs(30);
/// Where the API server serves them.
const KINDS: &str = "/apis/argoproj.io/v1alpha1";
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
        let mut command = vec!["create".to_owned(), "--validate=false".to_owned()];
        for file in fs::read_dir(&folder).with_context(|| format!("failed to read {}", folder.display()))? {
            let path = file?.path();
            if path.file_name().is_some_and(|name| name != "kustomization.yaml") {
                command.push(format!("--filename={}", path.display()));
            }
        }
        let created = self.kubectl(command).run().await.context("failed to create the kinds of Argo Rollouts")?;

        let mut config = self.config();
        // Until then the API server answers 404, and then 429, which a client would repeat for long.
        config.default_retry = false;
        let client = Client::try_from(config)?;
        for kind in created.lines().filter_map(|line| line.split_once('/')?.1.split_once('.')) {
            let path = format!("{KINDS}/{}?limit=1", kind.0);
            wait_for(&format!("{path} to be served"), SERVED, async || {
                client.request_text(Request::get(&path).body(Vec::new())?).await?;
                Ok(Some(()))
            })
            .await?;
        }

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
