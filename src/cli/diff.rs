//! `kubectl confpin diff`: what differs between the configuration of two revisions.

use std::fmt::Write as _;
use std::str::FromStr;

use anyhow::{Context, Result};

use super::connection::ExemptArgs;
use super::output::{BAD, BOLD, FAINT, GOOD, OutputArgs};
use super::workload::{Around, WorkloadArgs};
use super::{End, Error, gaps};
use crate::cluster::Cluster;
use crate::inspect::difference::{Bytes, KeyDiff, Side, SourceDiff, Version, differences};
use crate::inspect::foresee::{Sources, renamed, workload};
use crate::inspect::history::Role;
use crate::pin::content::Content;
use crate::pin::exempt::Exemptions;
use crate::pin::meta;
use crate::pin::record::Record;
use crate::pin::references::names;
use crate::pin::request::Request;
use crate::pin::snapshot;

/// Arguments of `diff`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    workload: WorkloadArgs,

    /// The first side: a revision's number, or current or stable.
    #[arg(long, value_name = "REVISION", default_value = "current")]
    from: Point,

    /// The second side: a revision's number, current, stable, live (the sources as they are), or next (what the next apply
    /// would pin).
    #[arg(long, value_name = "REVISION", default_value = "next")]
    to: Point,

    #[command(flatten)]
    exempt: ExemptArgs,

    #[command(flatten)]
    output: OutputArgs,
}

/// A configuration of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Point {
    Revision(i64),
    Current,
    Stable,
    Live,
    Next,
}

impl FromStr for Point {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "current" => Ok(Self::Current),
            "stable" => Ok(Self::Stable),
            "live" => Ok(Self::Live),
            "next" => Ok(Self::Next),
            _ => {
                text.parse().map(Self::Revision).map_err(|_| "want a revision's number, current, stable, live or next")
            }
        }
    }
}

impl std::fmt::Display for Point {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Revision(number) => write!(f, "revision {number}"),
            Self::Current => f.write_str("current"),
            Self::Stable => f.write_str("stable"),
            Self::Live => f.write_str("live"),
            Self::Next => f.write_str("next"),
        }
    }
}

/// Prints what differs. Ends with [`End::Attention`] when something does.
///
/// # Errors
/// When there is no such workload or revision, or the cluster cannot be asked.
pub async fn run(args: Args) -> Result<End, Error> {
    let around = args.workload.read().await?;
    let exemptions = args.exempt.exemptions();
    let from = side(&around, args.from, &exemptions).await?;
    let to = side(&around, args.to, &exemptions).await?;
    let found = differences(&from, &to);
    args.output.print(&found, |_| text(&found, &args.from.to_string(), &args.to.to_string()))?;
    gaps(&around.facts.gaps)?;
    Ok(if found.is_empty() { End::Fine } else { End::Attention })
}

async fn side(around: &Around, point: Point, exemptions: &Exemptions) -> Result<Side> {
    let kind = around.target.kind;
    let own = kind.template_of(&around.object.data);
    let with_role = |role: Role| around.revisions.iter().find(|revision| revision.roles.contains(&role));
    let template = match point {
        // A Rollout that refers to a Deployment has no template of its own, and its newest ReplicaSet has it.
        Point::Current | Point::Live | Point::Next if !own.is_null() => own,
        Point::Current | Point::Live | Point::Next => {
            let current = with_role(Role::Canary).or_else(|| with_role(Role::Current));
            &current.context("failed to find the current revision")?.template
        }
        Point::Stable => {
            let stable = with_role(Role::Stable);
            &stable.with_context(|| format!("failed to find a stable revision of {}", around.target))?.template
        }
        Point::Revision(number) => {
            let found = around.revisions.iter().find(|revision| revision.number == number);
            let told = || format!("failed to find revision {number} of {}; `history` lists them", around.target);
            &found.with_context(told)?.template
        }
    };
    let (cluster, namespace) = (&around.connection.cluster, around.connection.namespace.as_str());
    let mut side = Side::new();
    if point == Point::Next {
        // As a creation, so that no rule but the fourth applies: a changed template that is no rollback's.
        let new = workload(kind, &around.object).with_context(|| format!("failed to read {}", around.target))?;
        let opted_out = around.facts.namespace(namespace).opts_out;
        let request = Request { kind, name: around.target.name.clone(), new, old: None, namespace_opts_out: opted_out };
        let sources = Sources { cluster: Some(cluster), applied: &<_>::default() };
        if let Some(foreseen) = sources.foresee(namespace, &request, exemptions).await? {
            let template = renamed(template, &foreseen.decision.renames);
            for (name, source) in foreseen.snapshots {
                side.insert(source.name, Version { name, content: Some(source.content) });
            }
            add(&mut side, around, cluster, &template, false).await?;
            return Ok(side);
        }
    }
    add(&mut side, around, cluster, template, point == Point::Live).await?;
    Ok(side)
}

