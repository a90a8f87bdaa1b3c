//! `kubectl confpin render`: pins manifests without a cluster.

use super::connection::ExemptArgs;
use super::input::{InputArgs, RecursiveArgs};
use super::output::{print, warn};
use super::{End, Error};
use crate::inspect::render::render;

/// Arguments of `render`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    input: InputArgs,

    #[command(flatten)]
    recursive: RecursiveArgs,

    #[command(flatten)]
    exempt: ExemptArgs,
}

/// Prints the manifests with snapshots added and names changed.
///
/// # Errors
/// When a file cannot be used, or admission would refuse a workload.
pub async fn run(args: Args) -> Result<End, Error> {
    let files = args.input.read(&args.recursive)?;
    let rendered = render(&files, &args.exempt.exemptions()).await.map_err(anyhow::Error::from)?;
    rendered.warnings.iter().for_each(warn);
    print(&rendered.text)?;
    Ok(End::Fine)
}
