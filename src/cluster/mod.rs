//! Every read from and write to the API server, in one place: the right to do anything else need not be granted.

pub mod backoff;
pub mod error;
pub mod events;
pub mod lease;
pub mod lists;
pub mod registration;
pub mod retry;
pub mod retry_after;
pub mod rollback;
pub mod snapshots;
pub mod switches;
pub mod trust;
pub mod watched;
pub mod workloads;

use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{ObjectMeta, PatchParams, PostParams};
use kube::{Api, Client};
use tokio::time::Instant;

use crate::pin::meta;
pub use error::Error;
use lease::Leadership;
use retry::Patience;

/// The API server, with the few things that confpin asks of it.
///
/// Reads are live: without a resourceVersion the API server answers with the newest state
/// (<https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions>). Every request has a timeout. Those
/// that fail for the moment are tried again, for a few seconds or until a deadline.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
    leadership: Leadership,
    patience: Patience,
}

/// What admission wants to know of a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NamespaceState {
    /// Its annotation turns pinning off.
    pub opts_out: bool,
    /// It is being deleted: nothing can be created in it any more.
    pub terminating: bool,
}

impl Cluster {
    /// The cluster that `client` talks to.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { client, leadership: Leadership::always(), patience: Patience::default() }
    }

    /// The same cluster, each request to which may take so long.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.patience.attempt = timeout;
        self
    }

    /// The same cluster for one who needs all answers by `deadline`.
    #[must_use]
    pub fn until(&self, deadline: Instant) -> Self {
        let patience = Patience { deadline: Some(deadline), ..self.patience };
        Self { patience, ..self.clone() }
    }

    /// The same cluster, which is written to only while `leadership` is held: looked at before each request, not only
    /// before the work that it belongs to.
    #[must_use]
    pub fn led_by(&self, leadership: Leadership) -> Self {
        Self { leadership, ..self.clone() }
    }

    /// Runs a request that may be repeated.
    async fn ask<T, F>(&self, action: &str, request: impl FnMut() -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, kube::Error>>,
    {
        retry::bounded(action, self.patience, || Ok(()), request).await
    }

    /// Runs a request that changes snapshots or workloads.
    async fn write<T, F>(&self, action: &str, request: impl FnMut() -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, kube::Error>>,
    {
        self.write_with(self.patience, action, request).await
    }

    async fn write_with<T, F>(&self, patience: Patience, action: &str, request: impl FnMut() -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, kube::Error>>,
    {
        let allowed = || match self.leadership.is_held() {
            true => Ok(()),
            false => Err(Error::NotLeader { action: action.to_owned() }),
        };
        retry::bounded(action, patience, allowed, request).await
    }

    /// The client itself, for watches.
    #[must_use]
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Reads a namespace's metadata; `None` when there is no such namespace.
    ///
    /// # Errors
    /// When the API server refuses or cannot be asked.
    pub async fn namespace_metadata(&self, name: &str) -> Result<Option<ObjectMeta>, Error> {
        let api: Api<Namespace> = Api::all(self.client());
        let found = self.ask("read the namespace", || api.get_metadata_opt(name)).await?;
        Ok(found.map(|namespace| namespace.metadata))
    }

    /// Reads a namespace. Where it is gone, the defaults hold.
    ///
    /// # Errors
    /// When the API server refuses or cannot be asked: a namespace that opts out must not be taken for one that does not.
    pub async fn namespace(&self, name: &str) -> Result<NamespaceState, Error> {
        let metadata = self.namespace_metadata(name).await?.unwrap_or_default();
        Ok(NamespaceState {
            opts_out: metadata.annotations.as_ref().is_some_and(meta::opts_out),
            terminating: metadata.deletion_timestamp.is_some(),
        })
    }
}

/// A request that creates or replaces an object, in confpin's name.
fn creating() -> PostParams {
    PostParams { field_manager: Some(meta::FIELD_MANAGER.to_owned()), ..PostParams::default() }
}

/// A request that patches an object, in confpin's name.
fn patching() -> PatchParams {
    PatchParams { field_manager: Some(meta::FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}