/// Adds what `template` names, or with `live` the sources of that.
async fn add(
    side: &mut Side,
    around: &Around,
    cluster: &Cluster,
    template: &serde_json::Value,
    live: bool,
) -> Result<()> {
    let namespace = around.connection.namespace.as_str();
    let annotations = around.object.metadata.annotations.as_ref();
    let record = annotations.and_then(|annotations| annotations.get(meta::RECORD));
    let record = record.map(|text| Record::parse(text)).unwrap_or_default();
    for name in names(template) {
        let mut found = cluster.configmap(namespace, &name).await?;
        let source = match &found {
            Some(configmap) => snapshot::recognise_metadata(&configmap.metadata).map(|provenance| provenance.source),
            None => record.source_of(&name),
        };
        let source = source.unwrap_or_else(|| name.clone());
        if side.contains_key(&source) {
            continue;
        }
        if live && source != name {
            found = cluster.configmap(namespace, &source).await?;
        }
        let name = if live { source.clone() } else { name };
        side.insert(source, Version { name, content: found.as_ref().map(Content::of) });
    }
    Ok(())
}

/// The differences as a unified diff. `from` and `to` say what the sides are.
pub fn text(found: &[SourceDiff], from: &str, to: &str) -> String {
    let mut text = String::new();
    for source in found {
        let side = |name: &Option<String>, point: &str| match name {
            Some(name) => format!("{name} ({point})"),
            None => format!("not named ({point})"),
        };
        let (from, to) = (side(&source.from, from), side(&source.to, to));
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{BOLD}ConfigMap {}{BOLD:#}\n  from {from}\n  to   {to}", source.source);
        source.keys.iter().for_each(|key| key_text(&mut text, key));
        if source.keys.is_empty() {
            let _ = writeln!(text, "{FAINT}no content differs{FAINT:#}");
        }
    }
    text
}

fn key_text(text: &mut String, key: &KeyDiff) {
    let name = |is: bool| if is { key.key.as_str() } else { "/dev/null" };
    let Some(diff) = &key.diff else {
        let told = |bytes: &Option<Bytes>| match bytes {
            Some(Bytes { size, sha256 }) => format!("{size} bytes, SHA-256 {}", &sha256[..16]),
            None => "none".to_owned(),
        };
        let _ = writeln!(text, "binary key {}", key.key);
        let _ = writeln!(text, "{BAD}- {}{BAD:#}\n{GOOD}+ {}{GOOD:#}", told(&key.from), told(&key.to));
        return;
    };
    let _ = writeln!(text, "{BAD}--- {}{BAD:#}\n{GOOD}+++ {}{GOOD:#}", name(key.was), name(key.is));
    for line in diff.lines() {
        let style = match line.as_bytes().first() {
            Some(b'+') => GOOD,
            Some(b'-') => BAD,
            Some(b'@') => FAINT,
            _ => anstyle::Style::new(),
        };
        let _ = writeln!(text, "{style}{}{style:#}", harmless(line));
    }
}

/// `line` without control characters: content must not control the user's terminal.
fn harmless(line: &str) -> String {
    let show = |c: char| if c.is_control() && c != '\t' { c.escape_default().to_string() } else { c.to_string() };
    line.chars().map(show).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_steers_no_terminal() {
        assert_eq!(harmless("a\tb\x1b[31m\r"), "a\tb\\u{1b}[31m\\r");
    }

    #[test]
    fn points_are_numbers_or_words() {
        assert_eq!("7".parse(), Ok(Point::Revision(7)));
        assert_eq!("stable".parse(), Ok(Point::Stable));
        assert!("newest".parse::<Point>().is_err());
    }
}
