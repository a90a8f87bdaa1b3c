//! The program under measurement, as a user starts it outside of a cluster.

use std::fs::File;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::PostParams;
use testcluster::{Cluster, free_port, usage, wait_for};
use tokio::process::{Child, Command};

use crate::objects;

const SOON: Duration = Duration::from_secs(60);

/// A running `confpin serve`. It ends when it is dropped.
pub struct Confpin<'a> {
    cluster: &'a Cluster,
    child: Child,
    admin: String,
}

/// What its histogram of admissions has counted.
#[derive(Debug, Clone, Copy, Default)]
pub struct Admissions {
    seconds: f64,
    count: f64,
}

impl Admissions {
    /// The mean, in milliseconds, of those that came after `before`; `None` when there was none.
    pub fn mean_since(self, before: Self) -> Option<f64> {
        let count = self.count - before.count;
        (count > 0.0).then(|| (self.seconds - before.seconds) / count * 1e3)
    }
}

impl Confpin<'_> {
    /// What it says about its admissions so far.
    pub async fn admissions(&self) -> Result<Admissions> {
        let metrics = self.cluster.read(&self.admin, "/metrics").await?;
        let value = |part: &str| {
            let name = format!("confpin_admission_duration_seconds_{part} ");
            let text =
                metrics.lines().find_map(|line| line.strip_prefix(&name)).context("no histogram of admissions")?;
            Ok::<f64, anyhow::Error>(text.parse()?)
        };
        Ok(Admissions { seconds: value("sum")?, count: value("count")? })
    }

    /// The memory that it has.
    pub fn memory_mib(&self) -> Result<u64> {
        usage::memory_mib(&self.child, "VmRSS:")
    }

    /// The processor time that it has taken so far.
    pub fn processor_time(&self) -> Result<Duration> {
        usage::processor_time(&self.child)
    }

    /// Ends it.
    pub async fn end(mut self) -> Result<()> {
        Ok(self.child.kill().await?)
    }
}

/// Starts it, with more arguments, and waits until the API server asks it.
pub async fn start<'a>(cluster: &'a Cluster, arguments: &[&str]) -> Result<Confpin<'a>> {
    let (port, admin_port) = (free_port()?, free_port()?);
    let admin = format!("http://127.0.0.1:{admin_port}");
    let mut child = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "--", env!("CARGO_BIN_EXE_confpin"), "serve", "--drain=0"])
        // The sources are edited right after a decision, which must not roll the workload before it is measured.
        .arg("--settle=0s")
        .arg(format!("--webhook-url=https://127.0.0.1:{port}"))
        .arg(format!("--listen=127.0.0.1:{port}"))
        .arg(format!("--admin-listen=127.0.0.1:{admin_port}"))
        .arg(format!("--kubeconfig={}", cluster.kubeconfig().display()))
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(cluster.folder().join("confpin.log"))?)
        .kill_on_drop(true)
        .spawn()
        .context("failed to start confpin by setpriv: is the Debian package util-linux there?")?;
    wait_for("confpin to be ready", SOON, async || {
        let ended = child.try_wait()?;
        ensure!(ended.is_none(), "it ended with {ended:?}");
        cluster.probe(&admin, "/readyz").await.map(Some)
    })
    .await?;
    wait_until_asked(cluster).await?;
    Ok(Confpin { cluster, child, admin })
}

/// The API server takes a moment to see a new registration.
async fn wait_until_asked(cluster: &Cluster) -> Result<()> {
    let namespace = cluster.namespace("probe").label("confpin.dev/pin", "enabled").create().await?;
    let source = objects::source_name(0);
    objects::put(&cluster.client(), namespace.name(), &objects::configmap(&source, 1, 0)?).await?;
    let workloads: Api<Deployment> = Api::namespaced(cluster.client(), namespace.name());
    let workload = objects::deployment("probe", std::slice::from_ref(&source), 0)?;
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    wait_for("the API server to ask confpin", SOON, async || {
        let answer = workloads.create(&dry_run, &workload).await?;
        Ok((!objects::names(&answer).contains(&source)).then_some(()))
    })
    .await
}
