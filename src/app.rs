//! Composition: the client, the servers, the reconciler, and how they end.

use std::net::TcpListener;
use std::pin::pin;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use axum::http::{HeaderValue, header};
use jiff::Timestamp;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config as ClientConfig};
use tokio_util::sync::CancellationToken;

use crate::cluster::Cluster;
use crate::cluster::events::Events;
use crate::config::{ClusterAccess, Config};
use crate::observe::health::Health;
use crate::observe::metrics::Metrics;
use crate::observe::shutdown::Signals;
use crate::pin::exempt::Exemptions;
use crate::pin::webhook_configuration::{self, FailurePolicy, PATH, client_by_url};
use crate::reconcile::work;
use crate::reconcile::{Reconciler, Settings};
use crate::tls;
use crate::tls::rotation::Keeper;
use crate::webhook::admission::Admission;
use crate::webhook::handler::Handler;
use crate::webhook::server::{Server, admin};

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
    let synced = config.reconcile.then(|| health.condition("the watches to be synced"));
    let registered = health.condition("the webhook to be registered");
    let keeper = Keeper::open(&config.certificates, Timestamp::now(), metrics.clone()).await?;
    let client_roots = match &config.client_ca {
        Some(path) => Some(tls::client_roots(path).await?),
        None => None,
    };
    let tls = Arc::new(tls::server_config(keeper.resolver(), client_roots)?);
    let cluster = Cluster::new(connect(&config.cluster, USER_AGENT).await?);

    let admin_listener = bind(config.admin_listen, "--admin-listen")?;
    let listener = bind(config.listen, "--listen")?;
    tracing::info!(webhook = ?listener.local_addr(), admin = ?admin_listener.local_addr(), "listening");

    let ca_pem = keeper.ca_pem().map(str::to_owned);
    let (decide, decisions) = futures::channel::mpsc::unbounded();
    let server = Server {
        tls,
        handler: Arc::new(Handler {
            admission: Admission {
                cluster: cluster.clone(),
                exemptions: exemptions(&config),
                max_references: config.max_references,
            },
            on_error: config.on_error,
            metrics: metrics.clone(),
            events: Events::new(&cluster),
            on_decided: Box::new(move |decided| {
                // The other end goes only with the program, or at once where nothing is reconciled.
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
        exemptions: exemptions(&config),
    };
    let reconciler = Arc::new(Reconciler::new(cluster.clone(), settings, metrics.clone()));

    // The admin server tells that the rest is draining, so it ends last.
    let ended = CancellationToken::new();
    let _end = ended.clone().drop_guard();
    let registration = async {
        if let (Some(url), Some(ca_pem)) = (&config.webhook_url, &ca_pem) {
            let client = client_by_url(url.with_default_path(PATH), ca_pem);
            cluster.register_webhook(&client, FailurePolicy::Fail).await?;
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
        match synced {
            Some(synced) => work::run(reconciler, decisions, synced, stop.clone()).await,
            None => {
                drop(decisions);
                stop.cancelled().await;
            }
        }
        if stop.is_cancelled() { Ok(()) } else { bail!("the reconciler ended early") }
    };
    let certificates = async {
        keeper.run(ended.clone()).await;
        Ok(())
    };
    tokio::try_join!(registration, webhook, admin, reconcile, certificates)?;
    tracing::info!("drained");
    if config.webhook_url.is_some() {
        // Left in place: what is not pinned must not get in unseen because confpin is restarted.
        tracing::warn!(
            "the API server refuses changes to workloads of labelled namespaces until confpin runs again; \
             to end that, run: kubectl delete mutatingwebhookconfiguration {}",
            webhook_configuration::NAME
        );
    }
    Ok(())
}

fn exemptions(config: &Config) -> Exemptions {
    let names = config.exempt.names.iter().map(|name| name.as_str().to_owned());
    Exemptions::with(names, config.exempt.labels.iter().cloned())
}

fn bind(address: std::net::SocketAddr, option: &str) -> Result<TcpListener> {
    let listener =
        TcpListener::bind(address).with_context(|| format!("failed to listen on {address}; give another {option}"))?;
    listener.set_nonblocking(true).with_context(|| format!("failed to listen on {address}"))?;
    Ok(listener)
}

/// A client by the options, else by the pod's service account, else by the usual kubeconfig.
///
/// # Errors
///
/// When there is no kubeconfig, or none that can be used.
pub async fn connect(access: &ClusterAccess, user_agent: &'static str) -> Result<Client> {
    let options = KubeConfigOptions { context: access.context.clone(), ..KubeConfigOptions::default() };
    let mut config = match (&access.kubeconfig, &access.context) {
        (Some(path), _) => {
            let file = Kubeconfig::read_from(path)
                .with_context(|| format!("failed to read --kubeconfig {}", path.display()))?;
            ClientConfig::from_custom_kubeconfig(file, &options).await.context("failed to use the kubeconfig")?
        }
        (None, Some(_)) => ClientConfig::from_kubeconfig(&options).await.context("failed to use --context")?,
        (None, None) => ClientConfig::infer()
            .await
            .context("failed to find a cluster: give --kubeconfig, or run in one with a service account")?,
    };
    config.headers.push((header::USER_AGENT, HeaderValue::from_static(user_agent)));
    Client::try_from(config).context("failed to make a client")
}
