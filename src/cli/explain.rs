//! `kubectl confpin explain`: the last decision about a workload, and why.

use std::fmt::Write as _;

use anyhow::Context;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::api::{ApiResource, DynamicObject, ListParams};

use super::connection::ExemptArgs;
use super::history;
use super::output::{BAD, BOLD, FAINT, OutputArgs};
use super::workload::{Around, WorkloadArgs};
use super::{End, Error, gaps};
use crate::cluster;
use crate::inspect::age::age;
use crate::inspect::explain::{Explanation, explain};
use crate::inspect::status::{sources_to_read, status};

/// The width that sentences are broken at.
const WIDTH: usize = 78;

/// Arguments of `explain`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    workload: WorkloadArgs,

    #[command(flatten)]
    exempt: ExemptArgs,

    #[command(flatten)]
    output: OutputArgs,
}

/// Explains a workload.
///
/// # Errors
/// When there is no such workload, or the cluster cannot be asked.
pub async fn run(args: Args) -> Result<End, Error> {
    let mut around = args.workload.read().await?;
    let sources = sources_to_read(&around.facts);
    around.facts.read(&around.connection.cluster, sources).await;
    let events = events(&around).await.unwrap_or_else(|error| {
        around.facts.gaps.push(error);
        Vec::new()
    });
    let status = status(&around.facts, &args.exempt.exemptions(), true, |_| true);
    let (Some(seen), Some(workload)) = (around.facts.workloads.first(), status.workloads.first()) else {
        return Err(anyhow::anyhow!("failed to read {}", around.target).into());
    };
    let explanation = explain(&around.facts, seen, workload, &events);
    args.output.print(&explanation, |wide| {
        let mut text = text(&explanation);
        if !around.revisions.is_empty() {
            let _ = write!(text, "\n{BOLD}Revisions{BOLD:#}\n{}", history::text(&around.revisions, wide));
        }
        text
    })?;
    gaps(&around.facts.gaps)?;
    Ok(End::Fine)
}

async fn events(around: &Around) -> Result<Vec<Event>, cluster::Error> {
    let mut events = Vec::new();
    let uid = around.object.metadata.uid.as_deref().unwrap_or_default();
    let params = ListParams::default().fields(&format!("involvedObject.uid={uid}"));
    let each = |object: DynamicObject| {
        let event = serde_json::to_value(object).and_then(serde_json::from_value).context("an Event of another form");
        events.extend(event.ok());
    };
    let resource = ApiResource::erase::<Event>(&());
    around.connection.cluster.each_object(&resource, Some(&around.connection.namespace), params, each).await?;
    Ok(events)
}

fn text(explanation: &Explanation) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{BOLD}{} in namespace {}{BOLD:#}", explanation.workload, explanation.namespace);
    explanation.about.iter().for_each(|sentence| paragraph(&mut text, sentence, ""));
    if explanation.sources.is_empty() {
        paragraph(&mut text, "Its template names no ConfigMap.", "");
    }
    for about in &explanation.sources {
        let _ = writeln!(text, "\n{BOLD}ConfigMap {}{BOLD:#}", about.using.source);
        about.text.iter().for_each(|sentence| paragraph(&mut text, sentence, "  "));
    }
    if !explanation.events.is_empty() {
        let _ = writeln!(text, "\n{BOLD}Events of confpin{BOLD:#}");
    }
    let now = Timestamp::now();
    for event in &explanation.events {
        let at = event.at.map(|at| format!("{} ago", age(at, now))).unwrap_or_default();
        let style = if event.warning { BAD } else { anstyle::Style::new() };
        paragraph(&mut text, &format!("{style}{}{style:#}: {} {FAINT}({at}){FAINT:#}", event.reason, event.note), "  ");
    }
    text
}

/// Adds a sentence, broken at [`WIDTH`].
fn paragraph(text: &mut String, sentence: &str, indent: &str) {
    let mut used = 0;
    for word in sentence.split(' ') {
        let long = anstream::adapter::strip_str(word).to_string().chars().count();
        let (before, start) = match used {
            0 => (indent, indent.len()),
            used if used + 1 + long > WIDTH => ("\n", 0),
            used => (" ", used + 1),
        };
        text.push_str(before);
        used = start + long;
        if before == "\n" {
            text.push_str(indent);
            used += indent.len();
        }
        text.push_str(word);
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_are_broken_between_words() {
        let mut text = String::new();
        paragraph(&mut text, &["word"; 30].join(" "), "  ");
        assert!(text.lines().all(|line| line.starts_with("  word") && line.len() <= WIDTH), "{text}");
        assert_eq!(text.split_whitespace().count(), 30);
    }
}
