//! Composition: the client, the servers, the reconciler, and how they end.

mod connect;
mod serving;

use std::net::TcpListener;
use std::pin::pin;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use tokio_util::sync::CancellationToken;

use crate::cluster::Cluster;
use crate::cluster::events::Events;
use crate::cluster::lease::{Candidate, Leadership};
use crate::config::Config;
use crate::observe::health::Health;
use crate::observe::metrics::Metrics;
use crate::observe::shutdown::Signals;
use crate::pin::webhook_configuration::{self, FailurePolicy, PATH, client_by_url};
use crate::reconcile::work;
use crate::reconcile::{Reconciler, Settings};
use crate::tls;
use crate::webhook::admission::Admission;
use crate::webhook::claims::Claims;
use crate::webhook::handler::Handler;
use crate::webhook::server::{Server, admin};
pub use connect::connect;
use serving::Serving;

/// How confpin calls itself to the API server, for its audit log.
const USER_AGENT: &str = concat!("confpin/", env!("CARGO_PKG_VERSION"));

/// Runs confpin until a signal ends it: the first lets requests in flight finish, the second does not.
///
/// # Errors
///
/// When it cannot start, or a part of it ends early.
pub async fn run(config: Config) -> Result<()> {
    let mut signals = Signals::install().context("failed to take over signals")?;
    let stop = CancellationToken::new();
    let mut running = pin!(serve(config, stop.clone()));
    tokio::select! {
        ended = &mut running => return ended,
        signal = signals.next() => tracing::info!(signal, "draining; a second signal ends at once"),
    }
    stop.cancel();
    tokio::select! {
        ended = running => ended,
        signal = signals.next() => bail!("ended by a second {signal} before all requests were answered"),
    }
}

async fn serve(config: Config, stop: CancellationToken) -> Result<()> {
    let metrics = Metrics::new();
    let health = Health::default();
    let registered = health.condition("the webhook to be registered");
    let client = connect(&config.cluster, USER_AGENT).await?;
    let namespace = config.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
    let cluster = Cluster::new(client);
    let serving = Serving::open(&config.certificates, &cluster, &namespace, &health, &metrics).await?;
    let client_roots = match &config.client_ca {
        Some(path) => Some(tls::client_roots(path).await?),
        None => None,
    };
    let tls = Arc::new(tls::server_config(serving.resolver(), client_roots)?);

    let admin_listener = bind(config.admin_listen, "--admin-listen")?;
    let listener = bind(config.listen, "--listen")?;
    tracing::info!(webhook = ?listener.local_addr(), admin = ?admin_listener.local_addr(), "listening");

    let register = serving.registration();
    let (decide, decisions) = futures::channel::mpsc::unbounded();
    let server = Server {
        tls,
        handler: Arc::new(Handler {
            admission: Admission {
                cluster: cluster.clone(),
                claims: Claims::default(),
                scope: config.scope.clone(),
                exemptions: config.exempt.exemptions(),
                max_references: config.max_references,
            },
            on_error: config.on_error,
            metrics: metrics.clone(),
            events: Events::new(&cluster),
            on_decided: Box::new(move |decided| {
                // The other end goes only with the program.
                let _ = decide.unbounded_send(decided);
            }),
        }),
        limits: config.limits,
        drain: config.drain,
        health: health.clone(),
        metrics: metrics.clone(),
    };
    let settings = Settings {
        orphan_grace: config.orphan_grace.try_into().context("--orphan-grace is too long")?,
        settle: config.settle,
        min_interval: config.min_interval,
        max_references: config.max_references,
        exemptions: config.exempt.exemptions(),
    };
    let candidate = config
        .lease
        .as_ref()
        .filter(|_| config.reconcile)
        .map(|lease| Candidate::new(cluster.client(), &namespace, &lease.name, &lease.identity));
    let leadership = candidate.as_ref().map_or_else(Leadership::always, Candidate::leadership);
    let reconciler = |namespace| {
        let (leadership, settings) = (leadership.clone(), settings.clone());
        let reconciler = Reconciler::new(&cluster, namespace, leadership, settings, metrics.clone());
        (Arc::new(reconciler), health.condition("the watches to be synced"))
    };
    let parts = if config.reconcile { config.scope.parts() } else { Vec::new() };
    let reconcilers: Vec<_> = parts.into_iter().map(reconciler).collect();

    // The admin server tells that the rest is draining, so it ends last.
    let ended = CancellationToken::new();
    let _end = ended.clone().drop_guard();
    let registration = async {
        if let Some((url, ca_pem)) = &register {
            let client = client_by_url(url.with_default_path(PATH), ca_pem);
            cluster.register_webhook(&client, FailurePolicy::Fail, &config.scope).await?;
            tracing::info!(%url, "registered the webhook");
        }
        registered.set(true);
        stop.cancelled().await;
        Ok::<_, anyhow::Error>(())
    };
    let webhook = async {
        server.run(listener, stop.clone()).await?;
        ended.cancel();
        Ok(())
    };
    let admin = async { Ok(admin::run(admin_listener, health, metrics, ended.clone()).await?) };
    let reconcile = async {
        work::run(reconcilers, decisions, stop.clone()).await;
        if stop.is_cancelled() { Ok(()) } else { bail!("the reconciler ended early") }
    };
    let certificates = async {
        serving.run(ended.clone()).await;
        Ok(())
    };
    let election = async {
        if let Some(candidate) = candidate {
            candidate.run(stop.clone()).await;
        }
        Ok(())
    };
    tokio::try_join!(registration, webhook, admin, reconcile, certificates, election)?;
    tracing::info!("drained");
    if register.is_some() {
        // Left in place: what is not pinned must not get in unseen because confpin is restarted.
        tracing::warn!(
            "the API server refuses changes to workloads of labelled namespaces until confpin runs again; \
             to end that, run: kubectl delete mutatingwebhookconfiguration {}",
            webhook_configuration::NAME
        );
    }
    Ok(())
}

fn bind(address: std::net::SocketAddr, option: &str) -> Result<TcpListener> {
    let listener =
        TcpListener::bind(address).with_context(|| format!("failed to listen on {address}; give another {option}"))?;
    listener.set_nonblocking(true).with_context(|| format!("failed to listen on {address}"))?;
    Ok(listener)
}
