//! The requests that the API server answered, from its audit log.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{Read, Seek, SeekFrom},
    path::PathBuf,
    time::Duration,
};

use anyhow::{Context, Result};
use http::Request;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::{Client, Config};
use serde::Deserialize;

use crate::{random, wait_for};

/// How long the API server may take to log a request that it answered.
const LOGGED: Duration = Duration::from_secs(30);
/// Begins the paths of the requests that find the end of the log.
const BARRIER: &str = "/version?testcluster-audit=";

/// The audit log. Made by [`Cluster::audit`](crate::Cluster::audit).
#[derive(Debug, Clone)]
pub struct Audit {
    path: PathBuf,
    config: Config,
}

/// A place in the audit log.
#[derive(Debug, Clone, Copy)]
pub struct Mark(u64);

/// A request that was answered. Watches are listed when they end.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditEvent {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, ….
    pub verb: String,
    /// The path with its query.
    #[serde(rename = "requestURI")]
    pub uri: String,
    /// Who asked.
    pub user: AuditUser,
    /// The client's name for itself.
    #[serde(default)]
    pub user_agent: String,
    /// What was asked for, unless the path is no object's.
    pub object_ref: Option<ObjectRef>,
    /// How it was answered.
    #[serde(default)]
    pub response_status: ResponseStatus,
    /// What the authoriser and admission noted.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
    /// When the request came.
    #[serde(rename = "requestReceivedTimestamp")]
    pub received: MicroTime,
    /// When it was answered.
    #[serde(rename = "stageTimestamp")]
    pub answered: MicroTime,
}

/// The one who asked.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct AuditUser {
    /// The user's name.
    #[serde(default)]
    pub username: String,
    /// The user's groups.
    #[serde(default)]
    pub groups: Vec<String>,
}

/// The object or collection of a request; absent parts are empty.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectRef {
    /// The API group.
    pub api_group: String,
    /// The version of the API group.
    pub api_version: String,
    /// The kind, as in paths: `configmaps`.
    pub resource: String,
    /// The part of the object: `status`, `scale`, `token`, ….
    pub subresource: String,
    /// The object's namespace.
    pub namespace: String,
    /// The object's name.
    pub name: String,
}

/// The answer.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct ResponseStatus {
    /// The HTTP status.
    #[serde(default)]
    pub code: u16,
}

impl AuditEvent {
    /// Whether it is a request of this verb for this kind: `event.is("create", "configmaps")`.
    #[must_use]
    pub fn is(&self, verb: &str, resource: &str) -> bool {
        self.verb == verb && self.object_ref.as_ref().is_some_and(|object| object.resource == resource)
    }
}

impl Audit {
    pub(crate) fn new(path: PathBuf, config: Config) -> Self {
        Self { path, config }
    }

    /// The end of the log after every request that was answered before this call.
    ///
    /// # Errors
    /// If the API server does not answer.
    pub async fn mark(&self) -> Result<Mark> {
        let begin = self.length()?;
        let uri = self.barrier().await?;
        let end = wait_for("a request in the audit log", LOGGED, async || self.find(&uri, begin)).await?;
        Ok(Mark(end))
    }

    /// The requests that were answered after the mark and before this call.
    ///
    /// # Errors
    /// If the API server does not answer or its log cannot be read.
    pub async fn since(&self, mark: &Mark) -> Result<Vec<AuditEvent>> {
        let end = self.mark().await?;
        parse(&self.read(mark.0, end.0)?)
    }

    /// All requests that are in the log by now: one that was just answered may be missing.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn logged(&self) -> Result<Vec<AuditEvent>> {
        let text = self.read(0, u64::MAX)?;
        // The last line may be on its way.
        parse(text.rsplit_once('\n').map_or("", |(lines, _)| lines))
    }

    /// Makes a request that can be found in the log. It goes over a connection of its own, so that it is answered
    /// later, and logged later, than what was answered before.
    async fn barrier(&self) -> Result<String> {
        let uri = format!("{BARRIER}{}", random::token()?);
        let client = Client::try_from(self.config.clone())?;
        client.request_text(Request::get(&uri).body(Vec::new())?).await?;
        Ok(uri)
    }

    /// The place after the line of a barrier, if it is there.
    fn find(&self, uri: &str, begin: u64) -> Result<Option<u64>> {
        let text = self.read(begin, u64::MAX)?;
        let end = text.find(uri).and_then(|at| Some(at + text[at..].find('\n')? + 1));
        Ok(end.map(|end| begin + end as u64))
    }

    fn length(&self) -> Result<u64> {
        Ok(fs::metadata(&self.path).with_context(|| format!("failed to read {}", self.path.display()))?.len())
    }

    fn read(&self, from: u64, to: u64) -> Result<String> {
        let failed = || format!("failed to read {}", self.path.display());
        let mut file = File::open(&self.path).with_context(failed)?;
        file.seek(SeekFrom::Start(from)).with_context(failed)?;
        let mut bytes = Vec::new();
        file.take(to.saturating_sub(from)).read_to_end(&mut bytes).with_context(failed)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

fn parse(lines: &str) -> Result<Vec<AuditEvent>> {
    lines
        .lines()
        .filter(|line| !line.contains(BARRIER))
        .map(|line| serde_json::from_str(line).with_context(|| format!("failed to read the audit event {line}")))
        .collect()
}
