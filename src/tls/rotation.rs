//! Keeps the serving certificate fresh, whichever way it comes.
//!
//! Everything is decided by [`Keeper::step`], which is given the time; [`Keeper::run`] only calls it again and again.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rustls::pki_types::ServerName;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::authority::Authority;
use super::files::Files;
use super::resolver::Resolver;
use super::{Error, Leaf, Validity};
use crate::observe::metrics::Metrics;

/// How often files are read and the age of the certificate is looked at. By the wall clock each time, and not by one long sleep,
/// which would not count the time that a machine is suspended.
const POLL: Duration = Duration::from_secs(5);

/// How long a CA in memory is valid. It changes only by a new process, so it must outlive any.
const CA_LIFE: SignedDuration = SignedDuration::from_hours(10 * 365 * 24);

/// How long a certificate of it is valid. Well under a year, so that renewal is something that happens and works.
const LEAF_LIFE: SignedDuration = SignedDuration::from_hours(90 * 24);

/// The serving certificate and whatever it takes to replace it.
pub struct Keeper {
    source: Source,
    resolver: Arc<Resolver>,
    validity: Validity,
    metrics: Metrics,
}

enum Source {
    Files(Files),
    SelfMade { authority: Box<Authority>, hosts: Vec<ServerName<'static>> },
}

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The certificate is as good as it was.
    Kept,
    /// New connections get another certificate from now on.
    Replaced,
}

impl Keeper {
    /// Serves what two files hold; see [`Files`].
    ///
    /// # Errors
    ///
    /// Whatever is wrong with the files; see [`Files::open`].
    pub async fn files(cert: PathBuf, key: PathBuf, metrics: Metrics) -> Result<Self, Error> {
        let (files, leaf) = Files::open(cert, key).await?;
        Ok(Self::new(Source::Files(files), leaf, metrics))
    }

    /// Makes a CA of this process's own, in memory, and serves a certificate of it for `host`.
    ///
    /// # Errors
    ///
    /// See [`Authority::generate`].
    pub fn self_made(host: ServerName<'static>, now: Timestamp, metrics: Metrics) -> Result<Self, Error> {
        let authority = Box::new(Authority::generate(now, CA_LIFE)?);
        let hosts = vec![host];
        let leaf = authority.issue(&hosts, now, LEAF_LIFE)?;
        Ok(Self::new(Source::SelfMade { authority, hosts }, leaf, metrics))
    }

    fn new(source: Source, leaf: Leaf, metrics: Metrics) -> Self {
        metrics.certificate_expires(leaf.validity.not_after);
        Self { source, resolver: Arc::new(Resolver::new(leaf.certified)), validity: leaf.validity, metrics }
    }

    /// What the TLS configuration takes its certificate from.
    pub fn resolver(&self) -> Arc<Resolver> {
        self.resolver.clone()
    }

    /// The CA that clients have to trust, PEM; `None` when the certificate comes from files, whose owner knows its CA.
    pub fn ca_pem(&self) -> Option<&str> {
        match &self.source {
            Source::Files(_) => None,
            Source::SelfMade { authority, .. } => Some(authority.ca_pem()),
        }
    }

    /// Replaces the certificate if it is time, or if there is another.
    ///
    /// # Errors
    ///
    /// When that fails; the certificate is then the one that it was.
    pub async fn step(&mut self, now: Timestamp) -> Result<Step, Error> {
        let next = match &mut self.source {
            Source::Files(files) => files.changed().await?,
            Source::SelfMade { .. } if now < self.validity.renew_at() => None,
            Source::SelfMade { authority, hosts } => Some(authority.issue(hosts, now, LEAF_LIFE)?),
        };
        let Some(Leaf { certified, validity }) = next else {
            return Ok(Step::Kept);
        };
        self.resolver.replace(certified);
        self.validity = validity;
        self.metrics.certificate_expires(validity.not_after);
        Ok(Step::Replaced)
    }

