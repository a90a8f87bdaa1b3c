//! The command line: one file a subcommand, and what they share.

pub mod serve;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::config::{self, EXIT_USAGE};
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
}

/// Why a command ended badly.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The arguments make no sense together; nothing was started.
    #[error(transparent)]
    Usage(#[from] config::Error),
    /// The log filter or format cannot be used; nothing was started.
    #[error(transparent)]
    Logging(#[from] logging::Error),
    /// The program could not start, or ended early.
    #[error(transparent)]
    Run(#[from] anyhow::Error),
}

impl Error {
    /// What to tell the supervisor: [`EXIT_USAGE`] when a restart would change nothing, 1 otherwise.
    fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Logging(_) => EXIT_USAGE,
            Self::Run(_) => 1,
        }
    }
}

/// Parses the command line, runs the command and answers with the process's exit code.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are an error to clap, and a success to whoever asked for them.
            let code = if error.use_stderr() { EXIT_USAGE } else { 0 };
            // With the standard streams closed there is nobody to tell.
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    let result = match cli.command {
        Command::Serve(args) => serve::run(*args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let code = error.exit_code();
            // Not by the log: its filter may hide it, and it may not be there yet.
            eprintln!("confpin: {:#}", anyhow::Error::from(error));
            ExitCode::from(code)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_option_has_a_variable_and_a_help_text() {
        let command = Cli::command();
        for subcommand in command.get_subcommands() {
            for argument in subcommand.get_arguments() {
                let id = argument.get_id().as_str();
                let variable = format!("CONFPIN_{}", id.to_uppercase());
                assert_eq!(argument.get_env().and_then(|name| name.to_str()), Some(variable.as_str()), "{id}");
                assert!(argument.get_help().is_some(), "{id}");
            }
        }
    }

    #[test]
    fn a_wrong_configuration_is_told_from_a_failure() {
        assert_eq!(Error::from(config::Error::CertificateMissing).exit_code(), 64);
        assert_eq!(Error::from(anyhow::anyhow!("no cluster")).exit_code(), 1);
    }
}
