//! ConfigMaps: reading sources and snapshots, making, claiming, owning and deleting snapshots.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, Patch, Preconditions};
use serde_json::Value;

use crate::cluster::{Cluster, Error, creating, patching, retry};
use crate::pin::claim::{self, Claim};

/// What became of a write that depends on the object's state.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Write<T = ()> {
    /// It was done.
    Done(T),
    /// The object is gone, exists already or is another one than expected: read again and decide anew.
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
        retry::transient(&format!("read ConfigMap {name}"), || api.get_opt(name)).await
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
        let claimed = self.patch_snapshot(namespace, name, &claim::merge_patch(claims, uid), "claim").await?;
        Ok(match claimed {
            Write::Done(_) => Write::Done(()),
            Write::Outdated => Write::Outdated,
        })
    }

    /// Merges `patch` into a snapshot. The patch carries the UID, or the resourceVersion, that it was made for. Returns
    /// the resourceVersion that the snapshot has now.
    ///
    /// # Errors
    /// When the API server refuses or cannot be asked.
    pub async fn patch_snapshot(
        &self,
        namespace: &str,
        name: &str,
        patch: &Value,
        verb: &str,
    ) -> Result<Write<Option<String>>, Error> {
        let api = self.configmaps(namespace);
        let params = patching();
        let action = format!("{verb} snapshot {name}");
        let patch = Patch::Merge(patch);
        let patched = self.write(&action, || api.patch_metadata(name, &params, &patch)).await;
        outdated(patched.map(|snapshot| snapshot.metadata.resource_version))
    }

    /// Deletes a snapshot if it is still this very object in this very state.
    ///
    /// # Errors
    /// When the API server refuses or cannot be asked.
    pub async fn delete_snapshot(
        &self,
        namespace: &str,
        name: &str,
        uid: &str,
        resource_version: &str,
    ) -> Result<Write, Error> {
        let api = self.configmaps(namespace);
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(uid.to_owned()),
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
