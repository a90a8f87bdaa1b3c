//! A Git repository on disk.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tokio::process::Command;

/// Nothing of the machine's or the user's settings.
const SETTINGS: [&str; 8] = [
    "-c",
    "user.name=shop",
    "-c",
    "user.email=shop@shop.example",
    "-c",
    "commit.gpgsign=false",
    "-c",
    "init.defaultBranch=main",
];

/// A Git repository on disk.
#[derive(Debug)]
pub struct GitRepository {
    folder: PathBuf,
}

impl GitRepository {
    /// An empty one in a new folder.
    pub async fn create(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let repository = Self { folder: folder.to_owned() };
        repository.git(&["init", "--quiet"]).await?;
        Ok(repository)
    }

    /// Where a program of this machine reads it.
    pub fn url(&self) -> String {
        format!("file://{}", self.folder.display())
    }

    /// Makes these objects its only content. Returns the commit.
    pub async fn commit(&self, objects: impl IntoIterator<Item = Value>) -> Result<String> {
        let objects: Vec<_> = objects.into_iter().map(|object| object.to_string()).collect();
        fs::write(self.folder.join("all.yaml"), objects.join("\n---\n"))?;
        self.git(&["add", "--all"]).await?;
        self.git(&["commit", "--quiet", "--allow-empty", "--message=change"]).await?;
        self.head().await
    }

    /// Takes the last commit back by a new one, which is returned.
    pub async fn revert(&self) -> Result<String> {
        self.git(&["revert", "--no-edit", "HEAD"]).await?;
        self.head().await
    }

    async fn head(&self) -> Result<String> {
        Ok(self.git(&["rev-parse", "HEAD"]).await?.trim().to_owned())
    }

    async fn git(&self, arguments: &[&str]) -> Result<String> {
        let mut git = Command::new("git");
        git.args(SETTINGS).args(arguments).current_dir(&self.folder);
        git.env("GIT_CONFIG_GLOBAL", "").env("GIT_CONFIG_NOSYSTEM", "1");
        let output = git.output().await.context("failed to run git")?;
        ensure!(output.status.success(), "git {arguments:?} failed: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}
