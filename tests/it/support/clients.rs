//! Clients other than `kubectl`.

use std::{
    fs,
    path::PathBuf,
    process::{Output, Stdio},
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use testcluster::Program;
use tokio::io::AsyncWriteExt;

use super::Shop;

impl Shop<'_> {
    /// Runs a client program in this namespace, with the command's words parted by blanks.
    pub async fn run_client(&self, program: Program, command: &str) -> Result<String> {
        let output = self.run_client_any(program, command).await?;
        let told = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "`{program:?} {command}` failed ({}): {told}", output.status);
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// The same, whether it succeeds or not.
    pub async fn run_client_any(&self, program: Program, command: &str) -> Result<Output> {
        let mut client = self.world.cluster.command(program).await?;
        let namespace = ["--namespace", self.name()];
        Ok(client.args(command.split(' ')).args(namespace).kill_on_drop(true).output().await?)
    }

    /// The same with arguments that may have blanks, and an input.
    pub async fn run_client_with(&self, program: Program, arguments: &[String], input: &str) -> Result<String> {
        let mut client = self.world.cluster.command(program).await?;
        client.args(arguments).args(["--namespace", self.name()]).kill_on_drop(true);
        let mut child = client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        // Small enough for the pipe.
        child.stdin.take().context("the input is a pipe")?.write_all(input.as_bytes()).await?;
        let output = child.wait_with_output().await?;
        let told = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "`{program:?} {arguments:?}` failed ({}): {told}", output.status);
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// The plugin of Argo Rollouts for `kubectl`.
    pub async fn argo_rollouts(&self, command: &str) -> Result<String> {
        self.run_client(Program::KubectlArgoRollouts, command).await
    }

    /// Writes a Helm chart of these objects, in which `{{ .Values.NAME }}` stands for what the commands set.
    pub fn chart(&self, objects: impl IntoIterator<Item = Value>) -> Result<PathBuf> {
        let folder = self.world.cluster.folder().join(format!("{}-chart", self.name()));
        fs::create_dir_all(folder.join("templates"))?;
        fs::write(folder.join("Chart.yaml"), "apiVersion: v2\nname: shop\nversion: 1.0.0\n")?;
        let objects: Vec<_> = objects.into_iter().map(|object| object.to_string()).collect();
        fs::write(folder.join("templates/all.yaml"), objects.join("\n---\n"))?;
        Ok(folder)
    }
}
