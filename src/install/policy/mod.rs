//! ValidatingAdmissionPolicies that bind confpin's own account to what confpin does. RBAC can say neither "ConfigMaps that
//! are snapshots" nor "this annotation": with these, a stolen token cannot do more either.

mod workloads;

use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MatchResources, NamedRuleWithOperations, ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding, ValidatingAdmissionPolicyBindingSpec, ValidatingAdmissionPolicySpec, Validation,
    Variable,
};
use kube::api::ObjectMeta;

use super::{CA_SECRET, LEASE, user};
use crate::pin::kinds::WORKLOADS;
use crate::pin::meta;
use crate::pin::snapshot::DIGITS;

/// All policies, for an installation in `namespace`.
#[must_use]
pub fn policies(namespace: &str) -> Vec<ValidatingAdmissionPolicy> {
    let general = [configmaps(namespace), own_objects(namespace), webhook(namespace)];
    general.into_iter().chain(WORKLOADS.iter().map(|kind| workloads::policy(kind, namespace))).collect()
}

/// Puts a policy into force. What it refuses is in the audit log too.
#[must_use]
pub fn bind(policy: &ValidatingAdmissionPolicy) -> ValidatingAdmissionPolicyBinding {
    let name = policy.metadata.name.clone().unwrap_or_default();
    ValidatingAdmissionPolicyBinding {
        metadata: ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() },
        spec: ValidatingAdmissionPolicyBindingSpec {
            policy_name: name,
            validation_actions: vec!["Deny".to_owned(), "Audit".to_owned()],
            ..ValidatingAdmissionPolicyBindingSpec::default()
        },
    }
}

/// ConfigMaps: only snapshots, and of these only the owners and the claims change.
///
/// What a snapshot is, is what the reconciler takes for one: [`crate::pin::snapshot::recognise_metadata`].
fn configmaps(namespace: &str) -> ValidatingAdmissionPolicy {
    let annotation = |key: &str| format!("variables.subject.metadata.?annotations[?\"{key}\"]");
    let is_snapshot = format!(
        "variables.subject.metadata.?labels[?\"{label}\"].orValue(\"\") == \"{TRUE}\" && {source}.hasValue() && \
         variables.hash.matches(\"^[0-9a-f]{{64}}$\") && \
         {DIGITS:?}.exists(n, variables.subject.metadata.name.endsWith(\"-\" + variables.hash.substring(0, n)))",
        label = meta::SNAPSHOT,
        TRUE = meta::TRUE,
        source = annotation(meta::SOURCE),
    );
    let only_ours = format!(
        "object.?immutable.orValue(false) && object.metadata.labels.size() == 1 && \
         object.metadata.annotations.all(k, k.startsWith(\"{}\") || k.startsWith(\"{}\")) && \
         !has(object.metadata.ownerReferences) && !has(object.metadata.finalizers)",
        meta::PREFIX,
        meta::CLAIM_PREFIX
    );
    let content = ["data", "binaryData", "immutable"].map(|field| format!("object.?{field} == oldObject.?{field}"));
    let same = format!("{} && {}", content.join(" && "), same_fields(&["labels", "finalizers"]));
    let is_claim = format!("k.startsWith(\"{}\")", meta::CLAIM_PREFIX);
    let same_annotations = same_entries("variables.annotations", "variables.oldAnnotations", &is_claim);
    let owner = "(o.apiVersion == \"apps/v1\" && o.kind == \"ReplicaSet\" && !o.?controller.orValue(false) && \
                 !o.?blockOwnerDeletion.orValue(false))";
    let owners = format!(
        "object.metadata.?ownerReferences.orValue([]).all(o, {owner} || \
         o in oldObject.metadata.?ownerReferences.orValue([]))"
    );
    policy(
        "confpin-configmaps",
        namespace,
        rule("", "v1", &["configmaps"], &["CREATE", "UPDATE", "DELETE"]),
        vec![
            variable("subject", "request.operation == \"CREATE\" ? object : oldObject"),
            variable("hash", &format!("{}.orValue(\"\")", annotation(meta::CONTENT_HASH))),
            variable("annotations", "object.metadata.?annotations.orValue({})"),
            variable("oldAnnotations", "oldObject.metadata.?annotations.orValue({})"),
        ],
        vec![
            validation(&is_snapshot, "confpin creates, changes and deletes only snapshots"),
            validation(
                &on("CREATE", &only_ours),
                "confpin creates snapshots that are immutable, and have no metadata but its own",
            ),
            validation(
                &on("UPDATE", &format!("{same} && {same_annotations}")),
                "confpin changes nothing of a snapshot but its owners and the claims on it",
            ),
            validation(
                &on("UPDATE", &owners),
                "confpin makes only ReplicaSets owners of a snapshot, and none that controls it or blocks a deletion",
            ),
        ],
    )
}

