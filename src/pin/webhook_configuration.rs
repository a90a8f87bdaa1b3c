//! The MutatingWebhookConfiguration, made from the table of kinds: what the API server sends to confpin.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MutatingWebhook, MutatingWebhookConfiguration, RuleWithOperations, WebhookClientConfig,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kube::api::ObjectMeta;

use crate::pin::kinds::{WORKLOADS, WorkloadKind};
use crate::pin::meta;
use crate::pin::scope::Scope;

/// Path of the webhook on the server.
pub const PATH: &str = "/mutate";

/// Name of the configuration object.
pub const NAME: &str = "confpin";

/// How long the API server waits for an answer, in seconds. It passes the time along and confpin answers within it.
const TIMEOUT_SECONDS: i32 = 10;

/// Never matched, whatever their labels: what the cluster needs to come up must not need confpin.
const EXCLUDED_NAMESPACES: [&str; 2] = ["kube-system", "kube-node-lease"];

/// What the API server does with a request when it gets no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FailurePolicy {
    /// It refuses the request: no workload of a labelled namespace goes in unpinned.
    #[default]
    Fail,
    /// It lets the request pass unpinned.
    Ignore,
}

/// The configuration by which an API server sends the workloads of `scope` to `client`.
///
/// `own_namespace` is the one that confpin runs in, if any: it is never matched, so that confpin can come up with all
/// its replicas down.
#[must_use]
pub fn webhook_configuration(
    client: &WebhookClientConfig,
    failure_policy: FailurePolicy,
    own_namespace: Option<&str>,
    scope: &Scope,
) -> MutatingWebhookConfiguration {
    let by_name = |operator: &str, names: Vec<String>| LabelSelectorRequirement {
        key: "kubernetes.io/metadata.name".to_owned(),
        operator: operator.to_owned(),
        values: Some(names),
    };
    let excluded = EXCLUDED_NAMESPACES.into_iter().chain(own_namespace).map(str::to_owned).collect();
    let mut expressions = vec![by_name("NotIn", excluded)];
    if let Scope::Namespaces(namespaces) = scope {
        expressions.push(by_name("In", namespaces.iter().cloned().collect()));
    }
    let namespaces = LabelSelector {
        match_labels: Some(BTreeMap::from([(meta::PIN.to_owned(), meta::ENABLED.to_owned())])),
        match_expressions: Some(expressions),
    };
    let webhook = |kind: &&WorkloadKind| MutatingWebhook {
        name: format!("{}.{}.confpin.dev", kind.plural, kind.group.replace('.', "-")),
        admission_review_versions: vec!["v1".to_owned()],
        client_config: client.clone(),
        failure_policy: Some(format!("{failure_policy:?}")),
        match_conditions: Some(match_conditions(kind)),
        match_policy: Some("Equivalent".to_owned()),
        namespace_selector: Some(namespaces.clone()),
        object_selector: None,
        // A webhook that runs after us may add a reference: then we are asked once more, if we were asked at all.
        reinvocation_policy: Some("IfNeeded".to_owned()),
        rules: Some(vec![RuleWithOperations {
            api_groups: Some(vec![kind.group.to_owned()]),
            api_versions: Some(vec![kind.version.to_owned()]),
            operations: Some(vec!["CREATE".to_owned(), "UPDATE".to_owned()]),
            // Without a slash: no subresource, so no /scale and no /status.
            resources: Some(vec![kind.plural.to_owned()]),
            scope: Some("Namespaced".to_owned()),
        }]),
        side_effects: "NoneOnDryRun".to_owned(),
        timeout_seconds: Some(TIMEOUT_SECONDS),
    };
    MutatingWebhookConfiguration {
        metadata: ObjectMeta { name: Some(NAME.to_owned()), ..ObjectMeta::default() },
        webhooks: Some(WORKLOADS.iter().map(webhook).collect()),
    }
}

/// The client configuration of a webhook outside of the cluster.
#[must_use]
pub fn client_by_url(url: String, ca_pem: &str) -> WebhookClientConfig {
    WebhookClientConfig { url: Some(url), ca_bundle: Some(ByteString(ca_pem.as_bytes().to_vec())), service: None }
}

/// CEL that keeps from confpin what it would leave alone anyway, so that its outage cannot touch it: scaling, status
/// and label changes, and workloads that name no ConfigMap.
fn match_conditions(kind: &WorkloadKind) -> Vec<MatchCondition> {
    let condition = |name: &str, expression: String| MatchCondition { name: name.to_owned(), expression };
    vec![
        condition("template-or-annotation-changes", changes(kind)),
        condition("names-a-configmap", names_a_configmap(kind)),
    ]
}

