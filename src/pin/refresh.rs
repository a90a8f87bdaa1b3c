//! When the reconciler asks admission to decide a workload again.
//!
//! It never edits a template: it sets the refresh annotation, and rule 4 does the rest. Whether there is something to
//! do is told by the record alone, so that a restart or a change of leader rolls nothing, nothing that happened in
//! the meantime is missed, and an undo, whose record is the present, stays until a source changes again.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::pin::content::ContentHash;
use crate::pin::record::Record;
use crate::pin::snapshot;

/// Distinguishes the value of a refresh that had no effect from the next attempt.
const AGAIN: &str = ",again";

/// A source as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Current {
    /// The hash of its name and content.
    pub hash: ContentHash,
    /// Its resourceVersion.
    pub resource_version: String,
}

/// Why a workload is refreshed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// A source that was missing is there.
    Appeared,
    /// A source changed just after the workload was decided: it was applied after the workload, in one go with it.
    Settle,
    /// A source changed, and the workload follows its sources (`confpin.dev/rollout: on-change`).
    OnChange,
}

/// When a workload follows its sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Follows {
    /// Always, because it is asked to.
    pub on_change: bool,
    /// For a moment, because it has just been decided.
    pub settling: bool,
}

/// A refresh that is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refresh {
    /// Why.
    pub cause: Cause,
    /// The value for the refresh annotation, `app-config@1234`: the same in every replica that sees the same sources.
    pub value: String,
    /// Whether the same refresh was requested before, without effect.
    pub is_repeated: bool,
}

/// The sources of a record that could be a reason for a refresh: only these need to be read. `names` are the ConfigMaps
/// that the template references.
#[must_use]
pub fn sources_to_read<'a>(record: &'a Record, names: &[Arc<str>], follows: Follows) -> Vec<&'a str> {
    let could_be_due = |source: &str, recorded: Option<&ContentHash>| {
        waits_for(source, recorded, names)
            || (follows.on_change && is_referenced(source, names))
            || (follows.settling && is_newest(source, recorded, names))
    };
    let sources = record.0.iter().filter(|(source, recorded)| could_be_due(source, recorded.as_ref()));
    sources.map(|(source, _)| source.as_str()).collect()
}

/// Whether the template references a source, or a snapshot of it. Only a decision rewrites the record, and none follows
/// when the last reference is removed, so that the record can have sources that the workload no longer uses.
fn is_referenced(source: &str, names: &[Arc<str>]) -> bool {
    names.iter().any(|name| **name == *source || snapshot::may_be_of(name, source))
}

/// Whether the template references the snapshot of the content that the source had at the decision. After an undo it
/// references an older one, which must stay.
fn is_newest(source: &str, recorded: Option<&ContentHash>, names: &[Arc<str>]) -> bool {
    recorded
        .is_some_and(|hash| snapshot::names(source, hash).iter().any(|own| names.iter().any(|name| **name == **own)))
}

/// Whether a workload waits for a source: it was missing, and the template names it. With a snapshot's name in its place
/// (an undo while the source was missing) the workload runs, and waits for nothing.
fn waits_for(source: &str, recorded: Option<&ContentHash>, names: &[Arc<str>]) -> bool {
    recorded.is_none() && names.iter().any(|name| **name == *source)
}

