//! When CAs and certificates are replaced. Pure: time and what API servers trust are arguments.
//!
//! A certificate is worth something only where its CA is trusted, and trust travels: into the Secret, from there into the
//! webhook configuration, from there to every API server. So nothing is signed with a CA before it has been in the webhook
//! configuration for a while, and a CA stays in it until nothing that it signed can be in use.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use rustls::pki_types::CertificateDer;

use super::held::{Held, same};
use crate::tls::authority::Authority;
use crate::tls::bundle::Bundle;
use crate::tls::{Error, Validity};

/// How long API servers are given to hear of a changed webhook configuration. They watch it, so it is moments.
const PROPAGATION: SignedDuration = SignedDuration::from_secs(10);

/// How long certificates are valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lives {
    /// A CA.
    pub ca: SignedDuration,
    /// A serving certificate.
    pub certificate: SignedDuration,
}

impl Lives {
    /// How long a CA must have been in the webhook configuration before something is signed with it.
    fn propagation(self) -> SignedDuration {
        PROPAGATION.min(self.ca / 24)
    }
}

/// What the webhook configuration tells API servers to trust.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Live {
    /// The bundle of each webhook in it.
    pub(super) bundles: Vec<Bundle>,
    /// Since when it is known to be so.
    pub(super) since: Timestamp,
}

impl Live {
    /// Whether every webhook trusts a CA.
    pub(super) fn trusts(&self, ca: &CertificateDer<'_>) -> bool {
        !self.bundles.is_empty() && self.bundles.iter().all(|bundle| bundle.contains(ca))
    }

    /// Whether every webhook trusts just these.
    pub(super) fn is(&self, bundle: &Bundle) -> bool {
        self.bundles.iter().all(|live| live == bundle)
    }

    fn has_propagated(&self, ca: &CertificateDer<'_>, lives: Lives, now: Timestamp) -> bool {
        self.trusts(ca) && self.since.duration_until(now) >= lives.propagation()
    }
}

/// The serving certificate of this replica.
#[derive(Debug, Clone)]
pub(super) struct Serving {
    /// The CA that signed it.
    pub(super) issuer: CertificateDer<'static>,
    /// From when until when.
    pub(super) validity: Validity,
}

/// The CAs as they should be, given those that are.
///
/// - Two thirds into the signer's life, a next CA is made, and so trusted.
/// - A quarter of the rest later, and not before it is trusted, it becomes the signer.
/// - The CA of `serving` stays trusted, whatever happened to the Secret; expired certificates do not.
///
/// # Errors
///
/// See [`Authority::generate`].
pub(super) fn due(
    held: &Held,
    live: Option<&Live>,
    serving: Option<&Serving>,
    lives: Lives,
    now: Timestamp,
) -> Result<Held, Error> {
    let mut held = held.clone();
    let renew_at = held.signer.validity().renew_at();
    match &held.next {
        None if now >= renew_at => held.next = Some(Arc::new(Authority::generate(now, lives.ca)?)),
        Some(next) => {
            let not_after = held.signer.validity().not_after;
            let rest = renew_at.duration_until(not_after);
            let is_time = now.duration_until(not_after) <= rest - rest / 4;
            // Without a configuration nobody calls, so nobody has to be waited for.
            let is_trusted = live.is_none_or(|live| live.has_propagated(next.certificate(), lives, now));
            if is_time && is_trusted {
                held.signer = next.clone();
                held.next = None;
            }
        }
        None => {}
    }
    if let Some(serving) = serving {
        held.trusted.add(serving.issuer.clone());
    }
    held.trusted.drop_expired(now);
    Ok(held.completed())
}

