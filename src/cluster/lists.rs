//! Lists for people's questions: a page at a time, so that a large cluster is asked for no more than a server likes to
//! give at once, and with metadata only where that is enough.

use kube::api::{ApiResource, DynamicObject, ListParams, ObjectList, PartialObjectMeta};
use kube::core::DynamicResourceScope;
use kube::{Api, Resource};

use crate::cluster::{Cluster, Error};

/// How many objects a page has, as `kubectl get` asks for.
const PAGE: u32 = 500;

impl Cluster {
    /// The objects of a resource in a namespace, or in all of them.
    #[must_use]
    pub fn objects<K>(&self, resource: &ApiResource, namespace: Option<&str>) -> Api<K>
    where
        K: Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>,
    {
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client(), namespace, resource),
            None => Api::all_with(self.client(), resource),
        }
    }

    /// Calls `each` with every object of a resource. Without a namespace: of all namespaces. A resource that the cluster
    /// does not have has no objects.
    ///
    /// # Errors
    /// When the API server refuses or cannot be asked.
    pub async fn each_object(
        &self,
        resource: &ApiResource,
        namespace: Option<&str>,
        params: ListParams,
        each: impl FnMut(DynamicObject),
    ) -> Result<(), Error> {
        let api = &self.objects(resource, namespace);
        self.pages(resource, params, each, |params| async move { api.list(&params).await }).await
    }

    /// Likewise with the metadata only.
    ///
    /// # Errors
    /// When the API server refuses or cannot be asked.
    pub async fn each_metadata(
        &self,
        resource: &ApiResource,
        namespace: Option<&str>,
        params: ListParams,
        each: impl FnMut(PartialObjectMeta<DynamicObject>),
    ) -> Result<(), Error> {
        let api = &self.objects(resource, namespace);
        self.pages(resource, params, each, |params| async move { api.list_metadata(&params).await }).await
    }

    async fn pages<K, F>(
        &self,
        resource: &ApiResource,
        params: ListParams,
        mut each: impl FnMut(K),
        list: impl Fn(ListParams) -> F,
    ) -> Result<(), Error>
    where
        K: Clone,
        F: Future<Output = Result<ObjectList<K>, kube::Error>>,
    {
        let action = format!("list {}", resource.plural);
        let mut params = params.limit(PAGE);
        loop {
            let page = match self.ask(&action, || list(params.clone())).await {
                Err(error) if error.is_not_found() => return Ok(()),
                page => page?,
            };
            page.items.into_iter().for_each(&mut each);
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(()),
            }
        }
    }
}
