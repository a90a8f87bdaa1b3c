//! The server over real TLS on the loopback, with a handler that does what a test asks for.

mod connections;
mod requests;

use std::convert::Infallible;
use std::error::Error as _;
use std::net::SocketAddr;

use axum::body::Body;
use axum::http::{Method, Request, StatusCode, header};
use axum::response::IntoResponse;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use http_body_util::BodyExt;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use jiff::Timestamp;
use rstest::rstest;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::*;
use crate::tls::authority::Authority;
use crate::tls::resolver::Resolver;
use crate::tls::{self, provider};

type Answer = BoxFuture<'static, Response>;

/// How long the certificates of the tests are valid.
const LIFE: jiff::SignedDuration = jiff::SignedDuration::from_hours(24);

/// A handler that is a function.
struct Does<F>(F);

impl<F: Fn(Bytes, Instant) -> Answer + Send + Sync + 'static> Handler for Does<F> {
    fn review(&self, body: Bytes, deadline: Instant) -> impl Future<Output = Response> + Send {
        (self.0)(body, deadline)
    }
}

fn echo(body: Bytes, _: Instant) -> Answer {
    async move { body.into_response() }.boxed()
}

/// Begins, says so, and answers when it is let go.
#[derive(Clone, Default)]
struct Gate {
    begun: Arc<Notify>,
    go: Arc<Notify>,
}

impl Gate {
    fn handler(&self) -> impl Fn(Bytes, Instant) -> Answer + Send + Sync + 'static + use<> {
        let gate = self.clone();
        move |_, _| {
            let gate = gate.clone();
            async move {
                gate.begun.notify_one();
                gate.go.notified().await;
                "done".into_response()
            }
            .boxed()
        }
    }
}

/// A running server and what a test needs to reach it.
struct Running {
    address: SocketAddr,
    authority: Authority,
    resolver: Arc<Resolver>,
    health: Health,
    metrics: Metrics,
    stop: CancellationToken,
    task: JoinHandle<Result<(), Error>>,
}

fn localhost() -> [ServerName<'static>; 1] {
    [ServerName::from(std::net::Ipv4Addr::LOCALHOST)]
}

/// What a test wants to be otherwise.
#[derive(Default)]
struct Setup {
    limits: Limits,
    client_roots: Option<RootCertStore>,
    drain: Duration,
}

impl From<Limits> for Setup {
    fn from(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }
}

fn start<F>(setup: impl Into<Setup>, handler: F) -> Running
where
    F: Fn(Bytes, Instant) -> Answer + Send + Sync + 'static,
{
    let Setup { limits, client_roots, drain } = setup.into();
    let authority = Authority::generate(Timestamp::now(), LIFE).unwrap();
    let leaf = authority.issue(&localhost(), Timestamp::now(), LIFE).unwrap();
    let resolver = Arc::new(Resolver::new(leaf.certified));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (health, metrics, stop) = (Health::default(), Metrics::new(), CancellationToken::new());
    let server = Server {
        tls: Arc::new(tls::server_config(resolver.clone(), client_roots).unwrap()),
        handler: Arc::new(Does(handler)),
        limits,
        drain,
        health: health.clone(),
        metrics: metrics.clone(),
    };
    let task = tokio::spawn(server.run(listener, stop.clone()));
    Running { address, authority, resolver, health, metrics, stop, task }
}

#[derive(Clone, Copy, Debug)]
enum Http {
    One,
    Two,
}

type Client = Pool<HttpsConnector<HttpConnector>, Body>;

impl Running {
    fn trust(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.authority.ca_pem().as_bytes()).unwrap()).unwrap();
        Arc::new(roots)
    }

    /// A client with connections of its own.
    fn client(&self, http: Http) -> Client {
        pool(self.client_config(), http)
    }

    /// Of a client that trusts the server and shows no certificate.
    fn client_config(&self) -> ClientConfig {
        ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(self.trust())
            .with_no_client_auth()
    }

    fn client_with_certificate(&self, leaf: &tls::Leaf, key: PrivateKeyDer<'static>) -> Client {
        let config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(self.trust())
            .with_client_auth_cert(leaf.certified.cert.clone(), key)
            .unwrap();
        pool(config, Http::Two)
    }

    fn request(&self, path: &str) -> Request<Body> {
        Request::builder()
            .method(Method::POST)
            .uri(format!("https://{}{path}", self.address))
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from("{}"))
            .unwrap()
    }

    /// Posts `{}` to `path` over a connection of its own.
    async fn post(&self, path: &str) -> (StatusCode, String) {
        read(self.client(Http::Two).request(self.request(path)).await.unwrap()).await
    }

    fn counted(&self, line: &str) -> bool {
        self.metrics.encode().unwrap().lines().any(|found| found == line)
    }
}

fn pool(config: ClientConfig, http: Http) -> Client {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    // As a Go client does; without, each window of a large body costs a delayed acknowledgement.
    tcp.set_nodelay(true);
    let connector = HttpsConnectorBuilder::new().with_tls_config(config).https_only();
    let connector = match http {
        Http::One => connector.enable_http1().wrap_connector(tcp),
        Http::Two => connector.enable_http2().wrap_connector(tcp),
    };
    Pool::builder(TokioExecutor::new()).build(connector)
}

async fn read(response: axum::http::Response<hyper::body::Incoming>) -> (StatusCode, String) {
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

pub(super) fn limits() -> Limits {
    Limits::default()
}
