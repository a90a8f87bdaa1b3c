//! Runs commands as a person would type them: in the repository, with `kubectl` and its Argo Rollouts plugin in the
//! path, and the sample's namespace as the current one.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use testcluster::{Cluster, Program};

use crate::output;

/// The namespace of the sample.
pub const NAMESPACE: &str = "confpin-sample";

/// The root of the repository.
pub fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Where commands run.
pub struct Terminal<'a> {
    cluster: &'a Cluster,
    kubeconfig: PathBuf,
    programs: String,
}

impl<'a> Terminal<'a> {
    /// A terminal for `cluster`.
    pub async fn open(cluster: &'a Cluster) -> Result<Self> {
        let mut programs = Vec::new();
        for program in [Program::Kubectl, Program::KubectlArgoRollouts] {
            let path = program.path().await?;
            programs.push(path.parent().context("a program is in a folder")?.display().to_string());
        }
        let kubeconfig = cluster.folder().join("demo.kubeconfig");
        fs::copy(cluster.kubeconfig(), &kubeconfig)?;
        let terminal = Self { cluster, kubeconfig, programs: programs.join(":") };
        terminal.output(&format!("kubectl config set-context --current --namespace={NAMESPACE}")).await?;
        Ok(terminal)
    }

    /// What to type to have such a terminal.
    pub fn exports(&self) -> String {
        format!("  export KUBECONFIG={}\n  export PATH={}:$PATH", self.kubeconfig.display(), self.programs)
    }

    /// Shows a command, runs it and shows what it prints.
    pub async fn run(&self, line: &str) -> Result<()> {
        output::command(line);
        let text = self.output(line).await?;
        print!("{text}");
        Ok(())
    }

    /// Runs a command and returns what it prints.
    pub async fn output(&self, line: &str) -> Result<String> {
        // It brings KUBECONFIG and folders for kubectl's caches; the program is replaced by a shell.
        let kubectl = self.cluster.command(Program::Kubectl).await?;
        let environment = kubectl.as_std().get_envs().filter_map(|(name, value)| Some((name, value?)));
        let path = env::var("PATH").unwrap_or_default();
        let output = tokio::process::Command::new("sh")
            .args(["-c", &format!("{{ {line}; }} 2>&1")])
            .envs(environment)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("PATH", format!("{}:{path}", self.programs))
            .current_dir(repository())
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .context("failed to run sh")?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            bail!("`{line}` ended with {}: {}", output.status, text.trim_end());
        }
        Ok(text)
    }
}
