//! ConfigMaps that are never pinned.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use k8s_openapi::api::core::v1::ConfigMap;

use crate::pin::meta;

/// Names of ConfigMaps that a controller writes into every namespace and renews: a pod that is pinned to an old CA
/// bundle fails when the CA rotates (istio issue 22993).
const NAMES: [&str; 3] = ["kube-root-ca.crt", "openshift-service-ca.crt", "istio-ca-root-cert"];

/// Labels or annotations by which an injector marks the ConfigMaps whose CA bundle it keeps current.
const MARKS: [(&str, Option<&str>); 4] = [
    ("config.openshift.io/inject-trusted-cabundle", Some("true")),
    ("service.beta.openshift.io/inject-cabundle", Some("true")),
    ("trust.cert-manager.io/bundle", None),
    ("istio.io/config", Some("true")),
];

/// A label or annotation key, with or without a value: `example.com/ca-bundle`, `example.com/inject=true`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    key: String,
    value: Option<String>,
}

/// The text is no `key` or `key=value`.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("a mark is a label or annotation key, with or without a value: key or key=value")]
pub struct NotAMark;

impl FromStr for Mark {
    type Err = NotAMark;

    fn from_str(text: &str) -> Result<Self, NotAMark> {
        let (key, value) = match text.split_once('=') {
            Some((key, value)) => (key, Some(value.to_owned())),
            None => (text, None),
        };
        let valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
        if key.is_empty() || !key.bytes().all(valid) {
            return Err(NotAMark);
        }
        Ok(Self { key: key.to_owned(), value })
    }
}

impl Mark {
    fn is_on(&self, map: &BTreeMap<String, String>) -> bool {
        map.get(&self.key).is_some_and(|value| self.value.as_ref().is_none_or(|wanted| wanted == value))
    }
}

/// Which ConfigMaps are left alone.
#[derive(Debug, Clone)]
pub struct Exemptions {
    names: BTreeSet<String>,
    marks: Vec<Mark>,
}

impl Default for Exemptions {
    fn default() -> Self {
        Self::with([], [])
    }
}

impl Exemptions {
    /// The built-in exemptions and more.
    pub fn with(names: impl IntoIterator<Item = String>, marks: impl IntoIterator<Item = Mark>) -> Self {
        let built_in = MARKS.map(|(key, value)| Mark { key: key.to_owned(), value: value.map(str::to_owned) });
        Self {
            names: NAMES.map(str::to_owned).into_iter().chain(names).collect(),
            marks: built_in.into_iter().chain(marks).collect(),
        }
    }

    /// Whether a ConfigMap of this name is exempt whatever it is.
    #[must_use]
    pub fn name(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// Whether this ConfigMap is exempt: by its name, an injector's mark, or because it opts out itself.
    #[must_use]
    pub fn configmap(&self, configmap: &ConfigMap) -> bool {
        let meta = &configmap.metadata;
        let mut maps = [&meta.labels, &meta.annotations].into_iter().flatten();
        meta.name.as_deref().is_some_and(|name| self.name(name))
            || meta.annotations.as_ref().is_some_and(meta::opts_out)
            || maps.any(|map| self.marks.iter().any(|mark| mark.is_on(map)))
    }
}

#[cfg(test)]
mod tests {
    use kube::api::ObjectMeta;
    use rstest::rstest;

    use super::*;

    fn map(key: &str, value: &str) -> Option<BTreeMap<String, String>> {
        Some(BTreeMap::from([(key.to_owned(), value.to_owned())]))
    }

    #[rstest]
    #[case::plain(ObjectMeta::default(), false)]
    #[case::root_ca(ObjectMeta { name: Some("kube-root-ca.crt".into()), ..<_>::default() }, true)]
    #[case::more_by_name(ObjectMeta { name: Some("mine".into()), ..<_>::default() }, true)]
    #[case::injector(ObjectMeta { labels: map("config.openshift.io/inject-trusted-cabundle", "true"), ..<_>::default() }, true)]
    #[case::injector_off(ObjectMeta { labels: map("config.openshift.io/inject-trusted-cabundle", "no"), ..<_>::default() }, false)]
    #[case::any_value(ObjectMeta { labels: map("trust.cert-manager.io/bundle", "b"), ..<_>::default() }, true)]
    #[case::more_by_mark(ObjectMeta { annotations: map("example.com/ca", "x"), ..<_>::default() }, true)]
    #[case::opted_out(ObjectMeta { annotations: map(meta::PIN, "disabled"), ..<_>::default() }, true)]
    #[case::opted_in(ObjectMeta { annotations: map(meta::PIN, "enabled"), ..<_>::default() }, false)]
    fn exempts(#[case] metadata: ObjectMeta, #[case] expected: bool) {
        let exemptions = Exemptions::with(["mine".to_owned()], ["example.com/ca".parse().expect("a mark")]);
        assert_eq!(exemptions.configmap(&ConfigMap { metadata, ..<_>::default() }), expected);
    }

    #[rstest]
    #[case("")]
    #[case("=x")]
    #[case("a b")]
    fn refuses_what_is_no_mark(#[case] text: &str) {
        assert_eq!(text.parse::<Mark>(), Err(NotAMark));
    }
}
