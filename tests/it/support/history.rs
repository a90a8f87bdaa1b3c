//! All that happened to the objects of a namespace, in the order in which the API server stored it.
//!
//! The resourceVersions of one API server's store count all writes, whatever the kind, so what three watches saw can be
//! put into one order afterwards. That shows a snapshot that was missing for a moment only, and shows no snapshot as
//! missing that nothing named any more by then.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use futures::StreamExt;
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams, WatchEvent, WatchParams},
    core::{GroupVersionKind, ObjectList},
};
use testcluster::wait_for;
use tokio::task::JoinHandle;

use super::{SOON, Shop, configmaps};

/// What is watched where it exists: group, version, kind.
const KINDS: [(&str, &str, &str); 4] = [
    ("", "v1", "ConfigMap"),
    ("apps", "v1", "Deployment"),
    ("apps", "v1", "ReplicaSet"),
    ("argoproj.io", "v1alpha1", "Rollout"),
];

/// How long not to ask an API server that did not answer, so that its start is not held up.
const PAUSE: Duration = Duration::from_millis(50);

type Object = (&'static str, String);

/// What happened.
#[derive(Default)]
struct Changes {
    /// By resourceVersion: an object and the ConfigMaps that it names, or `None` when it was deleted.
    by_version: BTreeMap<u64, (Object, Option<BTreeSet<String>>)>,
    /// Where a watch was cut off by an API server that remembers nothing from before its start: the last version that
    /// was seen of a kind, and the list with which it went on.
    gaps: Vec<Gap>,
}

struct Gap {
    kind: &'static str,
    after: u64,
    until: u64,
    objects: BTreeMap<Object, BTreeSet<String>>,
}

/// All changes since it was made.
pub struct History {
    changes: Arc<Mutex<Changes>>,
    watches: Vec<Watch>,
}

/// What is watched of one kind, and who does.
struct Watch {
    kind: &'static str,
    api: Api<DynamicObject>,
    task: JoinHandle<Result<()>>,
}

impl History {
    /// Begins to watch.
    pub async fn watch(shop: &Shop<'_>) -> Result<Self> {
        let changes: Arc<Mutex<Changes>> = Arc::default();
        let mut watches = Vec::new();
        for (group, version, kind) in KINDS {
            let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
            let api: Api<DynamicObject> = Api::namespaced_with(shop.world.client.clone(), shop.name(), &resource);
            let list = match api.list(&ListParams::default()).await {
                Err(kube::Error::Api(status)) if status.code == 404 => continue,
                list => list?,
            };
            for object in &list.items {
                record(&changes, kind, object, false)?;
            }
            let version = list_version(&list)?;
            let task = tokio::spawn(follow(api.clone(), kind, version, changes.clone()));
            watches.push(Watch { kind, api, task });
        }
        Ok(Self { changes, watches })
    }

    /// Fails if at any time a snapshot was missing that a workload or a ReplicaSet named.
    pub async fn check(self) -> Result<()> {
        self.wait_complete().await?;
        let changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut gaps: Vec<_> = changes.gaps.iter().collect();
        gaps.sort_by_key(|gap| gap.until);
        let (mut gaps, mut deletions) = (gaps.into_iter().peekable(), 0);
        let mut existing: BTreeMap<Object, BTreeSet<String>> = BTreeMap::new();
        for (version, (object, names)) in &changes.by_version {
            while let Some(gap) = gaps.next_if(|gap| gap.until < *version) {
                existing.retain(|(kind, _), _| *kind != gap.kind);
                existing.extend(gap.objects.clone());
            }
            match names {
                Some(names) => drop(existing.insert(object.clone(), names.clone())),
                None => {
                    existing.remove(object);
                    deletions += usize::from(object.0 == "ConfigMap");
                }
            }
            // What one kind looks like is not known there.
            if changes.gaps.iter().any(|gap| (gap.after..=gap.until).contains(version)) {
                continue;
            }
            for (holder, names) in &existing {
                for name in names {
                    let there = existing.contains_key(&("ConfigMap", name.clone()));
                    ensure!(
                        there,
                        "at {version}, after a change of {object:?}, {holder:?} names {name}, which is missing"
                    );
                }
            }
        }
        let (count, gaps) = (changes.by_version.len(), changes.gaps.len());
        eprintln!("{count} changes, {gaps} gaps, {deletions} snapshots collected, none missing while it was named");
        ensure!(deletions > 0, "no snapshot was ever collected, so this shows nothing");
        Ok(())
    }

    /// Waits until the watches have seen all that is there.
    async fn wait_complete(&self) -> Result<()> {
        for Watch { kind, api, task } in &self.watches {
            wait_for(&format!("the watch of {kind} to see the end"), SOON, async || {
                ensure!(!task.is_finished(), "it ended");
                let live = api.list(&ListParams::default()).await?.items;
                let changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
                for object in live {
                    let version = version(&object)?;
                    let listed = changes.gaps.iter().any(|gap| gap.kind == *kind && version <= gap.until);
                    let seen = listed || changes.by_version.contains_key(&version);
                    ensure!(seen, "{} at {version} has not been seen", object.name_any());
                }
                Ok(Some(()))
            })
            .await?;
        }
        Ok(())
    }
}

impl Drop for History {
    fn drop(&mut self) {
        self.watches.iter().for_each(|watch| watch.task.abort());
    }
}

/// Watches on and on, each time from the last version that was seen.
async fn follow(
    api: Api<DynamicObject>,
    kind: &'static str,
    mut from: u64,
    changes: Arc<Mutex<Changes>>,
) -> Result<()> {
    loop {
        let Ok(stream) = api.watch(&WatchParams::default(), &from.to_string()).await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let mut stream = std::pin::pin!(stream);
        while let Some(Ok(event)) = stream.next().await {
            let (object, deleted) = match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => (object, false),
                WatchEvent::Deleted(object) => (object, true),
                WatchEvent::Bookmark(bookmark) => {
                    from = number(Some(&bookmark.metadata.resource_version))?;
                    continue;
                }
                WatchEvent::Error(error) if error.code == 410 => {
                    from = go_on_with_list(&api, kind, from, &changes).await?;
                    break;
                }
                WatchEvent::Error(error) => bail!("the watch of {kind} failed: {error}"),
            };
            record(&changes, kind, &object, deleted)?;
            from = version(&object)?;
        }
    }
}

