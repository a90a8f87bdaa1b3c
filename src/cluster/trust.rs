//! The Secret that holds the CA, and the CA bundles of the webhook configuration.

use std::collections::BTreeMap;

use futures::Stream;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{ObjectMeta, Patch};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, watch_object};
use serde_json::json;

use crate::cluster::backoff::pauses;
use crate::cluster::snapshots::{Write, outdated};
use crate::cluster::{Cluster, Error, creating, patching};
use crate::pin::meta;
use crate::pin::webhook_configuration::NAME;

/// The label that says whose an object is, and its value on ours
/// (<https://kubernetes.io/docs/concepts/overview/working-with-objects/common-labels/>).
const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", meta::FIELD_MANAGER);

/// Whether confpin created a Secret. A foreign Secret is read and never written.
#[must_use]
pub fn is_ours(secret: &Secret) -> bool {
    secret.metadata.labels.as_ref().is_some_and(|labels| labels.get(MANAGED_BY.0).is_some_and(|by| by == MANAGED_BY.1))
}

impl Cluster {
    /// A Secret's states, `None` while there is none. Errors are passed on, and the watch is begun again after a pause.
    pub fn watch_secret(
        &self,
        namespace: &str,
        name: &str,
    ) -> impl Stream<Item = watcher::Result<Option<Secret>>> + use<> {
        let api: Api<Secret> = Api::namespaced(self.client(), namespace);
        watch_object(api, name).backoff(pauses())
    }

    /// The states of confpin's webhook configuration, as [`watch_secret`](Self::watch_secret).
    pub fn watch_webhook_configuration(
        &self,
    ) -> impl Stream<Item = watcher::Result<Option<MutatingWebhookConfiguration>>> + use<> {
        let api: Api<MutatingWebhookConfiguration> = Api::all(self.client());
        watch_object(api, NAME).backoff(pauses())
    }

    /// Creates a Secret of ours.
    ///
    /// # Errors
    /// When the API server refuses or cannot be asked.
    pub async fn create_secret(
        &self,
        namespace: &str,
        name: &str,
        data: BTreeMap<String, ByteString>,
    ) -> Result<Write<Secret>, Error> {
        let api: Api<Secret> = Api::namespaced(self.client(), namespace);
        let labels = BTreeMap::from([(MANAGED_BY.0.to_owned(), MANAGED_BY.1.to_owned())]);
        let metadata = ObjectMeta { name: Some(name.to_owned()), labels: Some(labels), ..ObjectMeta::default() };
        let secret = Secret { metadata, data: Some(data), ..Secret::default() };
        let (action, parameters) = (format!("create Secret {name}"), creating());
        outdated(self.ask(&action, || api.create(&parameters, &secret)).await)
    }

    /// Replaces the content of a Secret if it is still in this state.
    ///
    /// # Errors
    /// When the API server refuses or cannot be asked.
    pub async fn replace_secret(
        &self,
        secret: &Secret,
        data: BTreeMap<String, ByteString>,
    ) -> Result<Write<Secret>, Error> {
        let metadata = &secret.metadata;
        let name = metadata.name.as_deref().unwrap_or_default();
        let api: Api<Secret> = Api::namespaced(self.client(), metadata.namespace.as_deref().unwrap_or_default());
        // With the resourceVersion that was read, so that of two replicas one writes.
        let replacement = Secret { data: Some(data), ..secret.clone() };
        let (action, parameters) = (format!("replace the content of Secret {name}"), creating());
        outdated(self.ask(&action, || api.replace(name, &parameters, &replacement)).await)
    }

    /// Tells API servers to trust `bundle`, in every webhook of the configuration, if it is still in this state.
    ///
    /// # Errors
    /// When the API server refuses or cannot be asked.
    pub async fn publish_trust(
        &self,
        configuration: &MutatingWebhookConfiguration,
        bundle: &str,
    ) -> Result<Write, Error> {
        let api: Api<MutatingWebhookConfiguration> = Api::all(self.client());
        let bundle = ByteString(bundle.as_bytes().to_vec());
        let count = configuration.webhooks.as_ref().map_or(0, Vec::len);
        // A list is merged as a whole, and applying single fields would make us an owner of the entries.
        let version = json!({
            "op": "test", "path": "/metadata/resourceVersion", "value": configuration.metadata.resource_version
        });
        let add =
            |index| json!({"op": "add", "path": format!("/webhooks/{index}/clientConfig/caBundle"), "value": bundle});
        let operations = std::iter::once(version).chain((0..count).map(add)).collect::<serde_json::Value>();
        let action = format!("set the CA bundle of the MutatingWebhookConfiguration {NAME}");
        let patch: Patch<()> = serde_json::from_value(operations)
            .map(Patch::Json)
            .map_err(|error| Error::Unavailable { action: action.clone(), cause: error.to_string() })?;
        let params = patching();
        match self.ask(&action, || api.patch(NAME, &params, &patch)).await {
            Err(error) if error.may_be_failed_test() => Ok(Write::Outdated),
            patched => outdated(patched.map(|_| ())),
        }
    }
}