/// Compares a workload's record with its sources as they are now, `names` being what its template names. A source that
/// is missing now is no reason: the workload runs on its snapshot. `present` is the refresh annotation as it stands.
#[must_use]
pub fn due(
    record: &Record,
    names: &[Arc<str>],
    sources: &BTreeMap<String, Option<Current>>,
    follows: Follows,
    present: Option<&str>,
) -> Option<Refresh> {
    let reasons: Vec<_> = record
        .0
        .iter()
        .filter_map(|(source, recorded)| {
            let current = sources.get(source)?.as_ref()?;
            let cause = if waits_for(source, recorded.as_ref(), names) {
                Cause::Appeared
            } else if *recorded == Some(current.hash) {
                return None;
            } else if follows.on_change && is_referenced(source, names) {
                Cause::OnChange
            } else if follows.settling && is_newest(source, recorded.as_ref(), names) {
                Cause::Settle
            } else {
                return None;
            };
            Some((cause, format!("{source}@{}", current.resource_version)))
        })
        .collect();
    let cause = reasons.iter().map(|(cause, _)| *cause).min()?;
    let mut value = reasons.into_iter().map(|(_, value)| value).collect::<Vec<_>>().join(",");
    let is_repeated = present.is_some_and(|present| present.strip_suffix(AGAIN).unwrap_or(present) == value);
    if present == Some(value.as_str()) {
        // Requested before, and the record shows no effect: the webhook was down under failurePolicy Ignore. Only another
        // value is a change.
        value.push_str(AGAIN);
    }
    Some(Refresh { cause, value, is_repeated })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::pin::content::Content;

    fn hash(value: &str) -> ContentHash {
        Content { data: BTreeMap::from([("k".into(), value.into())]), ..<_>::default() }.hash("app")
    }

    fn now(value: Option<&str>) -> BTreeMap<String, Option<Current>> {
        let current = value.map(|value| Current { hash: hash(value), resource_version: "7".into() });
        BTreeMap::from([("app".to_owned(), current)])
    }

    fn record(value: Option<&str>) -> Record {
        Record(BTreeMap::from([("app".to_owned(), value.map(hash))]))
    }

    fn names(name: &str) -> Vec<Arc<str>> {
        vec![name.into()]
    }

    fn snapshot_of(value: &str) -> String {
        snapshot::names("app", &hash(value))[0].clone()
    }

    const NEVER: Follows = Follows { on_change: false, settling: false };
    const ON_CHANGE: Follows = Follows { on_change: true, settling: false };
    const SETTLING: Follows = Follows { on_change: false, settling: true };

    #[rstest]
    #[case::appeared(None, Some("1"), NEVER, Some(Cause::Appeared))]
    #[case::still_missing(None, None, ON_CHANGE, None)]
    #[case::changed(Some("1"), Some("2"), NEVER, None)]
    #[case::changed_and_follows(Some("1"), Some("2"), ON_CHANGE, Some(Cause::OnChange))]
    #[case::changed_at_once(Some("1"), Some("2"), SETTLING, Some(Cause::Settle))]
    #[case::same(Some("1"), Some("1"), ON_CHANGE, None)]
    #[case::deleted(Some("1"), None, ON_CHANGE, None)]
    fn tells_when(
        #[case] recorded: Option<&str>,
        #[case] current: Option<&str>,
        #[case] follows: Follows,
        #[case] expected: Option<Cause>,
    ) {
        let template = recorded.map_or_else(|| "app".to_owned(), snapshot_of);
        let refresh = due(&record(recorded), &names(&template), &now(current), follows, None);
        assert_eq!(refresh.as_ref().map(|refresh| refresh.cause), expected);
        if let Some(refresh) = refresh {
            assert_eq!(refresh.value, "app@7");
        }
    }

    #[test]
    fn a_refresh_that_had_no_effect_is_asked_for_again_by_another_value() {
        let refresh = |present| {
            let refresh = due(&record(None), &names("app"), &now(Some("1")), NEVER, present).expect("due");
            (refresh.value, refresh.is_repeated)
        };
        assert_eq!(refresh(None), ("app@7".to_owned(), false));
        assert_eq!(refresh(Some("app@6")), ("app@7".to_owned(), false));
        assert_eq!(refresh(Some("app@7")), ("app@7,again".to_owned(), true));
        assert_eq!(refresh(Some("app@7,again")), ("app@7".to_owned(), true));
    }

    #[test]
    fn a_source_that_the_template_no_longer_references_is_no_reason() {
        for follows in [ON_CHANGE, SETTLING] {
            let (record, names) = (record(Some("1")), names("other"));
            assert_eq!(sources_to_read(&record, &names, follows), [""; 0]);
            assert_eq!(due(&record, &names, &now(Some("2")), follows, None), None);
        }
    }

    #[test]
    fn a_workload_that_was_undone_does_not_settle() {
        let (record, names) = (record(Some("2")), names(&snapshot_of("1")));
        assert_eq!(sources_to_read(&record, &names, SETTLING), [""; 0]);
        assert_eq!(due(&record, &names, &now(Some("3")), SETTLING, None), None);
        assert_eq!(due(&record, &names, &now(Some("3")), ON_CHANGE, None).map(|it| it.cause), Some(Cause::OnChange));
    }

    #[test]
    fn only_what_could_matter_is_read() {
        let mut record = record(Some("1"));
        record.0.insert("late".into(), None);
        assert_eq!(sources_to_read(&record, &names("late"), NEVER), ["late"]);
        assert_eq!(sources_to_read(&record, &names("late-0123456789"), NEVER), [""; 0]);
        let both = vec![Arc::from("late"), Arc::from(snapshot_of("1"))];
        assert_eq!(sources_to_read(&record, &both, SETTLING), ["app", "late"]);
        assert_eq!(sources_to_read(&record, &both, ON_CHANGE), ["app", "late"]);
    }

    #[test]
    fn an_undo_to_a_snapshot_while_the_source_was_missing_stays() {
        let refresh = |follows| due(&record(None), &names("app-0123456789"), &now(Some("2")), follows, None);
        assert_eq!(refresh(NEVER), None);
        assert_eq!(refresh(ON_CHANGE).map(|refresh| refresh.cause), Some(Cause::OnChange));
    }
}
