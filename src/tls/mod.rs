//! The webhook's side of TLS: where the serving certificate comes from, how it is replaced under load, and who may connect.
//!
//! What the API server is told to trust (`caBundle`) is not set here; see [`rotation::Keeper::ca_pem`], and [`crate::trust`]
//! for a CA that several replicas share.

pub mod authority;
pub mod bundle;
pub mod files;
pub mod resolver;
pub mod rotation;

use std::path::PathBuf;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, pem};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig};
use x509_parser::prelude::{FromDer, X509Certificate, X509Error};

use resolver::Resolver;

/// Why there is no certificate, or no TLS configuration.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("failed to read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file is not PEM, or holds something else than it should.
    #[error("failed to find {wanted} in {}", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        wanted: &'static str,
        /// Why.
        source: pem::Error,
    },
    /// Certificate and key are not a pair, or of a kind that is not supported.
    #[error("failed to use the certificate with its private key")]
    Pair(#[source] rustls::Error),
    /// A certificate cannot be parsed.
    #[error("failed to parse the certificate")]
    Parse(#[source] x509_parser::nom::Err<X509Error>),
    /// A certificate's dates are beyond what can be represented.
    #[error("failed to compute a certificate's validity")]
    Time(#[source] jiff::Error),
    /// A key or certificate cannot be made.
    #[error("failed to make a certificate")]
    Make(#[source] rcgen::Error),
    /// What is kept of a CA cannot be used.
    #[error("failed to use the kept CA: it {0}")]
    Stored(&'static str),
    /// The client CAs cannot be used.
    #[error("failed to use the client CAs of {}", path.display())]
    ClientCa {
        /// The file.
        path: PathBuf,
        /// Why.
        source: rustls::Error,
    },
    /// The verifier of client certificates cannot be built.
    #[error("failed to set up the verification of client certificates")]
    Verifier(#[source] VerifierBuilderError),
    /// The protocol versions and the crypto provider do not fit.
    #[error("failed to set up TLS")]
    Protocol(#[source] rustls::Error),
}

/// From when until when a certificate is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// The first instant at which it is valid.
    pub not_before: Timestamp,
    /// The last instant at which it is valid.
    pub not_after: Timestamp,
}

impl Validity {
    /// What a certificate says of itself.
    ///
    /// # Errors
    ///
    /// [`Error::Parse`] and [`Error::Time`] for a certificate that makes no sense.
    pub fn of(certificate: &CertificateDer<'_>) -> Result<Self, Error> {
        let (_, parsed) = X509Certificate::from_der(certificate).map_err(Error::Parse)?;
        let instant = |seconds| Timestamp::from_second(seconds).map_err(Error::Time);
        let validity = parsed.validity();
        Ok(Self {
            not_before: instant(validity.not_before.timestamp())?,
            not_after: instant(validity.not_after.timestamp())?,
        })
    }

    /// When a certificate should be replaced: at two thirds of its life, which leaves the last third for retries.
    pub fn renew_at(&self) -> Timestamp {
        let life: SignedDuration = self.not_before.duration_until(self.not_after);
        // Inside the validity, so inside the range of `Timestamp` too.
        self.not_before.checked_add(life / 3 * 2).unwrap_or(self.not_after)
    }
}

/// A serving certificate that is ready for use.
#[derive(Debug, Clone)]
pub struct Leaf {
    /// Chain and key.
    pub certified: Arc<CertifiedKey>,
    /// From when until when.
    pub validity: Validity,
}

/// The one crypto provider. Named wherever rustls asks for one, since its process-wide default is ambiguous as soon as some
/// dependency brings a second.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Reads the CAs whose clients are served.
///
/// # Errors
///
/// [`Error::Read`], [`Error::Pem`] and [`Error::ClientCa`] for a file without usable CAs.
pub async fn client_roots(path: &std::path::Path) -> Result<RootCertStore, Error> {
    let text = tokio::fs::read(path).await.map_err(|source| Error::Read { path: path.into(), source })?;
    let pem = |source| Error::Pem { path: path.into(), wanted: "CA certificates", source };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&text) {
        roots.add(certificate.map_err(pem)?).map_err(|source| Error::ClientCa { path: path.into(), source })?;
    }
    // An empty bundle would build a verifier that refuses everybody, which is seen only when workloads are denied.
    if roots.is_empty() { Err(pem(pem::Error::NoItemsFound)) } else { Ok(roots) }
}

/// The server's TLS configuration: TLS 1.2 and 1.3, HTTP/2 and HTTP/1.1, the certificate by `resolver`, and, with
/// `client_roots`, only clients that show a certificate of one of them.
///
/// # Errors
///
/// [`Error::Verifier`] and [`Error::Protocol`].
pub fn server_config(resolver: Arc<Resolver>, client_roots: Option<RootCertStore>) -> Result<ServerConfig, Error> {
    let verifier: Arc<dyn ClientCertVerifier> = match client_roots {
        None => WebPkiClientVerifier::no_client_auth(),
        Some(roots) => {
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider()).build().map_err(Error::Verifier)?
        }
    };
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(Error::Protocol)?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(resolver);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_certificate_is_due_at_two_thirds_of_its_life() {
        let validity = Validity { not_before: at("2026-01-01T00:00:00Z"), not_after: at("2026-01-31T00:00:00Z") };
        assert_eq!(validity.renew_at(), at("2026-01-21T00:00:00Z"));
    }

    #[rstest]
    #[case::empty("")]
    #[case::no_pem("hello")]
    #[case::half("-----BEGIN CERTIFICATE-----\nAAAA\n")]
    #[case::no_certificate("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")]
    #[tokio::test]
    async fn a_bundle_without_a_usable_ca_is_refused(#[case] text: &str) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        assert!(client_roots(file.path()).await.is_err());
    }

    #[tokio::test]
    async fn a_bundle_that_is_missing_is_named() {
        let error = client_roots(std::path::Path::new("missing/ca.pem")).await.unwrap_err();
        assert!(error.to_string().contains("missing/ca.pem"), "{error}");
    }
}
