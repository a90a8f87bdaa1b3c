//! The record on a workload: what each of its sources contained when its template was decided.
//!
//! The text is deterministic, `{"app-config":"<64 hex>","late":null}`: it changes only with what it says, so no
//! diff and no re-admission moves it. `null` is a source that did not exist. The reconciler compares it with the
//! sources, so that nothing is forgotten over a restart and an undo is not undone.

use std::collections::BTreeMap;

use crate::pin::content::ContentHash;
use crate::pin::kinds::WorkloadKind;
use crate::pin::references;
use crate::pin::snapshot;

/// How many sources a record can have. A longer one is not admission's, whose `--max-references` is at most this.
pub const MAX_SOURCES: usize = 4096;

/// Content hash by source name; `None` for a source that did not exist.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Record(pub BTreeMap<String, Option<ContentHash>>);

impl Record {
    /// Reads the annotation's text, which any user of the namespace can write. Entries that confpin cannot have written
    /// are ignored, so that every source is a valid name of a ConfigMap: the next decision writes the record again.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let entries: BTreeMap<String, Option<String>> = serde_json::from_str(text).unwrap_or_default();
        Self(
            entries
                .into_iter()
                .filter(|(source, _)| references::is_configmap_name(source))
                .take(MAX_SOURCES)
                .filter_map(|(source, hash)| match hash {
                    None => Some((source, None)),
                    Some(hash) => hash.parse().ok().map(|hash| (source, Some(hash))),
                })
                .collect(),
        )
    }

    /// The source that `name` stands for although nothing has that name any more, if it could be a snapshot's of one
    /// of the sources: the snapshot was deleted.
    #[must_use]
    pub fn source_of(&self, name: &str) -> Option<String> {
        // A source that is missing can have such a name too; its own record says so.
        if self.0.contains_key(name) {
            return None;
        }
        self.0.keys().find(|source| snapshot::may_be_of(name, source)).cloned()
    }

    /// The annotation's text.
    #[must_use]
    pub fn text(&self) -> String {
        let entries: serde_json::Map<_, _> =
            self.0.iter().map(|(source, hash)| (source.clone(), hash.map(|hash| hash.to_string()).into())).collect();
        serde_json::Value::Object(entries).to_string()
    }
}

/// A workload was decided, though it may yet be refused after us.
#[derive(Debug, Clone)]
pub struct Decided {
    /// Its kind.
    pub kind: &'static WorkloadKind,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// What each source contained.
    pub sources: Record,
    /// The resourceVersion of each source; `None` for one that does not exist.
    pub versions: BTreeMap<String, Option<String>>,
    /// Whether it was the reconciler that asked.
    pub is_refresh: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pin::content::Content;

    #[test]
    fn text_and_record_go_round() {
        let record = Record(BTreeMap::from([
            ("late".to_owned(), None),
            ("app-config".to_owned(), Some(Content::default().hash("app-config"))),
        ]));
        assert_eq!(Record::parse(&record.text()), record);
        assert!(record.text().starts_with(r#"{"app-config":""#));
        assert!(record.text().ends_with(r#","late":null}"#));
    }

    #[test]
    fn what_is_no_record_reads_as_an_empty_one() {
        for text in ["", "x", "[]", r#"{"a":1}"#, r#"{"a":"12"}"#] {
            assert_eq!(Record::parse(text), Record::default());
        }
    }

    /// They reach the paths of requests.
    #[test]
    fn sources_are_names_of_configmaps() {
        for source in ["", "../../secrets/key", "a?watch=1", "a b", "A", "a/b", "ä", &"a".repeat(254)] {
            let text = serde_json::json!({source: null, "app": null}).to_string();
            assert_eq!(Record::parse(&text).0.into_keys().collect::<Vec<_>>(), ["app"], "{source}");
        }
    }

    #[test]
    fn the_number_of_sources_is_limited() {
        let many: serde_json::Map<_, _> = (0..20_000).map(|n| (format!("s{n}"), serde_json::Value::Null)).collect();
        assert_eq!(Record::parse(&serde_json::Value::Object(many).to_string()).0.len(), MAX_SOURCES);
    }
}
