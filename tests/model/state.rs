//! The state of the model: a few numbers for each object, so that millions of states fit in memory.

use std::collections::BTreeSet;

/// How many workloads there are at most.
pub const WORKLOADS: usize = 2;
/// How many contents the source can have, and so how many snapshots there are.
pub const CONTENTS: usize = 2;

/// The content that a template was pinned to: templates 0 and 2 name snapshot 0 (the second is what `rollout restart`
/// makes of the first), template 1 names snapshot 1.
pub fn named_by(template: u8) -> usize {
    usize::from(template) % CONTENTS
}

/// A Deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Workload {
    /// Tells it from another one of that name.
    pub uid: u8,
    /// `metadata.generation`.
    pub generation: u8,
    /// `status.observedGeneration`.
    pub observed: u8,
    /// Its pod template.
    pub template: u8,
    /// How often time has passed since it was created, at most 3.
    pub age: u8,
}

/// A ReplicaSet, and the reference to one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Holder {
    /// The workload that it is of.
    pub workload: u8,
    /// Its pod template.
    pub template: u8,
    /// Tells it from another one of that name.
    pub uid: u8,
    /// The UID of its workload.
    pub controller: u8,
}

impl Holder {
    /// Whether its template names the snapshot of this content.
    pub fn names(&self, content: usize) -> bool {
        named_by(self.template) == content
    }
}

/// A claim of one workload on a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Claim {
    /// The workload's UID, unless it is being created.
    pub uid: Option<u8>,
    /// The generation that it is to have.
    pub generation: u8,
    /// How often time has passed since: once, and it has expired; twice, and the grace period is over too.
    pub age: u8,
}

/// A snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Snapshot {
    /// Its owner references, in order.
    pub owners: Vec<Holder>,
    /// The claims on it, with their workloads.
    pub claims: BTreeSet<(u8, Claim)>,
}

/// How far an admission has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// It is about to create the snapshot.
    Begun,
    /// It was there: it is about to be claimed, by its UID.
    Found,
    /// The webhook has answered: the API server is about to store the workload.
    Admitted,
}

/// A request for a new template, in a replica of the webhook and then in the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Admission {
    /// The workload.
    pub workload: u8,
    /// UID and generation of the workload that it would replace.
    pub old: Option<(u8, u8)>,
    /// The template.
    pub template: u8,
    /// How far it has come.
    pub phase: Phase,
}

impl Admission {
    /// The claim that it makes.
    pub fn claim(&self) -> Claim {
        let (uid, generation) = self.old.unzip();
        Claim { uid, generation: generation.unwrap_or_default() + 1, age: 0 }
    }
}

/// What Kubernetes' collector has read of a snapshot that it may delete.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Collecting {
    /// The owners that it had.
    pub owners: Vec<Holder>,
    /// Its resourceVersion is still the one that was read.
    pub fresh: bool,
    /// Its owners have not been written since, or only to be equal again.
    pub same: bool,
    /// The delete that is due carries no resourceVersion: after a conflict the owners were found to be the same.
    pub forced: bool,
}

/// What a turn of the reconciler does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// Looks at the workload of the first claim, in the index and live.
    Workload,
    /// Lists the ReplicaSets of that workload, as it was read, live.
    Holders(Workload),
    /// Lists all workloads live, before a deletion.
    AnyWorkload,
    /// Lists all ReplicaSets live, before a deletion.
    AnyHolder,
    /// Writes.
    Write,
}

/// The reconciler's work on one snapshot. It was judged by the snapshot as it is now: every write of a snapshot ends
/// the turn, since what the turn would write carries the resourceVersion.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Turn {
    /// Whether it is about deleting the snapshot, and not about its owners.
    pub collects: bool,
    /// The ReplicaSets that the index had.
    pub holders: Vec<Holder>,
    /// The claims that are still to be looked at, with their workloads.
    pub claims: Vec<(u8, Claim)>,
    /// What is next.
    pub step: Step,
}

/// What is still allowed to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Left {
    /// Requests with a new template, by workload.
    pub changes: [u8; WORKLOADS],
    /// Changes of a workload's spec that no webhook sees.
    pub scales: u8,
    /// Deletions of a workload.
    pub removals: u8,
    /// Requests that are refused after they have been admitted.
    pub refusals: u8,
    /// Crashes of the reconciler.
    pub crashes: u8,
    /// ReplicaSets that a person deletes.
    pub meddlings: u8,
}

