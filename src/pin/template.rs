//! Pod templates, reduced while they are read to what decisions use: the references to ConfigMaps, and a digest of
//! everything else. A template is input of a tenant, who can make the text of a few megabytes need a gigabyte as a tree of
//! values, so no tree is built.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::LazyLock;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use siphasher::sip128::{Hasher128, SipHasher13};

use crate::pin::decision::Rename;
use crate::pin::kinds::{DEPLOYMENT_HASH_LABEL, ROLLOUT_HASH_LABEL};
use crate::pin::references::{PLACES, Reference, is_configmap_name};

/// How many keys of a ConfigMap one reference is known to use. They serve to warn of missing keys.
const MAX_KEYS: usize = 1024;

/// The path of the labels of a template, after those of [`PLACES`].
const LABELS: [&str; 2] = ["metadata", "labels"];

/// A digest by which parts of templates are compared. Keyed by a random number of this process, so that nobody can make two
/// templates with one digest; it must not be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TemplateDigest(u128);

/// A pod template. Two are equal as they are for the controllers: without the hash labels that a controller adds to its
/// ReplicaSets' templates, in whatever order of fields, and with `null` the same as absent (`creationTimestamp: null` comes
/// and goes with the client).
#[derive(Debug, Clone)]
pub struct Template {
    references: Vec<Reference>,
    /// Of everything but the names of the references.
    rest: TemplateDigest,
    digest: TemplateDigest,
}

/// What reading a template may cost, for a text that did not come from the API server's storage, which has limits of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Fields that are open at a time: those of an object, and of the objects around it. 32 bytes each.
    pub fields: usize,
    /// References to ConfigMaps. Some 200 bytes each.
    pub references: usize,
}

/// The beginning of the error's text where a template exceeds its limits.
pub const TOO_MUCH: &str = "exceeds the limits of a template";

impl Limits {
    /// For templates that are stored, or in memory as a whole.
    pub const NONE: Self = Self { fields: usize::MAX, references: usize::MAX };
    /// For templates of requests. No template that can be stored (1.5 MiB) has more fields.
    pub const REQUEST: Self = Self { fields: 1 << 18, references: 1 << 14 };
}

impl Template {
    /// Reads a template that is in memory; `null` is a template without references.
    #[must_use]
    pub fn of(value: &Value) -> Self {
        // What is in memory is a tree without duplicate fields, of which reading cannot fail.
        Seed(Limits::NONE).deserialize(value).unwrap_or_default()
    }

    /// The references, in the order of the places of [`references`].
    ///
    /// [`references`]: crate::pin::references::references
    #[must_use]
    pub fn references(&self) -> &[Reference] {
        &self.references
    }

    /// The references by themselves.
    #[must_use]
    pub fn into_references(self) -> Vec<Reference> {
        self.references
    }

    /// The distinct names of ConfigMaps.
    #[must_use]
    pub fn names(&self) -> BTreeSet<String> {
        self.references.iter().map(|reference| reference.name.clone()).collect()
    }

    /// The digest by which it is compared.
    #[must_use]
    pub fn digest(&self) -> TemplateDigest {
        self.digest
    }

    /// The template with the names changed.
    #[must_use]
    pub fn renamed(&self, renames: &[Rename]) -> Self {
        let names: HashMap<_, _> = renames.iter().map(|rename| (rename.pointer.as_str(), &rename.to)).collect();
        let mut references = self.references.clone();
        for reference in &mut references {
            if let Some(name) = names.get(reference.pointer.as_str()) {
                reference.name.clone_from(name);
            }
        }
        Self::new(references, self.rest)
    }

    fn new(references: Vec<Reference>, rest: TemplateDigest) -> Self {
        let mut whole = Digester::new(Tag::Whole);
        whole.add(rest);
        for reference in &references {
            whole.add(digest(Tag::Text, reference.pointer.as_bytes()));
            whole.add(digest(Tag::Text, reference.name.as_bytes()));
        }
        Self { references, rest, digest: whole.finish() }
    }
}

impl Default for Template {
    fn default() -> Self {
        Self::new(Vec::new(), digest(Tag::Null, &[]))
    }
}

impl PartialEq for Template {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl<'de> Deserialize<'de> for Template {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Seed(Limits::NONE).deserialize(deserializer)
    }
}

/// Reads a template within limits.
pub struct Seed(pub Limits);

impl<'de> DeserializeSeed<'de> for Seed {
    type Value = Template;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Template, D::Error> {
        let walk = Walk { limits: self.0, fields: Cell::new(0), found: RefCell::default(), open: RefCell::default() };
        let rest = Node::root(&walk).deserialize(deserializer)?.digest();
        let mut found = walk.found.into_inner();
        found.sort_by_key(|(order, _)| *order);
        Ok(Template::new(found.into_iter().map(|(_, reference)| reference).collect(), rest))
    }
}

