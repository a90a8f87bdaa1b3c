use super::*;

fn line(metrics: &Metrics, start: &str) -> String {
    let text = metrics.encode().unwrap();
    let found = text.lines().find(|line| line.starts_with(start));
    found.unwrap_or_else(|| panic!("no {start} in:\n{text}")).to_owned()
}

#[test]
fn what_happened_is_what_is_exposed() {
    let metrics = Metrics::new();
    metrics.clone().admitted("Deployment", Outcome::AdmittedUnpinned, true, Duration::from_millis(3));
    metrics.not_pinned(DenyReason::Forbidden);
    metrics.owned(Some(Duration::from_secs(2)));
    metrics.unpinned().set(7);
    metrics.certificate_expires("2026-06-01T00:00:00Z".parse().unwrap());
    for expected in [
        r#"confpin_admissions_total{kind="Deployment",outcome="admitted-unpinned",dry_run="true"} 1"#,
        r#"confpin_admission_duration_seconds_bucket{le="0.005"} 1"#,
        r#"confpin_admission_duration_seconds_bucket{le="30.0"} 1"#,
        r#"confpin_denials_total{reason="forbidden"} 1"#,
        "confpin_owner_delay_seconds_count 1",
        "confpin_unpinned_workloads 7",
        "confpin_certificate_expiry_timestamp_seconds 1780272000",
        r#"confpin_build_info{version="#,
    ] {
        line(&metrics, expected);
    }
    assert!(metrics.encode().unwrap().ends_with("# EOF\n"));
}

#[test]
fn counters_with_known_labels_begin_at_zero() {
    let metrics = Metrics::new();
    assert!(line(&metrics, r#"confpin_denials_total{reason="timeout"}"#).ends_with(" 0"));
    assert!(line(&metrics, r#"confpin_refreshes_total{cause="on-change"}"#).ends_with(" 0"));
}

#[test]
fn shares_add_up() {
    let metrics = Metrics::new();
    let (one, other) = (metrics.unpinned(), metrics.unpinned());
    one.set(3);
    other.set(4);
    one.set(1);
    assert_eq!(line(&metrics, "confpin_unpinned_workloads"), "confpin_unpinned_workloads 5");
}

#[test]
fn a_watch_lists_until_it_has_listed() {
    let metrics = Metrics::new();
    let (one, other) = (metrics.watch("snapshots"), metrics.watch("snapshots"));
    let listing = || line(&metrics, r#"confpin_watches_listing{watch="snapshots"}"#);
    assert!(listing().ends_with(" 2"));
    one.has_listed();
    other.has_listed();
    assert!(listing().ends_with(" 0"));
    one.failed(&"gone");
    assert!(listing().ends_with(" 0"), "it continues from where it was");
    one.lists();
    assert!(listing().ends_with(" 1"));
    assert!(line(&metrics, r#"confpin_watch_errors_total{watch="snapshots"}"#).ends_with(" 1"));
}

#[test]
fn a_request_is_in_flight_until_it_is_dropped() {
    let metrics = Metrics::new();
    let request = metrics.in_flight();
    assert_eq!(line(&metrics, "confpin_requests_in_flight"), "confpin_requests_in_flight 1");
    drop(request);
    assert_eq!(line(&metrics, "confpin_requests_in_flight"), "confpin_requests_in_flight 0");
}

#[test]
fn every_name_begins_with_the_program() {
    let text = Metrics::new().encode().unwrap();
    assert!(text.lines().filter(|line| !line.starts_with('#')).all(|line| line.starts_with("confpin_")));
}
