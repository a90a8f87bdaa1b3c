//! Where the serving certificate comes from, as configured.

use std::sync::Arc;

use anyhow::Result;
use jiff::Timestamp;
use rustls::pki_types::ServerName;
use tokio_util::sync::CancellationToken;

use crate::cluster::Cluster;
use crate::config::{Certificates, WebhookUrl};
use crate::observe::health::Health;
use crate::observe::metrics::Metrics;
use crate::tls::resolver::Resolver;
use crate::tls::rotation::Keeper;
use crate::trust::{Settings, Steward};

/// Keeps the serving certificate.
pub(super) enum Serving {
    /// Files.
    Files(Keeper),
    /// A CA of this process's own, which is registered with the webhook's URL.
    Url(Keeper, WebhookUrl),
    /// A CA that all replicas share.
    Service(Box<Steward>),
}

impl Serving {
    /// Sets up what `certificates` say. `namespace` is the one that confpin is installed in.
    ///
    /// # Errors
    ///
    /// When files cannot be used, or a certificate cannot be made.
    pub(super) async fn open(
        certificates: &Certificates,
        cluster: &Cluster,
        namespace: &str,
        health: &Health,
        metrics: &Metrics,
    ) -> Result<Self> {
        Ok(match certificates {
            Certificates::Files { cert, key } => {
                Self::Files(Keeper::files(cert.clone(), key.clone(), metrics.clone()).await?)
            }
            Certificates::Url(url) => {
                Self::Url(Keeper::self_made(url.host().clone(), Timestamp::now(), metrics.clone())?, url.clone())
            }
            Certificates::Service { name, secret, lives } => {
                let host = ServerName::try_from(format!("{name}.{namespace}.svc"))?;
                let settings = Settings {
                    namespace: namespace.to_owned(),
                    secret: secret.clone(),
                    hosts: vec![host],
                    lives: *lives,
                };
                let trusted = health.condition(
                    "the MutatingWebhookConfiguration confpin to be there and trusted with this replica's CA",
                );
                Self::Service(Box::new(Steward::new(cluster.clone(), settings, metrics.clone(), trusted)))
            }
        })
    }

    /// What the TLS configuration takes its certificate from.
    pub(super) fn resolver(&self) -> Arc<Resolver> {
        match self {
            Self::Files(keeper) | Self::Url(keeper, _) => keeper.resolver(),
            Self::Service(steward) => steward.resolver(),
        }
    }

    /// The URL to register, and the CA to be trusted with it, PEM.
    pub(super) fn registration(&self) -> Option<(WebhookUrl, String)> {
        match self {
            Self::Url(keeper, url) => keeper.ca_pem().map(|ca_pem| (url.clone(), ca_pem.to_owned())),
            Self::Files(_) | Self::Service(_) => None,
        }
    }

    /// Keeps the certificate fresh until `stop`.
    pub(super) async fn run(self, stop: CancellationToken) {
        match self {
            Self::Files(keeper) | Self::Url(keeper, _) => keeper.run(stop).await,
            Self::Service(steward) => steward.run(stop).await,
        }
    }
}
