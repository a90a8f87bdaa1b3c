//! `kubectl confpin` as a user runs it.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use testcluster::Program;
use tokio::{io::AsyncWriteExt, process::Command};

use super::Shop;

/// The plugin.
pub const PLUGIN: &str = env!("CARGO_BIN_EXE_kubectl-confpin");

/// What a command told.
#[derive(Debug)]
pub struct Told {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Told {
    fn new(output: Output) -> Result<Self> {
        Ok(Self {
            code: output.status.code().context("it was killed")?,
            stdout: String::from_utf8(output.stdout)?,
            stderr: String::from_utf8(output.stderr)?,
        })
    }

    /// The lines of standard output, which must fit a terminal of 80 columns, and the exit code: what a snapshot shows.
    pub fn text(&self) -> Result<String> {
        if let Some(line) = self.stdout.lines().find(|line| line.chars().count() > 80) {
            bail!("wider than 80 columns: {line}");
        }
        let told = if self.stderr.is_empty() { String::new() } else { format!("--- standard error\n{}", self.stderr) };
        Ok(format!("{}{told}--- exit code {}\n", self.stdout, self.code))
    }
}

impl Shop<'_> {
    /// Runs the plugin in this namespace, with the command's words parted by blanks.
    pub async fn plugin(&self, command: &str) -> Result<Told> {
        self.plugin_with(command, "", self.world.cluster.kubeconfig()).await
    }

    /// The same, with an input and the rights of a kubeconfig.
    pub async fn plugin_with(&self, command: &str, input: &str, kubeconfig: &Path) -> Result<Told> {
        let mut program = self.program(command).await?;
        program.env("KUBECONFIG", kubeconfig);
        if !command.split(' ').any(|word| word == "-A") {
            program.args(["--namespace", self.name()]);
        }
        run(program, input).await
    }

    /// The same for a command that asks no cluster.
    pub async fn plugin_offline(&self, command: &str, input: &str) -> Result<Told> {
        let mut program = self.program(command).await?;
        program.env_remove("KUBECONFIG");
        run(program, input).await
    }

    async fn program(&self, command: &str) -> Result<Command> {
        let kubectl = self.world.cluster.command(Program::Kubectl).await?;
        let folder = Path::new(kubectl.as_std().get_program()).parent().context("a program is in a folder")?;
        let mut program = Command::new(PLUGIN);
        program.args(command.split(' ')).env("PATH", folder);
        Ok(program)
    }

    /// A kubeconfig of a ServiceAccount of this namespace that has just these rights here: group, resource, verbs.
    pub async fn user(&self, name: &str, rights: &[(&str, &str, &[&str])]) -> Result<PathBuf> {
        let rules: Vec<Value> = rights
            .iter()
            .map(|(group, resource, verbs)| json!({"apiGroups": [group], "resources": [resource], "verbs": verbs}))
            .collect();
        let meta = json!({"name": name});
        let rbac = "rbac.authorization.k8s.io";
        self.apply([
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta}),
            json!({"apiVersion": format!("{rbac}/v1"), "kind": "Role", "metadata": meta, "rules": rules}),
            json!({
                "apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding", "metadata": meta,
                "roleRef": {"apiGroup": rbac, "kind": "Role", "name": name},
                "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": self.name()}],
            }),
        ])
        .await?;
        let token = self.run(&format!("create token {name}")).await?;
        let mut config: Value = serde_json::from_slice(&std::fs::read(self.world.cluster.kubeconfig())?)?;
        config["users"][0]["user"] = json!({"token": token.trim()});
        let path = self.world.cluster.folder().join(format!("{}-{name}.kubeconfig", self.name()));
        std::fs::write(&path, config.to_string())?;
        Ok(path)
    }
}

async fn run(mut program: Command, input: &str) -> Result<Told> {
    let program = program.stdin(Stdio::piped());
    let mut child = program.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true).spawn()?;
    let mut stdin = child.stdin.take().context("it has an input")?;
    let write = async {
        // It may not read its input.
        let _ = stdin.write_all(input.as_bytes()).await;
        drop(stdin);
    };
    let (output, ()) = tokio::join!(child.wait_with_output(), write);
    Told::new(output?)
}

/// Compares a text with the committed one, less what differs from run to run: ages and the namespace's name.
macro_rules! assert_told {
    ($shop:expr, $name:expr, $text:expr) => {{
        let text: String = $text;
        insta::with_settings!({
            filters => vec![
                ($shop.name(), "NAMESPACE"),
                (r"\b(\d+[smh])+( ago|$|\n)", "AGE$2"),
                (r"(?m)\b(\d+[smh])+$", "AGE"),
                (r" (in|for) (\d+[smh])+", " $1 AGE"),
            ],
            prepend_module_to_snapshot => false,
            snapshot_path => concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/snapshots"),
            omit_expression => true,
        }, { insta::assert_snapshot!($name, text) });
    }};
}
pub(crate) use assert_told;
