//! What admission is asked about: a workload before and after a change.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::pin::kinds::WorkloadKind;
use crate::pin::meta;
use crate::pin::objects;
use crate::pin::template::{Limits, Seed, Template};

/// The longest label selector that is used. Without one, all ReplicaSets of the namespace are listed.
const MAX_SELECTOR: usize = 64 << 10;

/// A workload as it stands in an admission request: what decisions use of it. Nothing else is kept, since a request may be
/// large, and most of it decides nothing.
#[derive(Debug, Clone, Default)]
pub struct Workload {
    /// The metadata that decisions use.
    pub metadata: WorkloadMetadata,
    /// The pod template; without references where there is none (a Rollout with `workloadRef`).
    pub template: Template,
    /// The label selector of its ReplicaSets, as in a query of the API server; `None` for one that cannot be read.
    pub selector: Option<String>,
}

/// The part of a workload's metadata that decisions use.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct WorkloadMetadata {
    /// Name; absent on a CREATE with `generateName`.
    pub name: Option<String>,
    /// UID; absent on CREATE.
    pub uid: Option<String>,
    /// Generation: the API server increments it with each change of the spec.
    pub generation: Option<i64>,
    /// confpin's annotations; `None` where the workload has no annotations at all.
    #[serde(deserialize_with = "own_annotations")]
    pub annotations: Option<BTreeMap<String, String>>,
}

impl Workload {
    /// Reads a workload: JSON text, or an object in memory.
    ///
    /// # Errors
    /// When it does not have the shape of a workload, or exceeds `limits`.
    pub fn read<'de, D: Deserializer<'de>>(
        kind: &'static WorkloadKind,
        limits: Limits,
        deserializer: D,
    ) -> Result<Self, D::Error> {
        let mut workload = Self::default();
        Level { path: kind.template, is_root: true, limits, workload: &mut workload }.deserialize(deserializer)?;
        Ok(workload)
    }

    /// Reads a workload that is in memory.
    ///
    /// # Errors
    /// When it does not have the shape of a workload.
    pub fn of(kind: &'static WorkloadKind, object: &Value) -> Result<Self, serde_json::Error> {
        Self::read(kind, Limits::NONE, object)
    }

    /// The value of an annotation of confpin.
    #[must_use]
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }
}

/// One question to the decision.
#[derive(Debug, Clone)]
pub struct Request {
    /// The workload's kind.
    pub kind: &'static WorkloadKind,
    /// The workload's name; empty when the API server has yet to generate it.
    pub name: String,
    /// The workload as it is to be stored.
    pub new: Workload,
    /// The stored workload; `None` on CREATE.
    pub old: Option<Workload>,
    /// Whether the workload's namespace opts out by annotation.
    pub namespace_opts_out: bool,
}

impl Request {
    /// The pod template as it is to be stored.
    #[must_use]
    pub fn template(&self) -> &Template {
        &self.new.template
    }

    /// The stored pod template.
    #[must_use]
    pub fn old_template(&self) -> Option<&Template> {
        self.old.as_ref().map(|old| &old.template)
    }

    /// Whether the template is another one than the stored.
    #[must_use]
    pub fn changes_template(&self) -> bool {
        self.old_template() != Some(self.template())
    }

    /// Whether nothing but a refresh is asked for.
    #[must_use]
    pub fn is_refresh(&self) -> bool {
        self.old.is_some()
            && !self.changes_template()
            && self.old_annotation(meta::REFRESH) != self.new.annotation(meta::REFRESH)
    }

    /// The value of an annotation of the stored workload.
    #[must_use]
    pub fn old_annotation(&self, key: &str) -> Option<&str> {
        self.old.as_ref().and_then(|old| old.annotation(key))
    }
}

/// An object on the way from the workload's root to its template.
struct Level<'a> {
    /// The fields to the template from here.
    path: &'static [&'static str],
    is_root: bool,
    limits: Limits,
    workload: &'a mut Workload,
}

impl<'de> DeserializeSeed<'de> for Level<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Level<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a workload")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { path, is_root, limits, workload } = self;
        let Some((next, rest)) = path.split_first() else { return Ok(()) };
        let mut is_descended = false;
        while let Some(field) = map.next_key::<Field>()? {
            if field.0 == *next {
                // The API server sends none. The last would count, but the first has been read already.
                if std::mem::replace(&mut is_descended, true) {
                    return Err(A::Error::custom("a field stands twice"));
                }
                if rest.is_empty() {
                    workload.template = map.next_value_seed(Seed(limits))?;
                } else {
                    map.next_value_seed(Level { path: rest, is_root: false, limits, workload: &mut *workload })?;
                }
            } else if is_root && field.0 == "metadata" {
                workload.metadata = map.next_value::<Option<WorkloadMetadata>>()?.unwrap_or_default();
            } else if !is_root && field.0 == "selector" {
                let selector = map.next_value::<Box<RawValue>>()?;
                workload.selector = label_selector(selector.get());
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

/// The name of a field, as far as it matters: a longer one is none that is looked for.
struct Field(String);

impl<'de> Deserialize<'de> for Field {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const LONGEST: usize = 64;
        struct Name;
        impl Visitor<'_> for Name {
            type Value = Field;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("the name of a field")
            }

            fn visit_str<E>(self, name: &str) -> Result<Field, E> {
                Ok(Field(if name.len() <= LONGEST { name.to_owned() } else { String::new() }))
            }
        }
        deserializer.deserialize_str(Name)
    }
}

fn label_selector(text: &str) -> Option<String> {
    objects::label_selector(serde_json::from_str(text).ok().filter(|_| text.len() <= MAX_SELECTOR)?)
}

/// Of the annotations of a workload, which anybody can add to, only confpin's are decoded.
fn own_annotations<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<BTreeMap<String, String>>, D::Error> {
    struct Own;
    impl<'de> Visitor<'de> for Own {
        type Value = Option<BTreeMap<String, String>>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("annotations")
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut own = BTreeMap::new();
            while let Some(Field(key)) = map.next_key()? {
                if meta::OWN.contains(&key.as_str()) {
                    own.insert(key, map.next_value()?);
                } else {
                    map.next_value::<IgnoredAny>()?;
                }
            }
            Ok(Some(own))
        }
    }
    deserializer.deserialize_any(Own)
}