/// What is common to all nodes of a template that is being read.
struct Walk {
    limits: Limits,
    /// How many fields are open.
    fields: Cell<usize>,
    found: RefCell<Vec<([usize; 4], Reference)>>,
    /// The reference that is being read; none is inside another.
    open: RefCell<Selector>,
}

/// The fields of a reference to a ConfigMap that have been read.
#[derive(Default)]
struct Selector {
    name: Option<String>,
    optional: bool,
    keys: BTreeSet<String>,
}

/// What a node means to the reference around it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    None,
    Name,
    Optional,
    /// A key, or a list of objects with a key each.
    Keys,
    KeyItem,
    Key,
}

/// A node of the template that is being read.
#[derive(Clone, Copy)]
struct Node<'a> {
    walk: &'a Walk,
    /// Bits of the [`PLACES`], and then of [`LABELS`], whose paths lead through here.
    alive: u8,
    depth: usize,
    indexes: [usize; 2],
    lists: usize,
    role: Role,
}

const LABELS_BIT: u8 = 1 << PLACES.len();

impl<'a> Node<'a> {
    fn root(walk: &'a Walk) -> Self {
        Self { walk, alive: (LABELS_BIT << 1) - 1, depth: 0, indexes: [0; 2], lists: 0, role: Role::None }
    }

    /// The node below, in a field or, without a name, in a list.
    fn below(&self, field: Option<&str>) -> Self {
        let leads = |path: &[&str]| path.get(self.depth).is_some_and(|step| field.unwrap_or("*") == *step);
        let is_name = field != Some("*");
        let places = PLACES
            .iter()
            .enumerate()
            .filter(|(bit, place)| is_name && self.alive & (1 << bit) != 0 && leads(place.path));
        let mut alive = places.fold(0, |alive, (bit, _)| alive | (1 << bit));
        if self.alive & LABELS_BIT != 0 && leads(&LABELS) {
            alive |= LABELS_BIT;
        }
        Self { alive, depth: self.depth + 1, role: Role::None, ..*self }
    }

    /// The place whose reference this object is.
    fn place(&self) -> Option<usize> {
        (0..PLACES.len()).find(|bit| self.alive & (1 << bit) != 0 && PLACES[*bit].path.len() == self.depth)
    }

    fn is_labels(&self) -> bool {
        self.alive & LABELS_BIT != 0 && self.depth == LABELS.len()
    }

    /// Counts a field that is open now.
    fn open_field<E: serde::de::Error>(&self) -> Result<(), E> {
        let open = self.walk.fields.get() + 1;
        self.walk.fields.set(open);
        if open > self.walk.limits.fields { Err(E::custom(TOO_MUCH)) } else { Ok(()) }
    }

    /// Takes in the reference that ends here.
    fn found<E: serde::de::Error>(&self, place: usize) -> Result<(), E> {
        let Selector { name, optional, keys } = self.walk.open.take();
        let Some(name) = name.filter(|name| is_configmap_name(name)) else { return Ok(()) };
        let mut found = self.walk.found.borrow_mut();
        if found.len() >= self.walk.limits.references {
            return Err(E::custom(TOO_MUCH));
        }
        let [outer, inner] = self.indexes;
        let [list, within] = PLACES[place].order;
        let pointer = PLACES[place].pointer(self.indexes);
        found.push(([list, outer, within, inner], Reference { pointer, name, optional, keys }));
        Ok(())
    }

    fn text(&self, text: &str) -> Hashed {
        let mut open = self.walk.open.borrow_mut();
        match self.role {
            Role::Name => {
                open.name = Some(text.to_owned());
                if is_configmap_name(text) {
                    // Changing it leaves the digest of the rest.
                    return Hashed::Other(digest(Tag::Name, &[]));
                }
            }
            Role::Keys | Role::Key if open.keys.len() < MAX_KEYS => drop(open.keys.insert(text.to_owned())),
            _ => {}
        }
        Hashed::Other(digest(Tag::Text, text.as_bytes()))
    }
}

/// What became of a node.
enum Hashed {
    Null,
    EmptyObject,
    Other(TemplateDigest),
}

