//! Who calls the API server, and the kubeconfig files to do so.

use std::{fmt::Write as _, fs, path::Path};

use anyhow::{Context, Result};
use serde_json::json;

use crate::random;

/// A user with a fixed token. Names and groups are those of a usual installation, so that RBAC, the Node authoriser
/// and a webhook that looks at the user see what they would see there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum User {
    Admin,
    ControllerManager,
    Scheduler,
    FakeNodes,
    RealNode,
    Rollouts,
    ArgoCd,
    CertManager,
}

impl User {
    pub(crate) const ALL: [Self; 8] = [
        Self::Admin,
        Self::ControllerManager,
        Self::Scheduler,
        Self::FakeNodes,
        Self::RealNode,
        Self::Rollouts,
        Self::ArgoCd,
        Self::CertManager,
    ];

    /// The user's name and groups.
    fn identity(self) -> (&'static str, &'static str) {
        match self {
            Self::Admin => ("kubernetes-admin", "system:masters"),
            Self::ControllerManager => ("system:kube-controller-manager", ""),
            Self::Scheduler => ("system:kube-scheduler", ""),
            Self::FakeNodes => ("kwok-controller", "system:masters"),
            Self::RealNode => ("system:node:real", "system:nodes"),
            Self::Rollouts => ("system:serviceaccount:argo-rollouts:argo-rollouts", "system:masters"),
            Self::ArgoCd => ("system:serviceaccount:argocd:argocd-application-controller", "system:masters"),
            Self::CertManager => ("system:serviceaccount:cert-manager:cert-manager", "system:masters"),
        }
    }

    /// The name of its kubeconfig file.
    pub(crate) fn file(self) -> &'static str {
        match self {
            Self::Admin => "admin.kubeconfig",
            Self::ControllerManager => "controller-manager.kubeconfig",
            Self::Scheduler => "scheduler.kubeconfig",
            Self::FakeNodes => "kwok.kubeconfig",
            Self::RealNode => "kubelet.kubeconfig",
            Self::Rollouts => "rollouts.kubeconfig",
            Self::ArgoCd => "argocd.kubeconfig",
            Self::CertManager => "cert-manager.kubeconfig",
        }
    }
}

/// Writes the API server's token file, and returns each user's token.
pub(crate) fn write_tokens(path: &Path) -> Result<Vec<(User, String)>> {
    let mut file = String::new();
    let mut tokens = Vec::new();
    for user in User::ALL {
        let token = random::token()?;
        let (name, groups) = user.identity();
        // Writing to a string does not fail.
        let _ = writeln!(file, "{token},{name},{name},\"{groups}\"");
        tokens.push((user, token));
    }
    fs::write(path, file).with_context(|| format!("failed to write {}", path.display()))?;
    Ok(tokens)
}

/// Writes a kubeconfig (JSON, which is YAML too).
pub(crate) fn write_kubeconfig(path: &Path, server: &str, authority: &Path, token: &str) -> Result<()> {
    let content = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "testcluster", "cluster": {"server": server, "certificate-authority": authority}}],
        "users": [{"name": "user", "user": {"token": token}}],
        "contexts": [{"name": "testcluster", "context": {"cluster": "testcluster", "user": "user"}}],
        "current-context": "testcluster",
    });
    fs::write(path, format!("{content:#}\n")).with_context(|| format!("failed to write {}", path.display()))
}
