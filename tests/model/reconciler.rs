//! The reconciler, as in src/reconcile: its index lags, its turns go step by step, and it crashes.

use crate::cluster::write;
use crate::model::{Action, Lifetimes, step_after_claims};
use crate::real::{self, Verdict};
use crate::state::{Holder, State, Step, Turn, Workload, named_by};

/// What can happen.
pub fn actions(model: &Lifetimes, state: &State, actions: &mut Vec<Action>) {
    if state.index_workloads != state.workloads {
        actions.push(Action::ReconcilerSeesWorkloads);
    }
    if state.index_holders != state.holders {
        actions.push(Action::ReconcilerSeesReplicaSets);
    }
    for content in 0..state.snapshots.len() {
        if state.turns[content].is_some() {
            actions.push(Action::ReconcilerGoesOn { content });
        } else if state.snapshots[content].is_some() && verdict(model, state, content).is_some() {
            actions.push(Action::ReconcilerJudges { content });
        }
        if state.late[content].is_some() {
            actions.push(Action::LateWrite { content });
        }
    }
    if state.left.crashes > 0 {
        actions.push(Action::ReconcilerCrashes { writes: false });
        if state.turns.iter().flatten().any(|turn| turn.step == Step::Write) {
            actions.push(Action::ReconcilerCrashes { writes: true });
        }
    }
}

/// Does it.
pub fn act(model: &Lifetimes, state: &mut State, action: Action) {
    match action {
        Action::ReconcilerSeesWorkloads => state.index_workloads = state.workloads,
        Action::ReconcilerSeesReplicaSets => state.index_holders.clone_from(&state.holders),
        Action::ReconcilerJudges { content } => judge(model, state, content),
        Action::ReconcilerGoesOn { content } => go_on(model, state, content),
        Action::ReconcilerCrashes { writes } => {
            state.left.crashes -= 1;
            for content in 0..state.snapshots.len() {
                let turn = state.turns[content].take();
                if let Some(turn) = turn.filter(|turn| writes && turn.step == Step::Write) {
                    state.late[content] = Some(turn);
                }
            }
            state.index_workloads = state.workloads;
            state.index_holders.clone_from(&state.holders);
        }
        Action::LateWrite { content } => {
            if let Some(turn) = state.late[content].take() {
                finish(model, state, content, &turn);
            }
        }
        _ => {}
    }
}

/// The turn that the judgement of a snapshot asks for.
fn verdict(model: &Lifetimes, state: &State, content: usize) -> Option<Turn> {
    let snapshot = state.snapshots[content].as_ref()?;
    let workloads = state.index_workloads.iter().enumerate().filter_map(|(name, known)| Some((name, (*known)?)));
    let naming = |(_, workload): &(usize, Workload)| named_by(workload.template) == content;
    let mut workloads: Vec<_> = workloads.filter(naming).collect();
    let holders: Vec<_> = state.index_holders.iter().filter(|holder| holder.names(content)).copied().collect();
    if !model.protocol.covers && !holders.is_empty() {
        workloads.clear();
    }
    let turn = |collects, claims| Turn { collects, holders: holders.clone(), claims, step: Step::Write };
    let turn = match real::judge(snapshot, &workloads, &holders) {
        Verdict::Rest => return None,
        Verdict::Own => turn(false, Vec::new()),
        Verdict::Check(claims) => turn(false, claims),
        Verdict::Unused if !real::is_past_grace(snapshot) => return None,
        Verdict::Unused => turn(true, snapshot.claims.iter().copied().collect()),
    };
    let claims = if model.protocol.checks { turn.claims } else { Vec::new() };
    Some(started(Turn { claims, ..turn }))
}

fn started(turn: Turn) -> Turn {
    Turn { step: step_after_claims(&turn), ..turn }
}

/// Begins a turn.
pub fn judge(model: &Lifetimes, state: &mut State, content: usize) {
    state.turns[content] = verdict(model, state, content);
}

/// The next step of a turn. A claim that is not settled ends it, as does a stored name before a deletion.
pub fn go_on(model: &Lifetimes, state: &mut State, content: usize) {
    let Some(turn) = state.turns[content].take() else { return };
    let step = match turn.step {
        Step::Workload => check_workload(state, &turn),
        Step::Holders(live) => check_holders(model, state, &turn, &live, content),
        Step::AnyWorkload => {
            let named = state.workloads.iter().flatten().any(|workload| named_by(workload.template) == content);
            (!named).then_some(Step::AnyHolder)
        }
        Step::AnyHolder => {
            let named = state.holders.iter().any(|holder| holder.names(content));
            (!named).then_some(Step::Write)
        }
        Step::Write => return finish(model, state, content, &turn),
    };
    let is_next = matches!(step, Some(Step::Workload));
    state.turns[content] = step.map(|step| Turn { step, ..turn }).map(|mut turn| {
        if is_next {
            turn.claims.remove(0);
            turn = started(turn);
        }
        turn
    });
}

/// The first half of `check` in src/reconcile/owners.rs. `Some(Step::Workload)` is: on to the next claim.
fn check_workload(state: &State, turn: &Turn) -> Option<Step> {
    let (name, claim) = *turn.claims.first()?;
    let known = state.index_workloads[usize::from(name)];
    let live = state.workloads[usize::from(name)];
    if !real::is_settled(name, claim, known) || !real::is_settled(name, claim, live) {
        return None;
    }
    let Some(live) = live else { return known.is_none().then_some(Step::Workload) };
    let same = known.is_some_and(|known| (known.uid, known.generation) == (live.uid, live.generation));
    same.then_some(Step::Holders(live))
}

/// `has_caught_up` in src/reconcile/owners.rs.
fn check_holders(model: &Lifetimes, state: &State, turn: &Turn, live: &Workload, content: usize) -> Option<Step> {
    let (name, _) = *turn.claims.first()?;
    let list = || state.holders.iter().filter(|holder| holder.workload == name && holder.names(content));
    let is_current = |holder: &Holder| (holder.template, holder.controller) == (live.template, live.uid);
    let all_known = !model.protocol.lists || list().all(|holder| turn.holders.contains(holder));
    let covered = !model.protocol.covers_live || named_by(live.template) != content || list().any(is_current);
    (all_known && covered).then_some(Step::Workload)
}

/// The write of a turn. The snapshot is as it was judged, or the turn would have ended.
fn finish(model: &Lifetimes, state: &mut State, content: usize, turn: &Turn) {
    let after =
        state.snapshots[content].as_ref().filter(|_| !turn.collects).map(|found| real::own(found, &turn.holders));
    write(model, state, content, after);
}
