//! confpin itself: built by cargo, run as a child, outside of the cluster.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use testcluster::{Cluster, free_port, wait_for};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::Child;

use crate::output;
use crate::terminal::repository;

/// How long it may take to be ready, and to end.
const SOON: Duration = Duration::from_secs(30);
/// How much of its log a failure shows.
const LOG_LINES: usize = 20;

/// Builds confpin and returns the program, wherever cargo puts it.
pub fn build() -> Result<PathBuf> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| env!("CARGO").into());
    let output = Command::new(cargo)
        .args(["build", "--package", "confpin", "--bin", "confpin", "--message-format", "json-render-diagnostics"])
        .current_dir(repository())
        .stderr(Stdio::inherit())
        .output()
        .context("failed to run cargo")?;
    ensure!(output.status.success(), "cargo could not build confpin");
    let text = String::from_utf8_lossy(&output.stdout);
    let artifacts = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    artifacts
        .filter(|artifact| artifact["target"]["name"] == "confpin")
        .find_map(|artifact| artifact["executable"].as_str().map(PathBuf::from))
        .context("cargo built confpin and did not tell where it is")
}

/// A running `confpin serve`. It ends with this value, and with this process however that ends.
pub struct Confpin {
    child: Child,
    log: PathBuf,
}

impl Confpin {
    /// Starts it and waits until it is ready.
    pub async fn start(program: &Path, cluster: &Cluster) -> Result<Self> {
        let (webhook, admin) = (free_port()?, free_port()?);
        let arguments = [
            "serve".to_owned(),
            format!("--webhook-url=https://127.0.0.1:{webhook}"),
            format!("--listen=127.0.0.1:{webhook}"),
            format!("--admin-listen=127.0.0.1:{admin}"),
            format!("--kubeconfig={}", cluster.kubeconfig().display()),
        ];
        output::command(&format!("confpin {}", arguments.join(" \\\n    ")));
        let log = cluster.folder().join("confpin.log");
        let child = tokio::process::Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(program)
            .args(arguments)
            // No endpoints have to follow its readiness at the end.
            .env("CONFPIN_DRAIN", "0")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log)?)
            // Ctrl-C in a terminal reaches the demo only, which decides.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .context("failed to start confpin by setpriv: is the Debian package util-linux there?")?;
        let mut confpin = Self { child, log };
        wait_for("confpin to be ready", SOON, async || {
            if let Some(status) = confpin.child.try_wait()? {
                return Ok(Some(Err(status)));
            }
            ready(admin).await.map(|()| Some(Ok(())))
        })
        .await
        .and_then(|state| state.map_err(|status| anyhow::anyhow!("confpin ended with {status}")))
        .with_context(|| confpin.log_end())?;
        print!("{}", fs::read_to_string(&confpin.log)?);
        Ok(confpin)
    }

    /// Its log.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The last lines of its log.
    pub fn log_end(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
    }

    /// Asks it to end, by SIGTERM, and waits until it has.
    pub async fn stop(mut self) -> Result<()> {
        let id = self.child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?)).context("confpin has ended")?;
        kill_process(id, Signal::TERM)?;
        let ended = tokio::time::timeout(SOON, self.child.wait()).await.context("confpin did not end")??;
        ensure!(ended.success(), "confpin ended with {ended}:\n{}", self.log_end());
        Ok(())
    }
}

/// Asks the admin port; the answer's body says what is waited for.
async fn ready(port: u16) -> Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.write_all(b"GET /readyz HTTP/1.0\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    if !answer.contains(" 200 OK\r\n") {
        bail!("{}", answer.lines().last().unwrap_or_default());
    }
    Ok(())
}
