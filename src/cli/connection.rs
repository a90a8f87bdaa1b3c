//! Which cluster and namespace a command is about, as with `kubectl`.

use std::path::PathBuf;

use anyhow::Result;

use crate::app;
use crate::cluster::Cluster;
use crate::config::{ClusterAccess, Exempt, ObjectName};
use crate::pin::exempt::{Exemptions, Mark};

/// How confpin's command line calls itself to the API server, for its audit log.
const USER_AGENT: &str = concat!("kubectl-confpin/", env!("CARGO_PKG_VERSION"));

/// Which cluster, and which namespace.
#[derive(Debug, Clone, clap::Args)]
pub struct ConnectionArgs {
    /// The namespace, instead of that of the kubeconfig's context.
    #[arg(short, long, value_name = "NAME", help_heading = "Cluster")]
    pub namespace: Option<String>,

    /// The context of the kubeconfig, instead of its current one.
    #[arg(long, value_name = "NAME", help_heading = "Cluster")]
    pub context: Option<String>,

    /// The kubeconfig, instead of the usual places.
    #[arg(long, value_name = "FILE", help_heading = "Cluster")]
    pub kubeconfig: Option<PathBuf>,
}

/// Which cluster, and one or all namespaces.
#[derive(Debug, Clone, clap::Args)]
pub struct ScopeArgs {
    #[command(flatten)]
    connection: ConnectionArgs,

    /// All namespaces.
    #[arg(short = 'A', long, conflicts_with = "namespace", help_heading = "Cluster")]
    pub all_namespaces: bool,
}

/// A cluster, and the namespace that commands are about.
pub struct Connection {
    /// The cluster.
    pub cluster: Cluster,
    /// The namespace.
    pub namespace: String,
}

impl ConnectionArgs {
    /// Connects.
    ///
    /// # Errors
    /// When there is no kubeconfig, or none that can be used.
    pub async fn connect(&self) -> Result<Connection> {
        let access = ClusterAccess { kubeconfig: self.kubeconfig.clone(), context: self.context.clone() };
        let client = app::connect(&access, USER_AGENT).await?;
        let namespace = self.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
        Ok(Connection { cluster: Cluster::new(client), namespace })
    }
}

impl ScopeArgs {
    /// Whether one or all namespaces are named on the command line, and not just by the kubeconfig's context.
    pub fn is_explicit(&self) -> bool {
        self.all_namespaces || self.connection.namespace.is_some()
    }

    /// Connects. The namespace is `None` for all of them.
    ///
    /// # Errors
    /// When there is no kubeconfig, or none that can be used.
    pub async fn connect(&self) -> Result<(Cluster, Option<String>)> {
        let Connection { cluster, namespace } = self.connection.connect().await?;
        Ok((cluster, Some(namespace).filter(|_| !self.all_namespaces)))
    }
}

/// What is never pinned: to be given as to `confpin serve`, so that the two agree.
#[derive(Debug, Clone, clap::Args)]
pub struct ExemptArgs {
    /// A ConfigMap that `confpin serve` was told never to pin. May be repeated, or be a list.
    #[arg(long, env = "CONFPIN_EXEMPT_NAME", value_name = "NAME", value_delimiter = ',', help_heading = "Pinning")]
    exempt_name: Vec<ObjectName>,

    /// A label or annotation by which `confpin serve` was told never to pin ConfigMaps. May be repeated, or be a list.
    #[arg(
        long,
        env = "CONFPIN_EXEMPT_LABEL",
        value_name = "KEY[=VALUE]",
        value_delimiter = ',',
        help_heading = "Pinning"
    )]
    exempt_label: Vec<Mark>,
}

impl ExemptArgs {
    /// What is never pinned.
    #[must_use]
    pub fn exemptions(&self) -> Exemptions {
        Exempt { names: self.exempt_name.clone(), labels: self.exempt_label.clone() }.exemptions()
    }
}
