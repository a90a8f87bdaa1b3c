//! Writes the manifests that follow from the table of kinds: `cargo run --example manifests`. CI runs it and fails on a
//! difference, so that a new kind is in the manifests too.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use confpin::argo_cd::settings_patch;
use confpin::pin::webhook_configuration::{FailurePolicy, PATH, webhook_configuration};
use confpin::rbac::cluster_role;
use k8s_openapi::api::admissionregistration::v1::{ServiceReference, WebhookClientConfig};
use serde::Serialize;

/// The namespace of an installation.
const NAMESPACE: &str = "confpin-system";
/// The name of its Service.
const SERVICE: &str = "confpin";

fn main() -> Result<()> {
    let service = ServiceReference {
        name: SERVICE.to_owned(),
        namespace: NAMESPACE.to_owned(),
        path: Some(PATH.to_owned()),
        port: Some(443),
    };
    let client = WebhookClientConfig { service: Some(service), url: None, ca_bundle: None };
    write("base/webhook.yaml", &webhook_configuration(&client, FailurePolicy::Fail, Some(NAMESPACE)))?;
    write("base/role.yaml", &cluster_role())?;
    write("argocd/argocd-cm-patch.yaml", &settings_patch())
}

fn write(name: &str, object: &impl Serialize) -> Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests").join(name);
    let text = serde_saphyr::to_string(object).with_context(|| format!("failed to write {name} as YAML"))?;
    let head = "# Made by `cargo run --example manifests` from src/pin/kinds.rs: do not edit.\n";
    fs::write(&path, format!("{head}{text}")).with_context(|| format!("failed to write {}", path.display()))
}
