//! Certificates of an installation in a cluster: one CA in a Secret, of which each replica signs a short-lived serving
//! certificate for itself, in memory; and the API server's trust in it.
//!
//! Every replica does the same, and none is required: the first replica to find a step due does it, in one write that
//! fails for all others. `plan` says what is due, `held` what the Secret holds.
//!
//! A Secret that is gone or broken is written again, from what this replica still knows if it can be, so that nothing
//! changes. A Secret that confpin did not make is used as it is and never written.

mod held;
mod plan;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{ObjectReference, Secret};
use rustls::pki_types::ServerName;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::cluster::events::Events;
use crate::cluster::snapshots::Write;
use crate::cluster::trust::is_ours;
use crate::cluster::{self, Cluster};
use crate::observe::health::Condition;
use crate::observe::metrics::Metrics;
use crate::pin::webhook_configuration;
use crate::tls;
use crate::tls::bundle::Bundle;
use crate::tls::resolver::Resolver;
use held::{Held, Kept};
pub use plan::Lives;
use plan::{Live, Serving, certificate_due, due};

/// How often the ages are looked at; what changes in the cluster is seen at once. By the wall clock each time, which one long
/// sleep would not follow while a machine is suspended.
const TICK: Duration = Duration::from_secs(1);

/// How long to wait after a write that failed.
const RETRY: Duration = Duration::from_secs(2);

/// Where the CA is and what it signs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The namespace of the Secret.
    pub namespace: String,
    /// The Secret's name.
    pub secret: String,
    /// The names by which the API server calls.
    pub hosts: Vec<ServerName<'static>>,
    /// How long certificates are valid.
    pub lives: Lives,
}

/// Why a step was not done. It is tried again.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Cluster(#[from] cluster::Error),
    #[error(transparent)]
    Tls(#[from] tls::Error),
    #[error(
        "failed to use Secret {name}, which confpin did not make: {cause}; give it a CA with tls.crt and tls.key, or delete \
         it to have confpin make one"
    )]
    Foreign { name: String, cause: String },
}

/// Keeps the serving certificate, the Secret and the API server's trust as they should be.
pub struct Steward {
    cluster: Cluster,
    settings: Settings,
    events: Events,
    metrics: Metrics,
    resolver: Arc<Resolver>,
    /// Met once the API server trusts what this replica serves.
    trusted: Condition,
    /// `None` until it was seen; then `Some(None)` while there is none.
    secret: Option<Option<Kept>>,
    configuration: Option<Option<MutatingWebhookConfiguration>>,
    live: Option<Live>,
    /// The CAs that were last used: what a Secret that is gone is made of again.
    held: Option<Held>,
    serving: Option<Serving>,
}

impl Steward {
    /// One that has not looked at the cluster yet.
    #[must_use]
    pub fn new(cluster: Cluster, settings: Settings, metrics: Metrics, trusted: Condition) -> Self {
        Self {
            events: Events::new(&cluster),
            cluster,
            settings,
            metrics,
            resolver: Arc::default(),
            trusted,
            secret: None,
            configuration: None,
            live: None,
            held: None,
            serving: None,
        }
    }

    /// What the TLS configuration takes its certificate from.
    #[must_use]
    pub fn resolver(&self) -> Arc<Resolver> {
        self.resolver.clone()
    }

