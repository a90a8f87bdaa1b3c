//! Programs of the distribution that a real node needs.

use std::{
    fmt,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result};

/// Debian's packages, and a file of each by which to see that it is there.
const PACKAGES: &[(&str, &str)] = &[
    ("containerd", "/usr/bin/containerd"),
    ("runc", "/usr/sbin/runc"),
    ("containernetworking-plugins", "/usr/lib/cni/ptp"),
    ("busybox-static", "/bin/busybox"),
    ("buildah", "/usr/bin/buildah"),
    ("iproute2", "/usr/sbin/ip"),
];

/// Why this machine cannot run a real node. A test may be skipped for it:
/// `error.downcast_ref::<Unavailable>()`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unavailable {
    /// Namespaces, mounts and control groups need root.
    NotRoot,
    /// Packages are missing, and `apt-get` failed to install them or is not there.
    Packages {
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
            Self::Packages { missing, reason } => write!(
                formatter,
                "a real node needs the Debian packages {}: install them ({reason})",
                missing.join(", ")
            ),
        }
    }
}

impl std::error::Error for Unavailable {}

/// Installs the packages that a real node needs, if they are missing.
pub(crate) fn ensure() -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Err(Unavailable::NotRoot.into());
    }
    let missing = missing();
    if missing.is_empty() {
        return Ok(());
    }
    eprintln!("testcluster: installing the Debian packages {} (once)", missing.join(", "));
    let install = apt_get(&["update"]).and_then(|()| {
        let options = ["install", "--yes", "--no-install-recommends"];
        apt_get(&options.into_iter().chain(missing.iter().copied()).collect::<Vec<_>>())
    });
    install.map_err(|error| Unavailable::Packages { missing, reason: format!("{error:#}") }.into())
}

fn missing() -> Vec<&'static str> {
    PACKAGES.iter().filter(|(_, file)| !Path::new(file).exists()).map(|(package, _)| *package).collect()
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
