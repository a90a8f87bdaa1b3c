//! Sends reviews as an API server does: over HTTP/2, on one connection that is kept.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use axum::http::{Request, header};
use futures::future::try_join_all;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::{CertificateDer, pem::PemObject};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;

use crate::reviews::Kind;

/// The one who asks.
pub struct Load {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    url: String,
}

impl Load {
    /// One that asks at `url` and trusts the certificate `trusted` (PEM).
    pub fn new(url: String, trusted: &str) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(trusted.as_bytes())?)?;
        let provider = rustls::crypto::ring::default_provider();
        let tls = ClientConfig::builder_with_provider(provider.into())
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        // As Go does: without it a small review waits for the acknowledgement of the one before.
        let mut tcp = HttpConnector::new();
        tcp.set_nodelay(true);
        tcp.enforce_http(false);
        let connector =
            HttpsConnectorBuilder::new().with_tls_config(tls).https_only().enable_http2().wrap_connector(tcp);
        Ok(Self { client: Client::builder(TokioExecutor::new()).http2_only(true).build(connector), url })
    }

    async fn ask(&self, body: Bytes) -> Result<Value> {
        let request =
            Request::post(&self.url).header(header::CONTENT_TYPE, "application/json").body(Full::new(body))?;
        let response = self.client.request(request).await.context("confpin does not answer")?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        ensure!(status.is_success(), "confpin answers {status}: {}", String::from_utf8_lossy(&body));
        Ok(serde_json::from_slice(&body)?)
    }

    /// Makes sure that the answer is the one that is to be measured.
    pub async fn expect(&self, kind: Kind, body: &[u8]) -> Result<()> {
        let answer = self.ask(Bytes::copy_from_slice(body)).await?;
        let response = &answer["response"];
        ensure!(response["allowed"] == true, "{kind} is not allowed: {response}");
        ensure!(response["patch"].is_string() == kind.is_patched(), "{kind} is not what is measured: {response}");
        Ok(())
    }

    /// Asks for that long, so many at a time. Returns how many were answered, and how long it took.
    pub async fn run(&self, body: &[u8], parallel: usize, lasts: Duration) -> Result<(u32, Duration)> {
        let (body, count, begin) = (Bytes::copy_from_slice(body), AtomicU32::new(0), Instant::now());
        try_join_all((0..parallel).map(async |_| {
            while begin.elapsed() < lasts {
                let answer = self.ask(body.clone()).await?;
                ensure!(answer["response"]["allowed"] == true, "it is not allowed: {answer}");
                count.fetch_add(1, Ordering::Relaxed);
            }
            Ok::<_, anyhow::Error>(())
        }))
        .await?;
        Ok((count.into_inner(), begin.elapsed()))
    }
}
