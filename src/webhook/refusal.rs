//! Why a workload is not admitted, as the client sees it: an HTTP code, the cause and the cure.

use crate::cluster;
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
    /// The time that the API server granted is over.
    #[error("confpin could not pin this workload in the time that the API server grants: it or the API server is overloaded; try again")]
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

/// Why, in one word: for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// A quota, a policy or a missing right.
    Forbidden,
    /// The API server holds the snapshot for invalid.
    Invalid,
    /// The API server does not answer, or with an error of its own.
    Unavailable,
    /// The time is over.
    Deadline,
    /// Too many ConfigMaps in one template.
    TooManyReferences,
    /// No name is free for the snapshot.
    NamesTaken,
}

impl Refusal {
    /// Why, in one word.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::Cluster { cause } if cause.is_transient() => Reason::Unavailable,
            Self::Cluster { cause } if cause.is_forbidden() => Reason::Forbidden,
            Self::Cluster { .. } => Reason::Invalid,
            Self::Snapshot { .. } => Reason::NamesTaken,
            Self::TooManyReferences { .. } => Reason::TooManyReferences,
            Self::Deadline => Reason::Deadline,
        }
    }

    /// The HTTP status code for the client: whether a try later helps, or something must be changed first.
    #[must_use]
    pub fn code(&self) -> u16 {
        match self.reason() {
            Reason::Forbidden => 403,
            Reason::Invalid | Reason::TooManyReferences => 422,
            Reason::NamesTaken => 409,
            Reason::Unavailable => 503,
            Reason::Deadline => 504,
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
        403 if message.contains("cannot") => "give confpin's ServiceAccount this right (see its ClusterRole)",
        403 => "a policy or admission plugin refuses the snapshot: exempt ConfigMaps with the label confpin.dev/snapshot=true from it",
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
