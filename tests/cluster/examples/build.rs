//! Fills the cache of programs, so that the first test run does not wait for it.
//!
//! `cargo run -p testcluster --example build -- [all | NAME...]`

use std::env;

use anyhow::{Result, bail};
use testcluster::Program;

const PROGRAMS: &[(&str, Program)] = &[
    ("etcd", Program::Etcd),
    ("kube-apiserver", Program::KubeApiserver),
    ("kube-controller-manager", Program::KubeControllerManager),
    ("kube-scheduler", Program::KubeScheduler),
    ("kubelet", Program::Kubelet),
    ("kubectl", Program::Kubectl),
    ("kwok", Program::Kwok),
    ("rollouts-controller", Program::RolloutsController),
    ("kubectl-argo-rollouts", Program::KubectlArgoRollouts),
    ("helm3", Program::Helm3),
    ("helm4", Program::Helm4),
    ("argocd", Program::ArgoCd),
    ("flux", Program::Flux),
    ("cert-manager", Program::CertManager),
];

#[tokio::main]
async fn main() -> Result<()> {
    let wanted: Vec<String> = env::args().skip(1).collect();
    for name in wanted.iter().filter(|name| *name != "all") {
        if !PROGRAMS.iter().any(|(known, _)| known == name) {
            let known: Vec<_> = PROGRAMS.iter().map(|(known, _)| *known).collect();
            bail!("`{name}` is no program of the test cluster: name any of all, {}", known.join(", "));
        }
    }
    let all = wanted.is_empty() || wanted.iter().any(|name| name == "all");
    for (name, program) in PROGRAMS {
        if all || wanted.iter().any(|wanted| wanted == name) {
            println!("{name}: {}", program.path().await?.display());
        }
    }
    Ok(())
}
