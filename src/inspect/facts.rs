//! Reads the state of the cluster, with `get` and `list` only. Missing rights are reported, and the rest is still read.

use std::collections::{BTreeMap, HashMap};

use futures::stream::{self, StreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{ApiResource, DynamicObject, ListParams, ObjectMeta};

use crate::cluster::workloads::api_resource;
use crate::cluster::{Cluster, Error};
use crate::pin::content::{Content, ContentHash};
use crate::pin::kinds::{WORKLOADS, WorkloadKind};
use crate::pin::objects::{NamespaceFacts, WorkloadState};
use crate::pin::references::{Reference, references};
use crate::reconcile::index::Key;

/// How many ConfigMaps are read at a time.
const PARALLEL: usize = 32;

/// A workload and where its template names ConfigMaps.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The workload.
    pub state: WorkloadState,
    /// Its references.
    pub references: Vec<Reference>,
}

impl Seen {
    /// Reads what is used of `object`.
    #[must_use]
    pub fn new(kind: &'static WorkloadKind, object: &DynamicObject) -> Self {
        let template = kind.template_of(&object.data);
        Self { state: WorkloadState::new(kind, object), references: references(template) }
    }

    /// Whether Kubernetes starts its pods without the ConfigMap `name`.
    #[must_use]
    pub fn is_optional(&self, name: &str) -> bool {
        self.references.iter().filter(|reference| reference.name == name).all(|reference| reference.optional)
    }
}

/// What the cluster shows of a namespace, or of all of them.
#[derive(Debug, Default)]
pub struct Facts {
    /// Namespaces by name. One that could not be read is not here.
    pub namespaces: BTreeMap<String, NamespaceFacts>,
    /// Workloads, by namespace, kind and name.
    pub workloads: Vec<Seen>,
    /// The metadata of ConfigMaps, sources and snapshots.
    pub configmaps: HashMap<Key, ObjectMeta>,
    /// The content hashes of those ConfigMaps whose content had to be read.
    pub hashes: HashMap<Key, ContentHash>,
    /// What could not be read.
    pub gaps: Vec<Error>,
}

impl Facts {
    /// What is known of a namespace; of one that could not be read, that it is opted in, as most that people ask about.
    #[must_use]
    pub fn namespace(&self, name: &str) -> NamespaceFacts {
        let assumed = NamespaceFacts { enabled: true, ..NamespaceFacts::default() };
        self.namespaces.get(name).copied().unwrap_or(assumed)
    }

    /// A ConfigMap of a workload's namespace.
    #[must_use]
    pub fn configmap(&self, namespace: &str, name: &str) -> Option<&ObjectMeta> {
        self.configmaps.get(&Key::new(namespace, name))
    }

    /// Lists namespaces, workloads and the metadata of ConfigMaps. Without a namespace: of all namespaces.
    pub async fn gather(cluster: &Cluster, namespace: Option<&str>) -> Self {
        let (namespaces, configmaps, workloads) = tokio::join!(
            list_namespaces(cluster, namespace),
            list_configmaps(cluster, namespace),
            list_workloads(cluster, namespace)
        );
        let mut facts = Self::default();
        facts.namespaces = facts.or_gap(namespaces);
        facts.configmaps = facts.or_gap(configmaps);
        for workloads in workloads {
            let found: Vec<_> = facts.or_gap(workloads);
            facts.workloads.extend(found);
        }
        facts.workloads.sort_by(|one, other| sort_key(one).cmp(&sort_key(other)));
        facts
    }

    /// Reads what is around one workload of a namespace.
    pub async fn around(
        cluster: &Cluster,
        namespace: &str,
        kind: &'static WorkloadKind,
        workload: &DynamicObject,
    ) -> Self {
        let (namespaces, configmaps) =
            tokio::join!(list_namespaces(cluster, Some(namespace)), list_configmaps(cluster, Some(namespace)));
        let mut facts = Self { workloads: vec![Seen::new(kind, workload)], ..Self::default() };
        facts.namespaces = facts.or_gap(namespaces);
        facts.configmaps = facts.or_gap(configmaps);
        facts
    }

    fn or_gap<T: Default>(&mut self, result: Result<T, Error>) -> T {
        result.unwrap_or_else(|error| {
            self.gaps.push(error);
            T::default()
        })
    }

    /// Reads the contents of these ConfigMaps, for their hashes.
    pub async fn read(&mut self, cluster: &Cluster, keys: impl IntoIterator<Item = Key>) {
        let reads = keys.into_iter().map(|key| async move {
            let found = cluster.configmap(&key.namespace, &key.name).await;
            (key, found)
        });
        let reads: Vec<_> = stream::iter(reads.collect::<Vec<_>>()).buffer_unordered(PARALLEL).collect().await;
        for (key, found) in reads {
            if let Some(configmap) = self.or_gap(found) {
                self.hashes.insert(key.clone(), Content::of(&configmap).hash(&key.name));
            }
        }
    }
}

fn sort_key(seen: &Seen) -> (&str, &str, &str) {
    (&seen.state.namespace, seen.state.kind.kind, &seen.state.name)
}

async fn list_namespaces(
    cluster: &Cluster,
    namespace: Option<&str>,
) -> Result<BTreeMap<String, NamespaceFacts>, Error> {
    let mut found = BTreeMap::new();
    match namespace {
        // Who may read one namespace often may not list all.
        Some(name) => {
            if let Some(meta) = cluster.namespace_metadata(name).await? {
                found.insert(name.to_owned(), NamespaceFacts::new(&meta));
            }
        }
        None => {
            let each = |object: kube::api::PartialObjectMeta<DynamicObject>| {
                let name = object.metadata.name.clone().unwrap_or_default();
                found.insert(name, NamespaceFacts::new(&object.metadata));
            };
            let resource = ApiResource::erase::<Namespace>(&());
            cluster.each_metadata(&resource, None, ListParams::default(), each).await?;
        }
    }
    Ok(found)
}

async fn list_configmaps(cluster: &Cluster, namespace: Option<&str>) -> Result<HashMap<Key, ObjectMeta>, Error> {
    let mut found = HashMap::new();
    let each = |object: kube::api::PartialObjectMeta<DynamicObject>| {
        let mut meta = object.metadata;
        meta.managed_fields = None;
        let key = Key::new(meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default());
        found.insert(key, meta);
    };
    cluster.each_metadata(&ApiResource::erase::<ConfigMap>(&()), namespace, ListParams::default(), each).await?;
    Ok(found)
}

async fn list_workloads(cluster: &Cluster, namespace: Option<&str>) -> Vec<Result<Vec<Seen>, Error>> {
    let kinds = WORKLOADS.into_iter().map(|kind| async move {
        let mut found = Vec::new();
        let each = |object: DynamicObject| found.push(Seen::new(kind, &object));
        cluster.each_object(&api_resource(kind), namespace, ListParams::default(), each).await?;
        Ok(found)
    });
    futures::future::join_all(kinds).await
}
