//! Parse, run, exit code: everything else is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    confpin::cli::main()
}
