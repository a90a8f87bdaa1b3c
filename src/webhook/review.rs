//! The wire format of admission reviews, `admission.k8s.io/v1`
//! (<https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#request>).
//!
//! Own types instead of kube's: these decode only what is used of the objects, and write the patch as the base64
//! text that the API server reads (kube issue 1781).

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use json_patch::Patch;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::pin::kinds::{self, WorkloadKind};
use crate::pin::references::is_configmap_name;
use crate::pin::request::{Request, Workload};
use crate::pin::template::{Limits, TOO_MUCH};
use crate::pin::warning::Warning;

/// The one version of the protocol that Kubernetes speaks since 1.22.
const API_VERSION: &str = "admission.k8s.io/v1";

/// A body that is no admission review which could be answered.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is no JSON of the expected shape. The parser's own text may quote the body, so only the place is told.
    #[error("the body is not an AdmissionReview: unexpected JSON at line {line} column {column}")]
    Malformed {
        /// Line of the first unexpected character.
        line: usize,
        /// Its column.
        column: usize,
    },
    /// Its workload has more fields or references than one that could be stored.
    #[error("the pod template has too many fields or references to ConfigMaps to be stored")]
    TooMuch,
    /// It is a review of another version, or no review at all.
    #[error(
        "expected an AdmissionReview of {API_VERSION}; set admissionReviewVersions: [\"v1\"] in the webhook configuration"
    )]
    Version,
    /// It is an answer, or empty.
    #[error("the AdmissionReview has no request")]
    NoRequest,
    /// The request is about something that cannot be an object's namespace or name.
    #[error("the AdmissionReview's request has no valid namespace")]
    Namespace,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire<'a> {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(borrow)]
    request: Option<WireRequest<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireRequest<'a> {
    uid: String,
    kind: WireKind,
    #[serde(default)]
    sub_resource: Option<String>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    namespace: Option<String>,
    operation: String,
    #[serde(default)]
    dry_run: Option<bool>,
    // Text, until it is known that the object matters.
    #[serde(default, borrow)]
    object: Option<&'a RawValue>,
    #[serde(default, borrow)]
    old_object: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct WireKind {
    #[serde(default)]
    group: String,
    kind: String,
}

/// An admission review's request.
#[derive(Debug)]
pub struct Review {
    /// Goes into the answer.
    pub uid: String,
    /// What is to be decided; `None` for an object or operation that confpin leaves alone.
    pub question: Option<Question>,
}

/// What is to be decided.
#[derive(Debug)]
pub struct Question {
    /// The namespace of the workload.
    pub namespace: String,
    /// Whether nothing is to be written.
    pub dry_run: bool,
    /// The workload before and after.
    pub request: Request,
}

impl Review {
    /// Reads a request's body.
    ///
    /// # Errors
    /// When the body is no review that could be answered.
    pub fn parse(body: &[u8]) -> Result<Self, Error> {
        let wire: Wire = serde_json::from_slice(body).map_err(malformed)?;
        if wire.api_version != API_VERSION || wire.kind != "AdmissionReview" {
            return Err(Error::Version);
        }
        let request = wire.request.ok_or(Error::NoRequest)?;
        Ok(Self { uid: request.uid.clone(), question: request.question()? })
    }
}

/// Reads a workload, without more memory than its references need, whatever its text.
fn read_workload(kind: &'static WorkloadKind, text: &RawValue) -> Result<Workload, Error> {
    let mut reader = serde_json::Deserializer::from_str(text.get());
    Workload::read(kind, Limits::REQUEST, &mut reader).map_err(|error| {
        // The text of other errors may quote the body.
        if error.to_string().starts_with(TOO_MUCH) { Error::TooMuch } else { malformed(error) }
    })
}

fn malformed(error: serde_json::Error) -> Error {
    Error::Malformed { line: error.line(), column: error.column() }
}

