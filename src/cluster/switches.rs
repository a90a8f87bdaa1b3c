//! The writes of the command line: annotations and labels that people set, and the templates that `release` changes.

use json_patch::Patch as JsonPatch;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use serde_json::Value;

use crate::cluster::{Cluster, Error};
use crate::pin::meta;

impl Cluster {
    /// Merges `patch` into an object. Without a namespace: of one that is in none. A dry run checks rights and admission,
    /// and stores nothing.
    ///
    /// # Errors
    /// When the API server, or admission, refuses or cannot be asked.
    pub async fn merge(
        &self,
        resource: &ApiResource,
        namespace: Option<&str>,
        name: &str,
        patch: &Value,
        dry_run: bool,
    ) -> Result<(), Error> {
        self.patch(resource, namespace, name, &Patch::Merge(patch), dry_run).await
    }

    /// Applies a JSON patch to an object of a namespace. Its tests make it fail when the object is another one meanwhile.
    ///
    /// # Errors
    /// When the API server, or admission, refuses or cannot be asked.
    pub async fn json_patch(
        &self,
        resource: &ApiResource,
        namespace: &str,
        name: &str,
        patch: JsonPatch,
        dry_run: bool,
    ) -> Result<(), Error> {
        self.patch(resource, Some(namespace), name, &Patch::<()>::Json(patch), dry_run).await
    }

    async fn patch<P: serde::Serialize + std::fmt::Debug>(
        &self,
        resource: &ApiResource,
        namespace: Option<&str>,
        name: &str,
        patch: &Patch<P>,
        dry_run: bool,
    ) -> Result<(), Error> {
        let api: Api<DynamicObject> = self.objects(resource, namespace);
        let params = PatchParams { field_manager: Some(meta::CLI_FIELD_MANAGER.to_owned()), dry_run, ..<_>::default() };
        let action = format!("change {} {name}", resource.kind);
        self.ask(&action, || api.patch_metadata(name, &params, patch)).await.map(|_| ())
    }
}
