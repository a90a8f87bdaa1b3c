//! The commands and settings of the pages in `docs/clients`, so that the tests use what the reader is told.

use std::{fs, path::Path};

use anyhow::{Context, Result};

/// The fenced block below `<!-- tested: NAME -->`, which may be indented as part of a list.
pub fn block(page: &str, name: &str) -> Result<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/clients").join(page);
    let text = fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))?;
    let mark = format!("<!-- tested: {name} -->");
    let mut lines = text.lines().skip_while(|line| line.trim_start() != mark).skip(1);
    let fence = lines.next().with_context(|| format!("{page} has no block {name}"))?;
    let indent = fence.len() - fence.trim_start().len();
    let block = lines.take_while(|line| !line.trim_start().starts_with("```"));
    Ok(block.map(|line| line.get(indent..).unwrap_or_default()).collect::<Vec<_>>().join("\n"))
}

/// The commands of such a block, without the prompt. Their words are parted by blanks.
pub fn commands(page: &str, name: &str) -> Result<Vec<String>> {
    Ok(block(page, name)?.lines().filter_map(|line| line.strip_prefix("$ ")).map(str::to_owned).collect())
}

/// The one command of such a block.
pub fn command(page: &str, name: &str) -> Result<String> {
    super::workload::only(commands(page, name)?)
}