/// Whether this replica needs another serving certificate, to be signed by the signer.
pub(super) fn certificate_due(
    held: &Held,
    live: Option<&Live>,
    serving: Option<&Serving>,
    lives: Lives,
    now: Timestamp,
) -> bool {
    let Some(serving) = serving else { return true };
    if now >= serving.validity.not_after {
        return true;
    }
    let signer = held.signer.certificate();
    if same(&serving.issuer, signer) {
        return now >= serving.validity.renew_at();
    }
    // The old certificate is good until the new one's CA is trusted.
    live.is_some_and(|live| live.has_propagated(signer, lives, now))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    const LIVES: Lives = Lives { ca: SignedDuration::from_hours(8 * 24), certificate: SignedDuration::from_hours(24) };

    fn start() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    fn hours(hours: i64) -> Timestamp {
        start().checked_add(SignedDuration::from_hours(hours)).unwrap()
    }

    fn held() -> Held {
        Held::generate(start(), LIVES.ca, Bundle::default()).unwrap()
    }

    /// An installation with one replica whose API server trusts what it is told, one hour late.
    struct Installation {
        held: Held,
        live: Live,
        serving: Option<Serving>,
    }

    impl Installation {
        fn new() -> Self {
            let held = held();
            let live = Live { bundles: vec![held.trusted.clone()], since: start() };
            Self { held, live, serving: None }
        }

        fn step(&mut self, now: Timestamp) {
            self.held = due(&self.held, Some(&self.live), self.serving.as_ref(), LIVES, now).unwrap();
            if certificate_due(&self.held, Some(&self.live), self.serving.as_ref(), LIVES, now) {
                let leaf = self.held.signer.issue(&["a".try_into().unwrap()], now, LIVES.certificate).unwrap();
                let issuer = self.held.signer.certificate().clone();
                self.serving = Some(Serving { issuer, validity: leaf.validity });
            }
        }

        fn publish(&mut self, now: Timestamp) {
            if !self.live.is(&self.held.trusted) {
                self.live = Live { bundles: vec![self.held.trusted.clone()], since: now };
            }
        }
    }

    #[test]
    fn for_years_what_is_served_is_trusted_and_valid() {
        let mut installation = Installation::new();
        let (mut signers, mut certificates) = (Bundle::default(), Bundle::default());
        let mut most = 0;
        for hour in 0..3 * 365 * 24 {
            installation.step(hours(hour));
            let serving = installation.serving.clone().unwrap();
            assert!(installation.live.trusts(&serving.issuer), "hour {hour}");
            assert!(serving.validity.not_before <= hours(hour) && hours(hour) < serving.validity.not_after);
            installation.publish(hours(hour));
            signers.add(serving.issuer);
            certificates.add(installation.held.signer.certificate().clone());
            most = most.max(installation.held.trusted.to_pem().matches("BEGIN").count());
        }
        let count = signers.to_pem().matches("BEGIN").count();
        assert!((150..300).contains(&count), "a CA of 8 days was replaced {count} times in 3 years");
        assert!(most <= 3, "{most} CAs were trusted at a time");
    }

    #[test]
    fn the_next_ca_does_not_sign_before_it_is_trusted() {
        let mut installation = Installation::new();
        installation.step(start());
        let first = installation.held.signer.certificate().clone();
        // Nobody publishes.
        for hour in 0..8 * 24 {
            installation.step(hours(hour));
        }
        assert!(same(installation.held.signer.certificate(), &first));
        assert!(installation.held.next.is_some());
        installation.publish(hours(8 * 24 - 1));
        installation.step(hours(8 * 24 - 1));
        assert!(same(installation.held.signer.certificate(), &first), "not in the moment of publishing");
        installation.step(hours(8 * 24));
        assert!(!same(installation.held.signer.certificate(), &first));
    }

    #[test]
    fn a_ca_that_somebody_put_there_signs_once_it_is_trusted() {
        let mut installation = Installation::new();
        installation.step(start());
        let old = installation.serving.clone().unwrap().issuer;
        installation.held = held();
        installation.step(hours(1));
        assert!(same(&installation.serving.as_ref().unwrap().issuer, &old));
        assert!(installation.held.trusted.contains(&old), "what is served stays trusted");
        installation.publish(hours(1));
        installation.step(hours(2));
        let new = installation.held.signer.certificate().clone();
        assert!(same(&installation.serving.as_ref().unwrap().issuer, &new));
    }

    #[test]
    fn a_webhook_that_trusts_less_counts() {
        let held = held();
        let ca = held.signer.certificate();
        let live = |bundles: Vec<Bundle>| Live { bundles, since: start() };
        assert!(live(vec![held.trusted.clone(); 2]).trusts(ca));
        assert!(!live(vec![held.trusted.clone(), Bundle::default()]).trusts(ca));
        assert!(!live(Vec::new()).trusts(ca));
    }

    #[rstest]
    #[case::fresh(1, false)]
    #[case::before_two_thirds(15, false)]
    #[case::due(17, true)]
    #[case::expired(25, true)]
    fn a_certificate_is_renewed_at_two_thirds(#[case] hour: i64, #[case] expected: bool) {
        let held = held();
        let leaf = held.signer.issue(&["a".try_into().unwrap()], start(), LIVES.certificate).unwrap();
        let serving = Serving { issuer: held.signer.certificate().clone(), validity: leaf.validity };
        assert_eq!(certificate_due(&held, None, Some(&serving), LIVES, hours(hour)), expected);
    }
}
