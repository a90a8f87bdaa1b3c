//! The types of single arguments: each parses itself from text, or says what is wrong and what would be right.
//! The parser of the command line prepends the option's name.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use axum::http::Uri;
use jiff::fmt::friendly::SpanParser;
use rustls::pki_types::ServerName;

use crate::pin::references::is_configmap_name;

/// Why a single argument is refused.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not a duration.
    #[error("want a duration such as 30s, 10m, 1h30m or 0")]
    Period(#[source] jiff::Error),
    /// Not a size.
    #[error("want a number of bytes, or one with a unit: 512Ki, 16Mi")]
    ByteSize,
    /// Not a URL at all.
    #[error("want a URL such as https://127.0.0.1:8443/mutate")]
    Url(#[source] axum::http::uri::InvalidUri),
    /// A URL that the API server would refuse in a webhook configuration, or that confpin cannot serve.
    #[error("{0}; want a URL such as https://127.0.0.1:8443/mutate")]
    UrlRule(&'static str),
    /// Not the name of an object.
    #[error(
        "want the name of an object: lower-case letters, digits, '-' and '.', at most 253 characters, \
         a letter or digit at both ends of each part"
    )]
    ObjectName,
}

/// A length of time that is not negative: `30s`, `10m`, `1h30m`, `500ms`, or a plain `0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Period(Duration);

impl Period {
    /// The length of time.
    pub fn get(self) -> Duration {
        self.0
    }
}

impl FromStr for Period {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if text == "0" {
            return Ok(Self(Duration::ZERO));
        }
        SpanParser::new().parse_unsigned_duration(text).map(Self).map_err(Error::Period)
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// A number of bytes: plain, or with the unit `Ki` or `Mi` as Kubernetes writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteSize(usize);

impl ByteSize {
    /// The number of bytes.
    pub fn bytes(self) -> usize {
        self.0
    }
}

impl FromStr for ByteSize {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (digits, unit) = match text.strip_suffix("Ki") {
            Some(digits) => (digits, 1 << 10),
            None => text.strip_suffix("Mi").map_or((text, 1), |digits| (digits, 1 << 20)),
        };
        let number: usize = digits.parse().map_err(|_| Error::ByteSize)?;
        number.checked_mul(unit).map(Self).ok_or(Error::ByteSize)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0)
    }
}

/// The URL by which an API server outside the cluster's network calls this process.
///
/// The rules are those of `webhooks[].clientConfig.url`: `https`, a host, no user info, no query, no fragment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookUrl {
    uri: Uri,
    host: ServerName<'static>,
}

impl WebhookUrl {
    /// The host, which the certificate has to name.
    pub fn host(&self) -> &ServerName<'static> {
        &self.host
    }

    /// The port that is called.
    pub fn port(&self) -> u16 {
        self.uri.port_u16().unwrap_or(443)
    }

    /// The path, or `None` when the URL leaves it to confpin.
    pub fn path(&self) -> Option<&str> {
        Some(self.uri.path()).filter(|path| *path != "/")
    }

    /// The URL to register: this one, with `path` where it names none.
    pub fn with_default_path(&self, path: &str) -> String {
        let authority = self.uri.authority().map_or("", |authority| authority.as_str());
        format!("https://{authority}{}", self.path().unwrap_or(path))
    }
}

impl FromStr for WebhookUrl {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        // `Uri` drops a fragment without a word.
        if text.contains('#') {
            return Err(Error::UrlRule("a fragment is not allowed"));
        }
        let uri: Uri = text.parse().map_err(Error::Url)?;
        if uri.scheme_str() != Some("https") {
            return Err(Error::UrlRule("an API server calls webhooks by https only"));
        }
        let authority = uri.authority().ok_or(Error::UrlRule("a host is needed"))?;
        if authority.as_str().contains('@') {
            return Err(Error::UrlRule("user info is not allowed"));
        }
        if uri.query().is_some() {
            return Err(Error::UrlRule("a query is not allowed"));
        }
        if uri.port_u16() == Some(0) {
            return Err(Error::UrlRule("port 0 cannot be called"));
        }
        // A certificate names an IPv6 address without the brackets that a URL needs.
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let host = ServerName::try_from(host)
            .map_err(|_| Error::UrlRule("the host is neither a DNS name nor an IP address"))?;
        Ok(Self { uri, host })
    }
}

impl fmt::Display for WebhookUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.uri.fmt(f)
    }
}

/// What a workload gets whose ConfigMaps cannot be pinned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum OnError {
    /// It is refused, with the reason.
    Deny,
    /// It is admitted as it was sent, with a warning to the client.
    Admit,
}

/// How log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// The name of an object: a DNS-1123 subdomain, as the API server demands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectName(String);

impl ObjectName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for ObjectName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if is_configmap_name(text) { Ok(Self(text.to_owned())) } else { Err(Error::ObjectName) }
    }
}
