//! The command line: one file a subcommand, and what they share.

pub mod bar;
pub mod completion;
pub mod connection;
pub mod diff;
pub mod explain;
pub mod history;
pub mod input;
pub mod orphans;
pub mod output;
pub mod plugin;
pub mod preview;
pub mod reference;
pub mod release;
pub mod render;
pub mod serve;
pub mod status;
pub mod switches;
pub mod table;
pub mod workload;

use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use clap::{CommandFactory, Parser, Subcommand};

use crate::config::{self, EXIT_USAGE};
use crate::inspect::target;
use crate::observe::logging;

/// Pins ConfigMaps: each rollout keeps, for its whole life, the configuration that it was rolled out with.
#[derive(Debug, Parser)]
#[command(name = "confpin", version, about, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the admission webhook and the reconciler.
    Serve(Box<serve::Args>),
    #[command(flatten)]
    Plugin(plugin::Command),
}

/// See which revision runs which configuration, and what an apply would change.
///
/// Exit codes: 0 fine; 1 something needs attention, or differs, where a command says so; 2 a failure, also when only a
/// part could be read; 64 wrong arguments.
#[derive(Debug, Parser)]
#[command(name = "kubectl-confpin", bin_name = "kubectl confpin", version, about, propagate_version = true)]
struct PluginCli {
    #[command(subcommand)]
    command: plugin::Command,
}

/// The exit code of `confpin serve` when it fails.
const EXIT_SERVE: u8 = 1;
/// The exit code of another command that ends well and has found what needs attention.
const EXIT_ATTENTION: u8 = 1;
/// The exit code of another command that fails.
const EXIT_FAILURE: u8 = 2;

/// How a command ended that did what it was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// All is well.
    Fine,
    /// Something needs attention, or differs.
    Attention,
}

/// Why a command ended badly.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The arguments make no sense together; nothing was started.
    #[error(transparent)]
    Usage(#[from] config::Error),
    /// The words name no object that the command is for.
    #[error(transparent)]
    Target(#[from] target::Error),
    /// A ConfigMap follows nothing.
    #[error("a ConfigMap follows nothing: name a workload or a namespace")]
    NotFollowing,
    /// What changes workloads is not left to the context's namespace.
    #[error("specify a namespace with -n, or all namespaces with -A")]
    NoScope,
    /// The log filter or format cannot be used; nothing was started.
    #[error(transparent)]
    Logging(#[from] logging::Error),
    /// `confpin serve` could not start, or ended early.
    #[error(transparent)]
    Serve(anyhow::Error),
    /// A command failed.
    #[error(transparent)]
    Command(#[from] anyhow::Error),
}

impl Error {
    /// What to tell the supervisor or the script: [`EXIT_USAGE`] when another try would change nothing.
    fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Target(_) | Self::NotFollowing | Self::NoScope | Self::Logging(_) => EXIT_USAGE,
            Self::Serve(_) => EXIT_SERVE,
            Self::Command(_) => EXIT_FAILURE,
        }
    }
}

impl From<crate::cluster::Error> for Error {
    fn from(error: crate::cluster::Error) -> Self {
        Self::Command(error.into())
    }
}

/// Runs `confpin` and answers with its exit code.
pub fn main() -> ExitCode {
    run(|cli: Cli| match cli.command {
        Command::Serve(args) => serve::run(*args).map(|()| End::Fine),
        Command::Plugin(command) => run_plugin(command),
    })
}

/// Runs `kubectl confpin` and answers with its exit code.
pub fn plugin_main() -> ExitCode {
    run(|cli: PluginCli| run_plugin(cli.command))
}

/// The definition of `kubectl confpin`.
fn plugin_command() -> clap::Command {
    PluginCli::command()
}

fn run_plugin(command: plugin::Command) -> Result<End, Error> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("failed to start the runtime")?;
    runtime.block_on(plugin::run(command))
}