impl WireRequest<'_> {
    fn question(self) -> Result<Option<Question>, Error> {
        let Some(kind) = self.relevant_kind() else { return Ok(None) };
        let Some(new) = self.object else { return Ok(None) };
        // It becomes part of request paths.
        let namespace = self.namespace.filter(|name| is_configmap_name(name)).ok_or(Error::Namespace)?;
        let new = read_workload(kind, new)?;
        let name = self.name.filter(|name| !name.is_empty()).or(new.metadata.name.clone()).unwrap_or_default();
        let old = self.old_object.filter(|_| self.operation == "UPDATE");
        let old = old.map(|old| read_workload(kind, old)).transpose()?;
        let request = Request { kind, name, new, old, namespace_opts_out: false };
        Ok(Some(Question { namespace, dry_run: self.dry_run == Some(true), request }))
    }

    fn relevant_kind(&self) -> Option<&'static WorkloadKind> {
        let relevant =
            self.sub_resource.as_ref().is_none_or(String::is_empty) && ["CREATE", "UPDATE"].contains(&&*self.operation);
        kinds::find(&self.kind.group, &self.kind.kind).filter(|_| relevant)
    }
}

/// An admission review's answer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    api_version: &'static str,
    kind: &'static str,
    response: Response,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    uid: String,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
    // A patch without its type, or a type without a patch, is refused by the API server.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    patch: Option<EncodedPatch>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    audit_annotations: BTreeMap<&'static str, String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct EncodedPatch {
    patch: String,
    patch_type: &'static str,
}

#[derive(Debug, Serialize)]
struct Status {
    code: u16,
    reason: &'static str,
    message: String,
}

impl Answer {
    fn new(uid: String, allowed: bool) -> Self {
        let response = Response {
            uid,
            allowed,
            status: None,
            patch: None,
            warnings: Vec::new(),
            audit_annotations: BTreeMap::new(),
        };
        Self { api_version: API_VERSION, kind: "AdmissionReview", response }
    }

    /// Lets the object pass as it is.
    #[must_use]
    pub fn allow(uid: String) -> Self {
        Self::new(uid, true)
    }

    /// Refuses the object. `code` is the HTTP status that the client sees.
    #[must_use]
    pub fn deny(uid: String, code: u16, message: String) -> Self {
        let mut answer = Self::new(uid, false);
        answer.response.status = Some(Status { code, reason: reason(code), message });
        answer
    }

    /// Changes the object; an empty patch changes nothing.
    #[must_use]
    pub fn with_patch(mut self, patch: &Patch) -> Self {
        // Serialising names and pointers cannot fail; no patch is the answer if it did.
        let bytes = serde_json::to_vec(patch).ok().filter(|_| !patch.0.is_empty());
        self.response.patch =
            bytes.map(|bytes| EncodedPatch { patch: STANDARD.encode(bytes), patch_type: "JSONPatch" });
        self
    }

    /// Tells the client something.
    #[must_use]
    pub fn with_warnings(mut self, warnings: &[Warning]) -> Self {
        self.response.warnings.extend(warnings.iter().map(ToString::to_string));
        self
    }

    /// Notes something in the audit log, under the webhook's name and `/key`.
    #[must_use]
    pub fn with_audit_annotation(mut self, key: &'static str, value: String) -> Self {
        self.response.audit_annotations.insert(key, value);
        self
    }
}

/// The reason that Kubernetes has for an HTTP status code, which clients print and decide by.
fn reason(code: u16) -> &'static str {
    match code {
        403 => "Forbidden",
        409 => "Conflict",
        422 => "Invalid",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "InternalError",
    }
}

#[cfg(test)]
mod tests {
    use json_patch::jsonptr::PointerBuf;
    use json_patch::{PatchOperation, ReplaceOperation};
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn review() -> Value {
        json!({"apiVersion": API_VERSION, "kind": "AdmissionReview", "request": {
            "uid": "1", "kind": {"group": "apps", "version": "v1", "kind": "Deployment"}, "namespace": "shop",
            "operation": "CREATE", "object": {"metadata": {"name": "web", "managedFields": [{}]}, "spec": {}}}})
    }

    fn parse(review: &Value) -> Result<Review, Error> {
        Review::parse(review.to_string().as_bytes())
    }

    #[test]
    fn reads_a_request() {
        let question = parse(&review()).expect("a review").question.expect("a question");
        assert_eq!((question.namespace.as_str(), question.request.name.as_str()), ("shop", "web"));
        assert!(!question.dry_run);
        assert!(question.request.old.is_none());
    }

