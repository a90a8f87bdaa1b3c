//! What can happen in a state, what becomes of it, and what must hold.

use stateright::{Model, Property};

use crate::state::{
    Admission, Collecting, Holder, Left, Phase, Snapshot, State, Step, Turn, WORKLOADS, Workload, named_by,
};
use crate::{cluster, reconciler};

/// What is explored.
#[derive(Debug, Clone)]
pub struct Lifetimes {
    /// The template that each workload has at first; `None` for one that is created.
    pub start: [Option<u8>; WORKLOADS],
    /// How many templates clients choose from.
    pub templates: u8,
    /// How many requests are on their way at a time.
    pub webhooks: usize,
    /// What may happen.
    pub left: Left,
    /// The protocol.
    pub protocol: Protocol,
}

/// The protocol, and what can be left out of it to see that the model notices.
#[derive(Debug, Clone, Copy)]
pub struct Protocol {
    /// A claim removes the owners.
    pub unowns: bool,
    /// Claims are looked at before a snapshot is owned or deleted.
    pub checks: bool,
    /// A snapshot stays without owners until each workload that names it has its ReplicaSet.
    pub covers: bool,
    /// The workload's ReplicaSets are listed live, and must be among those that are to be owners.
    pub lists: bool,
    /// If the live workload names the snapshot, its current ReplicaSet must be in that list.
    pub covers_live: bool,
    /// The references to the same owners are written in another form each time.
    pub varies: bool,
}

/// The whole protocol.
pub const WHOLE: Protocol =
    Protocol { unowns: true, checks: true, covers: true, lists: true, covers_live: true, varies: true };

/// One step of anybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// A client asks for a workload with this template. Which content the source has is a client's choice too.
    ClientAsks { workload: usize, template: u8 },
    /// A client changes something else in a workload's spec.
    ClientScales { workload: usize },
    /// A client deletes a workload.
    ClientDeletes { workload: usize },
    /// A person deletes a ReplicaSet.
    ClientDeletesReplicaSet(Holder),
    /// The webhook's next step.
    WebhookGoesOn(Admission),
    /// The API server stores what was admitted, or finds that the workload has changed.
    ApiServerStores(Admission),
    /// The API server refuses what was admitted.
    ApiServerRefuses(Admission),
    /// So much time passes that every claim expires, and the second time that the grace period is over.
    TimePasses,
    /// The Deployment controller's cache catches up.
    ControllerSees { workload: usize },
    /// The Deployment controller creates the ReplicaSet.
    ControllerCreates { workload: usize },
    /// The Deployment controller writes the generation that it knows, with or without having created the ReplicaSet.
    ControllerObserves { workload: usize },
    /// The Deployment controller deletes an old ReplicaSet.
    ControllerDeletes(Holder),
    /// Kubernetes' collector reads a snapshot.
    CollectorReads { content: usize },
    /// Kubernetes' collector looks at the owners that it read, and deletes the snapshot or lets it be.
    CollectorDecides { content: usize },
    /// Kubernetes' collector deletes a ReplicaSet whose workload is gone.
    CollectorDeletes(Holder),
    /// The reconciler's watch of workloads catches up.
    ReconcilerSeesWorkloads,
    /// The reconciler's watch of ReplicaSets catches up.
    ReconcilerSeesReplicaSets,
    /// The reconciler judges a snapshot.
    ReconcilerJudges { content: usize },
    /// The reconciler's next step with a snapshot.
    ReconcilerGoesOn { content: usize },
    /// The reconciler crashes and starts anew; what it was about to write is lost, or still on its way.
    ReconcilerCrashes { writes: bool },
    /// A write of a reconciler that has crashed arrives.
    LateWrite { content: usize },
}

impl Action {
    /// Whether it need not happen: everything else does some time.
    fn is_optional(self) -> bool {
        matches!(
            self,
            Self::ClientAsks { .. }
                | Self::ClientScales { .. }
                | Self::ClientDeletes { .. }
                | Self::ClientDeletesReplicaSet(_)
                | Self::ApiServerRefuses(_)
                | Self::ReconcilerCrashes { .. }
        )
    }
}

