//! Snapshots: their names, how one is built, and how one is told from any other ConfigMap.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ObjectMeta;

use crate::pin::claim::Claim;
use crate::pin::content::{Content, ContentHash};
use crate::pin::meta;
use crate::pin::references::{MAX_NAME, is_configmap_name};

/// How many hex digits of the hash a snapshot's name ends with: ten, and more when a foreign object has the name.
pub const DIGITS: [usize; 4] = [10, 16, 32, 64];

/// The names that a snapshot of this source and content can have, the usual one first.
///
/// `<source>-<hex digits>`, at most 253 characters: a long source name keeps its front part. The hash covers the
/// whole source name, so that two sources with one front part have different snapshots.
#[must_use]
pub fn names(source: &str, hash: &ContentHash) -> [String; DIGITS.len()] {
    let hash = hash.to_string();
    DIGITS.map(|digits| format!("{}-{}", stem(source, digits), &hash[..digits]))
}

/// The front part of a source's name that leaves room for a dash and `digits`, still a valid subdomain.
fn stem(source: &str, digits: usize) -> &str {
    let room = MAX_NAME - 1 - digits;
    source.get(..room).unwrap_or(source).trim_end_matches(['.', '-'])
}

/// Whether `name` has the form of a snapshot's name. A source can have such a name too (kustomize makes them):
/// what a ConfigMap is, [`recognise`] says.
#[must_use]
pub fn looks_like_one(name: &str) -> bool {
    name.rsplit_once('-').is_some_and(|(_, digits)| is_digits(digits))
}

/// Whether `name` is one that a snapshot of `source` could have, for some content.
#[must_use]
pub fn may_be_of(name: &str, source: &str) -> bool {
    name.rsplit_once('-').is_some_and(|(front, digits)| is_digits(digits) && front == stem(source, digits.len()))
}

fn is_digits(text: &str) -> bool {
    DIGITS.contains(&text.len()) && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// What a snapshot says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provenance {
    /// Name of the source.
    pub source: String,
    /// Hash of the source's name and content.
    pub hash: ContentHash,
}

/// What `configmap` is a snapshot of, if it is one: it has our label, is immutable, and its content has the hash
/// that it records and that its name ends with. A forged label, a mutable copy or other content is no snapshot.
#[must_use]
pub fn recognise(configmap: &ConfigMap) -> Option<Provenance> {
    let provenance = recognise_metadata(&configmap.metadata)?;
    let genuine =
        configmap.immutable == Some(true) && Content::of(configmap).hash(&provenance.source) == provenance.hash;
    genuine.then_some(provenance)
}

/// What an object claims to be a snapshot of, by its metadata alone. Good enough to watch and to collect, not to
/// point a pod at.
#[must_use]
pub fn recognise_metadata(metadata: &ObjectMeta) -> Option<Provenance> {
    let label = metadata.labels.as_ref()?.get(meta::SNAPSHOT)?;
    let annotations = metadata.annotations.as_ref()?;
    let source = annotations.get(meta::SOURCE).filter(|source| is_configmap_name(source))?;
    let hash = annotations.get(meta::CONTENT_HASH)?.parse().ok()?;
    let name = metadata.name.as_ref()?;
    (label == meta::TRUE && names(source, &hash).contains(name)).then(|| Provenance { source: source.clone(), hash })
}

/// Whether a workload may be pointed at `configmap` for this source and content: it is a genuine snapshot of just
/// that and is not being deleted.
#[must_use]
pub fn serves(configmap: &ConfigMap, source: &str, hash: &ContentHash) -> bool {
    configmap.metadata.deletion_timestamp.is_none()
        && recognise(configmap).is_some_and(|found| found.source == source && found.hash == *hash)
}

/// A source as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Its name.
    pub name: String,
    /// Its UID, for people who ask where a snapshot came from.
    pub uid: Option<String>,
    /// Its resourceVersion, likewise.
    pub resource_version: Option<String>,
    /// Its content.
    pub content: Content,
    /// The hash of its name and content.
    pub hash: ContentHash,
}

impl Source {
    /// The source `name` that `configmap` is.
    #[must_use]
    pub fn new(name: &str, configmap: &ConfigMap) -> Self {
        let content = Content::of(configmap);
        Self {
            name: name.to_owned(),
            uid: configmap.metadata.uid.clone(),
            resource_version: configmap.metadata.resource_version.clone(),
            hash: content.hash(name),
            content,
        }
    }

