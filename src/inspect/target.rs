//! Objects as people name them on the command line: `deploy/app`, `rollout app`, `cm/app-config`.

use std::fmt;

use crate::pin::kinds::{WORKLOADS, WorkloadKind};

/// What a switch can be set on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    /// A workload.
    Workload(&'static WorkloadKind),
    /// A ConfigMap.
    ConfigMap,
    /// A namespace.
    Namespace,
}

/// An object by type and name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Its type.
    pub kind: Type,
    /// Its name.
    pub name: String,
}

/// A workload by kind and name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkloadTarget {
    /// Its kind.
    pub kind: &'static WorkloadKind,
    /// Its name.
    pub name: String,
}

/// Why words name no object.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// Neither `TYPE/NAME` nor `TYPE NAME`.
    #[error("want one object, as TYPE/NAME or TYPE NAME")]
    Form,
    /// A type that confpin does nothing with.
    #[error("confpin knows no type {given:?}; it knows {known}")]
    Type {
        /// The word.
        given: String,
        /// The types that would do.
        known: String,
    },
}

impl Target {
    /// Reads the words of a command line.
    ///
    /// # Errors
    /// When they name no object of a type that confpin knows.
    pub fn parse(words: &[String]) -> Result<Self, Error> {
        let (kind, name) = split(words)?;
        let kind = match kind.to_ascii_lowercase().as_str() {
            "cm" | "configmap" | "configmaps" => Type::ConfigMap,
            "ns" | "namespace" | "namespaces" => Type::Namespace,
            _ => workload_kind(kind).map(Type::Workload).ok_or_else(|| unknown(kind, &["configmap", "namespace"]))?,
        };
        Ok(Self { kind, name: name.to_owned() })
    }
}

impl WorkloadTarget {
    /// Reads the words of a command line.
    ///
    /// # Errors
    /// When they name no workload.
    pub fn parse(words: &[String]) -> Result<Self, Error> {
        let (kind, name) = split(words)?;
        let kind = workload_kind(kind).ok_or_else(|| unknown(kind, &[]))?;
        Ok(Self { kind, name: name.to_owned() })
    }
}

impl fmt::Display for WorkloadTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&title(self.kind, &self.name))
    }
}

/// A workload as it is shown: `deployment/app`.
#[must_use]
pub fn title(kind: &WorkloadKind, name: &str) -> String {
    format!("{}/{name}", kind.kind.to_ascii_lowercase())
}

fn split(words: &[String]) -> Result<(&str, &str), Error> {
    let (kind, name) = match words {
        [one] => one.split_once('/').ok_or(Error::Form)?,
        [kind, name] if !kind.contains('/') => (kind.as_str(), name.as_str()),
        _ => return Err(Error::Form),
    };
    if kind.is_empty() || name.is_empty() || name.contains('/') { Err(Error::Form) } else { Ok((kind, name)) }
}

/// The kind that `kubectl` would take the word for: short name, kind, plural, and either with version and group.
fn workload_kind(word: &str) -> Option<&'static WorkloadKind> {
    let word = word.to_ascii_lowercase();
    WORKLOADS.into_iter().find(|row| {
        let singular = row.kind.to_ascii_lowercase();
        let names = [&singular, row.plural, row.short_name];
        let group = row.group;
        names.into_iter().any(|name| {
            word == name || word == format!("{name}.{group}") || word == format!("{name}.{}.{group}", row.version)
        })
    })
}

fn unknown(given: &str, more: &[&str]) -> Error {
    let workloads = WORKLOADS.into_iter().map(|row| row.kind.to_ascii_lowercase());
    let known: Vec<_> = workloads.chain(more.iter().map(ToString::to_string)).collect();
    Error::Type { given: given.to_owned(), known: known.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pin::kinds::{DEPLOYMENT, ROLLOUT};

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn takes_what_kubectl_takes() {
        for (text, kind) in [
            ("deploy/app", &DEPLOYMENT),
            ("deployment app", &DEPLOYMENT),
            ("deployments/app", &DEPLOYMENT),
            ("Deployment/app", &DEPLOYMENT),
            ("deployments.apps/app", &DEPLOYMENT),
            ("deployments.v1.apps/app", &DEPLOYMENT),
            ("ro/app", &ROLLOUT),
            ("rollout app", &ROLLOUT),
            ("rollouts.argoproj.io/app", &ROLLOUT),
        ] {
            assert_eq!(WorkloadTarget::parse(&words(text)), Ok(WorkloadTarget { kind, name: "app".into() }), "{text}");
        }
        assert_eq!(Target::parse(&words("cm/a")), Ok(Target { kind: Type::ConfigMap, name: "a".into() }));
        assert_eq!(Target::parse(&words("ns a")), Ok(Target { kind: Type::Namespace, name: "a".into() }));
    }

    #[test]
    fn says_what_would_be_right() {
        for text in ["app", "deploy/", "/app", "deploy/a b", "deploy/a/b"] {
            assert_eq!(WorkloadTarget::parse(&words(text)), Err(Error::Form), "{text}");
        }
        let told = Target::parse(&words("pod/app")).expect_err("no type of ours").to_string();
        assert_eq!(told, "confpin knows no type \"pod\"; it knows deployment, rollout, configmap, namespace");
    }
}
