//! The certificate that new connections get, replaceable while the server runs.

use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// Answers every client with the newest certificate. Connections that exist keep the one that they began with.
///
/// One certificate whatever name the client asks for: an API server that calls by IP address sends none.
#[derive(Debug)]
pub struct Resolver {
    current: ArcSwap<CertifiedKey>,
}

impl Resolver {
    /// A resolver that answers with `first` until it is replaced.
    pub fn new(first: Arc<CertifiedKey>) -> Self {
        Self { current: ArcSwap::new(first) }
    }

    /// Gives `next` to all connections from now on.
    pub fn replace(&self, next: Arc<CertifiedKey>) {
        self.current.store(next);
    }

    /// The certificate that a new connection would get.
    pub fn current(&self) -> Arc<CertifiedKey> {
        self.current.load_full()
    }
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }
}
