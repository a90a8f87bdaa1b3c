//! Registers the webhook with the API server.

use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, WebhookClientConfig};
use kube::Api;
use kube::api::{Patch, PatchParams};

use crate::cluster::{Cluster, Error};
use crate::pin::meta;
use crate::pin::scope::Scope;
use crate::pin::webhook_configuration::{FailurePolicy, NAME, webhook_configuration};

impl Cluster {
    /// Creates or updates the MutatingWebhookConfiguration so that the API server calls `client` about the workloads of
    /// `scope`.
    ///
    /// # Errors
    /// When the API server refuses or cannot be asked.
    pub async fn register_webhook(
        &self,
        client: &WebhookClientConfig,
        failure_policy: FailurePolicy,
        scope: &Scope,
    ) -> Result<(), Error> {
        let api: Api<MutatingWebhookConfiguration> = Api::all(self.client());
        let params = PatchParams::apply(meta::FIELD_MANAGER).force();
        let configuration = Patch::Apply(webhook_configuration(client, failure_policy, None, scope));
        let action = format!("register the MutatingWebhookConfiguration {NAME}");
        self.ask(&action, || api.patch(NAME, &params, &configuration)).await?;
        Ok(())
    }
}