    /// Runs until `stop`. A failure is logged and counted, and tried again.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut secrets = pin!(self.cluster.watch_secret(&self.settings.namespace, &self.settings.secret));
        let mut configurations = pin!(self.cluster.watch_webhook_configuration());
        let secrets_seen = self.metrics.watch("secrets");
        let configurations_seen = self.metrics.watch("mutatingwebhookconfigurations");
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                Some(seen) = secrets.next() => match seen {
                    Ok(secret) => {
                        secrets_seen.has_listed();
                        self.secret = Some(secret.map(Kept::new));
                    }
                    Err(error) => secrets_seen.failed(&error),
                },
                Some(seen) = configurations.next() => match seen {
                    Ok(configuration) => {
                        configurations_seen.has_listed();
                        self.see(configuration, Timestamp::now());
                    }
                    Err(error) => configurations_seen.failed(&error),
                },
                _ = ticks.tick() => {}
            }
            if let Err(error) = self.step(Timestamp::now()).await {
                self.metrics.certificate_reload_failed();
                tracing::warn!(%error, "certificates were not brought up to date, trying again");
                tokio::time::sleep(RETRY).await;
            }
        }
    }

    fn see(&mut self, configuration: Option<MutatingWebhookConfiguration>, now: Timestamp) {
        let bundles: Option<Vec<_>> = configuration.as_ref().map(|configuration| {
            let bundle = |bundle: Option<&k8s_openapi::ByteString>| Bundle::from_pem(bundle.map_or(&[], |pem| &pem.0));
            let webhooks = configuration.webhooks.iter().flatten();
            webhooks.map(|webhook| bundle(webhook.client_config.ca_bundle.as_ref())).collect()
        });
        // What is the same is known since it was first seen.
        if self.live.as_ref().map(|live| &live.bundles) != bundles.as_ref() {
            self.live = bundles.map(|bundles| Live { bundles, since: now });
        }
        self.configuration = Some(configuration);
    }

    async fn step(&mut self, now: Timestamp) -> Result<(), Error> {
        if self.configuration.is_none() || !self.keep(now).await? {
            return Ok(());
        }
        let Some(held) = self.held.clone() else { return Ok(()) };
        self.serve(&held, now)?;
        self.publish(&held).await?;
        if let Some(serving) = &self.serving {
            // Once met it stays so: removing every replica because the configuration was damaged for a moment helps
            // nobody.
            if self.live.as_ref().is_some_and(|live| live.trusts(&serving.issuer)) {
                self.trusted.set(true);
            }
        }
        Ok(())
    }

    /// Reads the Secret, and writes it if it is ours and something is due. Returns whether it is as it should be; if not, the
    /// watch is going to tell of a newer state.
    async fn keep(&mut self, now: Timestamp) -> Result<bool, Error> {
        let Some(seen) = &self.secret else { return Ok(false) };
        let due = |held: &Held| due(held, self.live.as_ref(), self.serving.as_ref(), self.settings.lives, now);
        let Some(kept) = seen else {
            let held = due(&self.known_or_new(Bundle::default(), now)?)?;
            let created =
                self.cluster.create_secret(&self.settings.namespace, &self.settings.secret, held.data()).await?;
            return Ok(self.written(created, held, "made the Secret that holds the CA"));
        };
        if !is_ours(&kept.secret) {
            let foreign =
                |error: &tls::Error| Error::Foreign { name: self.settings.secret.clone(), cause: error.to_string() };
            self.held = Some(kept.held.as_ref().map_err(foreign)?.clone());
            return Ok(true);
        }
        let (wanted, unusable) = match kept.usable(now) {
            Ok(held) => {
                let wanted = due(held)?;
                if kept.is_exact && *held == wanted {
                    self.held = Some(wanted);
                    return Ok(true);
                }
                (wanted, None)
            }
            Err(why) => {
                tracing::warn!(error = why, "the Secret that holds the CA is replaced");
                (due(&self.known_or_new(held::trusted(&kept.secret), now)?)?, Some(why))
            }
        };
        let about = self.reference(&kept.secret);
        let replaced = self.cluster.replace_secret(&kept.secret, wanted.data()).await?;
        let is_written = self.written(replaced, wanted, "wrote the Secret that holds the CA");
        if let (true, Some(why)) = (is_written, unusable) {
            let note = format!("the Secret could not be used ({why}); it was replaced");
            self.events.warn(&about, "CertificateAuthorityReplaced", &note).await;
        }
        Ok(is_written)
    }

    /// The CAs that this replica still knows and that are valid, else new ones beside those in `trusted`.
    fn known_or_new(&self, trusted: Bundle, now: Timestamp) -> Result<Held, tls::Error> {
        match self.held.as_ref().filter(|held| held.is_valid(now)) {
            Some(held) => Ok(held.clone()),
            None => Held::generate(now, self.settings.lives.ca, trusted),
        }
    }

    fn written(&mut self, write: Write<Secret>, held: Held, what: &'static str) -> bool {
        let Write::Done(secret) = write else { return false };
        tracing::info!(
            secret = self.settings.secret,
            not_after = %held.signer.validity().not_after,
            next = held.next.is_some(),
            "{what}"
        );
        self.secret = Some(Some(Kept::new(secret)));
        self.held = Some(held);
        true
    }

    /// Signs another serving certificate if one is due.
    fn serve(&mut self, held: &Held, now: Timestamp) -> Result<(), Error> {
        let lives = self.settings.lives;
        self.metrics.ca_expires(held.signer.validity().not_after);
        if !certificate_due(held, self.live.as_ref(), self.serving.as_ref(), lives, now) {
            return Ok(());
        }
        let leaf = held.signer.issue(&self.settings.hosts, now, lives.certificate)?;
        tracing::info!(not_after = %leaf.validity.not_after, "signed a serving certificate");
        self.metrics.certificate_expires(leaf.validity.not_after);
        self.resolver.replace(leaf.certified);
        self.serving = Some(Serving { issuer: held.signer.certificate().clone(), validity: leaf.validity });
        Ok(())
    }

    /// Tells API servers to trust the CAs, unless they do.
    async fn publish(&mut self, held: &Held) -> Result<(), Error> {
        let Some(Some(configuration)) = &self.configuration else { return Ok(()) };
        if self.live.as_ref().is_none_or(|live| live.is(&held.trusted)) {
            return Ok(());
        }
        if self.cluster.publish_trust(configuration, &held.trusted.to_pem()).await? == Write::Done(()) {
            self.metrics.trust_published();
            tracing::info!(configuration = webhook_configuration::NAME, "told API servers which CAs to trust");
        }
        Ok(())
    }

    fn reference(&self, secret: &Secret) -> ObjectReference {
        ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Secret".to_owned()),
            namespace: Some(self.settings.namespace.clone()),
            name: Some(self.settings.secret.clone()),
            uid: secret.metadata.uid.clone(),
            ..ObjectReference::default()
        }
    }
}
