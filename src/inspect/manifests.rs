//! Manifests: their objects, and where in the text each value stands, so that a name can be changed without touching
//! anything else.

use std::collections::BTreeMap;
use std::ops::Range;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::pin::kinds::{self, WorkloadKind};

mod places;

use places::{bounds, places};

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is no YAML or JSON.
    #[error("failed to read {origin}: {cause}")]
    Syntax {
        /// The file.
        origin: String,
        /// Where and what.
        cause: String,
    },
    /// An object is of no form that the API server would take.
    #[error("failed to read {kind} {name} in {origin}: a value is not of the type that it has to be")]
    Object {
        /// The file.
        origin: String,
        /// The object's kind.
        kind: String,
        /// The object's name.
        name: String,
    },
    /// A key without quotes that `kubectl` takes for something else than a text.
    #[error(
        "failed to read {origin}: quote the key {key} in line {line}, which kubectl takes for a boolean or a number"
    )]
    Key {
        /// The file.
        origin: String,
        /// The key.
        key: String,
        /// Its line.
        line: usize,
    },
    /// A name stands where it cannot be changed alone.
    #[error("failed to change {from} in {origin}: write it out where it is an alias, a merge key or a block")]
    NotInPlace {
        /// The file.
        origin: String,
        /// The name.
        from: String,
    },
}

/// A file, or what was read in its stead.
#[derive(Debug)]
pub struct File {
    /// Its name, for messages.
    pub origin: String,
    text: String,
    /// The objects of all documents; those of a List one by one.
    pub objects: Vec<Object>,
    documents: Vec<Document>,
}

#[derive(Debug)]
struct Document {
    /// Where a further document could be put in after it.
    end: usize,
    /// Where each scalar stands, by JSON pointer from the document's root.
    scalars: BTreeMap<String, Range<usize>>,
}

/// An object of a file.
#[derive(Debug)]
pub struct Object {
    /// The object.
    pub value: Value,
    document: usize,
    /// Its place in the document: empty, or `/items/0`.
    pointer: String,
}

/// A change of one scalar.
#[derive(Debug)]
pub struct Edit<'a> {
    /// The object.
    pub object: &'a Object,
    /// JSON pointer from the object's root.
    pub pointer: String,
    /// What stands there.
    pub from: String,
    /// What is to stand there.
    pub to: String,
}

impl Object {
    fn text(&self, pointer: &str) -> &str {
        self.value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.text("/metadata/name")
    }

    /// Its namespace, if it says one.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        Some(self.text("/metadata/namespace")).filter(|namespace| !namespace.is_empty())
    }

    /// The workload kind that it is of.
    #[must_use]
    pub fn workload_kind(&self) -> Option<&'static WorkloadKind> {
        let (group, _) = self.text("/apiVersion").split_once('/')?;
        kinds::find(group, self.text("/kind"))
    }

    fn is(&self, kind: &str) -> bool {
        self.text("/apiVersion") == "v1" && self.text("/kind") == kind
    }
}

impl File {
    /// Reads a YAML or JSON text.
    ///
    /// # Errors
    /// When it is neither.
    pub fn parse(origin: &str, text: &str) -> Result<Self, Error> {
        let syntax = |cause: String| Error::Syntax { origin: origin.to_owned(), cause };
        let mut text = text.to_owned();
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        let mut file = Self { origin: origin.to_owned(), objects: Vec::new(), documents: Vec::new(), text };
        let bounds = bounds(&file.text).map_err(|error| syntax(error.to_string()))?;
        for (index, bounds) in bounds.iter().enumerate() {
            let part = file.text.get(bounds.clone()).unwrap_or_default();
            // The one that knows all of YAML's scalars reads the values, the other their places.
            let options = serde_saphyr::options! { with_snippet: false };
            let value: Value = serde_saphyr::from_str_with_options(part, options).map_err(|error| {
                let line = file.text[..bounds.start].lines().count();
                syntax(format!("the document after line {line}: {error}"))
            })?;
            let walk = places(part, bounds.start).map_err(|error| syntax(error.to_string()))?;
            if let Some((key, at)) = walk.strange_key {
                let line = file.text[..at].lines().count().max(1);
                return Err(Error::Key { origin: file.origin, key, line });
            }
            file.documents.push(Document { end: bounds.end, scalars: walk.scalars });
            add_objects(&mut file.objects, value, index, String::new());
        }
        Ok(file)
    }

    /// The ConfigMaps.
    ///
    /// # Errors
    /// When one is of no form that the API server would take.
    pub fn configmaps(&self) -> Result<Vec<(&Object, ConfigMap)>, Error> {
        self.typed("ConfigMap")
    }