    #[rstest]
    #[case("/apiVersion", json!("admission.k8s.io/v1beta1"))]
    #[case("/kind", json!("Pod"))]
    #[case("/request", json!(null))]
    #[case("/request", json!([]))]
    #[case("/request/uid", json!(1))]
    #[case("/request/namespace", json!("../kube-system"))]
    #[case("/request/namespace", json!(null))]
    #[case("/request/object/metadata/name", json!({}))]
    fn refuses_what_it_cannot_answer(#[case] pointer: &str, #[case] value: Value) {
        let mut review = review();
        *review.pointer_mut(pointer).expect("it is there") = value;
        parse(&review).expect_err("refused");
    }

    #[rstest]
    #[case("/request/operation", json!("DELETE"))]
    #[case("/request/kind/kind", json!("StatefulSet"))]
    #[case("/request/object", json!(null))]
    fn has_no_question_about_other_things(#[case] pointer: &str, #[case] value: Value) {
        let mut review = review();
        *review.pointer_mut(pointer).expect("it is there") = value;
        assert!(parse(&review).expect("a review").question.is_none());
    }

    #[test]
    fn hostile_bodies_are_errors_that_quote_nothing() {
        let nested = "[".repeat(100_000);
        for body in ["", "null", "\"password\"", "{\"request\": \"password\"}", "\u{0}", &nested, "{\"kind\":"] {
            let error = Review::parse(body.as_bytes()).expect_err("refused").to_string();
            assert!(!error.contains("password"), "{error}");
        }
        assert!(Review::parse(b"\xff\xfe").is_err());
    }

    #[test]
    fn the_patch_is_base64_and_comes_with_its_type_or_not_at_all() {
        let path = PointerBuf::parse("/spec").expect("a pointer");
        let patch = Patch(vec![PatchOperation::Replace(ReplaceOperation { path, value: json!(1) })]);
        let answer = |patch| serde_json::to_value(Answer::allow("1".into()).with_patch(patch)).expect("JSON");
        let with = answer(&patch);
        let text = STANDARD.decode(with["response"]["patch"].as_str().expect("text")).expect("base64");
        assert_eq!(serde_json::from_slice::<Patch>(&text).expect("a patch"), patch);
        assert_eq!(with["response"]["patchType"], "JSONPatch");
        let without = answer(&Patch(vec![]));
        assert_eq!(without["response"], json!({"uid": "1", "allowed": true}));
    }

    /// What is done to the text of a review.
    #[derive(Debug, Clone, bolero::TypeGenerator)]
    enum Damage {
        Put(u16, u8),
        Cut(u16),
        Insert(u16, u8),
        Nest(u16, u16),
    }

    const TOKENS: [&str; 12] =
        ["null", "{", "}", "[", "]", ",", ":", "\"", "\\u0000", "-1e999", "\"uid\"", "\"object\":{\"spec\":7}"];

    fn damage(text: &mut Vec<u8>, damage: &Damage) {
        let place = |at: u16| usize::from(at) % (text.len() + 1);
        match *damage {
            Damage::Put(at, byte) => {
                let at = place(at);
                if let Some(there) = text.get_mut(at) {
                    *there = byte;
                }
            }
            Damage::Cut(at) => text.truncate(place(at)),
            Damage::Insert(at, token) => {
                let at = place(at);
                let token = TOKENS[usize::from(token) % TOKENS.len()];
                text.splice(at..at, token.bytes());
            }
            Damage::Nest(at, depth) => {
                let at = place(at);
                text.splice(at..at, std::iter::repeat_n(b'[', usize::from(depth)));
            }
        }
    }

    #[test]
    fn fuzz_the_parser() {
        let whole = review().to_string().into_bytes();
        bolero::check!().with_type::<Vec<Damage>>().for_each(|damages| {
            let mut text = whole.clone();
            damages.iter().take(6).for_each(|it| damage(&mut text, it));
            match Review::parse(&text) {
                Ok(review) => assert!(review.question.is_none_or(|it| is_configmap_name(&it.namespace))),
                Err(error) => assert!(error.to_string().len() < 200),
            }
        });
    }
}
