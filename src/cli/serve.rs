//! `confpin serve`: the webhook and the reconciler.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context;

use super::Error;
use crate::app;
use crate::config::{ByteSize, Config, LogFormat, ObjectName, OnError, Period, WebhookUrl};
use crate::observe::logging;
use crate::pin::exempt::Mark;

/// The arguments of `confpin serve`, typed but not yet checked against each other: see [`Config`].
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Address and port of the webhook (HTTPS); port 0 takes a free one.
    // The unspecified IPv6 address takes IPv4 too on Linux, and a node that knows no IPv6 says so on binding.
    #[arg(long, env = "CONFPIN_LISTEN", value_name = "ADDRESS", default_value = "[::]:8443")]
    pub listen: SocketAddr,

    /// Address and port of /livez, /readyz and /metrics (plain HTTP); port 0 takes a free one.
    #[arg(long, env = "CONFPIN_ADMIN_LISTEN", value_name = "ADDRESS", default_value = "[::]:8080")]
    pub admin_listen: SocketAddr,

    /// The serving certificate and its chain, PEM; read again when it changes. Requires --tls-key.
    #[arg(long, env = "CONFPIN_TLS_CERT", value_name = "FILE", help_heading = "TLS")]
    pub tls_cert: Option<PathBuf>,

    /// The serving certificate's private key, PEM; read again when it changes. Requires --tls-cert.
    #[arg(long, env = "CONFPIN_TLS_KEY", value_name = "FILE", help_heading = "TLS")]
    pub tls_key: Option<PathBuf>,

    /// Create a CA and a certificate for the host of this URL, instead of --tls-cert and --tls-key; for an API server that
    /// reaches confpin by URL, for example on the same machine.
    #[arg(long, env = "CONFPIN_WEBHOOK_URL", value_name = "URL", help_heading = "TLS")]
    pub webhook_url: Option<WebhookUrl>,

    /// Store a CA in the Secret --ca-secret, sign a certificate for this Service (in the namespace that confpin is installed
    /// in), and register the CA with the API server; instead of --tls-cert and --tls-key.
    #[arg(long, env = "CONFPIN_WEBHOOK_SERVICE", value_name = "NAME", help_heading = "TLS")]
    pub webhook_service: Option<ObjectName>,

    /// The Secret with the CA of --webhook-service. confpin creates it if it does not exist; a Secret that confpin did not
    /// create is used but never written.
    #[arg(long, env = "CONFPIN_CA_SECRET", value_name = "NAME", default_value = "confpin-ca", help_heading = "TLS")]
    pub ca_secret: ObjectName,

    /// How long a CA of --webhook-service is valid. confpin replaces it after two thirds of this time.
    #[arg(long, env = "CONFPIN_CA_LIFE", value_name = "DURATION", default_value = "8760h", help_heading = "TLS")]
    pub ca_life: Period,

    /// How long a serving certificate of --webhook-service is valid. confpin replaces it after two thirds of this time.
    #[arg(
        long,
        env = "CONFPIN_CERTIFICATE_LIFE",
        value_name = "DURATION",
        default_value = "168h",
        help_heading = "TLS"
    )]
    pub certificate_life: Period,

    /// Serve only clients with a certificate signed by one of these CAs, PEM.
    #[arg(long, env = "CONFPIN_CLIENT_CA", value_name = "FILE", help_heading = "TLS")]
    pub client_ca: Option<PathBuf>,

    /// The kubeconfig to use, instead of the pod's service account or the default locations.
    #[arg(long, env = "CONFPIN_KUBECONFIG", value_name = "FILE", help_heading = "Cluster")]
    pub kubeconfig: Option<PathBuf>,

    /// The context of the kubeconfig, instead of its current one.
    #[arg(long, env = "CONFPIN_CONTEXT", value_name = "NAME", help_heading = "Cluster")]
    pub context: Option<String>,

    /// The namespace that confpin is installed in, with its Secret and its Lease; by default that of its service account, or
    /// of the kubeconfig's context.
    #[arg(long, env = "CONFPIN_NAMESPACE", value_name = "NAME", help_heading = "Cluster")]
    pub namespace: Option<String>,

    /// Serve only this namespace, with a Role in it and no ClusterRole; the default is all namespaces. Repeatable; accepts a
    /// list.
    #[arg(long, env = "CONFPIN_WATCH_NAMESPACE", value_name = "NAME", value_delimiter = ',', help_heading = "Cluster")]
    pub watch_namespace: Vec<ObjectName>,

    /// Reconcile only while holding this Lease, so that only one of several replicas reconciles. Requires --identity.
    #[arg(long, env = "CONFPIN_LEASE", value_name = "NAME", requires = "identity", help_heading = "Cluster")]
    pub lease: Option<ObjectName>,

    /// The name of this replica in the Lease, usually the pod's name.
    #[arg(long, env = "CONFPIN_IDENTITY", value_name = "NAME", help_heading = "Cluster")]
    pub identity: Option<String>,

    /// Whether this process reconciles. With false it only answers admissions, and another process must set the owners of
    /// snapshots and follow sources.
    #[arg(
        long,
        env = "CONFPIN_RECONCILE",
        value_name = "BOOL",
        default_value_t = true,
        action = clap::ArgAction::Set,
        help_heading = "Pinning"
    )]
    pub reconcile: bool,

    /// What to do when a workload cannot be pinned: reject the request, or admit it unpinned with a warning.
    #[arg(
        long,
        env = "CONFPIN_ON_ERROR",
        value_name = "ANSWER",
        value_enum,
        default_value = "deny",
        help_heading = "Pinning"
    )]
    pub on_error: OnError,

    /// How long after admission a workload still picks up changes to its ConfigMaps, so that ConfigMaps applied right after
    /// it are included. 0 disables this.
    #[arg(long, env = "CONFPIN_SETTLE", value_name = "DURATION", default_value = "10s", help_heading = "Pinning")]
    pub settle: Period,

    /// How long an unreferenced snapshot is kept.
    #[arg(
        long,
        env = "CONFPIN_ORPHAN_GRACE",
        value_name = "DURATION",
        default_value = "10m",
        help_heading = "Pinning"
    )]
    pub orphan_grace: Period,

    /// The shortest time between two refreshes of one workload.
    #[arg(
        long,
        env = "CONFPIN_MIN_INTERVAL",
        value_name = "DURATION",
        default_value = "30s",
        help_heading = "Pinning"
    )]
    pub min_interval: Period,

    /// A ConfigMap that is never pinned, in any namespace; added to the built-in list. Repeatable; accepts a list.
    #[arg(long, env = "CONFPIN_EXEMPT_NAME", value_name = "NAME", value_delimiter = ',', help_heading = "Pinning")]
    pub exempt_name: Vec<ObjectName>,

    /// ConfigMaps with this label or annotation are never pinned; added to the built-in list. Repeatable; accepts
    /// a list.
    #[arg(
        long,
        env = "CONFPIN_EXEMPT_LABEL",
        value_name = "KEY[=VALUE]",
        value_delimiter = ',',
        help_heading = "Pinning"
    )]
    pub exempt_label: Vec<Mark>,

    /// Maximum number of distinct ConfigMaps that one pod template may reference; each costs a read and possibly a write
    /// within the timeout of the API server.
    #[arg(long, env = "CONFPIN_MAX_REFERENCES", value_name = "NUMBER", default_value = "256", help_heading = "Limits")]
    pub max_references: usize,

    /// The largest request body. A review carries the new and the old object, of up to 3Mi each as they were sent, and
    /// escaping can double that.
    #[arg(long, env = "CONFPIN_MAX_BODY", value_name = "SIZE", default_value = "16Mi", help_heading = "Limits")]
    pub max_body: ByteSize,

    /// Maximum number of concurrent requests; others wait, within their timeout.
    // An API server runs at most 200 mutating requests at a time by default, of which only those that change a template in a
    // labelled namespace come here. Memory is at worst this many bodies of the largest size, and in practice a hundredth of it.
    #[arg(long, env = "CONFPIN_MAX_CONCURRENT", value_name = "NUMBER", default_value = "64", help_heading = "Limits")]
    pub max_concurrent: usize,

    /// How long the process reports itself unready before it refuses connections, so that endpoints are updated first.
    #[arg(long, env = "CONFPIN_DRAIN", value_name = "DURATION", default_value = "5s", help_heading = "Limits")]
    pub drain: Period,

    /// Format of log lines.
    #[arg(
        long,
        env = "CONFPIN_LOG_FORMAT",
        value_name = "FORMAT",
        value_enum,
        default_value = "text",
        help_heading = "Logging"
    )]
    pub log_format: LogFormat,

    /// Log filter: a level, or directives such as info,confpin=debug.
    #[arg(long, env = "CONFPIN_LOG", value_name = "FILTER", default_value = "info", help_heading = "Logging")]
    pub log: String,
}

/// Checks the arguments and runs until a signal ends the program.
///
/// # Errors
///
/// [`Error::Usage`] and [`Error::Logging`] before anything was started; [`Error::Serve`] afterwards.
pub fn run(args: Args) -> Result<(), Error> {
    let (format, filter) = (args.log_format, args.log.clone());
    let config = Config::try_from(args)?;
    logging::init(format, &filter)?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("failed to start the runtime");
    runtime.and_then(|runtime| runtime.block_on(app::run(config))).map_err(Error::Serve)
}
