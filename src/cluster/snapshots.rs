//! ConfigMaps: reading sources and snapshots, making, claiming, owning and deleting snapshots.

use std::fmt;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, PartialObjectMeta, Patch, Preconditions};
use serde::Serialize;
use serde_json::Value;

use crate::cluster::{Cluster, Error, creating, patching};
use crate::pin::claim::{self, Claim};
use crate::pin::uid::Uid;

/// What became of a write that depends on the object's state.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Write<T = ()> {
    /// It was done.
    Done(T),
    /// The object is gone, exists already or is another one than expected: read and decide again.
    Outdated,
}

impl Cluster {
    fn configmaps(&self, namespace: &str) -> Api<ConfigMap> {
        Api::namespaced(self.client(), namespace)
    }

    /// Reads a ConfigMap live; `None` when there is none.
    ///
    /// # Errors
    /// When the API server refuses or cannot be asked.
    pub async fn configmap(&self, namespace: &str, name: &str) -> Result<Option<ConfigMap>, Error> {
        let api = self.configmaps(namespace);
        self.ask(&format!("read ConfigMap {name}"), || api.get_opt(name)).await
    }

    /// Creates a snapshot.
    ///
    /// # Errors
    /// When the API server refuses or cannot be asked.
    pub async fn create_snapshot(&self, namespace: &str, snapshot: &ConfigMap) -> Result<Write<ConfigMap>, Error> {
        let api = self.configmaps(namespace);
        let params = creating();
        let name = snapshot.metadata.name.as_deref().unwrap_or_default();
        outdated(self.write(&format!("create snapshot {name}"), || api.create(&params, snapshot)).await)
    }

    /// Makes claims on a snapshot and un-owns it, in one write.
    ///
    /// # Errors
    /// When the API server refuses or cannot be asked.
    pub async fn claim_snapshot(
        &self,
        namespace: &str,
        name: &str,
        uid: &str,
        claims: &[Claim],
    ) -> Result<Write, Error> {
        let patch = Patch::Merge(claim::merge_patch(claims, uid));
        outdated(self.patch_snapshot(namespace, name, &patch, "claim").await.map(|_| ()))
    }

    /// Gives a snapshot its owners, by [`ownership::own`]. Returns the resourceVersion that it has then.
    ///
    /// # Errors
    /// When the API server refuses or cannot be asked.
    ///
    /// [`ownership::own`]: crate::pin::ownership::own
    pub async fn own_snapshot(
        &self,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> Result<Write<Option<String>>, Error> {
        let owned = self.patch_snapshot(namespace, name, &Patch::Strategic(patch), "own").await;
        outdated(owned.map(|snapshot| snapshot.metadata.resource_version))
    }

    async fn patch_snapshot<P: Serialize + fmt::Debug>(
        &self,
        namespace: &str,
        name: &str,
        patch: &Patch<P>,
        verb: &str,
    ) -> Result<PartialObjectMeta<ConfigMap>, Error> {
        let api = self.configmaps(namespace);
        let params = patching();
        self.write(&format!("{verb} snapshot {name}"), || api.patch_metadata(name, &params, patch)).await
    }

    /// Deletes a snapshot if it is still this very object in this very state.
    ///
    /// # Errors
    /// When the API server refuses or cannot be asked.
    pub async fn delete_snapshot(
        &self,
        namespace: &str,
        name: &str,
        uid: &Uid,
        resource_version: &str,
    ) -> Result<Write, Error> {
        let api = self.configmaps(namespace);
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(uid.to_string()),
                resource_version: Some(resource_version.to_owned()),
            }),
            ..DeleteParams::default()
        };
        let deleted = self.write(&format!("delete snapshot {name}"), || api.delete(name, &params)).await;
        outdated(deleted.map(|_| ()))
    }
}

/// A conflict or a missing object as a result rather than an error.
pub(super) fn outdated<T>(result: Result<T, Error>) -> Result<Write<T>, Error> {
    match result {
        Ok(value) => Ok(Write::Done(value)),
        Err(error) if error.is_not_found() || error.is_conflict() => Ok(Write::Outdated),
        Err(error) => Err(error),
    }
}
