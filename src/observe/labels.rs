//! The values that metric labels can have: closed sets, so that no label grows without bound or carries anybody's data.

use std::fmt::{self, Write};

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};

/// Declares an enum whose variants each stand for one label value.
macro_rules! label {
    ($(#[$attr:meta])* $name:ident { $($(#[$variant_attr:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$attr])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$variant_attr])* $variant,)+
        }

        impl $name {
            /// Every value.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// The value as it is exposed and logged.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl EncodeLabelValue for $name {
            fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
                encoder.write_str(self.as_str())
            }
        }
    };
}

label! {
    /// How an admission ended.
    Outcome {
        /// The template is the one that it was.
        Unchanged = "unchanged",
        /// Source names became snapshot names.
        Pinned = "pinned",
        /// Snapshot names moved to the newest.
        Refreshed = "refreshed",
        /// The template changed, and its snapshots are the newest already.
        Current = "current",
        /// A rollback: snapshot names stayed.
        Kept = "kept",
        /// No source exists.
        SourceMissing = "source-missing",
        /// The template names no ConfigMap.
        NoReferences = "no-references",
        /// The workload or its namespace opted out.
        OptedOut = "opted-out",
        /// The request was refused.
        Denied = "denied",
        /// Pinning failed, and the workload was admitted as it was sent.
        AdmittedUnpinned = "admitted-unpinned",
    }
}

label! {
    /// Why a workload could not be pinned.
    DenyReason {
        /// The review is not one.
        InvalidRequest = "invalid-request",
        /// A quota, a policy or a missing right.
        Forbidden = "forbidden",
        /// The API server holds the snapshot for invalid.
        Invalid = "invalid",
        /// The API server does not answer, or with an error of its own.
        Unavailable = "unavailable",
        /// The time that was granted ran out.
        Timeout = "timeout",
        /// The template names more ConfigMaps than is allowed.
        TooManyReferences = "too-many-references",
        /// Other objects have every name that the snapshot could have.
        NamesTaken = "names-taken",
        /// confpin does not watch the namespace.
        NotWatched = "not-watched",
    }
}

label! {
    /// How a snapshot came to be used.
    SnapshotUse {
        /// It was made.
        Created = "created",
        /// It was there, and was claimed.
        Reused = "reused",
    }
}

label! {
    /// Why a workload was refreshed by the reconciler.
    RefreshCause {
        /// A source that was missing appeared.
        Missing = "missing",
        /// A source changed shortly after the workload was decided.
        Settle = "settle",
        /// A source changed, and the workload asks to follow.
        OnChange = "on-change",
    }
}

label! {
    /// Why the server answered a request without asking the handler, or without its answer.
    Rejection {
        /// The body was not announced as JSON.
        ContentType = "content-type",
        /// The body is larger than allowed.
        TooLarge = "too-large",
        /// The body did not arrive, or not in time.
        Body = "body",
        /// Too many requests were worked on for all of the time that was granted.
        Busy = "busy",
        /// The handler did not answer in time.
        Timeout = "timeout",
        /// The handler panicked.
        Panic = "panic",
    }
}

label! {
    /// Where a panic was caught.
    Part {
        /// The owners, collection and healing of one snapshot.
        Snapshots = "snapshots",
        /// The refresh of one workload.
        Refreshes = "refreshes",
        /// What a watch has shown, or the watch itself.
        Watches = "watches",
        /// What the webhook has decided.
        Decisions = "decisions",
        /// An Event.
        Events = "events",
        /// The reconciler's work as a whole.
        Reconciler = "reconciler",
    }
}

/// The labels of an admission.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Admission {
    pub kind: String,
    pub outcome: Outcome,
    pub dry_run: bool,
}

/// A label set of one label, for each closed set.
macro_rules! label_set {
    ($name:ident { $field:ident: $type:ty }) => {
        #[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
        pub(super) struct $name {
            pub $field: $type,
        }
    };
}

label_set!(ByReason { reason: DenyReason });
label_set!(ByUse { result: SnapshotUse });
label_set!(ByCause { cause: RefreshCause });
label_set!(ByRejection { reason: Rejection });
label_set!(ByPart { part: Part });
label_set!(ByWatch { watch: &'static str });

/// What is known of this build.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Build {
    pub version: &'static str,
}
