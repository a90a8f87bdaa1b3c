//! Workloads, their holders, and pods: reads, and the one annotation that the reconciler may set.

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch};
use kube::core::GroupVersionKind;
use serde_json::json;

use crate::cluster::retry::Patience;
use crate::cluster::snapshots::{Write, outdated};
use crate::cluster::{Cluster, Error, patching};
use crate::pin::kinds::{WORKLOADS, WorkloadKind};
use crate::pin::meta;
use crate::pin::objects::{Holder, WorkloadState};
use crate::pin::references;

/// The API resource of a workload kind.
#[must_use]
pub fn api_resource(kind: &WorkloadKind) -> ApiResource {
    let gvk = GroupVersionKind::gvk(kind.group, kind.version, kind.kind);
    ApiResource::from_gvk_with_plural(&gvk, kind.plural)
}

/// The API resource of ReplicaSets.
#[must_use]
pub fn replica_sets() -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("apps", "v1", "ReplicaSet"), "replicasets")
}

impl Cluster {
    /// Reads a workload live; `None` when there is none, or the cluster does not know its kind.
    ///
    /// # Errors
    /// When the API server refuses or cannot be asked.
    pub async fn workload(
        &self,
        kind: &'static WorkloadKind,
        namespace: &str,
        name: &str,
    ) -> Result<Option<WorkloadState>, Error> {
        let found = self.workload_object(kind, namespace, name).await?;
        Ok(found.map(|object| WorkloadState::new(kind, &object)))
    }

    /// Reads a workload live, the whole object; `None` when there is none, or the cluster does not know its kind.
    ///
    /// # Errors
    /// When the API server refuses or cannot be asked.
    pub async fn workload_object(
        &self,
        kind: &'static WorkloadKind,
        namespace: &str,
        name: &str,
    ) -> Result<Option<DynamicObject>, Error> {
        let api = self.objects(&api_resource(kind), Some(namespace));
        self.ask(&format!("read {} {name}", kind.kind), || api.get_opt(name)).await
    }

    /// Lists live the ReplicaSets of a namespace that `selector` selects; all of them without a selector.
    ///
    /// # Errors
    /// When the API server refuses or cannot be asked.
    pub async fn holders(&self, namespace: &str, selector: Option<&str>) -> Result<Vec<Holder>, Error> {
        // A selector that cannot be read selects nothing that we could rely on: list all.
        let params = selector.map_or_else(ListParams::default, |selector| ListParams::default().labels(selector));
        Ok(self.list(namespace, &replica_sets(), &params).await?.iter().map(Holder::new).collect())
    }

    /// Whether any workload, ReplicaSet or pod of a namespace names a ConfigMap, by live reads.
    ///
    /// # Errors
    /// When the API server refuses or cannot be asked.
    pub async fn names_configmap(&self, namespace: &str, name: &str) -> Result<bool, Error> {
        let all = ListParams::default();
        for kind in WORKLOADS {
            // A cluster without the kind has no such workload.
            let list =
                self.list(namespace, &api_resource(kind), &all).await.or_else(|error| match error.is_not_found() {
                    true => Ok(Vec::new()),
                    false => Err(error),
                })?;
            if list.iter().any(|object| WorkloadState::new(kind, object).names(name)) {
                return Ok(true);
            }
        }
        if self.holders(namespace, None).await?.iter().any(|holder| holder.names(name)) {
            return Ok(true);
        }
        // A pod is its own template. Pods outlive their ReplicaSet after `kubectl delete --cascade=orphan`.
        let pods = self.list(namespace, &ApiResource::erase::<Pod>(&()), &all).await?;
        Ok(pods.iter().any(|pod| references::names(&pod.data).contains(name)))
    }

    async fn list(
        &self,
        namespace: &str,
        resource: &ApiResource,
        params: &ListParams,
    ) -> Result<Vec<DynamicObject>, Error> {
        let api: Api<DynamicObject> = Api::namespaced_with(self.client(), namespace, resource);
        let action = format!("list {}", resource.plural);
        Ok(self.ask(&action, || api.list(params)).await?.items)
    }

    /// Sets a workload's refresh annotation, so that admission decides it again.
    ///
    /// # Errors
    /// When the API server, or admission, refuses or cannot be asked.
    pub async fn ask_for_refresh(&self, workload: &WorkloadState, value: &str) -> Result<Write, Error> {
        let resource = api_resource(workload.kind);
        let api: Api<DynamicObject> = Api::namespaced_with(self.client(), &workload.namespace, &resource);
        let params = patching();
        // The UID: not a new workload of the same name.
        let patch =
            Patch::Merge(json!({"metadata": {"uid": workload.uid.to_string(), "annotations": {meta::REFRESH: value}}}));
        let action = format!("refresh {} {}", workload.kind.kind, workload.name);
        // It passes the admission webhooks of others too, and an API server gives the whole a minute. The caller tries again.
        let patience = Patience { attempt: self.patience.attempt * 2, retries: false, ..self.patience };
        let patched = self.write_with(patience, &action, || api.patch_metadata(&workload.name, &params, &patch)).await;
        outdated(patched.map(|_| ()))
    }
}
