//! Running kubectl, and other clients, against the cluster.

use std::{
    ffi::{OsStr, OsString},
    process::{Output, Stdio},
};

use anyhow::{Context, Result, bail};
use tokio::{io::AsyncWriteExt, process::Command};

use crate::{cluster::Cluster, programs::Program};

/// A kubectl command that is about to run. Made by [`Cluster::kubectl`].
#[derive(Debug)]
#[must_use]
pub struct Kubectl<'a> {
    cluster: &'a Cluster,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    input: String,
}

impl<'a> Kubectl<'a> {
    pub(crate) fn new(cluster: &'a Cluster, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        let arguments = arguments.into_iter().map(|argument| argument.as_ref().to_owned()).collect();
        Self { cluster, arguments, environment: Vec::new(), input: String::new() }
    }

    /// What it reads from its standard input, for `-f -`.
    pub fn stdin(mut self, input: impl Into<String>) -> Self {
        self.input = input.into();
        self
    }

    /// With a variable in its environment.
    pub fn environment(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Runs it and returns what it printed.
    ///
    /// # Errors
    /// If it fails; the message has what it wrote to standard error.
    pub async fn run(self) -> Result<String> {
        let shown = self.arguments.iter().map(|argument| argument.to_string_lossy()).collect::<Vec<_>>().join(" ");
        let output = self.run_any().await?;
        if !output.status.success() {
            bail!("`kubectl {shown}` failed ({}): {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs it and returns its output and exit status, whatever that is.
    ///
    /// # Errors
    /// If it cannot be run.
    pub async fn run_any(self) -> Result<Output> {
        let mut command = self.cluster.command(Program::Kubectl).await?;
        command.args(&self.arguments).envs(self.environment);
        output(command, self.input).await
    }
}

/// Runs a command with an input and collects its output.
pub(crate) async fn output(mut command: Command, input: String) -> Result<Output> {
    let shown = command.as_std().get_program().to_owned();
    let failed = || format!("failed to run {}", shown.display());
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .with_context(failed)?;
    let mut stdin = child.stdin.take().with_context(failed)?;
    let write = async move {
        // A program that does not read its input closes it, and its exit status tells more than this error.
        let _ = stdin.write_all(input.as_bytes()).await;
    };
    let (output, ()) = tokio::join!(child.wait_with_output(), write);
    output.with_context(failed)
}

impl Cluster {
    /// A kubectl command as admin: `cluster.kubectl(["apply", "-f", "-"]).stdin(yaml).run().await?`.
    pub fn kubectl(&self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Kubectl<'_> {
        Kubectl::new(self, arguments)
    }

    /// A command of a client program as admin: `KUBECONFIG` and the folders it writes to are set.
    ///
    /// # Errors
    /// If the program has to be built and that fails.
    pub async fn command(&self, program: Program) -> Result<Command> {
        let mut command = Command::new(program.path().await?);
        let home = self.folder().join("home");
        command
            .env("KUBECONFIG", self.kubeconfig())
            .env("HOME", &home)
            .env("KUBECACHEDIR", home.join(".kube/cache"))
            .env("XDG_CACHE_HOME", home.join(".cache"))
            .env("XDG_CONFIG_HOME", home.join(".config"))
            .env("XDG_DATA_HOME", home.join(".local/share"));
        Ok(command)
    }
}
