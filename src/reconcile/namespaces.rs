//! What namespaces say about their workloads: a label and annotations.

use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{ApiResource, ObjectMeta};
use kube::runtime::utils::Backoff;
use kube::{Resource, ResourceExt};

use crate::cluster::backoff::pauses;
use crate::cluster::watched::METADATA;
use crate::pin::objects::NamespaceFacts;
use crate::reconcile::changes::Change;
use crate::reconcile::watches::Feed;

/// What is looked at, for metrics and logs.
const NAME: &str = "namespaces";

/// Pause between two reads of one namespace. Admission reads it live, so only what the reconciler does by itself
/// follows a change that late.
const PERIOD: Duration = Duration::from_secs(10);

impl Feed {
    /// The reconciler's namespaces: those of the cluster by a watch, its own by reading it again and again. A Role can
    /// grant the read of its own namespace; a list or a watch of namespaces the API server takes for one of the whole
    /// cluster, whatever it selects (`RequestInfo` in k8s.io/apiserver/pkg/endpoints/request).
    pub(super) async fn namespaces(self) {
        match &self.reconciler.namespace {
            None => self.watch_namespaces().await,
            Some(name) => self.poll_namespace(name).await,
        }
    }

    async fn watch_namespaces(&self) {
        let events = self.watch::<METADATA>(&ApiResource::erase::<Namespace>(&()), None);
        self.follow(NAME, events, |change| match change {
            Change::Put(namespace) => self.put_namespace(&namespace.name_any(), Some(namespace.meta())),
            Change::Gone(namespace) => self.put_namespace(&namespace.name_any(), None),
            Change::Listed(_) => {}
        })
        .await;
    }

    async fn poll_namespace(&self, name: &str) {
        let watch = self.reconciler.metrics.watch(NAME);
        let mut pauses = pauses();
        loop {
            let pause = match self.reconciler.cluster.namespace_metadata(name).await {
                Ok(metadata) => {
                    self.put_namespace(name, metadata.as_ref());
                    watch.has_listed();
                    self.has_listed(NAME);
                    pauses.reset();
                    PERIOD
                }
                Err(error) => {
                    watch.read_failed();
                    tracing::warn!(%error, namespace = name, "a namespace was not read, trying again");
                    pauses.next().unwrap_or(PERIOD)
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    fn put_namespace(&self, name: &str, metadata: Option<&ObjectMeta>) {
        let facts = metadata.map(NamespaceFacts::new);
        let workloads: Vec<_> = {
            let mut index = self.reconciler.index();
            if facts.is_some_and(|facts| index.namespace(name) == facts) {
                return;
            }
            index.put_namespace(name, facts);
            index.workloads_in(name).cloned().collect()
        };
        self.count_unpinned();
        self.refresh(workloads);
    }
}
