//! confpin pins ConfigMaps: every rollout keeps, for its whole life, the configuration that it was rolled out with.
//!
//! A ConfigMap is mutable and shared. Edit it, and a stable pod that is recreated in the middle of a canary starts with
//! the new content; abort, and the old image runs with it. confpin copies, when a workload is admitted, each ConfigMap
//! that its pod template names (a *source*) into an immutable ConfigMap with a content-hash name (a *snapshot*), and
//! points the template at the copy. Nobody changes a manifest. Snapshots are owned by the ReplicaSets that name them
//! (their *holders*), so Kubernetes' garbage collector removes them with the revision history.
//!
//! # Admission: four rules
//!
//! For CREATE and UPDATE of a *workload* (Deployment, Rollout) in a namespace labelled `confpin.dev/pin: enabled`:
//!
//! 1. The template names no ConfigMap: allow.
//! 2. The template is the stored one and the refresh annotation too: admit unchanged, for every client.
//! 3. The template carries snapshot names and is that of one of the workload's ReplicaSets: a rollback. *Keep* each name.
//! 4. Otherwise map each name back to its source, read each source once and live, make sure of its snapshot, and put it
//!    at every place that names the source (*pin* a source name, *refresh* a snapshot name). All of it or none of it.
//!
//! [`pin::decision`] holds them as pure functions over facts; [`webhook::admission`] gathers the facts. A dry run gives
//! the same answer and writes nothing. With each decision a *record* on the workload notes what every source contained.
//!
//! # The life of a snapshot
//!
//! A snapshot may be reused while its only owner is on its way out (A→B→A at the history limit), and the collector
//! would take it. So admission *claims* each snapshot that a changed template names: it removes the owners and leaves a
//! note, in one write. An object without owners is never collected, and the collector's own delete carries the
//! resourceVersion that it judged by. The reconciler owns the snapshot again when every claim on it is settled and
//! every workload that names it has the ReplicaSet of its current template ([`pin::claim`], [`pin::ownership`]). What
//! nothing names and nothing owns, an *orphan*, it deletes after a grace period and a live look at workloads, holders
//! and pods. A referenced snapshot that was deleted is recreated if its source still has the content.
//!
//! # Refresh
//!
//! The reconciler never edits a template. It changes an annotation on the workload, and rule 4 decides: when a missing
//! source appears, when a source changes just after a decision, and, where `confpin.dev/rollout: on-change` is set,
//! when a source differs from the record ([`pin::refresh`]).
//!
//! # Rights
//!
//! Everything above happens within one namespace. So confpin needs no ClusterRole where it is to serve some namespaces
//! only ([`pin::scope`]): each then has a reconciler of its own, and the webhook refuses what it is asked about others.
//!
//! # Where things are
//!
//! `main → app → {webhook, reconcile, trust, tls, observe} → cluster → pin`: [`pin`] is pure, [`cluster`] holds every read
//! from and write to the API server, [`webhook`] and [`reconcile`] are the two halves of the program, [`trust`] keeps its
//! CA, [`app`] puts them together, and [`install`] is what an installation grants them. [`inspect`] is what
//! `kubectl confpin` tells, by the same pure functions; [`cli`] prints it. A new kind of workload is one row in
//! [`pin::kinds`].
#![forbid(unsafe_code)]

pub mod app;
pub mod argo_cd;
pub mod cli;
pub mod cluster;
pub mod config;
pub mod inspect;
pub mod install;
pub mod observe;
pub mod pin;
pub mod reconcile;
pub mod tls;
pub mod trust;
pub mod webhook;
