//! What watches show: objects with as little as possible made of what the API server sends.

use std::borrow::Cow;
use std::collections::BTreeMap;

use futures::future::ready;
use futures::stream::{Stream, StreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use kube::Resource;
use kube::api::{ApiResource, DynamicObject, ObjectMeta};
use kube::core::DynamicResourceScope;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use crate::cluster::Cluster;
use crate::cluster::backoff::pauses;

/// How many objects a page of a list has: all of one are in memory at once, in full, before anything is made of them, and
/// what that takes is not given back.
const PAGE: u32 = 100;

/// What a watch is to show of objects: all that confpin uses of them.
pub const WHOLE: bool = true;

/// What a watch is to show of objects: their metadata only.
pub const METADATA: bool = false;

/// An object as a watch shows it: [`WHOLE`], or its [`METADATA`] only. Of a whole one what confpin uses, which is its spec and
/// status, and of its metadata not `managedFields`, which is often more than all the rest.
#[derive(Debug, Clone)]
pub struct Watched<const IS_WHOLE: bool>(pub DynamicObject);

impl<'de, const IS_WHOLE: bool> Deserialize<'de> for Watched<IS_WHOLE> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Read {
            #[serde(default)]
            metadata: ReadMetadata,
            #[serde(default)]
            spec: Value,
            #[serde(default)]
            status: Value,
        }
        // Without `flatten`, for which serde keeps a copy of everything.
        let Read { metadata, spec, status } = Read::deserialize(deserializer)?;
        // Nor by the macro `json`, which copies.
        let fields = IS_WHOLE.then(|| Map::from_iter([("spec".to_owned(), spec), ("status".to_owned(), status)]));
        let data = fields.map_or(Value::Null, Value::Object);
        Ok(Self(DynamicObject { types: None, metadata: metadata.into(), data }))
    }
}

/// What confpin uses of an object's metadata.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ReadMetadata {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    owner_references: Option<Vec<OwnerReference>>,
}

impl From<ReadMetadata> for ObjectMeta {
    fn from(read: ReadMetadata) -> Self {
        Self {
            name: read.name,
            namespace: read.namespace,
            uid: read.uid,
            resource_version: read.resource_version,
            generation: read.generation,
            creation_timestamp: read.creation_timestamp,
            deletion_timestamp: read.deletion_timestamp,
            labels: read.labels,
            annotations: read.annotations,
            owner_references: read.owner_references,
            ..Self::default()
        }
    }
}

impl<const IS_WHOLE: bool> Resource for Watched<IS_WHOLE> {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(resource: &ApiResource) -> Cow<'_, str> {
        DynamicObject::kind(resource)
    }

    fn group(resource: &ApiResource) -> Cow<'_, str> {
        DynamicObject::group(resource)
    }

    fn version(resource: &ApiResource) -> Cow<'_, str> {
        DynamicObject::version(resource)
    }

    fn plural(resource: &ApiResource) -> Cow<'_, str> {
        DynamicObject::plural(resource)
    }

    fn metadata_api() -> bool {
        !IS_WHOLE
    }

    fn meta(&self) -> &ObjectMeta {
        &self.0.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.0.metadata
    }
}

impl Cluster {
    /// Watches a kind in one namespace or in all: the existing objects, then changes, of those that `labels` selects. What
    /// fails is tried again after a pause.
    ///
    /// The existing objects arrive by the watch itself if the API server supports that (`WatchList`, by default from Kubernetes 1.34,
    /// <https://kubernetes.io/docs/reference/using-api/api-concepts/#streaming-lists>), and else by a list in pages.
    pub fn watch<const IS_WHOLE: bool>(
        &self,
        resource: &ApiResource,
        namespace: Option<&str>,
        labels: Option<&str>,
    ) -> impl Stream<Item = watcher::Result<Event<Watched<IS_WHOLE>>>> + use<IS_WHOLE> {
        let api = self.objects(resource, namespace);
        let config = watcher::Config { label_selector: labels.map(str::to_owned), ..<_>::default() };
        let streamed = watcher(api.clone(), config.clone().streaming_lists()).backoff(pauses());
        let paged = watcher(api, config.page_size(PAGE)).backoff(pauses());
        streamed.take_while(|event| ready(!is_unsupported(event))).chain(paged)
    }
}

/// Whether an API server does not support a watch that begins with the existing objects: it calls that invalid.
fn is_unsupported<T>(event: &watcher::Result<T>) -> bool {
    matches!(event, Err(watcher::Error::WatchStartFailed(kube::Error::Api(status))) if status.code == 422)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object() -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": {
                "name": "web-1", "namespace": "shop", "uid": "u", "resourceVersion": "7", "generation": 3,
                "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "2026-01-02T00:00:00Z",
                "labels": {"a": "b"}, "annotations": {"c": "d"},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "v"}],
            },
            "spec": {"replicas": 2, "template": {"spec": {}}},
            "status": {"replicas": 1},
        })
    }

    #[test]
    fn all_that_is_used_is_as_kube_reads_it() {
        let whole: DynamicObject = serde_json::from_value(object()).expect("an object");
        let mut sent = object();
        sent["metadata"]["managedFields"] = json!([{"manager": "kubectl", "fieldsV1": {"f:spec": {}}}]);
        let watched: Watched<WHOLE> = serde_json::from_value(sent.clone()).expect("an object");
        assert_eq!((&watched.0.metadata, &watched.0.data), (&whole.metadata, &whole.data));
        let metadata: Watched<METADATA> = serde_json::from_value(sent).expect("an object");
        assert_eq!((metadata.0.metadata, metadata.0.data), (whole.metadata, Value::Null));
    }

    #[test]
    fn what_is_missing_is_empty() {
        let watched: Watched<WHOLE> = serde_json::from_value(json!({"kind": "ReplicaSet"})).expect("an object");
        assert_eq!(watched.0.metadata, ObjectMeta::default());
        assert_eq!(watched.0.data["spec"]["template"], Value::Null);
    }
}
