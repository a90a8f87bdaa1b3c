//! Writes `docs/cli.md` from the definitions of the arguments: `cargo run --example cli_reference`. CI runs it and fails
//! on a difference.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

fn main() -> Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/cli.md");
    fs::write(&path, confpin::cli::reference::reference())
        .with_context(|| format!("failed to write {}", path.display()))
}