impl Lifetimes {
    /// Workloads that were rolled out long ago.
    fn first(&self) -> State {
        let stored = |template: u8| Workload { uid: 0, generation: 1, observed: 1, template, age: 3 };
        let workloads = self.start.map(|template| template.map(stored));
        let holder = |(template, workload): (&Option<u8>, u8)| {
            Some(Holder { workload, template: (*template)?, uid: 0, controller: 0 })
        };
        let holders: Vec<_> = self.start.iter().zip(0..).filter_map(holder).collect();
        let snapshot = |content| {
            let owners: Vec<_> = holders.iter().filter(|holder| holder.names(content)).copied().collect();
            (!owners.is_empty()).then(|| Snapshot { owners, ..<_>::default() })
        };
        State {
            snapshots: [snapshot(0), snapshot(1)],
            admissions: Vec::new(),
            controller: workloads,
            collector: [const { None::<Collecting> }; 2],
            index_workloads: workloads,
            index_holders: holders.clone(),
            turns: [const { None::<Turn> }; 2],
            late: [const { None::<Turn> }; 2],
            left: self.left,
            workloads,
            holders,
        }
    }

    fn client_actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (workload, stored) in state.workloads.iter().enumerate() {
            if state.left.changes[workload] > 0 && state.admissions.len() < self.webhooks {
                let is_change = |template: &u8| stored.is_none_or(|stored| stored.template != *template);
                let asks = |template| Action::ClientAsks { workload, template };
                actions.extend((0..self.templates).filter(is_change).map(asks));
            }
            if stored.is_some() && state.left.scales > 0 {
                actions.push(Action::ClientScales { workload });
            }
            if stored.is_some() && state.left.removals > 0 {
                actions.push(Action::ClientDeletes { workload });
            }
        }
        if state.left.meddlings > 0 {
            actions.extend(state.holders.iter().copied().map(Action::ClientDeletesReplicaSet));
        }
    }

    /// Whether a whole turn of the reconciler on its own changes nothing.
    fn turn_is_idle(&self, state: &State, content: usize) -> bool {
        let mut after = state.clone();
        reconciler::judge(self, &mut after, content);
        while after.turns[content].is_some() {
            reconciler::go_on(self, &mut after, content);
        }
        after == *state
    }

    /// Whether nothing more happens by itself.
    fn is_quiet(&self, state: &State) -> bool {
        if !state.admissions.is_empty() || state.turns.iter().any(Option::is_some) {
            return false;
        }
        let mut actions = Vec::new();
        self.actions(state, &mut actions);
        actions.into_iter().all(|action| match action {
            Action::ReconcilerJudges { content } => self.turn_is_idle(state, content),
            // The owners that it finds are alive.
            Action::CollectorReads { content } => {
                state.snapshots[content].iter().flat_map(|found| &found.owners).all(|owner| state.is_alive(owner))
            }
            action => action.is_optional(),
        })
    }

    fn is_in_order(state: &State) -> bool {
        state.snapshots.iter().enumerate().all(|(content, snapshot)| {
            let Some(snapshot) = snapshot else { return true };
            let mut owners = snapshot.owners.clone();
            owners.sort_unstable();
            let naming: Vec<_> = state.holders.iter().filter(|holder| holder.names(content)).copied().collect();
            state.is_named(content) && (naming.is_empty() || (owners == naming && snapshot.claims.is_empty()))
        })
    }
}

/// What must hold in every state.
pub const KEPT: &str = "what is named exists";
/// What must hold once nothing more happens.
pub const IN_ORDER: &str = "in the end only what is named exists, owned by those that name it";
/// What must be possible, or the other two would say nothing.
pub const REUSED: &str = "a snapshot can be reused and owned again";

impl Model for Lifetimes {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![self.first()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.client_actions(state, actions);
        cluster::actions(state, actions);
        reconciler::actions(self, state, actions);
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        if !cluster::act(self, &mut state, action) {
            reconciler::act(self, &mut state, action);
        }
        (state != *before).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(KEPT, |_, state: &State| {
                !(0..state.snapshots.len()).any(|content| state.is_lost(content))
            }),
            Property::always(IN_ORDER, |model: &Self, state: &State| {
                Self::is_in_order(state) || !model.is_quiet(state)
            }),
            Property::sometimes(REUSED, |model: &Self, state: &State| {
                let returned = |workload: &Workload| workload.generation > 2 && named_by(workload.template) == 0;
                state.workloads.iter().flatten().any(returned) && Self::is_in_order(state) && model.is_quiet(state)
            }),
        ]
    }
}

/// The next step of a turn that goes on with its claims, or has none left.
pub fn step_after_claims(turn: &Turn) -> Step {
    match turn.collects {
        _ if !turn.claims.is_empty() => Step::Workload,
        true => Step::AnyWorkload,
        false => Step::Write,
    }
}

/// Whether an admission is the webhook's to go on with.
pub fn is_in_webhook(admission: &Admission) -> bool {
    admission.phase != Phase::Admitted
}
