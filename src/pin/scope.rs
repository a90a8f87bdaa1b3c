//! Which namespaces confpin serves.

use std::collections::BTreeSet;

/// All namespaces of a cluster, or only those that confpin has rights in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Scope {
    /// All of them.
    #[default]
    Cluster,
    /// These.
    Namespaces(BTreeSet<String>),
}

impl Scope {
    /// These namespaces; all, where none is named.
    pub fn of(namespaces: impl IntoIterator<Item = String>) -> Self {
        let namespaces: BTreeSet<_> = namespaces.into_iter().collect();
        if namespaces.is_empty() { Self::Cluster } else { Self::Namespaces(namespaces) }
    }

    /// Whether the workloads of a namespace are served.
    #[must_use]
    pub fn contains(&self, namespace: &str) -> bool {
        match self {
            Self::Cluster => true,
            Self::Namespaces(namespaces) => namespaces.contains(namespace),
        }
    }

    /// What has to be watched by itself: each namespace, or `None` for all of them at once.
    #[must_use]
    pub fn parts(&self) -> Vec<Option<String>> {
        match self {
            Self::Cluster => vec![None],
            Self::Namespaces(namespaces) => namespaces.iter().cloned().map(Some).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_name_it_is_the_cluster() {
        let scope = Scope::of([]);
        assert_eq!(scope, Scope::Cluster);
        assert!(scope.contains("shop"));
        assert_eq!(scope.parts(), [None]);
    }

    #[test]
    fn with_names_it_is_these_and_each_once() {
        let scope = Scope::of(["shop", "billing", "shop"].map(str::to_owned));
        assert!(scope.contains("shop") && scope.contains("billing") && !scope.contains("sho"));
        assert_eq!(scope.parts(), [Some("billing".to_owned()), Some("shop".to_owned())]);
    }
}