/// What confpin has for itself: the Secret of its CA and its Lease, which RBAC lets it create under any name.
fn own_objects(namespace: &str) -> ValidatingAdmissionPolicy {
    let mut rules = rule("", "v1", &["secrets"], &["CREATE", "UPDATE"]);
    rules.extend(rule("coordination.k8s.io", "v1", &["leases"], &["CREATE", "UPDATE"]));
    policy(
        "confpin-own-objects",
        namespace,
        rules,
        Vec::new(),
        vec![
            validation(
                &format!(
                    "request.namespace == \"{namespace}\" && \
                     object.metadata.name == (request.resource.resource == \"secrets\" ? \"{CA_SECRET}\" : \"{LEASE}\")"
                ),
                "confpin writes no Secret but the one of its CA, and no Lease but its own",
            ),
            validation(
                "request.resource.resource != \"secrets\" || \
                 dyn(object).?type.orValue(\"Opaque\") in [\"Opaque\", \"kubernetes.io/tls\"]",
                "the Secret of confpin's CA is no token of a ServiceAccount",
            ),
        ],
    )
}

/// The webhook configuration: whom API servers trust, and nothing of what they send and where.
fn webhook(namespace: &str) -> ValidatingAdmissionPolicy {
    let same_metadata = same_fields(&["labels", "annotations", "ownerReferences", "finalizers"]);
    let same_webhook = same_entries("w", "o", "k == \"clientConfig\"");
    let same_client = same_entries("w.clientConfig", "o.clientConfig", "k == \"caBundle\"");
    policy(
        "confpin-webhook",
        namespace,
        rule("admissionregistration.k8s.io", "v1", &["mutatingwebhookconfigurations"], &["UPDATE"]),
        vec![
            variable("webhooks", "dyn(object).?webhooks.orValue([])"),
            variable("oldWebhooks", "dyn(oldObject).?webhooks.orValue([])"),
        ],
        vec![validation(
            &format!(
                "{same_metadata} && variables.webhooks.map(w, w.name) == variables.oldWebhooks.map(o, o.name) && \
                 variables.webhooks.all(w, variables.oldWebhooks.exists(o, o.name == w.name && {same_webhook} && \
                 {same_client}))"
            ),
            "confpin changes nothing of its webhook configuration but the CA bundles",
        )],
    )
}

/// Whether these fields of the metadata are as they were.
fn same_fields(fields: &[&str]) -> String {
    let same = fields.iter().map(|field| format!("object.metadata.?{field} == oldObject.metadata.?{field}"));
    same.collect::<Vec<_>>().join(" && ")
}

/// Whether two maps are equal except for the keys `k` that `except` holds of.
fn same_entries(new: &str, old: &str, except: &str) -> String {
    format!("{new}.all(k, {except} || (k in {old} && {new}[k] == {old}[k])) && {old}.all(k, {except} || k in {new})")
}

fn on(operation: &str, condition: &str) -> String {
    format!("request.operation != \"{operation}\" || ({condition})")
}

fn policy(
    name: &str,
    namespace: &str,
    rules: Vec<NamedRuleWithOperations>,
    variables: Vec<Variable>,
    validations: Vec<Validation>,
) -> ValidatingAdmissionPolicy {
    ValidatingAdmissionPolicy {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        spec: Some(ValidatingAdmissionPolicySpec {
            failure_policy: Some("Fail".to_owned()),
            match_conditions: Some(vec![MatchCondition {
                name: "is-confpin".to_owned(),
                expression: format!("request.userInfo.username == \"{}\"", user(namespace)),
            }]),
            match_constraints: Some(MatchResources { resource_rules: Some(rules), ..MatchResources::default() }),
            variables: Some(variables).filter(|variables| !variables.is_empty()),
            validations: Some(validations),
            ..ValidatingAdmissionPolicySpec::default()
        }),
        status: None,
    }
}

fn rule(group: &str, version: &str, resources: &[&str], operations: &[&str]) -> Vec<NamedRuleWithOperations> {
    let owned = |texts: &[&str]| Some(texts.iter().map(|text| (*text).to_owned()).collect());
    vec![NamedRuleWithOperations {
        api_groups: owned(&[group]),
        api_versions: owned(&[version]),
        resources: owned(resources),
        operations: owned(operations),
        ..NamedRuleWithOperations::default()
    }]
}

fn variable(name: &str, expression: &str) -> Variable {
    Variable { name: name.to_owned(), expression: expression.to_owned() }
}

fn validation(expression: &str, message: &str) -> Validation {
    Validation { expression: expression.to_owned(), message: Some(message.to_owned()), ..Validation::default() }
}
