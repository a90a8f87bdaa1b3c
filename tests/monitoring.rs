//! What holds for `manifests/monitoring`: alerts raise when they should, each has a runbook entry, and all metrics exist.

use std::collections::BTreeSet;
use std::env;
use std::error::Error;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use confpin::observe::labels::{DenyReason, Outcome, RefreshCause, Rejection, SnapshotUse};
use confpin::observe::metrics::Metrics;
use serde_json::Value;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests/monitoring")
}

fn read(path: &str) -> Result<String, Box<dyn Error>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()).into())
}

/// The rules of alerts.
fn alerts() -> Result<Vec<Value>, Box<dyn Error>> {
    let rules: Value = serde_saphyr::from_str(&read("manifests/monitoring/rules.yaml")?)?;
    let groups = rules["groups"].as_array().ok_or("there are no groups")?;
    let alerts: Vec<_> = groups.iter().flat_map(|group| group["rules"].as_array()).flatten().cloned().collect();
    assert!(!alerts.is_empty(), "there are no rules");
    Ok(alerts)
}

fn name(alert: &Value) -> &str {
    alert["alert"].as_str().unwrap_or_default()
}

#[test]
fn alerts_raise_when_they_should() -> Result<(), Box<dyn Error>> {
    for arguments in [["check", "rules", "rules.yaml"], ["test", "rules", "rules_test.yaml"]] {
        let output = match Command::new("promtool").args(arguments).current_dir(folder()).output() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let needed = ["CI", "CONFPIN_TEST_NO_SKIP"].map(env::var_os).into_iter().flatten().next().is_some();
                assert!(!needed, "skipped where nothing may be: promtool is missing (Debian's package prometheus)");
                eprintln!("skipped: promtool is missing (Debian's package prometheus)");
                return Ok(());
            }
            output => output?,
        };
        let told = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "promtool {arguments:?}: {}", String::from_utf8_lossy(&told));
    }
    Ok(())
}

#[test]
fn each_alert_is_tested_and_has_a_runbook_entry() -> Result<(), Box<dyn Error>> {
    let (tests, runbooks) = (read("manifests/monitoring/rules_test.yaml")?, read("docs/runbooks.md")?);
    let mut entries: BTreeSet<_> = runbooks.lines().filter_map(|line| line.strip_prefix("## Confpin")).collect();
    for alert in alerts()? {
        let name = name(&alert);
        let suffix = name.strip_prefix("Confpin").ok_or("alerts begin with the program's name")?;
        assert!(entries.remove(suffix), "docs/runbooks.md has no entry `## {name}`");
        let place = format!("docs/runbooks.md#{}", name.to_lowercase());
        assert_eq!(alert["annotations"]["runbook"].as_str(), Some(place.as_str()), "{name}");
        assert!(["critical", "warning"].map(Some).contains(&alert["labels"]["severity"].as_str()), "{name}");
        assert!(
            tests.contains(&format!("alertname=\"{name}\"")) || tests.contains(&format!("alertname: {name}")),
            "{name}"
        );
    }
    assert!(entries.is_empty(), "docs/runbooks.md has entries of no alert: {entries:?}");
    Ok(())
}

#[test]
fn each_metric_of_the_alerts_and_the_dashboard_exists() -> Result<(), Box<dyn Error>> {
    let mut expressions: Vec<_> =
        alerts()?.iter().filter_map(|alert| Some(alert["expr"].as_str()?.to_owned())).collect();
    let dashboard: Value = serde_json::from_str(&read("manifests/monitoring/dashboard.json")?)?;
    let panels = dashboard["panels"].as_array().ok_or("there are no panels")?;
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array()).flatten();
    expressions.extend(targets.filter_map(|target| Some(target["expr"].as_str()?.to_owned())));
    let existing = exposed()?;
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = expressions.iter().flat_map(|text| text.split(|c| !is_part(c)));
    let used: BTreeSet<_> = words.filter(|word| word.starts_with("confpin_")).collect();
    let missing: Vec<_> = used.iter().filter(|name| !existing.contains(**name)).collect();
    assert!(used.len() > 15 && missing.is_empty(), "confpin exposes no {missing:?}");
    Ok(())
}

/// The names of all series that confpin exposes once everything has happened.
fn exposed() -> Result<BTreeSet<String>, Box<dyn Error>> {
    let metrics = Metrics::new();
    metrics.admitted("Deployment", Outcome::Pinned, false, Duration::ZERO);
    metrics.not_pinned(DenyReason::Forbidden);
    metrics.rejected(Rejection::Busy);
    metrics.snapshot_used(SnapshotUse::Created);
    metrics.refreshed(RefreshCause::Missing);
    metrics.owned(Some(Duration::ZERO));
    metrics.watch("snapshots");
    let text = metrics.encode()?;
    let series = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split(['{', ' ']).next());
    Ok(series.map(str::to_owned).collect())
}
