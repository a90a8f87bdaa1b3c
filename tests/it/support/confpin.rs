//! The program under test, as a user starts it outside of a cluster.

use std::{
    fs::{self, OpenOptions},
    path::{Path, PathBuf},
    process::{Child, ExitStatus, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use rustix::process::{Pid, Signal, kill_process};
use testcluster::{Cluster, free_port, wait_for};

use super::{SOON, process};

/// The program.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_confpin");
/// How much of the log an error message shows.
const LOG_LINES: usize = 20;

/// `confpin serve` against a cluster. Killed when dropped.
#[derive(Debug)]
pub struct Confpin {
    kubeconfig: PathBuf,
    log: PathBuf,
    port: u16,
    admin_port: u16,
    /// Where its certificate comes from.
    certificate: Vec<String>,
    arguments: Vec<String>,
    child: Mutex<Option<Child>>,
}

impl Confpin {
    /// One that does not run yet. `arguments` are added to its command line.
    pub fn new(cluster: &Cluster, arguments: &[&str]) -> Result<Self> {
        let confpin = Self {
            kubeconfig: cluster.kubeconfig().to_owned(),
            log: cluster.folder().join("confpin.log"),
            port: 0,
            certificate: Vec::new(),
            admin_port: free_port()?,
            arguments: arguments.iter().map(ToString::to_string).collect(),
            child: Mutex::default(),
        };
        Ok(confpin.at(free_port()?))
    }

    /// The same, with the rights of another user.
    pub fn with_kubeconfig(mut self, kubeconfig: PathBuf) -> Self {
        self.kubeconfig = kubeconfig;
        self
    }

    /// The same, on a port that was chosen before.
    pub fn at(mut self, port: u16) -> Self {
        self.port = port;
        self.certificate = vec![format!("--webhook-url=https://127.0.0.1:{port}")];
        self
    }

    /// The kubeconfig that it uses.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The same, with a certificate from files: it does not register itself.
    pub fn with_certificate(mut self, cert: &Path, key: &Path, log: &str) -> Self {
        self.certificate = vec![format!("--tls-cert={}", cert.display()), format!("--tls-key={}", key.display())];
        self.log.set_file_name(log);
        self
    }

    /// Starts it without waiting until it is ready.
    pub fn launch(&self) -> Result<()> {
        let log = OpenOptions::new().create(true).append(true).open(&self.log)?;
        let mut command = process::command(PROGRAM);
        command
            .arg("serve")
            .args(&self.certificate)
            .arg(format!("--kubeconfig={}", self.kubeconfig.display()))
            .arg(format!("--listen=127.0.0.1:{}", self.port))
            .arg(format!("--admin-listen=127.0.0.1:{}", self.admin_port))
            .args(["--drain=1s", "--log=info,confpin=debug"])
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        *self.child() = Some(process::spawn(command).context("failed to start confpin")?);
        Ok(())
    }

    /// Starts it and waits until it says that it is ready.
    pub async fn start(&self) -> Result<()> {
        self.launch()?;
        wait_for("confpin to be ready", SOON, async || {
            if let Some(status) = self.ended()? {
                bail!("it ended with {status}: {}", self.log_end());
            }
            Ok((self.ask("readyz").await? == (200, "ok\n".to_owned())).then_some(()))
        })
        .await
    }

    /// Asks it to end, and waits until it has.
    pub async fn stop(&self) -> Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        self.wait_ended().await
    }

    /// Waits until it has ended.
    pub async fn wait_ended(&self) -> Result<ExitStatus> {
        let status = wait_for("confpin to end", SOON, async || self.ended()).await?;
        *self.child() = None;
        Ok(status)
    }

    /// Ends it without asking.
    pub fn kill(&self) -> Result<()> {
        if let Some(mut child) = self.child().take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let child = self.child();
        let id = child.as_ref().context("confpin does not run")?.id();
        let pid = i32::try_from(id).ok().and_then(Pid::from_raw).context("a child has an id")?;
        kill_process(pid, signal).context("failed to send a signal")
    }

    /// Asks the admin server: the status and the text.
    pub async fn ask(&self, path: &str) -> Result<(u16, String)> {
        ask(&format!("http://127.0.0.1:{}/{path}", self.admin_port)).await
    }

    /// The sum of a metric over all labels that contain `labels`.
    pub async fn metric(&self, name: &str, labels: &str) -> Result<f64> {
        let (_, text) = self.ask("metrics").await?;
        let lines = text.lines().filter(|line| {
            line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])) && line.contains(labels)
        });
        lines.map(|line| Ok(line.rsplit(' ').next().unwrap_or_default().parse::<f64>()?)).sum()
    }

    /// What it has logged.
    pub fn log(&self) -> Result<String> {
        fs::read_to_string(&self.log).with_context(|| format!("failed to read {}", self.log.display()))
    }

    /// The end of its log.
    pub fn log_end(&self) -> String {
        let text = self.log().unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
    }

    fn ended(&self) -> Result<Option<ExitStatus>> {
        Ok(self.child().as_mut().context("confpin does not run")?.try_wait()?)
    }

    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks an admin server: the status and the text.
pub async fn ask(url: &str) -> Result<(u16, String)> {
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let answer = tokio::time::timeout(Duration::from_secs(5), client.get(url.parse()?)).await??;
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await?.to_bytes();
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}

impl Drop for Confpin {
    fn drop(&mut self) {
        // Best effort: it ends with this process at the latest.
        let _ = self.kill();
    }
}
