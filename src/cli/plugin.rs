//! The commands for people, `kubectl confpin …`.

use clap::Subcommand;

use super::{End, Error, completion, diff, explain, history, orphans, preview, release, render, status, switches};

/// What `kubectl confpin` can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show which snapshot each workload is pinned to, and what needs attention.
    ///
    /// Exit code 1 when a workload is behind its source, waits for one that is missing, has lost its snapshot, or is not
    /// pinned though its namespace is labelled.
    Status(status::Args),
    /// List the revisions of a workload and the configuration of each.
    History(history::Args),
    /// Show what differs between the configuration of two revisions, key by key.
    ///
    /// Without options: between what the template names and what the next apply would pin. Exit code 1 when something
    /// differs.
    Diff(diff::Args),
    /// Show which workloads roll if these files are applied, and what changes in their configuration.
    ///
    /// Reads the cluster and writes nothing. The files' ConfigMaps count as applied first. Exit code 1 when a workload that
    /// exists would roll.
    Preview(preview::Args),
    /// Pin manifests without a cluster: print them with snapshots added and names changed.
    ///
    /// The names are those that the webhook would give. All else stays as it is, comments too. Namespaces need no label.
    Render(render::Args),
    /// Explain the last decision about a workload: what it is pinned to, why, and what comes next.
    Explain(explain::Args),
    /// List the snapshots that nothing owns: when confpin removes them, or why it does not.
    Orphans(orphans::Args),
    /// Turn pinning off for a workload, a ConfigMap or a namespace.
    OptOut(switches::Args),
    /// Turn pinning on again for a workload or a ConfigMap, or on for a namespace.
    OptIn(switches::Args),
    /// Have a workload, or all of a namespace, roll out with each change of its ConfigMaps.
    OnChange(switches::OnChangeArgs),
    /// Move workloads back to their sources, a few at a time, for leaving confpin.
    ///
    /// Opts each workload out and rolls it out once. Stops if a rollout times out; run it again to continue. Exit code 1
    /// means that a workload stays on a snapshot because its source is gone.
    Release(release::Args),
    /// Print a script that completes the command line in a shell.
    Completion(completion::Args),
    /// Print what the last word can become; `kubectl` runs it.
    #[command(name = "__complete", hide = true)]
    Complete(completion::CompleteArgs),
}

/// Runs a command.
///
/// # Errors
/// When it cannot do what it is asked for.
pub async fn run(command: Command) -> Result<End, Error> {
    match command {
        Command::Status(args) => status::run(args).await,
        Command::History(args) => history::run(args).await,
        Command::Diff(args) => diff::run(args).await,
        Command::Preview(args) => preview::run(args).await,
        Command::Render(args) => render::run(args).await,
        Command::Explain(args) => explain::run(args).await,
        Command::Orphans(args) => orphans::run(args).await,
        Command::OptOut(args) => switches::opt_out(args).await,
        Command::OptIn(args) => switches::opt_in(args).await,
        Command::OnChange(args) => switches::on_change(args).await,
        Command::Release(args) => release::run(args).await,
        Command::Completion(args) => completion::run(&args, super::plugin_command()),
        Command::Complete(args) => completion::complete(&args, super::plugin_command()),
    }
}
