//! The plugin of `kubectl`: `kubectl confpin …`. Everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    confpin::cli::plugin_main()
}
