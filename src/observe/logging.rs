//! Log lines, to standard error.

use std::io::{self, IsTerminal};
use std::panic;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};

use crate::config::LogFormat;

/// Why nothing can be logged.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The filter is not one.
    #[error(
        "--log is {filter:?}: want a level (error, warn, info, debug, trace) or directives such as info,confpin=debug"
    )]
    Filter {
        /// What was given.
        filter: String,
        /// What is wrong with it.
        source: ParseError,
    },
    /// A logger is already installed.
    #[error("failed to set up logging")]
    Init(#[source] TryInitError),
}

/// Logs from now on, in `format`, what `filter` lets through; panics too.
///
/// # Errors
///
/// [`Error::Filter`] for a filter that is not one, [`Error::Init`] when this is not the first call.
pub fn init(format: LogFormat, filter: &str) -> Result<(), Error> {
    let filter = parse(filter)?;
    let colours = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_ansi(colours);
    match format {
        LogFormat::Text => builder.finish().try_init(),
        LogFormat::Json => builder.json().flatten_event(true).finish().try_init(),
    }
    .map_err(Error::Init)?;
    // The place and not the message, which may quote what a ConfigMap holds. With RUST_BACKTRACE the way there is logged too.
    panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let backtrace = std::backtrace::Backtrace::capture();
        tracing::error!(place, %backtrace, "panicked");
    }));
    Ok(())
}

fn parse(filter: &str) -> Result<EnvFilter, Error> {
    EnvFilter::try_new(filter).map_err(|source| Error::Filter { filter: filter.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("info", true)]
    #[case("info,confpin=debug,hyper=warn", true)]
    #[case("info,confpin=loud", false)]
    #[case("=[", false)]
    fn a_filter_is_parsed_or_refused(#[case] filter: &str, #[case] good: bool) {
        let parsed = parse(filter);
        assert_eq!(parsed.is_ok(), good);
        if let Err(error) = parsed {
            assert!(error.to_string().contains("--log"));
        }
    }
}
