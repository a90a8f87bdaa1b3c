//! The rights of the confpin under test: those of an installation, in force as they are shipped, and a list of what the
//! tests made of them.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use anyhow::{Context, Result};
use confpin::install::{self, rbac};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SubjectAccessReviewStatus,
};
use kube::{
    Api, Client, Config,
    api::PostParams,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::json;
use testcluster::{AuditEvent, Cluster, wait_for};

use super::SOON;

/// A right: API group, resource, verb.
type Right = (String, String, String);

/// What confpin did with its rights in all clusters of this process.
#[derive(Default)]
struct Noted {
    used: BTreeSet<Right>,
    refused: BTreeSet<String>,
}

static NOTED: Mutex<Noted> = Mutex::new(Noted { used: BTreeSet::new(), refused: BTreeSet::new() });

/// Makes confpin's account as an installation does, with its rights and its policies, and returns a kubeconfig for it.
pub async fn install(cluster: &Cluster) -> Result<PathBuf> {
    let manifests = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests");
    let files = [
        "base/namespace.yaml",
        "base/serviceaccount.yaml",
        "base/rbac.yaml",
        "base/policy.yaml",
        "overlays/self-managed/rbac.yaml",
    ];
    let files = files.map(|name| format!("--filename={}", manifests.join(name).display()));
    let apply = cluster.kubectl(["apply".to_owned(), "--filename=-".to_owned()].into_iter().chain(files));
    apply.stdin(registration()).run().await.context("failed to install confpin's rights")?;
    let token = cluster.service_account_token(install::NAMESPACE, install::NAME).await?;
    let kubeconfig = cluster.kubeconfig_for_token(&token)?;
    // Authorisation follows by watches of its own.
    let client = client(&kubeconfig).await?;
    wait_for("confpin's rights to be in force", SOON, async || {
        let everywhere = may(&client, "argoproj.io", "rollouts", "patch").await?;
        let registers = may(&client, "admissionregistration.k8s.io", "mutatingwebhookconfigurations", "patch").await?;
        Ok((everywhere && registers).then_some(()))
    })
    .await?;
    Ok(kubeconfig)
}

/// A client by a kubeconfig file.
pub async fn client(kubeconfig: &Path) -> Result<Client> {
    let file = Kubeconfig::read_from(kubeconfig)?;
    Ok(Client::try_from(Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?)?)
}

async fn may(client: &Client, group: &str, resource: &str, verb: &str) -> Result<bool> {
    let attributes = ResourceAttributes {
        group: Some(group.to_owned()),
        resource: Some(resource.to_owned()),
        verb: Some(verb.to_owned()),
        ..ResourceAttributes::default()
    };
    let spec = SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..<_>::default() };
    let review = SelfSubjectAccessReview { spec, ..<_>::default() };
    let answer = Api::all(client.clone()).create(&PostParams::default(), &review).await?;
    Ok(answer.status.is_some_and(|status: SubjectAccessReviewStatus| status.allowed))
}

/// With `--webhook-url` confpin registers itself; an installation has its webhook configuration from the manifests.
fn registration() -> String {
    let rules = json!([{
        "apiGroups": ["admissionregistration.k8s.io"],
        "resources": ["mutatingwebhookconfigurations"],
        "verbs": ["create", "patch"],
    }]);
    let kind = |kind: &str| json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": "confpin-registration"}});
    let (mut role, mut binding) = (kind("ClusterRole"), kind("ClusterRoleBinding"));
    role["rules"] = rules;
    binding["roleRef"] =
        json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "confpin-registration"});
    binding["subjects"] = json!([{"kind": "ServiceAccount", "name": install::NAME, "namespace": install::NAMESPACE}]);
    super::shop::file([role, binding])
}

/// Notes what confpin did in a cluster that is about to end.
///
/// A right that was both refused and granted is not missing: an API server that starts knows no roles yet, and while
/// confpin is uninstalled its rights go before it does.
pub fn note(cluster: &Cluster) -> Result<()> {
    let user = install::user(install::NAMESPACE);
    let mut events = cluster.audit().logged()?;
    // Tests use its account too, under other names for themselves.
    events.retain(|event| event.user.username == user && event.user_agent.starts_with("confpin/"));
    let (forbidden, allowed): (Vec<_>, Vec<_>) = events.iter().partition(|event| is_forbidden(event));
    let used: BTreeSet<_> = allowed.iter().filter_map(|event| right(event)).collect();
    let missing = forbidden.iter().filter(|event| right(event).is_none_or(|right| !used.contains(&right)));
    let missing = missing.map(|event| format!("{} {}: it has no right to", event.verb, event.uri));
    let violations = allowed.iter().filter_map(|event| {
        let violation = event.annotations.get("validation.policy.admission.k8s.io/validation_failure")?;
        Some(format!("{} {}: {violation}", event.verb, event.uri))
    });
    let mut noted = NOTED.lock().unwrap_or_else(PoisonError::into_inner);
    noted.refused.extend(missing.chain(violations));
    noted.used.extend(used);
    Ok(())
}

/// Whether the authoriser refused it: a quota refuses with the same status.
fn is_forbidden(event: &AuditEvent) -> bool {
    event.annotations.get("authorization.k8s.io/decision").is_some_and(|decision| decision == "forbid")
}

fn right(event: &AuditEvent) -> Option<Right> {
    let object = event.object_ref.as_ref().filter(|object| object.subresource.is_empty())?;
    Some((object.api_group.clone(), object.resource.clone(), event.verb.clone()))
}

/// What was refused; and what is granted in vain, if `everything` was tested.
pub fn complaints(everything: bool) -> Vec<String> {
    let noted = NOTED.lock().unwrap_or_else(PoisonError::into_inner);
    let mut complaints: Vec<_> = noted.refused.iter().map(|what| format!("confpin was refused: {what}")).collect();
    if everything {
        let vain = granted().into_iter().filter(|right| !noted.used.contains(right));
        complaints.extend(vain.map(|(group, resource, verb)| {
            format!("no test needs the right to {verb} {resource} of the API group `{group}`: src/install/rbac.rs")
        }));
    }
    complaints
}

fn granted() -> BTreeSet<Right> {
    let cluster_wide = [rbac::cluster_role(), rbac::certificates_cluster_role()].map(|role| role.rules);
    let own = [rbac::role(install::NAMESPACE), rbac::certificates_role(install::NAMESPACE)].map(|role| role.rules);
    let rules: Vec<_> = cluster_wide.into_iter().chain(own).flatten().flatten().collect();
    let rights = rules.iter().flat_map(|rule| {
        let (groups, resources) = (rule.api_groups.iter().flatten(), rule.resources.iter().flatten());
        let pairs = groups.flat_map(move |group| resources.clone().map(move |resource| (group, resource)));
        pairs.flat_map(|(group, resource)| {
            rule.verbs.iter().map(move |verb| (group.clone(), resource.clone(), verb.clone()))
        })
    });
    rights.collect()
}