/// Lists where the watch cannot go on.
async fn go_on_with_list(
    api: &Api<DynamicObject>,
    kind: &'static str,
    after: u64,
    changes: &Mutex<Changes>,
) -> Result<u64> {
    let list = loop {
        match api.list(&ListParams::default()).await {
            Ok(list) => break list,
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    };
    let until = list_version(&list)?;
    let objects = list.items.iter().map(|object| ((kind, object.name_any()), named(object))).collect();
    let gap = Gap { kind, after, until, objects };
    changes.lock().unwrap_or_else(PoisonError::into_inner).gaps.push(gap);
    Ok(until)
}

fn record(changes: &Mutex<Changes>, kind: &'static str, object: &DynamicObject, deleted: bool) -> Result<()> {
    let change = ((kind, object.name_any()), (!deleted).then(|| named(object)));
    let mut changes = changes.lock().unwrap_or_else(PoisonError::into_inner);
    changes.by_version.insert(version(object)?, change);
    Ok(())
}

/// The ConfigMaps that an object names.
fn named(object: &DynamicObject) -> BTreeSet<String> {
    configmaps::names(&object.data["spec"]["template"])
}

fn list_version(list: &ObjectList<DynamicObject>) -> Result<u64> {
    number(list.metadata.resource_version.as_deref())
}

fn version(object: &DynamicObject) -> Result<u64> {
    number(object.metadata.resource_version.as_deref())
}

fn number(version: Option<&str>) -> Result<u64> {
    version.context("all that is read has a version")?.parse().context("a version of etcd is a number")
}
