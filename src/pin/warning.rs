//! What the client is told about its workload.

use std::fmt;

/// The longest warning, in bytes: the API server cuts longer ones
/// (<https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#response>).
pub const MAX_LENGTH: usize = 120;

/// A warning to the client. Its text is at most [`MAX_LENGTH`] long: names are shortened in the middle.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Warning {
    /// A source does not exist and the reference is not optional.
    SourceMissing {
        /// The source.
        name: String,
    },
    /// A source has no such key and the reference is not optional.
    KeyMissing {
        /// The source.
        name: String,
        /// The key.
        key: String,
    },
    /// A snapshot that the template names was deleted, and its content is nowhere.
    SnapshotLost {
        /// The snapshot.
        name: String,
    },
    /// The workload was admitted without being pinned (`--on-error=admit`).
    Unpinned,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SourceMissing { name } => {
                write!(
                    f,
                    "ConfigMap {:?} not found: pods wait for it, confpin pins it once it is there",
                    short(name, 45)
                )
            }
            Self::KeyMissing { name, key } => {
                write!(f, "ConfigMap {:?} has no key {:?}: containers wait for it", short(name, 38), short(key, 30))
            }
            Self::SnapshotLost { name } => {
                write!(f, "snapshot {:?} was deleted and its content is gone: new pods cannot start", short(name, 43))
            }
            Self::Unpinned => f.write_str("confpin could not pin this workload: its pods follow the live ConfigMaps"),
        }
    }
}

/// `text` cut in the middle to at most `max` bytes. Names and keys are ASCII; anything else is cut to its characters'
/// bounds.
fn short(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let half = (max - 2) / 2;
    let front = (0..=half).rev().find_map(|end| text.get(..end)).unwrap_or_default();
    let back = (text.len() - half..=text.len()).find_map(|start| text.get(start..)).unwrap_or_default();
    format!("{front}..{back}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_warning_is_cut() {
        let (name, key) = ("n".repeat(253), "k".repeat(253));
        for warning in [
            Warning::SourceMissing { name: name.clone() },
            Warning::KeyMissing { name: name.clone(), key },
            Warning::SnapshotLost { name },
            Warning::Unpinned,
        ] {
            let text = warning.to_string();
            assert!(text.len() <= MAX_LENGTH, "{} is {} long", text, text.len());
        }
    }

    #[test]
    fn short_names_stand_whole() {
        let text = Warning::SourceMissing { name: "app-config".into() }.to_string();
        assert!(text.contains("\"app-config\""), "{text}");
    }

    #[test]
    fn the_ends_of_a_long_name_stay() {
        assert_eq!(short("abcdefghij", 6), "ab..ij");
        assert_eq!(short("ééééé", 6), "é..é");
    }
}