    /// The namespaces.
    ///
    /// # Errors
    /// When one is of no form that the API server would take.
    pub fn namespaces(&self) -> Result<Vec<(&Object, Namespace)>, Error> {
        self.typed("Namespace")
    }

    fn typed<T: DeserializeOwned>(&self, kind: &str) -> Result<Vec<(&Object, T)>, Error> {
        let objects = self.objects.iter().filter(|object| object.is(kind));
        objects
            .map(|object| {
                let typed = serde_json::from_value(object.value.clone());
                Ok((object, typed.map_err(|_| self.wrong(object, kind))?))
            })
            .collect()
    }

    /// The error of an object that cannot be read as what its kind says. The reader's own text could quote a value.
    #[must_use]
    pub fn wrong(&self, object: &Object, kind: &str) -> Error {
        Error::Object { origin: self.origin.clone(), kind: kind.to_owned(), name: object.name().to_owned() }
    }

    /// The text with the edits made, and `added` put in after the documents of these objects. Everything else stays byte
    /// for byte.
    ///
    /// # Errors
    /// When a name cannot be changed alone.
    pub fn edited(&self, edits: &[Edit<'_>], added: &[(&Object, String)]) -> Result<String, Error> {
        let not_in_place = |edit: &Edit<'_>| Error::NotInPlace { origin: self.origin.clone(), from: edit.from.clone() };
        let mut changes: Vec<(Range<usize>, String)> = Vec::new();
        for edit in edits {
            let pointer = format!("{}{}", edit.object.pointer, edit.pointer);
            let scalars = self.documents.get(edit.object.document).map(|document| &document.scalars);
            let place = scalars.and_then(|scalars| scalars.get(&pointer)).ok_or_else(|| not_in_place(edit))?;
            let old = self.text.get(place.clone()).unwrap_or_default();
            let quote = old.chars().next().filter(|first| matches!(first, '"' | '\''));
            let quote =
                quote.or_else(|| is_like_a_number(&edit.to).then_some('"')).map(String::from).unwrap_or_default();
            if old.trim_matches(['"', '\'']) != edit.from {
                return Err(not_in_place(edit));
            }
            changes.push((place.clone(), format!("{quote}{}{quote}", edit.to)));
        }
        for (object, document) in added {
            let end = self.documents.get(object.document).map_or(self.text.len(), |document| document.end);
            changes.push((end..end, format!("---\n{document}")));
        }
        // Stable: what is put in at one place stays in order.
        changes.sort_by_key(|(place, _)| place.start);
        let (mut text, mut at) = (String::new(), 0);
        for (place, new) in changes {
            text.push_str(self.text.get(at..place.start).unwrap_or_default());
            text.push_str(&new);
            at = place.end;
        }
        text.push_str(self.text.get(at..).unwrap_or_default());
        self.check(&text, edits, not_in_place)?;
        Ok(text)
    }

    /// An anchor on a name, for one, would have changed its aliases too: what was written must be what was meant.
    fn check(&self, text: &str, edits: &[Edit<'_>], not_in_place: impl Fn(&Edit<'_>) -> Error) -> Result<(), Error> {
        let Some(first) = edits.first() else { return Ok(()) };
        let mut meant: Vec<Value> = self.objects.iter().map(|object| object.value.clone()).collect();
        for edit in edits {
            let index = self.objects.iter().position(|object| std::ptr::eq(object, edit.object));
            let value = index.and_then(|index| meant.get_mut(index)).and_then(|value| value.pointer_mut(&edit.pointer));
            *value.ok_or_else(|| not_in_place(edit))? = Value::String(edit.to.clone());
        }
        let written = Self::parse(&self.origin, text)?.objects;
        let mut written = written.into_iter().map(|object| object.value);
        // In the order of the originals, with what was put in between.
        let all = meant.iter().all(|value| written.any(|found| found == *value));
        if all { Ok(()) } else { Err(not_in_place(first)) }
    }
}

/// A plain scalar of such characters could be read as a number, `1e-1234567890`.
fn is_like_a_number(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit() || b"-.e".contains(&byte))
}

fn add_objects(objects: &mut Vec<Object>, value: Value, document: usize, pointer: String) {
    let is_list = value["kind"].as_str().is_some_and(|kind| kind.ends_with("List"));
    match (value, is_list) {
        (Value::Object(mut fields), true) => {
            let items = fields.remove("items").and_then(|items| match items {
                Value::Array(items) => Some(items),
                _ => None,
            });
            for (index, item) in items.into_iter().flatten().enumerate() {
                add_objects(objects, item, document, format!("{pointer}/items/{index}"));
            }
        }
        (value @ Value::Object(_), false) => objects.push(Object { value, document, pointer }),
        _ => {}
    }
}

#[cfg(test)]
mod tests;