    /// The snapshot of this source, to be created as `name` with `claim`.
    ///
    /// Only our own label and annotations: the source's would have Argo CD, Flux, Helm or `kubectl apply --prune`
    /// adopt the copy and delete it.
    #[must_use]
    pub fn snapshot(&self, name: &str, claim: Option<&Claim>) -> ConfigMap {
        let mut annotations = BTreeMap::from([
            (meta::SOURCE.to_owned(), self.name.clone()),
            (meta::CONTENT_HASH.to_owned(), self.hash.to_string()),
        ]);
        let provenance = [(meta::SOURCE_UID, &self.uid), (meta::SOURCE_RESOURCE_VERSION, &self.resource_version)];
        annotations.extend(provenance.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value.clone()?))));
        annotations.extend(claim.map(Claim::annotation));
        ConfigMap {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                labels: Some(BTreeMap::from([(meta::SNAPSHOT.to_owned(), meta::TRUE.to_owned())])),
                annotations: Some(annotations),
                ..ObjectMeta::default()
            },
            data: Some(self.content.data.clone()).filter(|data| !data.is_empty()),
            binary_data: Some(self.content.binary_data.clone()).filter(|data| !data.is_empty()),
            immutable: Some(true),
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn source(name: &str, value: &str) -> Source {
        let data = Some(BTreeMap::from([("key".to_owned(), value.to_owned())]));
        Source::new(name, &ConfigMap { data, ..<_>::default() })
    }

    fn made(name: &str, value: &str) -> ConfigMap {
        let source = source(name, value);
        source.snapshot(&names(name, &source.hash)[0], None)
    }

    #[test]
    fn what_is_built_is_recognised() {
        let snapshot = made("app-config", "1");
        let found = recognise(&snapshot).expect("a snapshot");
        assert_eq!(found.source, "app-config");
        assert!(serves(&snapshot, "app-config", &source("app-config", "1").hash));
        assert!(!serves(&snapshot, "app-config", &source("app-config", "2").hash));
        assert!(!serves(&snapshot, "other", &source("other", "1").hash));
    }

    #[rstest]
    #[case::mutable(|it: &mut ConfigMap| it.immutable = None)]
    #[case::other_content(|it: &mut ConfigMap| it.data = None)]
    #[case::other_name(|it: &mut ConfigMap| it.metadata.name = Some("app-config-0000000000".into()))]
    #[case::no_label(|it: &mut ConfigMap| it.metadata.labels = None)]
    #[case::no_annotations(|it: &mut ConfigMap| it.metadata.annotations = None)]
    fn what_is_forged_is_not(#[case] forge: fn(&mut ConfigMap)) {
        let mut configmap = made("app-config", "1");
        forge(&mut configmap);
        assert_eq!(recognise(&configmap), None);
    }

    #[test]
    fn one_that_is_being_deleted_serves_nobody() {
        let mut snapshot = made("app-config", "1");
        snapshot.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH));
        assert!(recognise(&snapshot).is_some());
        assert!(!serves(&snapshot, "app-config", &source("app-config", "1").hash));
    }

    #[test]
    fn nothing_of_the_sources_metadata_is_copied() {
        let snapshot = made("app-config", "1");
        let keys = |map: Option<BTreeMap<String, String>>| map.unwrap_or_default().into_keys().collect::<Vec<_>>();
        assert_eq!(keys(snapshot.metadata.labels), [meta::SNAPSHOT]);
        assert_eq!(keys(snapshot.metadata.annotations), [meta::CONTENT_HASH, meta::SOURCE]);
        assert_eq!(snapshot.immutable, Some(true));
    }

    #[test]
    fn bytes_are_copied_and_what_is_empty_is_absent() {
        let binary_data = Some(BTreeMap::from([("key".to_owned(), ByteString(vec![0xff]))]));
        let source = Source::new("app", &ConfigMap { binary_data: binary_data.clone(), ..<_>::default() });
        let snapshot = source.snapshot(&names("app", &source.hash)[0], None);
        assert_eq!((&snapshot.data, &snapshot.binary_data), (&None, &binary_data));
        assert!(serves(&snapshot, "app", &source.hash));
        assert_eq!(made("app", "1").binary_data, None);
    }

    #[test]
    fn a_long_name_is_cut_to_just_what_fits() {
        let hash = source("app", "1").hash;
        let lengths = |name: &str| names(name, &hash).map(|name| name.len());
        assert_eq!(lengths(&"a".repeat(MAX_NAME)), [MAX_NAME; 4]);
        assert_eq!(lengths("app"), DIGITS.map(|digits| 4 + digits));
    }

    #[rstest]
    #[case("app-0123456789", true)]
    #[case("app-0123456789abcdef", true)]
    #[case("app-012345678", false)]
    #[case("app-0123456789A", false)]
    #[case("app-012345678g", false)]
    #[case("app", false)]
    fn knows_the_form_of_a_name(#[case] name: &str, #[case] expected: bool) {
        assert_eq!(looks_like_one(name), expected);
        assert_eq!(may_be_of(name, "app"), expected);
        assert!(!may_be_of(name, "ap"));
    }

    proptest! {
        #[test]
        fn names_are_valid_and_tell_their_source(name in "[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", value in ".{0,9}") {
            prop_assume!(is_configmap_name(&name));
            for candidate in names(&name, &source(&name, &value).hash) {
                prop_assert!(is_configmap_name(&candidate), "{candidate}");
                prop_assert!(looks_like_one(&candidate));
                prop_assert!(may_be_of(&candidate, &name));
            }
        }

        #[test]
        fn same_content_same_name_other_content_other_name(one in ".{0,9}", other in ".{0,9}") {
            let name = |value: &str| made("app", value).metadata.name;
            prop_assert_eq!(name(&one) == name(&other), one == other);
        }

        #[test]
        fn two_long_names_never_meet(front in "[a-z]{245}", one in "[a-z]{8}", other in "[a-z]{8}") {
            prop_assume!(one != other);
            let name = |end: &str| made(&format!("{front}{end}"), "v").metadata.name;
            prop_assert_ne!(name(&one), name(&other));
        }
    }
}
