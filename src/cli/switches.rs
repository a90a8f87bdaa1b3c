//! `kubectl confpin opt-out`, `opt-in` and `on-change`: the switches, which are annotations and a label.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::ApiResource;
use serde_json::{Value, json};

use super::connection::{Connection, ConnectionArgs};
use super::output::print;
use super::{End, Error};
use crate::cluster::workloads::api_resource;
use crate::inspect::target::{Target, Type, title};
use crate::pin::meta;

/// Arguments of `opt-out` and `opt-in`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The workload, ConfigMap or namespace, as TYPE/NAME or TYPE NAME.
    #[arg(value_name = "OBJECT", num_args = 1..=2, required = true)]
    object: Vec<String>,

    #[command(flatten)]
    connection: ConnectionArgs,

    /// Only check that it could be done.
    #[arg(long)]
    dry_run: bool,
}

/// Arguments of `on-change`.
#[derive(Debug, clap::Args)]
pub struct OnChangeArgs {
    #[command(flatten)]
    args: Args,

    /// Turn it off again.
    #[arg(long)]
    off: bool,
}

/// Turns pinning off for an object.
///
/// # Errors
/// When there is no such object, or it may not be changed.
pub async fn opt_out(args: Args) -> Result<End, Error> {
    let target = Target::parse(&args.object)?;
    let patch = json!({"metadata": {"annotations": {meta::PIN: meta::DISABLED}}});
    let then = match target.kind {
        Type::Workload(_) => "its next template change puts its sources' names back",
        Type::ConfigMap => "the next template change of each workload that names it takes it live",
        Type::Namespace => "the next template change of each of its workloads puts the sources' names back",
    };
    set(&args, &target, &patch, "opted out", then).await
}

/// Turns pinning on again. A namespace gets the label that opts it in.
///
/// # Errors
/// When there is no such object, or it may not be changed.
pub async fn opt_in(args: Args) -> Result<End, Error> {
    let target = Target::parse(&args.object)?;
    let mut patch = json!({"metadata": {"annotations": {meta::PIN: null}}});
    let then = match target.kind {
        Type::Workload(_) => "its next template change pins it, if its namespace is opted in",
        Type::ConfigMap => "the next template change of each workload that names it pins it",
        Type::Namespace => {
            patch["metadata"]["labels"] = json!({meta::PIN: meta::ENABLED});
            "the next template change of each of its workloads pins it"
        }
    };
    set(&args, &target, &patch, "opted in", then).await
}

/// Makes a workload, or all workloads of a namespace, follow its sources, or stop following them.
///
/// # Errors
/// When the object is a ConfigMap, there is none, or it may not be changed.
pub async fn on_change(OnChangeArgs { args, off }: OnChangeArgs) -> Result<End, Error> {
    let target = Target::parse(&args.object)?;
    if target.kind == Type::ConfigMap {
        return Err(Error::NotFollowing);
    }
    let value = if off { Value::Null } else { meta::ON_CHANGE.into() };
    let patch = json!({"metadata": {"annotations": {meta::ROLLOUT: value}}});
    let (done, then) = match off {
        true => ("no longer follows its ConfigMaps", "changing a ConfigMap alone no longer triggers a rollout"),
        false => ("follows its sources", "a change of a ConfigMap that it is pinned to rolls it out"),
    };
    set(&args, &target, &patch, done, then).await
}

async fn set(args: &Args, target: &Target, patch: &Value, done: &str, then: &str) -> Result<End, Error> {
    let Connection { cluster, namespace } = args.connection.connect().await?;
    let (resource, namespace, shown) = match target.kind {
        Type::Workload(kind) => (api_resource(kind), Some(namespace), title(kind, &target.name)),
        Type::ConfigMap => {
            (ApiResource::erase::<ConfigMap>(&()), Some(namespace), format!("configmap/{}", target.name))
        }
        Type::Namespace => (ApiResource::erase::<Namespace>(&()), None, format!("namespace/{}", target.name)),
    };
    cluster.merge(&resource, namespace.as_deref(), &target.name, patch, args.dry_run).await?;
    let dry_run = if args.dry_run { " (dry run)" } else { "" };
    print(&format!("{shown} {done}{dry_run}\n{then}\n"))?;
    Ok(End::Fine)
}
