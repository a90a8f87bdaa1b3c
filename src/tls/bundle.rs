//! Bundles of CA certificates: what a client is told to trust. Compared by their certificates, whatever their text.

use jiff::Timestamp;
use pem::{EncodeConfig, LineEnding, Pem};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::Validity;

/// CA certificates in the order in which they were added, none of them twice.
#[derive(Debug, Clone, Default)]
pub struct Bundle(Vec<CertificateDer<'static>>);

impl Bundle {
    /// The certificates of PEM text. What is no certificate is left out: a damaged bundle is still to be
    /// compared with, and its good part is still good.
    #[must_use]
    pub fn from_pem(text: &[u8]) -> Self {
        let mut bundle = Self::default();
        CertificateDer::pem_slice_iter(text).filter_map(Result::ok).for_each(|found| bundle.add(found));
        bundle
    }

    /// Adds a certificate unless it is there.
    pub fn add(&mut self, certificate: CertificateDer<'static>) {
        if !self.contains(&certificate) {
            self.0.push(certificate);
        }
    }

    /// Whether it has this certificate.
    #[must_use]
    pub fn contains(&self, certificate: &CertificateDer<'_>) -> bool {
        self.0.iter().any(|own| own.as_ref() == certificate.as_ref())
    }

    /// Takes out what is no longer valid, and what is no certificate after all.
    pub fn drop_expired(&mut self, now: Timestamp) {
        self.0.retain(|certificate| Validity::of(certificate).is_ok_and(|validity| now < validity.not_after));
    }

    /// All certificates as PEM text.
    #[must_use]
    pub fn to_pem(&self) -> String {
        to_pem(&self.0)
    }
}

/// The same certificates, in whatever order.
impl PartialEq for Bundle {
    fn eq(&self, other: &Self) -> bool {
        self.0.len() == other.0.len() && self.0.iter().all(|certificate| other.contains(certificate))
    }
}

impl Eq for Bundle {}

/// Certificates as PEM text (RFC 7468).
pub(super) fn to_pem<'a>(certificates: impl IntoIterator<Item = &'a CertificateDer<'static>>) -> String {
    let config = EncodeConfig::new().set_line_ending(LineEnding::LF);
    let certificates = certificates.into_iter().map(|certificate| Pem::new("CERTIFICATE", certificate.as_ref()));
    certificates.map(|certificate| pem::encode_config(&certificate, config)).collect()
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;
    use crate::tls::authority::Authority;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn ca(from: &str) -> CertificateDer<'static> {
        Authority::generate(at(from), SignedDuration::from_hours(24)).unwrap().certificate().clone()
    }

    #[test]
    fn text_and_back() {
        let mut bundle = Bundle::default();
        (0..3).for_each(|_| bundle.add(ca("2026-01-01T00:00:00Z")));
        assert_eq!(bundle.0.len(), 3);
        assert_eq!(Bundle::from_pem(bundle.to_pem().as_bytes()), bundle);
        assert!(bundle.to_pem().lines().all(|line| line.len() <= 64));
    }

    #[test]
    fn order_and_repetition_do_not_count() {
        let (one, other) = (ca("2026-01-01T00:00:00Z"), ca("2026-01-01T00:00:00Z"));
        let text = |list: &[&CertificateDer<'static>]| Bundle::from_pem(to_pem(list.iter().copied()).as_bytes());
        assert_eq!(text(&[&one, &other]), text(&[&other, &one, &other]));
        assert_ne!(text(&[&one]), text(&[&one, &other]));
        assert_ne!(text(&[&one]), text(&[&other]));
    }

    #[test]
    fn the_good_part_of_a_damaged_bundle_is_kept() {
        let good = ca("2026-01-01T00:00:00Z");
        let text = format!("hello\n-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n{}", to_pem([&good]));
        assert!(Bundle::from_pem(text.as_bytes()).contains(&good));
        assert_eq!(Bundle::from_pem(b"nothing"), Bundle::default());
    }

    #[test]
    fn what_has_expired_is_dropped() {
        let (old, new) = (ca("2026-01-01T00:00:00Z"), ca("2026-01-02T00:00:00Z"));
        let mut bundle = Bundle(vec![old.clone(), new.clone(), CertificateDer::from(vec![1, 2])]);
        bundle.drop_expired(at("2026-01-02T12:00:00Z"));
        assert!(bundle.contains(&new) && !bundle.contains(&old));
        assert_eq!(bundle.0.len(), 1);
    }
}
