//! Everybody but the reconciler: clients, the webhook, the API server, the Deployment controller and Kubernetes'
//! collector.

use crate::model::{Action, Lifetimes, is_in_webhook};
use crate::real;
use crate::state::{Admission, Claim, Collecting, Holder, Phase, Snapshot, State, Workload, named_by};

/// What can happen.
pub fn actions(state: &State, actions: &mut Vec<Action>) {
    for admission in &state.admissions {
        match is_in_webhook(admission) {
            true => actions.push(Action::WebhookGoesOn(*admission)),
            false => {
                actions.push(Action::ApiServerStores(*admission));
                if state.left.refusals > 0 {
                    actions.push(Action::ApiServerRefuses(*admission));
                }
            }
        }
    }
    if time_may_pass(state) {
        actions.push(Action::TimePasses);
    }
    controller_actions(state, actions);
    for (content, snapshot) in state.snapshots.iter().enumerate() {
        match (&state.collector[content], snapshot) {
            (Some(_), _) => actions.push(Action::CollectorDecides { content }),
            (None, Some(snapshot)) if !snapshot.owners.is_empty() => actions.push(Action::CollectorReads { content }),
            _ => {}
        }
    }
    let is_left_over = |holder: &&Holder| {
        state.workloads[usize::from(holder.workload)].is_none_or(|workload| workload.uid != holder.controller)
    };
    actions.extend(state.holders.iter().filter(is_left_over).copied().map(Action::CollectorDeletes));
}

/// A claim expires once its request is through for certain. The grace period is over when no cache is behind by that
/// much, neither the reconciler's nor the Deployment controller's.
fn time_may_pass(state: &State) -> bool {
    let ages = || state.snapshots.iter().flatten().flat_map(|snapshot| &snapshot.claims).map(|(_, claim)| claim.age);
    let caught_up = || {
        let seen = |(known, stored): (&Option<Workload>, &Option<Workload>)| *known == as_controller_sees(*stored);
        state.controller.iter().zip(&state.workloads).all(seen)
            && state.index_workloads == state.workloads
            && state.index_holders == state.holders
    };
    state.admissions.is_empty() && ages().any(|age| age < 2) && (ages().all(|age| age != 1) || caught_up())
}

fn controller_actions(state: &State, actions: &mut Vec<Action>) {
    for (workload, known) in state.controller.iter().enumerate() {
        if *known != as_controller_sees(state.workloads[workload]) {
            actions.push(Action::ControllerSees { workload });
        }
        let Some(known) = known else { continue };
        let own = |holder: &&Holder| usize::from(holder.workload) == workload && holder.controller == known.uid;
        if !state.holders.iter().filter(own).any(|holder| holder.template == known.template) {
            actions.push(Action::ControllerCreates { workload });
        }
        if state.workloads[workload]
            .is_some_and(|stored| is_current(known, &stored) && stored.observed < stored.generation)
        {
            actions.push(Action::ControllerObserves { workload });
        }
        let old = state.holders.iter().filter(own).filter(|holder| holder.template != known.template);
        actions.extend(old.copied().map(Action::ControllerDeletes));
    }
}

/// Whether the resourceVersion that the controller knows is the stored one, as far as it matters.
fn is_current(known: &Workload, stored: &Workload) -> bool {
    (known.uid, known.generation) == (stored.uid, stored.generation)
}

/// What the controller uses of a workload.
fn as_controller_sees(workload: Option<Workload>) -> Option<Workload> {
    workload.map(|workload| Workload { observed: 1, age: 0, ..workload })
}

/// Does it, if it is for one of these to do.
pub fn act(model: &Lifetimes, state: &mut State, action: Action) -> bool {
    match action {
        Action::ClientAsks { workload, template } => {
            state.left.changes[workload] -= 1;
            let old = state.workloads[workload].map(|stored| (stored.uid, stored.generation));
            let number = u8::try_from(workload).unwrap_or_default();
            put(state, Admission { workload: number, old, template, phase: Phase::Begun });
        }
        Action::ClientScales { workload } => {
            state.left.scales -= 1;
            state.workloads[workload].iter_mut().for_each(|stored| stored.generation += 1);
        }
        Action::ClientDeletes { workload } => {
            state.left.removals -= 1;
            state.workloads[workload] = None;
        }
        Action::ClientDeletesReplicaSet(holder) => {
            state.left.meddlings -= 1;
            state.holders.retain(|stored| *stored != holder);
        }
        Action::WebhookGoesOn(admission) => webhook_goes_on(model, state, admission),
        Action::ApiServerStores(admission) => store(state, admission),
        Action::ApiServerRefuses(admission) => {
            state.left.refusals -= 1;
            take(state, admission);
        }
        Action::TimePasses => {
            for snapshot in state.snapshots.iter_mut().flatten() {
                let claims = std::mem::take(&mut snapshot.claims).into_iter();
                snapshot.claims = claims.map(|(of, it)| (of, Claim { age: (it.age + 1).min(2), ..it })).collect();
            }
            // Their ages matter where one may follow another of its name.
            if model.left.removals > 0 {
                let workloads = state.workloads.iter_mut().chain(&mut state.index_workloads);
                workloads.flatten().for_each(|workload| workload.age = (workload.age + 1).min(3));
            }
        }
        Action::ControllerSees { workload } => {
            state.controller[workload] = as_controller_sees(state.workloads[workload]);
        }
        Action::ControllerCreates { workload } => create_holder(state, workload),
        Action::ControllerObserves { workload } => {
            state.workloads[workload].iter_mut().for_each(|stored| stored.observed = stored.generation);
        }
        Action::ControllerDeletes(holder) | Action::CollectorDeletes(holder) => {
            state.holders.retain(|stored| *stored != holder);
        }
        Action::CollectorReads { content } => {
            let owners = state.snapshots[content].as_ref().map(|snapshot| snapshot.owners.clone());
            let read = |owners| Collecting { owners, fresh: true, same: true, forced: false };
            state.collector[content] = owners.map(read);
        }
        Action::CollectorDecides { content } => collector_decides(model, state, content),
        _ => return false,
    }
    true
}

