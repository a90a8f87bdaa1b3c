//! Programs of the distribution that a real node, and Argo CD, need.

use std::{
    fmt,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result};

/// Debian's packages, each with a file by which to see that it is there.
type Packages = &'static [(&'static str, &'static str)];

/// What a real node needs.
const REAL_NODE: Packages = &[
    ("containerd", "/usr/bin/containerd"),
    ("runc", "/usr/sbin/runc"),
    ("containernetworking-plugins", "/usr/lib/cni/ptp"),
    ("busybox-static", "/bin/busybox"),
    ("buildah", "/usr/bin/buildah"),
    ("iproute2", "/usr/sbin/ip"),
];

/// What Argo CD needs: it keeps its cache in Redis and reads repositories by git.
const ARGO_CD: Packages = &[("redis-server", "/usr/bin/redis-server"), ("git", "/usr/bin/git")];

/// Why this machine cannot run a part of the cluster. A test may be skipped for it:
/// `error.downcast_ref::<Unavailable>()`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unavailable {
    /// Namespaces, mounts and control groups need root.
    NotRoot,
    /// Packages are missing, and `apt-get` failed to install them or is not there.
    Packages {
        /// What needs them.
        what: &'static str,
        /// The names of the missing packages.
        missing: Vec<&'static str>,
        /// What went wrong.
        reason: String,
    },
}

impl fmt::Display for Unavailable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRoot => formatter.write_str("a real node needs root: run the tests as root, or without it"),
            Self::Packages { what, missing, reason } => {
                write!(formatter, "{what} needs the Debian packages {}: install them ({reason})", missing.join(", "))
            }
        }
    }
}

impl std::error::Error for Unavailable {}

/// Installs the packages that a real node needs, if they are missing.
pub(crate) fn ensure_for_real_node() -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Err(Unavailable::NotRoot.into());
    }
    ensure("a real node", REAL_NODE)
}

/// Installs the packages that Argo CD needs, if they are missing.
pub(crate) fn ensure_for_argo_cd() -> Result<()> {
    ensure("Argo CD", ARGO_CD)
}

fn ensure(what: &'static str, packages: Packages) -> Result<()> {
    let missing: Vec<_> =
        packages.iter().filter(|(_, file)| !Path::new(file).exists()).map(|(package, _)| *package).collect();
    if missing.is_empty() {
        return Ok(());
    }
    eprintln!("testcluster: installing the Debian packages {} (once)", missing.join(", "));
    let install = apt_get(&["update"]).and_then(|()| {
        let options = ["install", "--yes", "--no-install-recommends"];
        apt_get(&options.into_iter().chain(missing.iter().copied()).collect::<Vec<_>>())
    });
    install.map_err(|error| Unavailable::Packages { what, missing, reason: format!("{error:#}") }.into())
}

fn apt_get(arguments: &[&str]) -> Result<()> {
    let output = Command::new("apt-get")
        .args(["--quiet=2", "--option=DPkg::Lock::Timeout=300"])
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .output()
        .context("there is no apt-get")?;
    anyhow::ensure!(output.status.success(), "apt-get failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}