/// Everything.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    /// The stored workloads.
    pub workloads: [Option<Workload>; WORKLOADS],
    /// The stored ReplicaSets, in order.
    pub holders: Vec<Holder>,
    /// The stored snapshots, by content.
    pub snapshots: [Option<Snapshot>; CONTENTS],
    /// The requests on their way, in order.
    pub admissions: Vec<Admission>,
    /// The workloads as the Deployment controller knows them.
    pub controller: [Option<Workload>; WORKLOADS],
    /// What Kubernetes' collector is doing, by content.
    pub collector: [Option<Collecting>; CONTENTS],
    /// The workloads as the reconciler's index has them.
    pub index_workloads: [Option<Workload>; WORKLOADS],
    /// The ReplicaSets as the reconciler's index has them.
    pub index_holders: Vec<Holder>,
    /// What the reconciler is doing, by content.
    pub turns: [Option<Turn>; CONTENTS],
    /// A write of a reconciler that has crashed since, and that may still arrive, by content.
    pub late: [Option<Turn>; CONTENTS],
    /// What is still allowed to happen.
    pub left: Left,
}

impl State {
    /// Whether this very ReplicaSet is stored.
    pub fn is_alive(&self, holder: &Holder) -> bool {
        self.holders.contains(holder)
    }

    /// Whether a snapshot is missing: a stored template names it, be it of a workload or of a ReplicaSet of one.
    pub fn is_lost(&self, content: usize) -> bool {
        let has_workload = |holder: &Holder| {
            self.workloads[usize::from(holder.workload)].is_some_and(|workload| workload.uid == holder.controller)
        };
        let by_workload = |workload: &Workload| named_by(workload.template) == content;
        self.snapshots[content].is_none()
            && (self.workloads.iter().flatten().any(by_workload)
                || self.holders.iter().any(|holder| holder.names(content) && has_workload(holder)))
    }

    /// Whether a stored template names the snapshot of this content.
    pub fn is_named(&self, content: usize) -> bool {
        let by_workload = |workload: &Workload| named_by(workload.template) == content;
        self.workloads.iter().flatten().any(by_workload) || self.holders.iter().any(|holder| holder.names(content))
    }

    /// A UID that no workload of this name has, as far as anybody remembers.
    pub fn free_workload_uid(&self, workload: usize) -> u8 {
        let is_of = |holder: &&Holder| usize::from(holder.workload) == workload;
        let mut used: Vec<u8> = self.every_holder().filter(is_of).map(|holder| holder.controller).collect();
        let views = [&self.workloads, &self.controller, &self.index_workloads];
        used.extend(views.iter().filter_map(|view| view[workload]).map(|known| known.uid));
        let claims = self.snapshots.iter().flatten().flat_map(|snapshot| &snapshot.claims);
        used.extend(claims.filter(|(of, _)| usize::from(*of) == workload).filter_map(|(_, claim)| claim.uid));
        let turns = self.turns.iter().chain(&self.late).flatten().flat_map(|turn| &turn.claims);
        used.extend(turns.filter(|(of, _)| usize::from(*of) == workload).filter_map(|(_, claim)| claim.uid));
        let asked = self.admissions.iter().filter(|admission| usize::from(admission.workload) == workload);
        used.extend(asked.filter_map(|admission| admission.old).map(|(uid, _)| uid));
        free(&used)
    }

    /// A UID that no ReplicaSet of this workload and template has, as far as anybody remembers.
    pub fn free_holder_uid(&self, workload: u8, template: u8) -> u8 {
        let is_of = |holder: &&Holder| (holder.workload, holder.template) == (workload, template);
        free(&self.every_holder().filter(is_of).map(|holder| holder.uid).collect::<Vec<_>>())
    }

    fn every_holder(&self) -> impl Iterator<Item = &Holder> {
        let owners = self.snapshots.iter().flatten().flat_map(|snapshot| &snapshot.owners);
        let judged = self.collector.iter().flatten().flat_map(|collecting| &collecting.owners);
        let turns = self.turns.iter().chain(&self.late).flatten().flat_map(|turn| &turn.holders);
        self.holders.iter().chain(&self.index_holders).chain(owners).chain(judged).chain(turns)
    }
}

fn free(used: &[u8]) -> u8 {
    (0..).find(|uid| !used.contains(uid)).unwrap_or(u8::MAX)
}