fn put(state: &mut State, admission: Admission) {
    let place = state.admissions.partition_point(|other| *other < admission);
    state.admissions.insert(place, admission);
}

fn take(state: &mut State, admission: Admission) {
    if let Some(place) = state.admissions.iter().position(|other| *other == admission) {
        state.admissions.remove(place);
    }
}

/// As `make_as` in src/webhook/snapshots.rs: creates the snapshot, or finds and then claims it.
fn webhook_goes_on(model: &Lifetimes, state: &mut State, admission: Admission) {
    let Admission { workload, template, phase, .. } = admission;
    let (content, claim) = (named_by(template), admission.claim());
    let (phase, written) = match (phase, &state.snapshots[content]) {
        (Phase::Begun, None) => (Phase::Admitted, Some(real::created(workload, claim))),
        (Phase::Begun, Some(found)) if real::stands(found, workload, claim) => (Phase::Admitted, None),
        (Phase::Begun, Some(_)) => (Phase::Found, None),
        (_, Some(found)) => (Phase::Admitted, Some(real::claimed(found, workload, claim, model.protocol.unowns))),
        (_, None) => (Phase::Begun, None),
    };
    if let Some(snapshot) = written {
        write(model, state, content, Some(snapshot));
    }
    take(state, admission);
    put(state, Admission { phase, ..admission });
}

fn store(state: &mut State, admission: Admission) {
    take(state, admission);
    let number = usize::from(admission.workload);
    let stored = state.workloads[number];
    if stored.map(|stored| (stored.uid, stored.generation)) != admission.old {
        return;
    }
    let template = admission.template;
    state.workloads[number] = Some(match stored {
        Some(stored) => Workload { generation: stored.generation + 1, template, ..stored },
        None => Workload { uid: state.free_workload_uid(number), generation: 1, observed: 0, template, age: 0 },
    });
}

fn create_holder(state: &mut State, workload: usize) {
    let Some(Workload { uid: controller, template, .. }) = state.controller[workload] else { return };
    let workload = u8::try_from(workload).unwrap_or_default();
    let holder = Holder { workload, template, uid: state.free_holder_uid(workload, template), controller };
    state.holders.push(holder);
    state.holders.sort_unstable();
}

/// As `attemptToDeleteItem` and `deleteObject` of Kubernetes' collector: an object whose owners are all gone is
/// deleted with its UID and resourceVersion; after a conflict, if the owners are still the same, with its UID alone.
fn collector_decides(model: &Lifetimes, state: &mut State, content: usize) {
    let (Some(collecting), Some(snapshot)) = (state.collector[content].take(), &state.snapshots[content]) else {
        return;
    };
    let alive = |owner: &Holder| state.is_alive(owner);
    if collecting.owners.iter().any(alive) {
        let owners: Vec<_> = snapshot
            .owners
            .iter()
            .filter(|owner| alive(owner) || !collecting.owners.contains(owner))
            .copied()
            .collect();
        if owners != snapshot.owners {
            let stripped = Snapshot { owners, ..snapshot.clone() };
            write(model, state, content, Some(stripped));
        }
    } else if collecting.fresh || collecting.forced {
        write(model, state, content, None);
    } else if collecting.same && snapshot.owners == collecting.owners {
        state.collector[content] = Some(Collecting { forced: true, ..collecting });
    }
}

/// Writes a snapshot, or deletes it: what others were about to write with the old resourceVersion is void.
pub fn write(model: &Lifetimes, state: &mut State, content: usize, snapshot: Option<Snapshot>) {
    state.turns[content] = None;
    state.late[content] = None;
    if let Some(after) = &snapshot {
        let changed = state.snapshots[content].as_ref().is_some_and(|before| before.owners != after.owners);
        if let Some(collecting) = &mut state.collector[content] {
            collecting.fresh = false;
            collecting.same &= !(changed && model.protocol.varies);
        }
    } else {
        state.collector[content] = None;
        // A claim by the UID of the one that is gone fails, and the webhook begins anew.
        let found =
            |admission: &&mut Admission| admission.phase == Phase::Found && named_by(admission.template) == content;
        state.admissions.iter_mut().filter(found).for_each(|admission| admission.phase = Phase::Begun);
        state.admissions.sort_unstable();
    }
    state.snapshots[content] = snapshot;
}
