//! The program under measurement, on one core.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use confpin::pin::webhook_configuration::PATH;
use rcgen::{CertificateParams, KeyPair};
use testcluster::{free_port, usage, wait_for};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

const SOON: Duration = Duration::from_secs(30);
const HOST: &str = "127.0.0.1";

/// A running `confpin serve` that answers only. It ends when it is dropped.
pub struct Confpin {
    child: Child,
    port: u16,
    certificate: String,
}

impl Confpin {
    /// Starts it with files in `folder`, for an API server on that port.
    pub async fn start(folder: &Path, api_server: u16) -> Result<Self> {
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new(vec![HOST.to_owned()])?.self_signed(&key)?.pem();
        let write = |name: &str, text: &str| {
            let path = folder.join(name);
            fs::write(&path, text).map(|()| path.display().to_string())
        };
        let kubeconfig = serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "it",
            "clusters": [{"name": "it", "cluster": {"server": format!("http://{HOST}:{api_server}")}}],
            "users": [{"name": "it", "user": {}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        });
        let (port, admin) = (free_port()?, free_port()?);
        let mut child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--", "taskset", "--cpu-list", "0"])
            .args([env!("CARGO_BIN_EXE_confpin"), "serve", "--drain=0", "--reconcile=false", "--log=error"])
            .arg(format!("--tls-cert={}", write("tls.crt", &certificate)?))
            .arg(format!("--tls-key={}", write("tls.key", &key.serialize_pem())?))
            .arg(format!("--kubeconfig={}", write("kubeconfig", &kubeconfig.to_string())?))
            .arg(format!("--listen={HOST}:{port}"))
            .arg(format!("--admin-listen={HOST}:{admin}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("failed to start confpin by setpriv and taskset: is the Debian package util-linux there?")?;
        wait_for("confpin to listen", SOON, async || {
            let ended = child.try_wait()?;
            ensure!(ended.is_none(), "it ended with {ended:?}");
            Ok(TcpStream::connect((HOST, port)).await.is_ok().then_some(()))
        })
        .await?;
        Ok(Self { child, port, certificate })
    }

    /// Where it answers.
    pub fn url(&self) -> String {
        format!("https://{HOST}:{}{PATH}?timeout=30s", self.port)
    }

    /// What it is to be trusted by, PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// The processor time that it has taken so far.
    pub fn processor_time(&self) -> Result<Duration> {
        usage::processor_time(&self.child)
    }

    /// The most memory that it has had so far.
    pub fn peak_mib(&self) -> Result<u64> {
        usage::memory_mib(&self.child, "VmHWM:")
    }
}