fn changes(kind: &WorkloadKind) -> String {
    let template: String = kind.template.iter().flat_map(|field| [".?", field]).collect();
    let annotation = |object: &str, key: &str| format!("{object}.metadata.?annotations[?\"{key}\"]");
    let (refresh, record) = (meta::REFRESH, meta::RECORD);
    format!(
        "request.operation == \"CREATE\" || object{template} != oldObject{template} || {} != {} || ({}.hasValue() && {} != {})",
        annotation("object", refresh),
        annotation("oldObject", refresh),
        annotation("oldObject", record),
        annotation("object", record),
        annotation("oldObject", record),
    )
}

fn names_a_configmap(kind: &WorkloadKind) -> String {
    let template: String = kind.template.iter().flat_map(|field| [".?", field]).collect();
    let list = |name: &str| format!("object{template}.?spec.?{name}.orValue([])");
    let volume = "has(v.configMap) || (has(v.projected) && has(v.projected.sources) \
                  && v.projected.sources.exists(s, has(s.configMap)))";
    let container = "(has(c.envFrom) && c.envFrom.exists(e, has(e.configMapRef))) \
                     || (has(c.env) && c.env.exists(e, has(e.valueFrom) && has(e.valueFrom.configMapKeyRef)))";
    format!(
        "{}.exists(v, {volume}) || ({} + {}).exists(c, {container})",
        list("volumes"),
        list("initContainers"),
        list("containers"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configuration(own_namespace: Option<&str>) -> MutatingWebhookConfiguration {
        let client = client_by_url("https://confpin.example/mutate".to_owned(), "the CA");
        webhook_configuration(&client, FailurePolicy::Ignore, own_namespace, &Scope::Cluster)
    }

    #[test]
    fn every_kind_has_a_webhook_to_the_client() {
        let configuration = configuration(None);
        assert_eq!(configuration.metadata.name.as_deref(), Some(NAME));
        let webhooks = configuration.webhooks.unwrap_or_default();
        let names: Vec<_> = webhooks.iter().map(|webhook| webhook.name.as_str()).collect();
        assert_eq!(names, ["deployments.apps.confpin.dev", "rollouts.argoproj-io.confpin.dev"]);
        for webhook in webhooks {
            assert_eq!(webhook.client_config.url.as_deref(), Some("https://confpin.example/mutate"));
            assert_eq!(webhook.client_config.ca_bundle, Some(ByteString(b"the CA".to_vec())));
            assert_eq!(webhook.failure_policy.as_deref(), Some("Ignore"));
        }
    }

    #[test]
    fn the_namespaces_that_a_cluster_comes_up_with_are_left_out_and_our_own() {
        for (own, expected) in [
            (None, vec!["kube-system", "kube-node-lease"]),
            (Some("confpin"), vec!["kube-system", "kube-node-lease", "confpin"]),
        ] {
            let selector = configuration(own).webhooks.unwrap_or_default().remove(0).namespace_selector;
            let expressions = selector.and_then(|selector| selector.match_expressions).unwrap_or_default();
            assert_eq!(expressions[0].operator, "NotIn");
            assert_eq!(expressions[0].values.as_deref().unwrap_or_default(), expected);
        }
    }

    #[test]
    fn only_the_namespaces_that_are_watched_are_sent() {
        let scope = Scope::of(["shop", "billing"].map(str::to_owned));
        let client = client_by_url("https://confpin.example/mutate".to_owned(), "the CA");
        let configuration = webhook_configuration(&client, FailurePolicy::Fail, None, &scope);
        for webhook in configuration.webhooks.unwrap_or_default() {
            let selector = webhook.namespace_selector.unwrap_or_default();
            assert!(selector.match_labels.is_some_and(|labels| labels.contains_key(meta::PIN)));
            let expressions = selector.match_expressions.unwrap_or_default();
            assert_eq!((expressions.len(), expressions[1].operator.as_str()), (2, "In"));
            assert_eq!(expressions[1].values.as_deref().unwrap_or_default(), ["billing", "shop"]);
        }
    }

    /// That they are valid and select what they should, the tests on a real API server show.
    #[test]
    fn the_conditions_look_at_every_field_that_decides() {
        let webhook = configuration(None).webhooks.unwrap_or_default().remove(0);
        let conditions = webhook.match_conditions.unwrap_or_default();
        let names: Vec<_> = conditions.iter().map(|condition| condition.name.as_str()).collect();
        assert_eq!(names, ["template-or-annotation-changes", "names-a-configmap"]);
        for part in ["object.?spec.?template != oldObject.?spec.?template", meta::REFRESH, meta::RECORD] {
            assert!(conditions[0].expression.contains(part), "{part}");
        }
        for list in ["volumes", "initContainers", "containers"] {
            let part = format!("object.?spec.?template.?spec.?{list}.orValue([])");
            assert!(conditions[1].expression.contains(&part), "{part}");
        }
    }
}
