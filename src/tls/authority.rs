//! A certificate authority: the rules of what it signs, and the signing. No file, no cluster, no clock.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rcgen::PublicKeyData;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, SanType,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::CertifiedKey;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::{Error, Leaf, Validity, bundle, provider};

/// How far validity reaches back at most, for API servers whose clock is behind ours.
const SKEW: SignedDuration = SignedDuration::from_hours(1);

/// A CA with its key.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    pem: String,
    validity: Validity,
}

impl Authority {
    /// Makes a new CA with a key of its own (ECDSA P-256), valid for `life` from `now`.
    ///
    /// # Errors
    ///
    /// [`Error::Make`] and [`Error::Time`], neither of which a working machine shows.
    pub fn generate(now: Timestamp, life: SignedDuration) -> Result<Self, Error> {
        let validity = validity(now, life)?;
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(Error::Make)?;
        let mut params = params("confpin CA", validity);
        // It signs serving certificates and no further CA.
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key).map_err(Error::Make)?;
        let certificate: CertificateDer<'static> = certificate.into();
        Ok(Self { pem: bundle::to_pem([&certificate]), certificate, issuer: Issuer::new(params, key), validity })
    }

    /// The CA of a certificate and its private key (PKCS #8), both PEM.
    ///
    /// # Errors
    ///
    /// [`Error::Stored`] for text that is no certificate of a CA, or no key of it.
    pub fn from_pem(certificate: &str, key: &str) -> Result<Self, Error> {
        let stored = Error::Stored;
        let der = CertificateDer::from_pem_slice(certificate.as_bytes()).map_err(|_| stored("holds no certificate"))?;
        let key = KeyPair::from_pem(key).map_err(|_| stored("holds no private key that can be used"))?;
        let (_, parsed) = X509Certificate::from_der(&der).map_err(Error::Parse)?;
        if !parsed.is_ca() {
            return Err(stored("holds a certificate that is not a CA's"));
        }
        if parsed.public_key().raw != key.subject_public_key_info() {
            return Err(stored("holds a certificate and the private key of another one"));
        }
        let validity = Validity::of(&der)?;
        let issuer = Issuer::from_ca_cert_der(&der, key).map_err(Error::Make)?;
        Ok(Self { issuer, pem: bundle::to_pem([&der]), certificate: der, validity })
    }

    /// The CA's certificate, PEM: what the API server has to trust.
    pub fn ca_pem(&self) -> &str {
        &self.pem
    }

    /// The CA's certificate.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// The CA's private key, PEM (PKCS #8). For where it is kept, and for nowhere else.
    pub fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// From when until when the CA is valid.
    pub fn validity(&self) -> Validity {
        self.validity
    }

    /// Issues a serving certificate with a new key for `hosts`, valid for `life` from `now`, or for as long as the CA.
    ///
    /// # Errors
    ///
    /// [`Error::Make`] for a host that a certificate cannot name; else as for [`generate`](Self::generate).
    pub fn issue(&self, hosts: &[ServerName<'_>], now: Timestamp, life: SignedDuration) -> Result<Leaf, Error> {
        let mut validity = validity(now, life)?;
        validity.not_after = validity.not_after.min(self.validity.not_after);
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(Error::Make)?;
        let mut params = params("confpin webhook", validity);
        params.subject_alt_names = hosts.iter().map(alternative_name).collect::<Result<_, _>>()?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&key, &self.issuer).map_err(Error::Make)?;
        let chain = vec![certificate.into(), self.certificate.clone()];
        let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let certified = CertifiedKey::from_der(chain, key, &provider()).map_err(Error::Pair)?;
        Ok(Leaf { certified: certified.into(), validity })
    }
}

/// A validity of `life`, reaching back by the skew that is allowed for, in the whole seconds that a certificate can hold.
fn validity(now: Timestamp, life: SignedDuration) -> Result<Validity, Error> {
    let now = Timestamp::from_second(now.as_second()).map_err(Error::Time)?;
    Ok(Validity {
        // Of a short life, a small part: it is to end two thirds of the way, and not before it has begun.
        not_before: now.checked_sub(SKEW.min(life / 8)).map_err(Error::Time)?,
        not_after: now.checked_add(life).map_err(Error::Time)?,
    })
}

fn params(common_name: &str, validity: Validity) -> CertificateParams {
    // rcgen wants the type of the `time` crate, of which this is the only value it gives.
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let instant = |at: Timestamp| epoch + Duration::from_secs(u64::try_from(at.as_second()).unwrap_or(0));
    let mut params = CertificateParams::default();
    params.not_before = instant(validity.not_before);
    params.not_after = instant(validity.not_after);
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params
}

