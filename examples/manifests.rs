//! Writes the manifests that follow from the code, for kustomize and for the chart: `cargo run --example manifests`. CI
//! runs it and fails on a difference, so that a new kind is in the manifests too.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use confpin::argo_cd::settings_patch;
use confpin::install::{self, policy, rbac};
use confpin::pin::scope::Scope;
use confpin::pin::webhook_configuration::{FailurePolicy, PATH, webhook_configuration};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ServiceReference, WebhookClientConfig,
};
use k8s_openapi::api::rbac::v1::{ClusterRole, Role};
use serde::Serialize;

fn main() -> Result<()> {
    let manifests = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests");
    let (base, self_managed) = (manifests.join("base"), manifests.join("overlays/self-managed"));
    write(&base, "webhook.yaml", &[webhook(install::NAMESPACE)?])?;
    write(&base, "rbac.yaml", &[everywhere(install::NAMESPACE)?, own(install::NAMESPACE)?].concat())?;
    write(&base, "policy.yaml", &policies(install::NAMESPACE)?)?;
    write(&self_managed, "rbac.yaml", &certificate_rights(install::NAMESPACE)?)?;
    write(&manifests.join("overlays/namespaced/served"), "rbac.yaml", &served(install::NAMESPACE)?)?;

    // The chart's templates read these files and fill in what is between braces.
    let (chart, namespace) = (manifests.join("chart/confpin/files"), "{{ .Release.Namespace }}");
    let mut configuration = configuration(namespace);
    for webhook in configuration.webhooks.iter_mut().flatten() {
        webhook.failure_policy = Some("{{ .Values.webhook.failurePolicy }}".to_owned());
    }
    write(&chart, "webhook.yaml", &[document(&configuration)?])?;
    write(&chart, "rbac-everywhere.yaml", &everywhere(namespace)?)?;
    write(&chart, "rbac-served.yaml", &served(namespace)?)?;
    write(&chart, "rbac.yaml", &own(namespace)?)?;
    write(&chart, "policy.yaml", &policies(namespace)?)?;
    write(&chart, "rbac-self-managed.yaml", &certificate_rights(namespace)?)?;
    for folder in [&manifests.join("argocd"), &chart] {
        write(folder, "argocd-cm-patch.yaml", &[document(&settings_patch())?])?;
    }
    write(&manifests.join("monitoring"), "prometheusrule.yaml", &[prometheus_rule(&manifests.join("monitoring"))?])
}

/// The alerts as the Prometheus Operator takes them.
fn prometheus_rule(folder: &Path) -> Result<String> {
    let path = folder.join("rules.yaml");
    let rules = fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))?;
    let groups = rules.lines().filter(|line| !line.starts_with('#')).map(|line| format!("  {line}\n"));
    Ok(format!(
        "apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata:\n  name: {}\n  namespace: {}\nspec:\n{}",
        install::NAME,
        install::NAMESPACE,
        groups.collect::<String>()
    ))
}

fn webhook(namespace: &str) -> Result<String> {
    document(&configuration(namespace))
}

fn configuration(namespace: &str) -> MutatingWebhookConfiguration {
    let service = ServiceReference {
        name: install::NAME.to_owned(),
        namespace: namespace.to_owned(),
        path: Some(PATH.to_owned()),
        port: Some(443),
    };
    let client = WebhookClientConfig { service: Some(service), url: None, ca_bundle: None };
    webhook_configuration(&client, FailurePolicy::Fail, Some(namespace), &Scope::Cluster)
}

/// What an installation grants in all namespaces.
fn everywhere(namespace: &str) -> Result<[String; 2]> {
    cluster_role(&rbac::cluster_role(), namespace)
}

/// What one grants instead in each namespace that it serves.
fn served(namespace: &str) -> Result<[String; 2]> {
    role(&rbac::served_role(), namespace)
}

/// What every installation grants in its own namespace.
fn own(namespace: &str) -> Result<[String; 2]> {
    role(&rbac::role(namespace), namespace)
}

/// What one with self-managed certificates grants besides.
fn certificate_rights(namespace: &str) -> Result<Vec<String>> {
    let everywhere = cluster_role(&rbac::certificates_cluster_role(), namespace)?;
    Ok([everywhere, role(&rbac::certificates_role(namespace), namespace)?].concat())
}

/// A ClusterRole and its binding.
fn cluster_role(role: &ClusterRole, namespace: &str) -> Result<[String; 2]> {
    Ok([document(role)?, document(&rbac::bind_cluster_role(role, namespace))?])
}

/// A Role and its binding.
fn role(role: &Role, namespace: &str) -> Result<[String; 2]> {
    Ok([document(role)?, document(&rbac::bind_role(role, namespace))?])
}

/// What binds confpin's own account.
fn policies(namespace: &str) -> Result<Vec<String>> {
    let mut documents = Vec::new();
    for policy in policy::policies(namespace) {
        documents.extend([document(&policy)?, document(&policy::bind(&policy))?]);
    }
    Ok(documents)
}

fn document(object: &impl Serialize) -> Result<String> {
    serde_saphyr::to_string(object).context("failed to write an object as YAML")
}

fn write(folder: &Path, name: &str, documents: &[String]) -> Result<()> {
    let path = folder.join(name);
    let head = "# Made by `cargo run --example manifests`: do not edit.\n";
    fs::create_dir_all(folder).with_context(|| format!("failed to make {}", folder.display()))?;
    fs::write(&path, format!("{head}{}", documents.join("---\n")))
        .with_context(|| format!("failed to write {}", path.display()))
}
