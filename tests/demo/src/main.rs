//! `cargo demo`: starts a real cluster, runs confpin against it, and shows what happens to the sample's ConfigMaps.
//!
//! Every command that it shows is run as shown, and every step waits for its result: the program fails if one does not
//! happen in time.

mod confpin;
mod objects;
mod output;
mod pods;
mod story;
mod terminal;

use std::env;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, bail};
use testcluster::{Cluster, Program, Unavailable};

use crate::confpin::Confpin;
use crate::output::{heading, say};
use crate::terminal::Terminal;

const HELP: &str = "\
Shows confpin on a real local cluster, step by step.

Usage: cargo demo [--keep]

  --keep  Leave the cluster, confpin and the sample up at the end, until Ctrl-C.
  --help  Print this.

The first run compiles Kubernetes and Argo Rollouts, which takes some minutes and needs Go.
Containers run as root only, on Debian or alike; elsewhere the pods are simulated.";

// One thread: the kernel ends confpin when the thread that started it ends.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let keep = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => false,
        ["--keep"] => true,
        ["--help" | "-h"] => {
            println!("{HELP}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprintln!("{HELP}");
            return ExitCode::from(64);
        }
    };
    match demo(keep).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nThe demo failed: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whatever ends the demo, also Ctrl-C, ends the cluster and confpin with it.
async fn demo(keep: bool) -> Result<()> {
    let program = confpin::build()?;
    // Here, so that no step waits for the compiler.
    Program::KubectlArgoRollouts.path().await?;

    let begin = Instant::now();
    heading("A real cluster");
    let cluster = start_cluster().await?;
    let terminal = Terminal::open(&cluster).await?;
    terminal.run("kubectl get nodes --output wide").await?;

    heading("confpin, outside of the cluster");
    let confpin = Confpin::start(&program, &cluster).await?;
    match story::tell(&cluster, &terminal).await {
        Ok(()) => say(&format!("\nAll of it took {:.0} s.", begin.elapsed().as_secs_f64())),
        Err(error) => bail!("{error:#}\n\nThe end of confpin's log:\n{}", confpin.log_end()),
    }
    if keep {
        stay(&terminal, &confpin).await?;
    }
    confpin.stop().await
}

/// A cluster whose pods run, or, where the machine cannot do that, one whose pods are simulated.
async fn start_cluster() -> Result<Cluster> {
    let error = match Cluster::builder().rollouts().real_node().start().await {
        Ok(cluster) => {
            pods::load_sample_image(&cluster).await?;
            return Ok(cluster);
        }
        Err(error) => error,
    };
    let Some(reason) = error.downcast_ref::<Unavailable>() else { return Err(error) };
    say(&format!(
        "This machine cannot run containers for the demo ({reason}).\n\
         The control plane is real all the same. The pods are simulated: what they would read is told by the\n\
         ConfigMap that they name, and they have no environment and no file to look at."
    ));
    Cluster::builder().rollouts().fake_node().start().await
}

async fn stay(terminal: &Terminal<'_>, confpin: &Confpin) -> Result<()> {
    heading("The cluster stays until Ctrl-C");
    terminal.run("kubectl apply -f manifests/samples/").await?;
    say(&format!("\nIn another terminal:\n{}", terminal.exports()));
    say(&format!("confpin's log: {}", confpin.log().display()));
    tokio::signal::ctrl_c().await?;
    Ok(())
}
