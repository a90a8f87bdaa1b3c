//! Manifests as `kubectl` takes them: `-f FILE`, `-f DIRECTORY`, `-f -`, `-k DIRECTORY`.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::inspect::manifests::File;

/// The endings of the files of a directory that `kubectl` reads.
const ENDINGS: [&str; 3] = ["yaml", "yml", "json"];

/// Where manifests are.
#[derive(Debug, Clone, clap::Args)]
#[group(required = true, multiple = true)]
pub struct InputArgs {
    /// A file, a directory, or - for standard input. May be repeated, or be a list.
    #[arg(short, long, value_name = "FILE", value_delimiter = ',', value_hint = clap::ValueHint::AnyPath)]
    filename: Vec<PathBuf>,

    /// A directory with a kustomization; `kubectl kustomize` builds it.
    #[arg(short, long, value_name = "DIRECTORY", conflicts_with = "filename", value_hint = clap::ValueHint::DirPath)]
    kustomize: Option<PathBuf>,
}

/// How directories are read.
#[derive(Debug, Clone, clap::Args)]
pub struct RecursiveArgs {
    /// Also the directories in a directory.
    #[arg(short = 'R', long)]
    recursive: bool,
}

impl InputArgs {
    /// Reads all of them, in order.
    ///
    /// # Errors
    /// When one cannot be read, or is no YAML or JSON.
    pub fn read(&self, recursive: &RecursiveArgs) -> Result<Vec<File>> {
        if let Some(folder) = &self.kustomize {
            return Ok(vec![File::parse(&folder.display().to_string(), &kustomize(folder)?)?]);
        }
        let mut files = Vec::new();
        for path in &self.filename {
            if path.as_os_str() == "-" {
                let mut text = String::new();
                std::io::stdin().read_to_string(&mut text).context("failed to read standard input")?;
                files.push(File::parse("standard input", &text)?);
            } else if path.is_dir() {
                for path in listed(path, recursive.recursive)? {
                    files.push(read(&path)?);
                }
            } else {
                files.push(read(path)?);
            }
        }
        Ok(files)
    }
}

fn read(path: &Path) -> Result<File> {
    let text = fs::read_to_string(path).with_context(|| format!("failed to read {}", path.display()))?;
    Ok(File::parse(&path.display().to_string(), &text)?)
}

/// The manifests of a directory, by name.
fn listed(folder: &Path, recursive: bool) -> Result<Vec<PathBuf>> {
    let failed = || format!("failed to read {}", folder.display());
    let entries: std::io::Result<Vec<_>> = fs::read_dir(folder).with_context(failed)?.collect();
    let mut paths: Vec<_> = entries.with_context(failed)?.into_iter().map(|entry| entry.path()).collect();
    paths.sort();
    let mut found = Vec::new();
    for path in paths {
        if path.is_dir() {
            if recursive {
                found.extend(listed(&path, recursive)?);
            }
        } else if path.extension().is_some_and(|ending| ENDINGS.iter().any(|known| ending == *known)) {
            found.push(path);
        }
    }
    Ok(found)
}

fn kustomize(folder: &Path) -> Result<String> {
    let failed = || format!("failed to run `kubectl kustomize {}`", folder.display());
    let output = Command::new("kubectl").arg("kustomize").arg(folder).output().with_context(failed)?;
    ensure!(output.status.success(), "{}: {}", failed(), String::from_utf8_lossy(&output.stderr).trim());
    String::from_utf8(output.stdout).with_context(failed)
}