    /// Keeps the certificate fresh until `stop`. A failure is logged and counted, and tried again.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(POLL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last_failure = None;
        while stop.run_until_cancelled(ticks.tick()).await.is_some() {
            match self.step(Timestamp::now()).await {
                Ok(Step::Kept) => last_failure = None,
                Ok(Step::Replaced) => {
                    last_failure = None;
                    tracing::info!(not_after = %self.validity.not_after, "the serving certificate was replaced");
                }
                Err(error) => {
                    self.metrics.certificate_reload_failed();
                    let error = format!("{:#}", anyhow::Error::from(error));
                    // Once for each kind of failure, not once a poll.
                    if last_failure.as_ref() != Some(&error) {
                        tracing::warn!(error, "the serving certificate was not replaced; the last good one stays");
                        last_failure = Some(error);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use jiff::SignedDuration;
    use rcgen::KeyPair;

    fn now() -> Timestamp {
        "2026-06-01T12:00:00Z".parse().unwrap()
    }

    fn days(days: i64) -> Timestamp {
        now().checked_add(SignedDuration::from_hours(24 * days)).unwrap()
    }

    /// Writes a pair the way the kubelet does: a directory of data, and a symbolic link to it that is swapped.
    fn mount(volume: &Path, version: &str, cert: &str, key: &str) {
        let data = volume.join(version);
        fs::create_dir(&data).unwrap();
        fs::write(data.join("tls.crt"), cert).unwrap();
        fs::write(data.join("tls.key"), key).unwrap();
        let link = volume.join("..data_tmp");
        symlink(version, &link).unwrap();
        fs::rename(&link, volume.join("..data")).unwrap();
        for file in ["tls.crt", "tls.key"] {
            if !volume.join(file).is_symlink() {
                symlink(Path::new("..data").join(file), volume.join(file)).unwrap();
            }
        }
    }

    fn pair(name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new([name.to_owned()]).unwrap();
        (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
    }

    async fn keeper(volume: &Path) -> Keeper {
        Keeper::files(volume.join("tls.crt"), volume.join("tls.key"), Metrics::default()).await.unwrap()
    }

    #[tokio::test]
    async fn a_swapped_mount_is_noticed() {
        let volume = tempfile::tempdir().unwrap();
        let (cert, key) = pair("a.example");
        mount(volume.path(), "1", &cert, &key);
        let mut keeper = keeper(volume.path()).await;
        let first = keeper.resolver().current().unwrap();
        assert_eq!(keeper.step(now()).await.unwrap(), Step::Kept);

        let (cert, key) = pair("a.example");
        mount(volume.path(), "2", &cert, &key);
        assert_eq!(keeper.step(now()).await.unwrap(), Step::Replaced);
        assert_ne!(keeper.resolver().current().unwrap().cert, first.cert);
        assert_eq!(keeper.step(now()).await.unwrap(), Step::Kept);
    }

    #[tokio::test]
    async fn a_bad_pair_keeps_the_last_good_one_until_a_good_one_comes() {
        let volume = tempfile::tempdir().unwrap();
        let (cert, key) = pair("a.example");
        mount(volume.path(), "1", &cert, &key);
        let mut keeper = keeper(volume.path()).await;
        let first = keeper.resolver().current().unwrap();

        let (cert, _) = pair("a.example");
        mount(volume.path(), "2", &cert, &key);
        for _ in 0..2 {
            assert!(matches!(keeper.step(now()).await, Err(Error::Pair(_))));
        }
        mount(volume.path(), "3", "", "");
        assert!(matches!(keeper.step(now()).await, Err(Error::Pem { .. })));
        fs::remove_file(volume.path().join("tls.key")).unwrap();
        assert!(matches!(keeper.step(now()).await, Err(Error::Read { .. })));
        assert_eq!(keeper.resolver().current().unwrap().cert, first.cert);

        let (cert, key) = pair("a.example");
        mount(volume.path(), "4", &cert, &key);
        assert_eq!(keeper.step(now()).await.unwrap(), Step::Replaced);
    }

    #[tokio::test]
    async fn a_self_made_certificate_is_renewed_under_the_same_ca_when_it_is_due() {
        let mut keeper = Keeper::self_made("a.example".try_into().unwrap(), now(), Metrics::default()).unwrap();
        let (ca, first) = (keeper.ca_pem().unwrap().to_owned(), keeper.resolver().current().unwrap());
        assert_eq!(keeper.step(days(59)).await.unwrap(), Step::Kept);
        assert_eq!(keeper.step(days(61)).await.unwrap(), Step::Replaced);
        assert_eq!(keeper.step(days(61)).await.unwrap(), Step::Kept);
        assert_eq!(keeper.ca_pem().unwrap(), ca);
        assert_ne!(keeper.resolver().current().unwrap().cert, first.cert);
    }

    #[tokio::test(start_paused = true)]
    async fn it_runs_until_it_is_told_to_stop() {
        let host = "a.example".try_into().unwrap();
        let keeper = Keeper::self_made(host, Timestamp::now(), Metrics::default()).unwrap();
        let stop = CancellationToken::new();
        let task = tokio::spawn(keeper.run(stop.clone()));
        stop.cancel();
        task.await.unwrap();
    }
}
