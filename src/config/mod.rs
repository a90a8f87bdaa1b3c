//! The validated configuration of `confpin serve`.
//!
//! Arguments arrive typed (see [`value`]); the rules that span several of them are here, so that whatever is refused is
//! refused before any port is bound, with a message that names the option. Reading the files that are named is not done here:
//! that belongs to their users.

pub mod value;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use jiff::SignedDuration;

use crate::cli::serve::Args;
use crate::pin::exempt::{Exemptions, Mark};
use crate::pin::record::MAX_SOURCES;
use crate::pin::scope::Scope;
use crate::trust::Lives;
use crate::webhook::server::Limits;
pub use value::{ByteSize, LogFormat, ObjectName, OnError, Period, WebhookUrl};

/// The exit code for arguments that are refused: `EX_USAGE` of `sysexits.h`, so that a supervisor can tell a wrong
/// configuration, which a restart does not cure, from a failure at run time.
pub const EXIT_USAGE: u8 = 64;

/// The longest that draining may be asked to wait. Kubernetes kills a pod after its termination grace period, 30 seconds unless
/// the pod says otherwise, and the requests in flight need a part of that too.
const DRAIN_MAX: Duration = Duration::from_secs(300);

/// The shortest and the longest life of a certificate: time enough to replace it, and dates that a certificate can hold.
const LIFE_MIN: Duration = Duration::from_secs(10);
const LIFE_MAX: Duration = Duration::from_hours(10 * 365 * 24);

/// The longest of the reconciler's periods. tokio's timers end at about two years.
const PERIOD_MAX: Duration = Duration::from_hours(365 * 24);

/// The smallest body limit that makes sense: a limit below it would deny ordinary workloads.
const BODY_MIN: usize = 64 << 10;

/// Everything that `confpin serve` needs to know, checked.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where the webhook listens, HTTPS only. Port 0 takes a free one.
    pub listen: SocketAddr,
    /// Where liveness, readiness and metrics are served, plain HTTP. Port 0 takes a free one.
    pub admin_listen: SocketAddr,
    /// Where the serving certificate comes from.
    pub certificates: Certificates,
    /// A PEM bundle of CAs; when present, only clients with a certificate of one of them are served.
    pub client_ca: Option<PathBuf>,
    /// Which cluster is served.
    pub cluster: ClusterAccess,
    /// The namespace that this replica is installed in; else the one of its service account or its kubeconfig's context.
    pub namespace: Option<String>,
    /// The namespaces whose workloads are served.
    pub scope: Scope,
    /// Whether this process reconciles, or only answers admissions.
    pub reconcile: bool,
    /// The Lease without which nothing is reconciled; `None` for a program that has no other replica.
    pub lease: Option<LeaseAccess>,
    /// What a workload gets that cannot be pinned.
    pub on_error: OnError,
    /// How long after a workload was decided a change of its sources still refreshes it; `None` turns that off.
    pub settle: Option<Duration>,
    /// How long a snapshot that nothing names is kept.
    pub orphan_grace: Duration,
    /// The shortest time between two refreshes of one workload.
    pub min_interval: Duration,
    /// ConfigMaps that are never pinned, beyond the built-in list.
    pub exempt: Exempt,
    /// The most distinct ConfigMaps that one pod template may name.
    pub max_references: usize,
    /// How long readiness is refused before connections are, so that endpoints have time to follow.
    pub drain: Duration,
    /// What the webhook server bounds.
    pub limits: Limits,
}

/// Where the serving certificate comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Certificates {
    /// Two PEM files that another program maintains, such as cert-manager through a mounted Secret.
    Files {
        /// The certificate, its chain behind it.
        cert: PathBuf,
        /// The certificate's private key.
        key: PathBuf,
    },
    /// A CA of this process's own, in memory, and a certificate of it for the host of the URL that the API server calls.
    Url(WebhookUrl),
    /// A CA in a Secret, of which each replica signs a certificate for a Service.
    Service {
        /// The Service, in the namespace that confpin is installed in.
        name: String,
        /// The Secret, in the same namespace.
        secret: String,
        /// How long certificates are valid.
        lives: Lives,
    },
}

/// The Lease that the reconciling replica holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseAccess {
    /// Its name, in the namespace that confpin is installed in.
    pub name: String,
    /// This replica's name in it.
    pub identity: String,
}

/// How the API server is found. With neither field set: the pod's service account, else the usual kubeconfig rules.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterAccess {
    /// A kubeconfig file.
    pub kubeconfig: Option<PathBuf>,
    /// The context to use of the kubeconfig, else its current one.
    pub context: Option<String>,
}

/// ConfigMaps that are left alone, **added** to the built-in list: an option that replaced it would make a user who exempts one
/// more name pin `kube-root-ca.crt`, whose rotation every pod has to see.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exempt {
    /// By exact name.
    pub names: Vec<ObjectName>,
    /// By a label or an annotation.
    pub labels: Vec<Mark>,
}

impl Exempt {
    /// What is left alone, with the built-in list.
    #[must_use]
    pub fn exemptions(&self) -> Exemptions {
        let names = self.names.iter().map(|name| name.as_str().to_owned());
        Exemptions::with(names, self.labels.iter().cloned())
    }
}

