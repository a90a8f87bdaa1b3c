//! What is kept in the Secret: the CA that signs, the one that follows it, and all that are trusted. Text only; no cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use rustls::pki_types::CertificateDer;

use crate::tls::Error;
use crate::tls::authority::Authority;
use crate::tls::bundle::Bundle;

/// The signer's certificate and key: the names of a Secret of type `kubernetes.io/tls`, so that a foreign CA, such
/// as cert-manager's, is found in its Secret too.
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
/// All certificates that are trusted.
const TRUSTED: &str = "ca.crt";
/// The CA that is going to sign, once it is trusted everywhere.
const NEXT_CERTIFICATE: &str = "next.crt";
const NEXT_KEY: &str = "next.key";

/// The CAs of an installation.
#[derive(Clone)]
pub(super) struct Held {
    /// Signs the replicas' certificates.
    pub(super) signer: Arc<Authority>,
    /// Signs after it. It is trusted before it signs anything.
    pub(super) next: Option<Arc<Authority>>,
    /// What API servers are told to trust: both, and those that certificates in use may still be of.
    pub(super) trusted: Bundle,
}

impl Held {
    /// A new CA. What is in `trusted` stays trusted.
    ///
    /// # Errors
    ///
    /// See [`Authority::generate`].
    pub(super) fn generate(now: Timestamp, life: SignedDuration, trusted: Bundle) -> Result<Self, Error> {
        Ok(Self { signer: Arc::new(Authority::generate(now, life)?), next: None, trusted }.completed())
    }

    /// What a Secret holds.
    ///
    /// # Errors
    ///
    /// When it has no usable CA. A next one that is not usable is left out: another can be made.
    pub(super) fn parse(secret: &Secret) -> Result<Self, Error> {
        let signer = authority(secret, CERTIFICATE, KEY)?;
        let next = authority(secret, NEXT_CERTIFICATE, NEXT_KEY).ok().map(Arc::new);
        Ok(Self { signer: Arc::new(signer), next, trusted: trusted(secret) }.completed())
    }

    /// The same, with every certificate trusted that something is or will be signed with.
    pub(super) fn completed(mut self) -> Self {
        self.trusted.add(self.signer.certificate().clone());
        if let Some(next) = &self.next {
            self.trusted.add(next.certificate().clone());
        }
        self
    }

    /// Whether the signer is not expired.
    pub(super) fn is_valid(&self, now: Timestamp) -> bool {
        now < self.signer.validity().not_after
    }

    /// The content of the Secret.
    pub(super) fn data(&self) -> BTreeMap<String, ByteString> {
        let mut data = BTreeMap::new();
        let mut put = |key: &str, text: &str| data.insert(key.to_owned(), ByteString(text.as_bytes().to_vec()));
        put(CERTIFICATE, self.signer.ca_pem());
        put(KEY, &self.signer.key_pem());
        put(TRUSTED, &self.trusted.to_pem());
        if let Some(next) = &self.next {
            put(NEXT_CERTIFICATE, next.ca_pem());
            put(NEXT_KEY, &next.key_pem());
        }
        data
    }
}

/// The same CAs.
impl PartialEq for Held {
    fn eq(&self, other: &Self) -> bool {
        let next = |held: &Self| held.next.as_ref().map(|next| next.certificate().clone());
        same(self.signer.certificate(), other.signer.certificate())
            && next(self) == next(other)
            && self.trusted == other.trusted
    }
}

/// The Secret as it was last seen, read once and not with each tick.
pub(super) struct Kept {
    pub(super) secret: Secret,
    pub(super) held: Result<Held, Error>,
    /// Whether it has just the content that confpin would write.
    pub(super) is_exact: bool,
}

impl Kept {
    pub(super) fn new(secret: Secret) -> Self {
        let held = Held::parse(&secret);
        let is_exact = held.as_ref().is_ok_and(|held| secret.data.as_ref() == Some(&held.data()));
        Self { secret, held, is_exact }
    }

    /// The CAs, if they can be used; else why not.
    pub(super) fn usable(&self, now: Timestamp) -> Result<&Held, String> {
        let held = self.held.as_ref().map_err(ToString::to_string)?;
        match held.is_valid(now) {
            true => Ok(held),
            false => Err(Error::Stored("holds a CA that has expired").to_string()),
        }
    }
}

/// The certificates that a Secret says are trusted, as far as they can be read.
pub(super) fn trusted(secret: &Secret) -> Bundle {
    Bundle::from_pem(&value(secret, TRUSTED).unwrap_or_default())
}

/// Whether two certificates are one.
pub(super) fn same(one: &CertificateDer<'_>, other: &CertificateDer<'_>) -> bool {
    one.as_ref() == other.as_ref()
}

fn authority(secret: &Secret, certificate: &str, key: &str) -> Result<Authority, Error> {
    let text = |name, missing| {
        let bytes = value(secret, name).ok_or(Error::Stored(missing))?;
        String::from_utf8(bytes).map_err(|_| Error::Stored("holds something that is not text"))
    };
    Authority::from_pem(&text(certificate, "lacks tls.crt")?, &text(key, "lacks tls.key")?)
}

fn value(secret: &Secret, key: &str) -> Option<Vec<u8>> {
    secret.data.as_ref()?.get(key).map(|value| value.0.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFE: SignedDuration = SignedDuration::from_hours(24);

    fn now() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    fn secret(held: &Held) -> Secret {
        Secret { data: Some(held.data()), ..Secret::default() }
    }

    #[test]
    fn what_is_written_is_read() {
        let mut held = Held::generate(now(), LIFE, Bundle::default()).unwrap();
        assert!(Held::parse(&secret(&held)).unwrap() == held);
        held.next = Some(Arc::new(Authority::generate(now(), LIFE).unwrap()));
        let held = held.completed();
        assert!(Held::parse(&secret(&held)).unwrap() == held);
    }

    #[test]
    fn a_secret_without_a_usable_signer_is_refused_and_its_trusted_ones_are_known() {
        let held = Held::generate(now(), LIFE, Bundle::default()).unwrap();
        for broken in [CERTIFICATE, KEY] {
            let mut secret = secret(&held);
            secret.data.as_mut().unwrap().insert(broken.to_owned(), ByteString(b"-----".to_vec()));
            assert!(Held::parse(&secret).is_err());
            assert!(trusted(&secret).contains(held.signer.certificate()));
            secret.data.as_mut().unwrap().remove(broken);
            assert!(Held::parse(&secret).is_err());
        }
        assert!(Held::parse(&Secret::default()).is_err());
    }

    #[test]
    fn a_broken_next_one_is_as_none() {
        let mut held = Held::generate(now(), LIFE, Bundle::default()).unwrap();
        held.next = Some(Arc::new(Authority::generate(now(), LIFE).unwrap()));
        let mut secret = secret(&held);
        secret.data.as_mut().unwrap().insert(NEXT_KEY.to_owned(), ByteString(b"x".to_vec()));
        assert!(Held::parse(&secret).unwrap().next.is_none());
    }

    #[test]
    fn a_secret_of_cert_manager_is_understood() {
        let held = Held::generate(now(), LIFE, Bundle::default()).unwrap();
        let mut secret = secret(&held);
        secret.data.as_mut().unwrap().remove(TRUSTED);
        assert!(Held::parse(&secret).unwrap().trusted.contains(held.signer.certificate()));
    }
}