fn alternative_name(host: &ServerName<'_>) -> Result<SanType, Error> {
    match host {
        ServerName::IpAddress(address) => Ok(SanType::IpAddress((*address).into())),
        name => name.to_str().as_ref().try_into().map(SanType::DnsName).map_err(Error::Make),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use rstest::rstest;
    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier;
    use rustls::pki_types::UnixTime;

    const CA_LIFE: SignedDuration = SignedDuration::from_hours(365 * 24);
    const LIFE: SignedDuration = SignedDuration::from_hours(90 * 24);

    fn now() -> Timestamp {
        "2026-06-01T12:00:00.5Z".parse().unwrap()
    }

    fn later(hours: i64) -> Timestamp {
        now().checked_add(SignedDuration::from_hours(hours)).unwrap()
    }

    /// What a client that trusts `authority` thinks of `leaf` at an instant.
    fn verify(authority: &Authority, leaf: &Leaf, host: &str, at: Timestamp) -> Result<(), rustls::Error> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.ca_pem().as_bytes()).unwrap()).unwrap();
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider()).build().unwrap();
        let (first, rest) = leaf.certified.cert.split_first().unwrap();
        let at = UnixTime::since_unix_epoch(Duration::from_secs(at.as_second().try_into().unwrap()));
        verifier.verify_server_cert(first, rest, &host.try_into().unwrap(), &[], at).map(drop)
    }

    fn hosts(names: &[&'static str]) -> Vec<ServerName<'static>> {
        names.iter().map(|name| (*name).try_into().unwrap()).collect()
    }

    #[rstest]
    #[case::ipv4("127.0.0.1")]
    #[case::ipv6("::1")]
    #[case::dns("confpin.confpin.svc")]
    fn a_client_that_trusts_the_ca_accepts_the_leaf(#[case] host: &'static str) {
        let authority = Authority::generate(now(), CA_LIFE).unwrap();
        let leaf = authority.issue(&hosts(&[host]), now(), LIFE).unwrap();
        verify(&authority, &leaf, host, now()).unwrap();
        verify(&authority, &leaf, "other.example", now()).unwrap_err();
    }

    #[test]
    fn a_leaf_is_valid_an_hour_back_and_at_most_a_year_ahead() {
        let authority = Authority::generate(now(), CA_LIFE).unwrap();
        let leaf = authority.issue(&hosts(&["a.example"]), now(), LIFE).unwrap();
        verify(&authority, &leaf, "a.example", later(-1)).unwrap();
        verify(&authority, &leaf, "a.example", later(-2)).unwrap_err();
        verify(&authority, &leaf, "a.example", later(365 * 24)).unwrap_err();
        assert!(leaf.validity.renew_at() > now());
    }

    #[test]
    fn what_is_said_of_the_validity_is_what_the_certificate_says() {
        let authority = Authority::generate(now(), CA_LIFE).unwrap();
        let leaf = authority.issue(&hosts(&["a.example"]), now(), LIFE).unwrap();
        assert_eq!(Validity::of(&leaf.certified.cert[0]).unwrap(), leaf.validity);
        assert_eq!(Validity::of(&authority.certificate).unwrap(), authority.validity());
    }

    #[test]
    fn a_leaf_does_not_outlive_its_ca() {
        let authority = Authority::generate(now(), CA_LIFE).unwrap();
        let leaf = authority.issue(&hosts(&["a.example"]), later(365 * 24 - 1), LIFE).unwrap();
        assert_eq!(leaf.validity.not_after, authority.validity().not_after);
    }

    #[test]
    fn a_foreign_ca_is_not_trusted() {
        let leaf = Authority::generate(now(), CA_LIFE).unwrap().issue(&hosts(&["a.example"]), now(), LIFE).unwrap();
        verify(&Authority::generate(now(), CA_LIFE).unwrap(), &leaf, "a.example", now()).unwrap_err();
    }

    #[test]
    fn a_kept_ca_signs_as_the_one_that_was_made() {
        let made = Authority::generate(now(), CA_LIFE).unwrap();
        let kept = Authority::from_pem(made.ca_pem(), &made.key_pem()).unwrap();
        let leaf = kept.issue(&hosts(&["a.example"]), now(), LIFE).unwrap();
        verify(&made, &leaf, "a.example", now()).unwrap();
        assert_eq!(kept.validity(), made.validity());
        assert_eq!(kept.ca_pem(), made.ca_pem());
    }

    #[test]
    fn what_is_no_ca_with_its_key_is_refused() {
        let (one, other) = (Authority::generate(now(), CA_LIFE).unwrap(), Authority::generate(now(), CA_LIFE).unwrap());
        let leaf = one.issue(&hosts(&["a.example"]), now(), LIFE).unwrap();
        let leaf = bundle::to_pem([&leaf.certified.cert[0]]);
        for (certificate, key) in
            [(one.ca_pem(), &*other.key_pem()), (&*leaf, &*one.key_pem()), ("", &*one.key_pem()), (one.ca_pem(), "x")]
        {
            assert!(Authority::from_pem(certificate, key).is_err());
        }
    }
}
