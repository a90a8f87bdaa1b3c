//! Namespaces for tests that share a cluster.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1 as core;
use kube::{
    Api, Client,
    api::{DeleteParams, ObjectMeta, PostParams},
};

use crate::{cluster::Cluster, random};

/// A namespace that is about to be created. Made by [`Cluster::namespace`].
#[derive(Debug)]
#[must_use]
pub struct NamespaceBuilder<'a> {
    cluster: &'a Cluster,
    prefix: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

/// A namespace of one test. It lives until [`Namespace::delete`] or the end of the cluster.
#[derive(Debug, Clone)]
pub struct Namespace {
    name: String,
}

impl NamespaceBuilder<'_> {
    /// With a label.
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }

    /// With an annotation.
    pub fn annotation(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.annotations.insert(key.into(), value.into());
        self
    }

    /// Creates it, and waits until pods can be made in it where there is a controller manager for that.
    ///
    /// # Errors
    /// If the API server refuses it.
    pub async fn create(self) -> Result<Namespace> {
        let name = format!("{}-{}", self.prefix, random::suffix()?);
        let object = core::Namespace {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                labels: Some(self.labels),
                annotations: Some(self.annotations),
                ..ObjectMeta::default()
            },
            ..core::Namespace::default()
        };
        Api::all(self.cluster.client())
            .create(&PostParams::default(), &object)
            .await
            .with_context(|| format!("failed to create the namespace {name}"))?;
        if self.cluster.has_controller_manager() {
            self.cluster.wait_for_service_account(&name).await?;
        }
        Ok(Namespace { name })
    }
}

impl Namespace {
    /// Its name, which no other namespace of the cluster has.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Asks for its deletion, without waiting for the end of it.
    ///
    /// # Errors
    /// If the API server refuses.
    pub async fn delete(self, client: Client) -> Result<()> {
        Api::<core::Namespace>::all(client)
            .delete(&self.name, &DeleteParams::default())
            .await
            .with_context(|| format!("failed to delete the namespace {}", self.name))?;
        Ok(())
    }
}

impl Cluster {
    /// A new namespace whose name begins with `prefix`.
    pub fn namespace(&self, prefix: impl Into<String>) -> NamespaceBuilder<'_> {
        NamespaceBuilder { cluster: self, prefix: prefix.into(), labels: BTreeMap::new(), annotations: BTreeMap::new() }
    }
}
