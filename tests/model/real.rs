//! The crate's own functions, on values made from the model's. What they answer is kept, for the checker asks the
//! same again and again.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use confpin::pin::claim;
use confpin::pin::kinds::DEPLOYMENT;
use confpin::pin::objects::{Controller, Holder as RealHolder, WorkloadState};
use confpin::pin::ownership::{self, Judgement, Naming};
use confpin::pin::snapshot::{Source, names};
use confpin::pin::snapshot_state::SnapshotState;
use confpin::pin::template::{Template, TemplateDigest};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ObjectMeta;
use serde_json::{Value, json};

use crate::state::{Claim, Holder, Snapshot, Workload, named_by};

/// The seconds for each time that time has passed: past the expiry of claims, then past the grace period, ...
const AGO: [i64; 4] = [0, 200, 800, 2000];
/// The grace period.
const GRACE: SignedDuration = SignedDuration::from_mins(10);

/// What [`ownership::judge`] says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing is to be done.
    Rest,
    /// These claims are to be looked at first.
    Check(Vec<(u8, Claim)>),
    /// It is to be owned.
    Own,
    /// Nothing names it.
    Unused,
}

/// [`ownership::judge`] of a snapshot, by the workloads and ReplicaSets that name it.
pub fn judge(snapshot: &Snapshot, workloads: &[(usize, Workload)], holders: &[Holder]) -> Verdict {
    type Key = (Snapshot, Vec<(usize, Workload)>, Vec<Holder>);
    thread_local!(static KNOWN: RefCell<HashMap<Key, Verdict>> = RefCell::default());
    remembered(&KNOWN, (snapshot.clone(), workloads.to_vec(), holders.to_vec()), |_| {
        let naming = |&(name, workload): &(usize, Workload)| Naming {
            workload: Arc::new(real_workload(name, &workload)),
            by_reference: None,
        };
        let namings: Vec<_> = workloads.iter().map(naming).collect();
        match ownership::judge(&state(snapshot), &namings, &real_holders(holders)) {
            Judgement::Rest => Verdict::Rest,
            Judgement::Own => Verdict::Own,
            Judgement::Unused => Verdict::Unused,
            Judgement::Check(claims) => Verdict::Check(claims.iter().map(modelled_claim).collect()),
        }
    })
}

