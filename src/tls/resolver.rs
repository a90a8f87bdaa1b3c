//! The certificate that new connections get, replaceable while the server runs.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// Answers every client with the newest certificate. Connections that exist keep the one that they began with. Without
/// any certificate yet, handshakes fail.
///
/// One certificate whatever name the client asks for: an API server that calls by IP address sends none.
#[derive(Debug, Default)]
pub struct Resolver {
    current: ArcSwapOption<CertifiedKey>,
}

impl Resolver {
    /// A resolver that answers with `first` until it is replaced.
    pub fn new(first: Arc<CertifiedKey>) -> Self {
        Self { current: ArcSwapOption::new(Some(first)) }
    }

    /// Gives `next` to all connections from now on.
    pub fn replace(&self, next: Arc<CertifiedKey>) {
        self.current.store(Some(next));
    }

    /// The certificate that a new connection would get.
    pub fn current(&self) -> Option<Arc<CertifiedKey>> {
        self.current.load_full()
    }
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current()
    }
}
