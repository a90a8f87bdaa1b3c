//! A ConfigMap's content and its hash.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use sha2::{Digest, Sha256};

/// What a ConfigMap holds. Its `Debug` text tells sizes only, so that no log can show the content.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Content {
    /// Text by key.
    pub data: BTreeMap<String, String>,
    /// Bytes by key.
    pub binary_data: BTreeMap<String, ByteString>,
}

impl Content {
    /// The content of `configmap`; an absent map and an empty one are the same.
    #[must_use]
    pub fn of(configmap: &ConfigMap) -> Self {
        Self {
            data: configmap.data.clone().unwrap_or_default(),
            binary_data: configmap.binary_data.clone().unwrap_or_default(),
        }
    }

    /// Whether there is a value for `key`.
    #[must_use]
    pub fn has_key(&self, key: &str) -> bool {
        self.data.contains_key(key) || self.binary_data.contains_key(key)
    }

    /// The hash of this content as that of the source `name`.
    ///
    /// Every part carries its length and each map its number of entries, so that no two different contents encode
    /// alike, also when a key moves from `data` to `binaryData`. The source's name is part of it: two long names
    /// that are cut to the same front part never meet in one snapshot.
    #[must_use]
    pub fn hash(&self, name: &str) -> ContentHash {
        let mut hasher = Sha256::new();
        hasher.update(b"confpin snapshot v1\0");
        let mut part = |bytes: &[u8]| {
            hasher.update((bytes.len() as u64).to_be_bytes());
            hasher.update(bytes);
        };
        part(name.as_bytes());
        part(&(self.data.len() as u64).to_be_bytes());
        for (key, value) in &self.data {
            part(key.as_bytes());
            part(value.as_bytes());
        }
        for (key, ByteString(value)) in &self.binary_data {
            part(key.as_bytes());
            part(value);
        }
        ContentHash(hasher.finalize().into())
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Content({} text keys, {} binary keys)", self.data.len(), self.binary_data.len())
    }
}

/// SHA-256 of a source's name and content.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContentHash([u8; 32]);

impl fmt::Display for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not 64 lower-case hex digits.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("a content hash is 64 lower-case hex digits")]
pub struct NotAHash;

impl FromStr for ContentHash {
    type Err = NotAHash;

    fn from_str(text: &str) -> Result<Self, NotAHash> {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Ok(byte - b'0'),
            b'a'..=b'f' => Ok(byte - b'a' + 10),
            _ => Err(NotAHash),
        };
        let mut hash = [0; 32];
        if text.len() != 2 * hash.len() {
            return Err(NotAHash);
        }
        for (byte, pair) in hash.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Ok(Self(hash))
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn content(data: &[(&str, &str)], binary: &[(&str, &[u8])]) -> Content {
        Content {
            data: data.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            binary_data: binary.iter().map(|(k, v)| ((*k).to_owned(), ByteString(v.to_vec()))).collect(),
        }
    }

    /// The encoding is a promise: another hash for the same content would roll every workload at an upgrade.
    #[test]
    fn the_encoding_is_stable() {
        let hash = content(&[("a", "1"), ("b", "2")], &[("c", b"\xff\x00")]).hash("app-config");
        assert_eq!(hash.to_string(), "0f1f28caa972018abf6e7f3e672415efd9ddaa8987140ebb57c2e59d4cfb2c04");
    }

    #[rstest]
    #[case::other_name(content(&[("a", "1")], &[]), "other")]
    #[case::other_value(content(&[("a", "2")], &[]), "app")]
    #[case::moved_to_binary(content(&[], &[("a", b"1")]), "app")]
    #[case::key_and_value_shifted(content(&[("a1", "")], &[]), "app")]
    #[case::one_more(content(&[("a", "1"), ("b", "")], &[]), "app")]
    fn other_content_has_another_hash(#[case] other: Content, #[case] name: &str) {
        assert_ne!(other.hash(name), content(&[("a", "1")], &[]).hash("app"));
    }

    #[test]
    fn the_debug_text_hides_the_content() {
        assert_eq!(format!("{:?}", content(&[("key", "secret")], &[])), "Content(1 text keys, 0 binary keys)");
    }

    #[test]
    fn text_and_hash_go_round() {
        let hash = Content::default().hash("x");
        assert_eq!(hash.to_string().parse(), Ok(hash));
        assert_eq!(format!("{hash:?}"), hash.to_string());
        for bad in ["", "zz", &"g".repeat(64), &"A".repeat(64), &"é".repeat(32)] {
            assert_eq!(bad.parse::<ContentHash>(), Err(NotAHash));
        }
    }
}