/// What [`ownership::own`] makes of a snapshot.
pub fn own(snapshot: &Snapshot, holders: &[Holder]) -> Snapshot {
    thread_local!(static KNOWN: RefCell<HashMap<(Snapshot, Vec<Holder>), Snapshot>> = RefCell::default());
    remembered(&KNOWN, (snapshot.clone(), holders.to_vec()), |_| {
        let before = metadata(snapshot);
        let mut patch = ownership::own(&SnapshotState::new(&before, time(0)), &real_holders(holders));
        assert_eq!(
            patch["metadata"]["resourceVersion"].as_str(),
            before.resource_version.as_deref(),
            "the model takes it that this write fails when the snapshot has changed"
        );
        // Strategic: owner references are merged by UID.
        let owners = before.owner_references.iter().flatten();
        let owners: Vec<_> = owners.map(|owner| json!(owner)).collect();
        let added = patch["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
        patch["metadata"]["ownerReferences"] = owners.into_iter().chain(added).collect();
        merged(&before, &patch)
    })
}

/// What a claim makes of a snapshot that is there.
pub fn claimed(snapshot: &Snapshot, workload: u8, claim: Claim, unowns: bool) -> Snapshot {
    thread_local!(static KNOWN: RefCell<HashMap<(Snapshot, u8, Claim, bool), Snapshot>> = RefCell::default());
    remembered(&KNOWN, (snapshot.clone(), workload, claim, unowns), |_| {
        let mut patch = claim::merge_patch(&[real_claim(workload, claim)], "snapshot");
        assert_eq!(patch["metadata"]["uid"], "snapshot", "the model takes it that this write fails on another one");
        if !unowns {
            patch["metadata"].as_object_mut().and_then(|metadata| metadata.remove("ownerReferences"));
        }
        merged(&metadata(snapshot), &patch)
    })
}

/// A snapshot as admission creates it.
pub fn created(workload: u8, claim: Claim) -> Snapshot {
    thread_local!(static KNOWN: RefCell<HashMap<(u8, Claim), Snapshot>> = RefCell::default());
    remembered(&KNOWN, (workload, claim), |_| {
        let source = Source::new("app", &ConfigMap::default());
        let name = &names("app", &source.hash)[0];
        modelled(&source.snapshot(name, Some(&real_claim(workload, claim))).metadata)
    })
}

/// Whether a snapshot that nothing names has been unused for the grace period, by [`ownership::unused_since`].
pub fn is_past_grace(snapshot: &Snapshot) -> bool {
    thread_local!(static KNOWN: RefCell<HashMap<Snapshot, bool>> = RefCell::default());
    remembered(&KNOWN, snapshot.clone(), |_| {
        ownership::unused_since(&state(snapshot)).is_none_or(|since| time(0).duration_since(since) >= GRACE)
    })
}

/// [`claim::stands`].
pub fn stands(snapshot: &Snapshot, workload: u8, claim: Claim) -> bool {
    thread_local!(static KNOWN: RefCell<HashMap<(Snapshot, u8, Claim), bool>> = RefCell::default());
    remembered(&KNOWN, (snapshot.clone(), workload, claim), |_| {
        let found = ConfigMap { metadata: metadata(snapshot), ..<_>::default() };
        claim::stands(&found, &real_claim(workload, claim))
    })
}

/// [`ownership::is_settled`].
pub fn is_settled(name: u8, claim: Claim, workload: Option<Workload>) -> bool {
    type Asked = (u8, Claim, Option<Workload>);
    thread_local!(static KNOWN: RefCell<HashMap<Asked, bool>> = RefCell::default());
    remembered(&KNOWN, (name, claim, workload), |_| {
        let workload = workload.map(|workload| real_workload(name.into(), &workload));
        ownership::is_settled(&real_claim(name, claim), workload.as_ref(), time(0))
    })
}

fn remembered<K: Hash + Eq, V: Clone>(
    known: &'static std::thread::LocalKey<RefCell<HashMap<K, V>>>,
    key: K,
    answer: impl FnOnce(&K) -> V,
) -> V {
    if let Some(value) = known.with_borrow(|known| known.get(&key).cloned()) {
        return value;
    }
    let value = answer(&key);
    known.with_borrow_mut(|known| known.insert(key, value.clone()));
    value
}

fn time(age: u8) -> Timestamp {
    Timestamp::from_second(10_000 - AGO[usize::from(age)]).unwrap_or_default()
}

fn age(at: Timestamp) -> u8 {
    (0..2).find(|age| time(*age) == at).unwrap_or(2)
}

fn name(workload: usize) -> String {
    format!("web-{workload}")
}

fn workload_uid(workload: usize, uid: u8) -> String {
    format!("web-{workload}-{uid}")
}

fn digest(template: u8) -> TemplateDigest {
    Template::of(&json!({"number": template})).digest()
}

fn configmaps(template: u8) -> Box<[Arc<str>]> {
    [format!("app-{}", named_by(template)).into()].into()
}

fn real_workload(number: usize, workload: &Workload) -> WorkloadState {
    WorkloadState {
        kind: &DEPLOYMENT,
        namespace: "n".into(),
        name: name(number).into(),
        uid: workload_uid(number, workload.uid).as_str().into(),
        generation: workload.generation.into(),
        observed_generation: workload.observed.into(),
        created: Some(time(workload.age)),
        deleting: false,
        annotations: <_>::default(),
        configmaps: configmaps(workload.template),
        template: digest(workload.template),
        pod_hash: None,
        workload_ref: None,
        observed_workload_generation: 0,
        selector: None,
    }
}

fn real_holders(holders: &[Holder]) -> Vec<Arc<RealHolder>> {
    let real = |holder: &Holder| {
        let Holder { workload, template, uid, controller } = *holder;
        let number = usize::from(workload);
        Arc::new(RealHolder {
            namespace: "n".into(),
            name: format!("{workload} {template} {uid} {controller}").into(),
            uid: format!("{workload} {template} {uid} {controller}").as_str().into(),
            deleting: false,
            created: None,
            controller: Some(Controller {
                kind: Some(&DEPLOYMENT),
                name: name(number).into(),
                uid: workload_uid(number, controller).as_str().into(),
            }),
            configmaps: configmaps(template),
            template: digest(template),
            pod_hash: None,
        })
    };
    holders.iter().map(real).collect()
}

fn modelled_holder(owner: &OwnerReference) -> Holder {
    let numbers: Vec<u8> = owner.name.split(' ').filter_map(|number| number.parse().ok()).collect();
    Holder { workload: numbers[0], template: numbers[1], uid: numbers[2], controller: numbers[3] }
}

fn real_claim(workload: u8, claim: Claim) -> claim::Claim {
    let number = usize::from(workload);
    claim::Claim {
        kind: DEPLOYMENT.qualified(),
        name: name(number),
        uid: claim.uid.map(|uid| workload_uid(number, uid)),
        generation: claim.generation.into(),
        at: time(claim.age),
    }
}

fn modelled_claim(claim: &claim::Claim) -> (u8, Claim) {
    let last = |text: &str| text.rsplit_once('-').and_then(|(_, number)| number.parse().ok()).unwrap_or_default();
    let generation = u8::try_from(claim.generation).unwrap_or_default();
    let modelled = Claim { uid: claim.uid.as_deref().map(last), generation, age: age(claim.at) };
    (last(&claim.name), modelled)
}

fn metadata(snapshot: &Snapshot) -> ObjectMeta {
    let claims = snapshot.claims.iter().map(|(workload, claim)| real_claim(*workload, *claim));
    ObjectMeta {
        uid: Some("snapshot".into()),
        resource_version: Some("7".into()),
        owner_references: Some(real_holders(&snapshot.owners).iter().map(|holder| holder.owner_reference()).collect()),
        annotations: Some(claims.map(|claim| claim.annotation()).collect()),
        ..<_>::default()
    }
}

fn state(snapshot: &Snapshot) -> SnapshotState {
    SnapshotState::new(&metadata(snapshot), time(0))
}

fn modelled(metadata: &ObjectMeta) -> Snapshot {
    let claims = claim::claims(metadata, time(0));
    let claims = claims.values().flatten().map(modelled_claim).collect();
    Snapshot { owners: metadata.owner_references.iter().flatten().map(modelled_holder).collect(), claims }
}

/// What the API server makes of a merge patch.
fn merged(before: &ObjectMeta, patch: &Value) -> Snapshot {
    let mut object = json!({"metadata": before});
    json_patch::merge(&mut object, patch);
    let after: ObjectMeta = serde_json::from_value(object["metadata"].take()).unwrap_or_default();
    modelled(&after)
}
