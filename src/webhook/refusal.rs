//! Why a workload is not admitted, as the client sees it: an HTTP code, the cause and the cure.

use crate::cluster;
use crate::observe::labels::DenyReason;
use crate::webhook::snapshots;

/// A workload cannot be pinned.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The API server failed or refused confpin's own requests.
    #[error("confpin could not pin this workload: {cause}; {}", cure(cause))]
    Cluster {
        /// What it answered.
        #[from]
        cause: cluster::Error,
    },
    /// A snapshot could not be made.
    #[error("confpin could not pin this workload: {cause}")]
    Snapshot {
        /// Why.
        cause: snapshots::Error,
    },
    /// The template names more ConfigMaps than confpin reads for one request.
    #[error(
        "confpin pins at most {most} ConfigMaps of one pod template, this one names {found}: merge some, \
         or raise --max-references"
    )]
    TooManyReferences {
        /// How many it names.
        found: usize,
        /// The most.
        most: usize,
    },
    /// The API server was told to ask about a namespace that confpin has no rights in.
    #[error(
        "confpin does not watch the namespace {namespace}: add it to --watch-namespace and grant the rights in it, or \
         leave it out of the webhook configuration's namespaceSelector"
    )]
    NotWatched {
        /// The namespace.
        namespace: String,
    },
    /// The time that the API server granted is over.
    #[error(
        "confpin could not pin this workload in the time that the API server grants: it or the API server is overloaded; try again"
    )]
    Deadline,
}

impl From<snapshots::Error> for Refusal {
    fn from(error: snapshots::Error) -> Self {
        match error {
            snapshots::Error::Cluster(cause) => Self::Cluster { cause },
            cause => Self::Snapshot { cause },
        }
    }
}

impl Refusal {
    /// Why, in one word.
    #[must_use]
    pub fn reason(&self) -> DenyReason {
        match self {
            Self::Cluster { cause } if cause.is_transient() => DenyReason::Unavailable,
            Self::Cluster { cause } if cause.is_forbidden() => DenyReason::Forbidden,
            Self::Cluster { .. } => DenyReason::Invalid,
            Self::Snapshot { .. } => DenyReason::NamesTaken,
            Self::TooManyReferences { .. } => DenyReason::TooManyReferences,
            Self::NotWatched { .. } => DenyReason::NotWatched,
            Self::Deadline => DenyReason::Timeout,
        }
    }

    /// The HTTP status code for the client: whether a try later helps, or something must be changed first.
    #[must_use]
    pub fn code(&self) -> u16 {
        match self.reason() {
            DenyReason::Forbidden | DenyReason::NotWatched => 403,
            DenyReason::Invalid | DenyReason::InvalidRequest | DenyReason::TooManyReferences => 422,
            DenyReason::NamesTaken => 409,
            DenyReason::Unavailable => 503,
            DenyReason::Timeout => 504,
        }
    }
}

/// What to do about the API server's answer.
fn cure(cause: &cluster::Error) -> &'static str {
    let cluster::Error::Refused { status, .. } = cause else { return "try again" };
    let message = &status.message;
    match status.code {
        403 if message.contains("exceeded quota") || message.contains("failed quota") => {
            "raise the namespace's quota for ConfigMaps, or lower revisionHistoryLimit so that fewer snapshots are kept"
        }
        403 if message.contains("cannot") => "give confpin's ServiceAccount this right (see its roles)",
        403 => {
            "a policy or admission plugin refuses the snapshot: exempt ConfigMaps with the label confpin.dev/snapshot=true from it"
        }
        401 => "try again; if it stays so, the API server refuses confpin's credentials: restart confpin",
        413 | 422 => "make the ConfigMap smaller, or opt it out with the annotation confpin.dev/pin: disabled",
        code if code == 429 || code >= 500 => "try again",
        _ => "see confpin's log",
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(403, "exceeded quota: q, requested: count/configmaps=1", 403, "raise the namespace's quota")]
    #[case(403, "User \"x\" cannot create resource \"configmaps\"", 403, "give confpin's ServiceAccount")]
    #[case(403, "ValidatingAdmissionPolicy 'p' denied request", 403, "policy")]
    #[case(422, "Too long: may not be more than 1048576 bytes", 422, "smaller")]
    #[case(401, "Unauthorized", 503, "try again")]
    #[case(429, "too many requests", 503, "try again")]
    #[case(500, "etcdserver: no leader", 503, "try again")]
    fn tells_cause_and_cure(#[case] code: u16, #[case] message: &str, #[case] answer: u16, #[case] cure: &str) {
        let status = Status { code, message: message.to_owned(), ..Status::default() };
        let refusal = Refusal::from(cluster::Error::new("create snapshot x", kube::Error::Api(Box::new(status))));
        assert_eq!(refusal.code(), answer);
        let text = refusal.to_string();
        assert!(text.contains(message) && text.contains(cure), "{text}");
    }
}
