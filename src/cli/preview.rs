//! `kubectl confpin preview`: which workloads roll if these files are applied, and what changes in their configuration.

use std::fmt::Write as _;

use super::connection::{Connection, ConnectionArgs, ExemptArgs};
use super::diff;
use super::input::{InputArgs, RecursiveArgs};
use super::output::{BOLD, FAINT, OutputArgs, WARN, warn};
use super::{End, Error, counted};
use crate::inspect::preview::{Effect, Preview, Previewer};

/// Arguments of `preview`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    input: InputArgs,

    #[command(flatten)]
    recursive: RecursiveArgs,

    #[command(flatten)]
    connection: ConnectionArgs,

    #[command(flatten)]
    exempt: ExemptArgs,

    #[command(flatten)]
    output: OutputArgs,
}

/// Prints what would happen. Ends with [`End::Attention`] when a workload would roll.
///
/// # Errors
/// When a file cannot be used, the cluster cannot be asked, or admission would refuse.
pub async fn run(args: Args) -> Result<End, Error> {
    let files = args.input.read(&args.recursive)?;
    let Connection { cluster, namespace } = args.connection.connect().await?;
    let exemptions = args.exempt.exemptions();
    let previewer = Previewer::new(&cluster, &exemptions, &namespace, &files).await.map_err(anyhow::Error::from)?;
    let previews = previewer.preview(&files).await.map_err(anyhow::Error::from)?;
    for preview in &previews {
        preview.warnings.iter().for_each(|warning| warn(format!("{}: {warning}", preview.workload)));
    }
    args.output.print(&previews, |_| text(&previews))?;
    let rolls = previews.iter().any(|preview| matches!(preview.effect, Effect::Rolls | Effect::Follows));
    Ok(if rolls { End::Attention } else { End::Fine })
}

fn text(previews: &[Preview]) -> String {
    let mut text = String::new();
    for preview in previews {
        let (style, told) = match preview.effect {
            Effect::Created => (BOLD, "is created"),
            Effect::Rolls => (WARN, "rolls"),
            Effect::Follows => (WARN, "rolls, as it follows its sources"),
            Effect::Stays => (FAINT, "does not roll"),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{BOLD}{}{BOLD:#} {style}{told}{style:#}", preview.workload);
        for field in &preview.fields {
            let _ = writeln!(text, "  template: {field}");
        }
        if preview.live && !preview.configuration.is_empty() {
            let _ = writeln!(text, "  not pinned: its pods read what a ConfigMap contains when they start");
        }
        if preview.effect != Effect::Created {
            text.push_str(&diff::text(&preview.configuration, "now", "then"));
        }
    }
    let count = |effect: Effect| previews.iter().filter(|preview| preview.effect == effect).count();
    let rolls = count(Effect::Rolls) + count(Effect::Follows);
    let _ = writeln!(
        text,
        "{}, {} of them new, {rolls} to roll",
        counted(previews.len(), "workload"),
        count(Effect::Created)
    );
    text
}