/// Parses the command line, runs the command and answers with the process's exit code.
fn run<C: Parser>(command: impl FnOnce(C) -> Result<End, Error>) -> ExitCode {
    let cli = match C::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // clap returns help and version as errors; for the user they are a success.
            let code = if error.use_stderr() { EXIT_USAGE } else { 0 };
            // With the standard streams closed there is nobody to tell.
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    // The panic hook has printed where.
    let ended = panic::catch_unwind(AssertUnwindSafe(|| command(cli)));
    match ended.unwrap_or_else(|_| Err(Error::Command(anyhow!("internal error; please report the lines above")))) {
        Ok(End::Fine) => ExitCode::SUCCESS,
        Ok(End::Attention) => ExitCode::from(EXIT_ATTENTION),
        Err(error) => {
            let code = error.exit_code();
            // Not by the log: its filter may hide it, and it may not be there yet.
            eprintln!("{}: {:#}", C::command().get_name(), anyhow::Error::from(error));
            ExitCode::from(code)
        }
    }
}

/// Examines one object of several. A panic, of which the hook has printed where, leaves that object out; the others are
/// printed, and the command fails in the end, see [`complete`].
fn examine<T>(object: impl fmt::Display, omitted: &mut usize, examine: impl FnOnce() -> T) -> Option<T> {
    let examined = panic::catch_unwind(AssertUnwindSafe(examine)).ok();
    if examined.is_none() {
        *omitted += 1;
        output::warn(format_args!("internal error at {object}; please report the lines above"));
    }
    examined
}

/// Whether nothing was left out by [`examine`].
///
/// # Errors
/// When something was.
fn complete(omitted: usize) -> anyhow::Result<()> {
    anyhow::ensure!(omitted == 0, "output is incomplete: {} left out", counted(omitted, "object"));
    Ok(())
}

/// Reports reads that failed. The output is then incomplete, and scripts must be able to detect that.
///
/// # Errors
/// When there is something.
fn gaps(gaps: &[crate::cluster::Error]) -> anyhow::Result<()> {
    gaps.iter().for_each(output::warn);
    anyhow::ensure!(gaps.is_empty(), "output is incomplete: {} failed", counted(gaps.len(), "read"));
    Ok(())
}

/// `1 thing`, `2 things`.
fn counted(number: usize, thing: &str) -> String {
    if number == 1 { format!("1 {thing}") } else { format!("{number} {thing}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_at_one_object_leaves_out_that_one_and_fails_the_command() {
        let mut omitted = 0;
        let mut examined = Vec::new();
        for number in 0..4 {
            examined.extend(examine(number, &mut omitted, || {
                assert_ne!(number, 2, "a test's panic");
                number
            }));
        }
        assert_eq!(examined, [0, 1, 3]);
        assert_eq!(complete(omitted).expect_err("incomplete").to_string(), "output is incomplete: 1 object left out");
        assert!(complete(0).is_ok());
    }

    #[test]
    fn the_command_lines_are_consistent() {
        Cli::command().debug_assert();
        PluginCli::command().debug_assert();
    }

    #[test]
    fn every_option_has_a_help_text_and_those_of_serve_a_variable() {
        for subcommand in Cli::command().get_subcommands() {
            for argument in subcommand.get_arguments() {
                let id = argument.get_id().as_str();
                assert!(argument.get_help().is_some(), "{} {id}", subcommand.get_name());
                if subcommand.get_name() == "serve" {
                    let variable = format!("CONFPIN_{}", id.to_uppercase());
                    assert_eq!(argument.get_env().and_then(|name| name.to_str()), Some(variable.as_str()), "{id}");
                }
            }
        }
    }

    #[test]
    fn exit_codes_tell_what_happened() {
        assert_eq!(Error::from(config::Error::CertificateMissing).exit_code(), 64);
        assert_eq!(Error::Serve(anyhow::anyhow!("no cluster")).exit_code(), 1);
        assert_eq!(Error::from(anyhow::anyhow!("no cluster")).exit_code(), 2);
    }
}
