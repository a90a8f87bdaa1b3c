//! Everything between a socket and a handler of reviews: TLS, limits, deadlines, the way to end. What a review is, is not known
//! here.
//!
//! The caps have one purpose: whatever a client does, what it costs is bounded, and a request that was let in is answered
//! within the time that its API server grants.

pub mod admin;
mod connection;
mod grant;
mod request;
mod trace;

use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::response::Response;
use axum_server::Handle;
use axum_server::tls_rustls::{RustlsAcceptor, RustlsConfig};
use rustls::ServerConfig;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::observe::health::Health;
use crate::observe::metrics::Metrics;

pub use crate::pin::webhook_configuration::PATH;

/// How long a client may take for its TLS handshake. An API server needs milliseconds.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// How long requests in flight are waited for at the end: the most that an API server grants, so that none is cut off.
const GRACE: Duration = grant::LONGEST;

/// Answers reviews.
pub trait Handler: Send + Sync + 'static {
    /// Answers one AdmissionReview body; `deadline` is when an answer must have been written.
    ///
    /// The future is dropped when the client goes away, and a little after `deadline`. A panic in it is answered for it.
    fn review(&self, body: Bytes, deadline: Instant) -> impl Future<Output = Response> + Send;
}

/// What the webhook server bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The largest request body, in bytes.
    pub max_body: usize,
    /// The most requests that are read and worked on at a time.
    pub max_concurrent: usize,
    /// The most connections at a time; those beyond are closed at once.
    pub max_connections: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // An API server takes objects of up to 3 MiB (`MaxRequestBodyBytes`). A review carries the new and the old one, both
            // encoded again as JSON, where a control character that was one byte in YAML or protobuf takes six, but common text
            // at most two: 3 MiB * 2 * 2 and some room.
            max_body: 16 << 20,
            max_concurrent: 64,
            // An API server keeps one connection for each 64 requests at a time; clusters have a handful of API servers.
            max_connections: 256,
        }
    }
}

/// Why the server ended, or did not begin.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The listener cannot be used.
    #[error("failed to listen")]
    Listen(#[source] io::Error),
    /// It ended by an error.
    #[error("failed to serve")]
    Serve(#[source] io::Error),
    /// It ended though nobody had asked it to.
    #[error("the server ended early")]
    EndedEarly,
}

/// The webhook server, ready to run.
#[derive(Debug)]
pub struct Server<H> {
    /// Certificate, versions and client verification; see [`crate::tls::server_config`].
    pub tls: Arc<ServerConfig>,
    /// What answers the reviews.
    pub handler: Arc<H>,
    /// What is bounded.
    pub limits: Limits,
    /// How long, after the end was asked for, requests still come in: as long as endpoints take to follow readiness.
    pub drain: Duration,
    /// Where the end is announced.
    pub health: Health,
    /// Where requests and failures are counted.
    pub metrics: Metrics,
}

impl<H: Handler> Server<H> {
    /// Serves until `stop`, then drains: the process reports itself unready, serves for the time of `drain`, in which it asks
    /// its clients to close their connections, refuses new ones, answers what is in flight, and returns. Dropping the future
    /// closes every connection at once.
    ///
    /// # Errors
    ///
    /// [`Error::Listen`] at once; [`Error::Serve`] and [`Error::EndedEarly`] when it ends unasked.
    pub async fn run(self, listener: TcpListener, stop: CancellationToken) -> Result<(), Error> {
        let router = request::router(self.handler, self.limits, self.health.clone(), self.metrics.clone());
        let tls = RustlsConfig::from_config(self.tls);
        let handle = Handle::new();
        let _guard = CloseOnDrop(handle.clone());
        let server = connection::listen(listener, self.limits.max_connections, self.metrics)
            .map_err(Error::Listen)?
            .map(|capped| RustlsAcceptor::new(tls).handshake_timeout(HANDSHAKE).acceptor(capped))
            .handle(handle.clone());
        let serving = async {
            let ended = server.serve(router.into_make_service()).await;
            ended.map_err(Error::Serve)
        };
        let ending = async {
            stop.cancelled().await;
            self.health.drain();
            tokio::time::sleep(self.drain).await;
        };
        tokio::pin!(serving);
        tokio::select! {
            ended = &mut serving => return ended.and(Err(Error::EndedEarly)),
            () = ending => {}
        }
        handle.graceful_shutdown(Some(GRACE));
        serving.await
    }
}

/// Connections are tasks of their own, which would outlive the server's future.
struct CloseOnDrop(Handle<SocketAddr>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.shutdown();
    }
}

#[cfg(test)]
mod tests;
