//! What differs between the configuration of two revisions, key by key.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use sha2::{Digest, Sha256};
use similar::TextDiff;

use crate::pin::content::Content;

/// How many lines around a change are shown.
const CONTEXT: usize = 3;

/// A ConfigMap of one side.
#[derive(Debug, Clone)]
pub struct Version {
    /// Its name.
    pub name: String,
    /// Its content; `None` where nothing has that name.
    pub content: Option<Content>,
}

/// What one side names, by source.
pub type Side = BTreeMap<String, Version>;

/// What differs of one source. It shows content: the user may read it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SourceDiff {
    /// The source.
    pub source: String,
    /// What the first side names; `None` where it does not name the source at all.
    pub from: Option<String>,
    /// What the second side names.
    pub to: Option<String>,
    /// The keys that differ.
    pub keys: Vec<KeyDiff>,
}

/// What differs of one key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KeyDiff {
    /// The key.
    pub key: String,
    /// A unified diff without its head, of two texts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
    /// The value before, of binary data; `None` where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Bytes>,
    /// The value after, of binary data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<Bytes>,
    /// Whether there was a value before.
    #[serde(skip)]
    pub was: bool,
    /// Whether there is a value after.
    #[serde(skip)]
    pub is: bool,
}

/// What is told of binary data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Bytes {
    /// How many bytes.
    pub size: usize,
    /// SHA-256, as `sha256sum` prints it.
    pub sha256: String,
}

enum Value<'a> {
    Text(&'a str),
    Bytes(&'a [u8]),
}

/// The sources whose name or content differs.
#[must_use]
pub fn differences(from: &Side, to: &Side) -> Vec<SourceDiff> {
    let sources: BTreeSet<_> = from.keys().chain(to.keys()).collect();
    let diff = |source: &String| {
        let (from, to) = (from.get(source), to.get(source));
        let content = |side: Option<&Version>| side.and_then(|version| version.content.clone()).unwrap_or_default();
        let keys = keys(&content(from), &content(to));
        let lost = |side: Option<&Version>| side.is_some_and(|version| version.content.is_none());
        // Two names with one content differ in nothing that a pod could see.
        let differs = !keys.is_empty() || from.is_none() != to.is_none() || lost(from) != lost(to);
        let name = |side: Option<&Version>| side.map(|version| version.name.clone());
        differs.then(|| SourceDiff { source: source.clone(), from: name(from), to: name(to), keys })
    };
    sources.into_iter().filter_map(diff).collect()
}

fn value<'a>(content: &'a Content, key: &str) -> Option<Value<'a>> {
    let text = content.data.get(key).map(|text| Value::Text(text));
    text.or_else(|| content.binary_data.get(key).map(|bytes| Value::Bytes(&bytes.0)))
}

fn keys(from: &Content, to: &Content) -> Vec<KeyDiff> {
    let of = |content: &Content| content.data.keys().chain(content.binary_data.keys()).cloned().collect::<Vec<_>>();
    let keys: BTreeSet<_> = of(from).into_iter().chain(of(to)).collect();
    keys.into_iter().filter_map(|key| key_diff(value(from, &key), value(to, &key), key)).collect()
}

fn key_diff(from: Option<Value<'_>>, to: Option<Value<'_>>, key: String) -> Option<KeyDiff> {
    let (was, is) = (from.is_some(), to.is_some());
    let empty = KeyDiff { key, diff: None, from: None, to: None, was, is };
    let text = |value: &Option<Value<'_>>| match value {
        Some(Value::Text(text)) => Some((*text).to_owned()),
        None => Some(String::new()),
        Some(Value::Bytes(_)) => None,
    };
    if let (Some(old), Some(new)) = (text(&from), text(&to)) {
        let same = old == new && was == is;
        return (!same).then(|| KeyDiff { diff: Some(unified(&old, &new)), ..empty });
    }
    let bytes = |value: Option<Value<'_>>| {
        value.map(|value| match value {
            Value::Text(text) => described(text.as_bytes()),
            Value::Bytes(bytes) => described(bytes),
        })
    };
    let same = matches!((&from, &to), (Some(Value::Bytes(old)), Some(Value::Bytes(new))) if old == new);
    (!same).then(|| KeyDiff { from: bytes(from), to: bytes(to), ..empty })
}

/// That a value has no line break at its end is told where it is the difference: most values of one line have none.
fn unified(old: &str, new: &str) -> String {
    let hint = old.ends_with('\n') != new.ends_with('\n') && !old.is_empty() && !new.is_empty();
    let diff = TextDiff::from_lines(old, new);
    diff.unified_diff().context_radius(CONTEXT).missing_newline_hint(hint).to_string()
}

fn described(bytes: &[u8]) -> Bytes {
    let sha256 = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    Bytes { size: bytes.len(), sha256 }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;

    use super::*;

    fn side(text: &[(&str, &str)], bytes: &[(&str, &[u8])]) -> Side {
        let content = Content {
            data: text.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            binary_data: bytes.iter().map(|(key, value)| ((*key).to_owned(), ByteString(value.to_vec()))).collect(),
        };
        [("app".to_owned(), Version { name: "app-1".into(), content: Some(content) })].into()
    }

    fn one(from: &Side, to: &Side) -> KeyDiff {
        let mut found = differences(from, to);
        assert_eq!((found.len(), found[0].keys.len()), (1, 1));
        found.remove(0).keys.remove(0)
    }

    #[test]
    fn equal_contents_do_not_differ() {
        let side = side(&[("a", "1")], &[("b", b"\xff")]);
        assert!(differences(&side, &side).is_empty());
    }

    #[test]
    fn texts_differ_line_by_line() {
        let found = one(&side(&[("a", "1\n2\n"), ("same", "x")], &[]), &side(&[("a", "1\n3\n"), ("same", "x")], &[]));
        assert_eq!(found.diff.as_deref(), Some("@@ -1,2 +1,2 @@\n 1\n-2\n+3\n"));
    }

    #[test]
    fn a_missing_line_break_is_told_where_it_is_the_difference() {
        let diff = |old, new| one(&side(&[("a", old)], &[]), &side(&[("a", new)], &[])).diff.expect("a diff");
        assert!(!diff("1", "2").contains("newline"));
        assert!(diff("1", "1\n").contains("newline"));
    }

    #[test]
    fn keys_come_and_go() {
        let found = one(&side(&[], &[]), &side(&[("a", "")], &[]));
        assert_eq!((found.was, found.is, found.diff.as_deref()), (false, true, Some("")));
    }

    #[test]
    fn bytes_are_told_by_size_and_hash_only() {
        let found = one(&side(&[], &[("b", b"\xff")]), &side(&[("b", "text")], &[]));
        assert_eq!((found.from.map(|it| it.size), found.to.map(|it| it.size)), (Some(1), Some(4)));
        assert_eq!(found.diff, None);
    }

    #[test]
    fn a_source_that_is_named_no_more_differs() {
        let found = differences(&side(&[], &[]), &Side::new());
        assert_eq!((found[0].from.as_deref(), found[0].to.as_deref()), (Some("app-1"), None));
    }
}
