//! How commands print: text for people, JSON or YAML for programs, colours on a terminal only.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use anyhow::{Context, Result};
use serde::Serialize;

/// All is well.
pub const GOOD: Style = AnsiColor::Green.on_default();
/// Worth a look.
pub const WARN: Style = AnsiColor::Yellow.on_default();
/// Wrong.
pub const BAD: Style = AnsiColor::Red.on_default();
/// Of less interest.
pub const FAINT: Style = Style::new().dimmed();
/// A title.
pub const BOLD: Style = Style::new().bold();

/// The format of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// More columns.
    Wide,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
}

/// `-o`.
#[derive(Debug, Clone, clap::Args)]
pub struct OutputArgs {
    /// The format of the output, instead of a table.
    #[arg(short, long, value_name = "FORMAT", value_enum, help_heading = "Output")]
    pub output: Option<Format>,
}

impl OutputArgs {
    /// Prints `value` for programs if that is asked for, else the text for people. `text` is told whether more columns
    /// are wanted.
    ///
    /// # Errors
    /// When standard output cannot be written to.
    pub fn print(&self, value: &impl Serialize, text: impl FnOnce(bool) -> String) -> Result<()> {
        match self.output {
            Some(Format::Json) => print(&format!("{}\n", serde_json::to_string_pretty(value)?)),
            Some(Format::Yaml) => print(&serde_saphyr::to_string(value).context("failed to write YAML")?),
            other => print(&text(other == Some(Format::Wide))),
        }
    }
}

/// Writes to standard output, without escape codes where that is no terminal or `NO_COLOR` is set. The reader may have
/// seen enough (`| head`): that is no error.
///
/// # Errors
/// When standard output cannot be written to.
pub fn print(text: &str) -> Result<()> {
    let mut out = anstream::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result.context("failed to write to standard output"),
    }
}

/// Tells something beside the output.
pub fn warn(text: impl std::fmt::Display) {
    // With standard error closed there is nobody to tell.
    let _ = writeln!(anstream::stderr(), "{WARN}warning:{WARN:#} {text}");
}
