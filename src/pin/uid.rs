//! The UID of an object.

use std::fmt;

use uuid::Uuid;

/// A UID as Kubernetes gives it: a UUID, kept in its sixteen bytes, since a reconciler remembers those of every ReplicaSet.
/// Whatever else an API server may come up with is kept as it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Uid(Repr);

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Repr {
    Uuid(Uuid),
    Other(Box<str>),
}

impl From<&str> for Uid {
    fn from(text: &str) -> Self {
        // Other ways to write a UUID exist, and must come out as they went in.
        let uuid = Uuid::try_parse(text).ok().filter(|uuid| {
            let mut buffer = Uuid::encode_buffer();
            uuid.hyphenated().encode_lower(&mut buffer) == text
        });
        Self(uuid.map_or_else(|| Repr::Other(text.into()), Repr::Uuid))
    }
}

impl From<Option<&str>> for Uid {
    /// An object that has no UID yet has the empty one.
    fn from(text: Option<&str>) -> Self {
        text.unwrap_or_default().into()
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Repr::Uuid(uuid) => write!(f, "{}", uuid.hyphenated()),
            Repr::Other(text) => f.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::of_kubernetes("2f1a7e0c-93d5-4c0e-8a53-0d1f6c9b7e42")]
    #[case::upper("2F1A7E0C-93D5-4C0E-8A53-0D1F6C9B7E42")]
    #[case::simple("2f1a7e0c93d54c0e8a530d1f6c9b7e42")]
    #[case::braced("{2f1a7e0c-93d5-4c0e-8a53-0d1f6c9b7e42}")]
    #[case::foreign("web-1")]
    #[case::none("")]
    fn comes_out_as_it_went_in(#[case] text: &str) {
        assert_eq!(Uid::from(text).to_string(), text);
    }

    #[test]
    fn tells_apart_what_is_written_otherwise() {
        let (lower, upper) = ("2f1a7e0c-93d5-4c0e-8a53-0d1f6c9b7e42", "2F1A7E0C-93D5-4C0E-8A53-0D1F6C9B7E42");
        assert_ne!(Uid::from(lower), Uid::from(upper));
    }
}