impl Hashed {
    fn digest(&self) -> TemplateDigest {
        match self {
            Self::Null => digest(Tag::Null, &[]),
            Self::EmptyObject => digest(Tag::Object, &[]),
            Self::Other(digest) => *digest,
        }
    }
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Hashed;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Hashed, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Hashed;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Hashed, E> {
        Ok(Hashed::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Hashed, E> {
        if self.role == Role::Optional {
            self.walk.open.borrow_mut().optional = value;
        }
        Ok(Hashed::Other(digest(Tag::Flag, &[u8::from(value)])))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Hashed, E> {
        Ok(Hashed::Other(digest(Tag::Natural, &value.to_le_bytes())))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Hashed, E> {
        Ok(Hashed::Other(digest(Tag::Integer, &value.to_le_bytes())))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Hashed, E> {
        Ok(Hashed::Other(digest(Tag::Float, &value.to_bits().to_le_bytes())))
    }

    fn visit_str<E>(self, text: &str) -> Result<Hashed, E> {
        Ok(self.text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Hashed, A::Error> {
        let mut digester = Digester::new(Tag::List);
        let mut index = 0;
        loop {
            let mut item = self.below(None);
            if item.alive != 0 {
                item.indexes[self.lists.min(1)] = index;
                item.lists = self.lists + 1;
            }
            if self.role == Role::Keys {
                item.role = Role::KeyItem;
            }
            let Some(hashed) = list.next_element_seed(item)? else { break };
            digester.add(hashed.digest());
            index += 1;
        }
        Ok(Hashed::Other(digester.finish()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Hashed, A::Error> {
        let place = self.place();
        if place.is_some() {
            self.walk.open.take();
        }
        let mut fields: Vec<(TemplateDigest, TemplateDigest)> = Vec::new();
        while let Some(field) = map.next_key_seed(FieldName { node: &self, place })? {
            let value = map.next_value_seed(field.node)?;
            let is_dropped = match value {
                Hashed::Null => true,
                Hashed::EmptyObject => field.is_dropped_if_empty,
                Hashed::Other(_) => field.is_hash_label,
            };
            if !is_dropped {
                self.open_field()?;
                fields.push((field.name, value.digest()));
            }
        }
        if let Some(place) = place {
            self.found(place)?;
        }
        self.walk.fields.set(self.walk.fields.get() - fields.len());
        if fields.is_empty() {
            return Ok(Hashed::EmptyObject);
        }
        fields.sort_unstable();
        // The API server sends none. The last would count, but references in the first were found already.
        if fields.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return Err(A::Error::custom("a field stands twice"));
        }
        let mut digester = Digester::new(Tag::Object);
        for (name, value) in fields {
            digester.add(name);
            digester.add(value);
        }
        Ok(Hashed::Other(digester.finish()))
    }
}

/// Reads the name of a field, without a copy of it.
struct FieldName<'a, 'b> {
    node: &'b Node<'a>,
    place: Option<usize>,
}

struct Field<'a> {
    name: TemplateDigest,
    node: Node<'a>,
    /// `labels: {}` is no label.
    is_dropped_if_empty: bool,
    is_hash_label: bool,
}

impl<'de, 'a> DeserializeSeed<'de> for FieldName<'a, '_> {
    type Value = Field<'a>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Field<'a>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'a> Visitor<'_> for FieldName<'a, '_> {
    type Value = Field<'a>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the name of a field")
    }

    fn visit_str<E>(self, name: &str) -> Result<Field<'a>, E> {
        let mut node = self.node.below(Some(name));
        node.role = match (self.place, name) {
            (Some(_), "name") => Role::Name,
            (Some(_), "optional") => Role::Optional,
            (Some(place), name) if PLACES[place].keys == Some(name) => Role::Keys,
            (None, "key") if self.node.role == Role::KeyItem => Role::Key,
            _ => Role::None,
        };
        Ok(Field {
            name: digest(Tag::Text, name.as_bytes()),
            node,
            is_dropped_if_empty: matches!(name, "labels" | "metadata"),
            is_hash_label: self.node.is_labels() && matches!(name, DEPLOYMENT_HASH_LABEL | ROLLOUT_HASH_LABEL),
        })
    }
}

/// The kinds of things that are digested: none has the digest of one of another kind.
#[derive(Clone, Copy)]
enum Tag {
    Null,
    Flag,
    Natural,
    Integer,
    Float,
    Text,
    Name,
    List,
    Object,
    Whole,
}

static HASHER: LazyLock<SipHasher13> = LazyLock::new(|| {
    let random = RandomState::new();
    SipHasher13::new_with_keys(random.hash_one(0), random.hash_one(1))
});

struct Digester(SipHasher13);

impl Digester {
    fn new(tag: Tag) -> Self {
        let mut hasher = *HASHER;
        hasher.write_u8(tag as u8);
        Self(hasher)
    }

    fn add(&mut self, part: TemplateDigest) {
        self.0.write_u128(part.0);
    }

    fn finish(self) -> TemplateDigest {
        TemplateDigest(self.0.finish128().into())
    }
}

fn digest(tag: Tag, bytes: &[u8]) -> TemplateDigest {
    let mut digester = Digester::new(tag);
    digester.0.write(bytes);
    digester.finish()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn equal(one: &Value, other: &Value) -> bool {
        Template::of(one) == Template::of(other)
    }

    #[test]
    fn a_hash_label_and_a_null_make_no_difference() {
        let stored = json!({"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "a"}]}});
        for label in [DEPLOYMENT_HASH_LABEL, ROLLOUT_HASH_LABEL] {
            let held = json!({"metadata": {"creationTimestamp": null, "labels": {"app": "x", label: "5d"}},
                              "spec": {"containers": [{"name": "a"}]}});
            assert!(equal(&stored, &held));
        }
        assert!(equal(&json!({"spec": {"a": [{"b": null}]}}), &json!({"spec": {"a": [{}]}})));
        assert!(equal(
            &json!({"spec": {}}),
            &json!({"metadata": {"labels": {DEPLOYMENT_HASH_LABEL: "1"}}, "spec": {}})
        ));
    }

    #[test]
    fn anything_else_does() {
        let stored = json!({"metadata": {"labels": {"app": "x"}}, "spec": {"volumes": [{"emptyDir": {}}]}});
        for other in [
            json!({"metadata": {"labels": {"app": "y"}}, "spec": {"volumes": [{"emptyDir": {}}]}}),
            json!({"metadata": {"labels": {"app": "x"}}, "spec": {"volumes": [{}]}}),
            json!({"metadata": {"labels": {"app": "x"}}, "spec": {"volumes": [{"emptyDir": []}]}}),
            json!({"metadata": {"labels": {"app": "x"}}, "spec": {"volumes": []}}),
            json!({"spec": {"labels": {DEPLOYMENT_HASH_LABEL: "5d"}}}),
            json!({"metadata": {"labels": {"app": "x"}}, "spec": {"volumes": [{"configMap": {"name": "a"}}]}}),
        ] {
            assert!(!equal(&stored, &other), "{other}");
        }
        assert!(!equal(&json!({"a": 1}), &json!({"a": 1.0})));
        assert!(!equal(&json!({"a": "1"}), &json!({"a": 1})));
        assert!(!equal(&json!({"a": ["b", "c"]}), &json!({"a": ["c", "b"]})));
        assert!(!equal(&json!({"spec": {"labels": {DEPLOYMENT_HASH_LABEL: "5d"}}}), &json!({"spec": {}})));
    }

    #[test]
    fn the_order_of_fields_makes_no_difference_nor_does_where_it_is_read_from() {
        let parse = |text: &str| serde_json::from_str::<Template>(text).expect("JSON");
        let one = r#"{"spec":{"b":{"c":-2,"d":1.5},"volumes":[{"configMap":{"optional":true,"name":"x\u0061"}}]}}"#;
        let other = r#"{"spec":{"volumes":[{"configMap":{"name":"xa","optional":true}}],"b":{"d":1.5,"c":-2}}}"#;
        assert_eq!(parse(one), parse(other));
        assert_eq!(parse(one).references(), parse(other).references());
        assert_eq!(parse(one), Template::of(&serde_json::from_str(one).expect("JSON")));
    }

    #[test]
    fn names_change_and_the_rest_stays() {
        let volumes = |one: &str, other: &str| {
            Template::of(&json!({"spec": {"volumes": [{"configMap": {"name": one}}, {"configMap": {"name": other}}]}}))
        };
        let rename = Rename { pointer: "/spec/volumes/1/configMap/name".into(), from: "b".into(), to: "c".into() };
        let renamed = volumes("a", "b").renamed(&[rename]);
        assert_eq!(renamed, volumes("a", "c"));
        assert_eq!(renamed.references(), volumes("a", "c").references());
        assert_ne!(renamed, volumes("c", "b"));
        assert_ne!(volumes("a", "A"), volumes("a", "B"), "what is no name of a ConfigMap is not a reference's");
    }

    fn read(text: &str, limits: Limits) -> Result<Template, serde_json::Error> {
        Seed(limits).deserialize(&mut serde_json::Deserializer::from_str(text))
    }

    #[test]
    fn what_reading_costs_is_limited() {
        let limits = Limits { fields: 4, references: 2 };
        read(r#"{"a":[{"x":1,"y":2},{"x":1,"y":2},{"x":1,"y":2}],"b":{"x":1}}"#, limits).expect("few at a time");
        read(r#"{"a":1,"b":2,"c":3,"d":{"e":1,"f":2}}"#, limits).expect_err("five at a time");
        let volume = r#"{"configMap":{"name":"a"}}"#;
        let volumes = |number| format!(r#"{{"spec":{{"volumes":[{}]}}}}"#, vec![volume; number].join(","));
        assert_eq!(read(&volumes(2), limits).expect("two").references().len(), 2);
        read(&volumes(3), limits).expect_err("three");
        read(&"[".repeat(100_000), Limits::NONE).expect_err("too deep");
    }

    #[test]
    fn a_field_that_stands_twice_is_an_error() {
        read(r#"{"spec":{"volumes":[{"configMap":{"name":"a"}}],"volumes":[]}}"#, Limits::NONE).expect_err("twice");
    }
}
