//! Starts a cluster to play with, and keeps it until Ctrl-C.
//!
//! `cargo run -p testcluster --example up -- [fake-node] [rollouts] [real-node]`; all of them if none is named.

use std::env;

use anyhow::{Result, bail};
use testcluster::{Cluster, Program};

#[tokio::main]
async fn main() -> Result<()> {
    let mut parts: Vec<String> = env::args().skip(1).collect();
    if parts.is_empty() {
        parts = ["fake-node", "rollouts", "real-node"].map(Into::into).into();
    }
    let mut builder = Cluster::builder();
    for part in &parts {
        builder = match part.as_str() {
            "control-plane" => builder,
            "fake-node" => builder.fake_node(),
            "rollouts" => builder.rollouts(),
            "real-node" => builder.real_node(),
            other => bail!("`{other}` is no part: name any of control-plane, fake-node, rollouts, real-node"),
        };
    }
    let begin = std::time::Instant::now();
    let cluster = builder.start().await?;
    println!("ready after {:.1} s; logs and data are in {}", begin.elapsed().as_secs_f64(), cluster.folder().display());
    println!("export KUBECONFIG={}", cluster.kubeconfig().display());
    println!("alias kubectl={}", Program::Kubectl.path().await?.display());
    println!("Ctrl-C ends it.");
    tokio::signal::ctrl_c().await?;
    Ok(())
}
