//! What can go wrong between confpin and the API server.

use std::time::Duration;

use kube::core::Status;

/// A request to the API server failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server answered with an error.
    #[error("failed to {action}: {} ({} {})", shorten(&status.message), status.code, status.reason)]
    Refused {
        /// What was tried, "create snapshot x".
        action: String,
        /// The answer.
        status: Box<Status>,
    },
    /// There was no answer, or none that could be read.
    #[error("failed to {action}: {cause}")]
    Unavailable {
        /// What was tried.
        action: String,
        /// Why, without anything of the objects' contents.
        cause: String,
    },
    /// Another replica reconciles.
    #[error("failed to {action}: this replica does not hold the Lease any more; the one that does will do it")]
    NotLeader {
        /// What was to be done.
        action: String,
    },
}

impl Error {
    /// The error of a failed `action`.
    #[must_use]
    pub fn new(action: &str, error: kube::Error) -> Self {
        let action = action.to_owned();
        match error {
            kube::Error::Api(status) => Self::Refused { action, status },
            // The text of these can quote what was read, and so a ConfigMap's content.
            kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) => {
                Self::Unavailable { action, cause: "the answer could not be read".to_owned() }
            }
            other => Self::Unavailable { action, cause: chain(&other) },
        }
    }

    /// The error of an `action` that the API server did not answer in time.
    #[must_use]
    pub fn unanswered(action: &str, limit: Duration) -> Self {
        Self::Unavailable {
            action: action.to_owned(),
            cause: format!("the API server did not answer within {limit:?}"),
        }
    }

    /// How long the API server asks to wait before the next attempt (`Retry-After`).
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        let Self::Refused { status, .. } = self else { return None };
        let seconds = status.details.as_ref()?.retry_after_seconds;
        Some(Duration::from_secs(seconds.into())).filter(|pause| !pause.is_zero())
    }

    /// Whether the same request may succeed a moment later: no answer, too many requests, or a server's error. So may one
    /// that was not authenticated (401): an API server that has just started does not know the tokens of service accounts
    /// yet, and a token that has expired is read again.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Refused { status, .. } => matches!(status.code, 401 | 429) || status.code >= 500,
            Self::Unavailable { .. } => true,
            Self::NotLeader { .. } => false,
        }
    }

    /// Whether confpin lacks the right, or a quota or policy forbids it (403).
    #[must_use]
    pub fn is_forbidden(&self) -> bool {
        self.code() == Some(403)
    }

    /// Whether there is no such object (404).
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(404)
    }

    /// Whether the object exists already, has changed (409), or is another one of that name: a patch that carries the UID
    /// of one that was replaced is held for an attempt to change the UID (422).
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        let Self::Refused { status, .. } = self else { return false };
        let mut causes = status.details.iter().flat_map(|details| &details.causes);
        status.code == 409 || (status.code == 422 && causes.any(|cause| cause.field == "metadata.uid"))
    }

    /// Whether a test of a JSON patch may have failed: the API server answers with 422 then, as for an object that is not
    /// valid.
    #[must_use]
    pub fn may_be_failed_test(&self) -> bool {
        self.code() == Some(422)
    }

    /// Whether the namespace is being deleted, so that nothing can be created in it.
    #[must_use]
    pub fn is_namespace_terminating(&self) -> bool {
        let Self::Refused { status, .. } = self else { return false };
        let mut causes = status.details.iter().flat_map(|details| &details.causes);
        causes.any(|cause| cause.reason == "NamespaceTerminating")
    }

    /// The HTTP status code of the API server's answer.
    #[must_use]
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Refused { status, .. } => Some(status.code),
            Self::Unavailable { .. } | Self::NotLeader { .. } => None,
        }
    }
}

/// An error with its sources, for those errors whose own text leaves them out.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let next = error.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        source = error.source();
    }
    text
}

/// Messages of policy engines can be pages long; the end that a client shows is the beginning.
fn shorten(message: &str) -> String {
    const MAX: usize = 500;
    match message.char_indices().nth(MAX) {
        Some((end, _)) => format!("{}…", &message[..end]),
        None => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: u16, message: &str) -> Error {
        let status = Status { code, message: message.to_owned(), reason: "Reason".to_owned(), ..Status::default() };
        Error::new("create snapshot x", kube::Error::Api(Box::new(status)))
    }

    #[test]
    fn says_what_failed_and_why() {
        let text = refused(403, "exceeded quota").to_string();
        assert_eq!(text, "failed to create snapshot x: exceeded quota (403 Reason)");
    }

    #[test]
    fn never_quotes_what_was_read() {
        let unreadable = serde_json::from_str::<u8>("\"password\"").expect_err("no number");
        assert!(unreadable.to_string().contains("password"));
        assert!(!Error::new("read x", kube::Error::SerdeError(unreadable)).to_string().contains("password"));
    }

    #[test]
    fn knows_what_is_worth_another_try() {
        for (code, transient) in
            [(401, true), (429, true), (500, true), (503, true), (403, false), (404, false), (409, false), (422, false)]
        {
            assert_eq!(refused(code, "").is_transient(), transient, "{code}");
        }
    }

    #[test]
    fn another_object_of_the_name_is_a_conflict() {
        let refused = |field: &str| {
            let details = serde_json::json!({"causes": [{"field": field}]});
            let status = serde_json::json!({"code": 422, "details": details});
            Error::new("claim x", kube::Error::Api(serde_json::from_value(status).expect("a status")))
        };
        assert!(refused("metadata.uid").is_conflict());
        assert!(!refused("data").is_conflict());
    }

    #[test]
    fn long_messages_are_cut() {
        assert!(refused(403, &"é".repeat(5000)).to_string().len() < 1200);
    }
}