/// Why a combination of arguments is refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// Nothing says where the serving certificate comes from.
    #[error(
        "no serving certificate: give --tls-cert and --tls-key (files, as mounted from a Secret), \
         or --webhook-service to have confpin keep a CA in a Secret and sign its own for that Service, \
         or --webhook-url to have it make a CA and a certificate for that URL's host"
    )]
    CertificateMissing,
    /// More than one source of a serving certificate is given.
    #[error(
        "--webhook-url and --webhook-service each make a certificate and --tls-cert/--tls-key bring one: \
         give one of the three"
    )]
    CertificateTwice,
    /// One half of the pair is missing.
    #[error("{given} is given without {missing}: a serving certificate needs both")]
    CertificateHalf {
        /// The option that is there.
        given: &'static str,
        /// The option that is not.
        missing: &'static str,
    },
    /// Both servers would bind the same address.
    #[error("--listen and --admin-listen are both {0}: the webhook and the admin server need a port each")]
    SameAddress(SocketAddr),
    /// A value is outside its range.
    #[error("{option} is {given}: {rule}")]
    Range {
        /// The option.
        option: &'static str,
        /// What was given.
        given: String,
        /// What would be right.
        rule: &'static str,
    },
}

impl TryFrom<Args> for Config {
    type Error = Error;

    fn try_from(args: Args) -> Result<Self, Error> {
        let certificates = certificates(&args)?;
        if args.listen == args.admin_listen && args.listen.port() != 0 {
            return Err(Error::SameAddress(args.listen));
        }
        let at_least = |ok: bool, option, given: String, rule| {
            if ok { Ok(()) } else { Err(Error::Range { option, given, rule }) }
        };
        at_least(
            args.max_body.bytes() >= BODY_MIN,
            "--max-body",
            args.max_body.to_string(),
            "less than 64Ki would deny ordinary workloads",
        )?;
        at_least(
            args.max_concurrent > 0,
            "--max-concurrent",
            args.max_concurrent.to_string(),
            "at least 1 request has to be admitted",
        )?;
        at_least(
            (1..=MAX_SOURCES).contains(&args.max_references),
            "--max-references",
            args.max_references.to_string(),
            "at least 1, at most 4096",
        )?;
        at_least(
            args.drain.get() <= DRAIN_MAX,
            "--drain",
            args.drain.to_string(),
            "at most 5m; it must end within the pod's terminationGracePeriodSeconds",
        )?;
        for (option, period) in
            [("--settle", args.settle), ("--orphan-grace", args.orphan_grace), ("--min-interval", args.min_interval)]
        {
            at_least(period.get() <= PERIOD_MAX, option, period.to_string(), "at most 365 days, 8760h")?;
        }
        Ok(Self {
            listen: args.listen,
            admin_listen: args.admin_listen,
            certificates,
            client_ca: args.client_ca,
            cluster: ClusterAccess { kubeconfig: args.kubeconfig, context: args.context },
            namespace: args.namespace,
            scope: Scope::of(args.watch_namespace.iter().map(ToString::to_string)),
            lease: args
                .lease
                .zip(args.identity)
                .map(|(name, identity)| LeaseAccess { name: name.to_string(), identity }),
            reconcile: args.reconcile,
            on_error: args.on_error,
            settle: Some(args.settle.get()).filter(|settle| !settle.is_zero()),
            orphan_grace: args.orphan_grace.get(),
            min_interval: args.min_interval.get(),
            exempt: Exempt { names: args.exempt_name, labels: args.exempt_label },
            max_references: args.max_references,
            drain: args.drain.get(),
            limits: Limits {
                max_body: args.max_body.bytes(),
                max_concurrent: args.max_concurrent,
                ..Limits::default()
            },
        })
    }
}

/// Files, or self-made, and never a guess.
fn certificates(args: &Args) -> Result<Certificates, Error> {
    match (&args.tls_cert, &args.tls_key, &args.webhook_url, &args.webhook_service) {
        (None, None, None, None) => Err(Error::CertificateMissing),
        (None, None, Some(url), None) => Ok(Certificates::Url(url.clone())),
        (None, None, None, Some(service)) => Ok(Certificates::Service {
            name: service.as_str().to_owned(),
            secret: args.ca_secret.as_str().to_owned(),
            lives: lives(args)?,
        }),
        (Some(_), None, None, None) => Err(Error::CertificateHalf { given: "--tls-cert", missing: "--tls-key" }),
        (None, Some(_), None, None) => Err(Error::CertificateHalf { given: "--tls-key", missing: "--tls-cert" }),
        (Some(cert), Some(key), None, None) => Ok(Certificates::Files { cert: cert.clone(), key: key.clone() }),
        _ => Err(Error::CertificateTwice),
    }
}

fn lives(args: &Args) -> Result<Lives, Error> {
    let range = |option, given: Period, rule| Error::Range { option, given: given.to_string(), rule };
    let life = |option, period: Period| match SignedDuration::try_from(period.get()) {
        Ok(life) if (LIFE_MIN..=LIFE_MAX).contains(&period.get()) => Ok(life),
        _ => Err(range(option, period, "at least 10s, at most 10 years")),
    };
    let lives =
        Lives { ca: life("--ca-life", args.ca_life)?, certificate: life("--certificate-life", args.certificate_life)? };
    // A certificate ends with its CA at the latest, and the CA is followed by another well before its end.
    if lives.certificate > lives.ca {
        return Err(range("--certificate-life", args.certificate_life, "at most --ca-life"));
    }
    Ok(lives)
}

#[cfg(test)]
mod tests;
