//! All that happened to the objects of a namespace, in the order in which the API server stored it.
//!
//! The resourceVersions of one API server's store count all writes, whatever the kind, so what three watches saw can be
//! put into one order afterwards. That shows a snapshot that was missing for a moment only, and shows no snapshot as
//! missing that nothing named any more by then.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Context, Result, bail, ensure};
use futures::StreamExt;
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams, WatchEvent, WatchParams},
    core::GroupVersionKind,
};
use testcluster::wait_for;
use tokio::task::JoinHandle;

use super::{SOON, Shop, configmaps};

/// What is watched: group, kind.
const KINDS: [(&str, &str); 3] = [("", "ConfigMap"), ("apps", "Deployment"), ("apps", "ReplicaSet")];

type Object = (&'static str, String);
/// By resourceVersion: an object and the ConfigMaps that it names, or `None` when it was deleted.
type Changes = Arc<Mutex<BTreeMap<u64, (Object, Option<BTreeSet<String>>)>>>;

/// All changes since it was made.
pub struct History {
    changes: Changes,
    watches: Vec<JoinHandle<Result<()>>>,
}

impl History {
    /// Begins to watch.
    pub async fn watch(shop: &Shop<'_>) -> Result<Self> {
        let changes = Changes::default();
        let mut watches = Vec::new();
        for (group, kind) in KINDS {
            let api = api(shop, group, kind);
            let list = api.list(&ListParams::default()).await?;
            for object in list.items {
                record(&changes, kind, &object, false)?;
            }
            let version = list.metadata.resource_version.context("a list has a version")?;
            watches.push(tokio::spawn(follow(api, kind, version, changes.clone())));
        }
        Ok(Self { changes, watches })
    }

    /// Fails if at any time a snapshot was missing that a Deployment or a ReplicaSet named.
    pub async fn check(self, shop: &Shop<'_>) -> Result<()> {
        self.wait_complete(shop).await?;
        let mut deletions = 0;
        let mut existing: BTreeMap<Object, BTreeSet<String>> = BTreeMap::new();
        let changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        for (version, (object, names)) in changes.iter() {
            match names {
                Some(names) => drop(existing.insert(object.clone(), names.clone())),
                None => {
                    existing.remove(object);
                    deletions += usize::from(object.0 == "ConfigMap");
                }
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
        eprintln!("{} changes, {deletions} snapshots collected, none missing while it was named", changes.len());
        ensure!(deletions > 0, "no snapshot was ever collected, so this shows nothing");
        Ok(())
    }

    /// Waits until the watches have seen all that is there.
    async fn wait_complete(&self, shop: &Shop<'_>) -> Result<()> {
        for (group, kind) in KINDS {
            let api = api(shop, group, kind);
            wait_for(&format!("the watch of {kind} to see the end"), SOON, async || {
                for watch in &self.watches {
                    ensure!(!watch.is_finished(), "a watch ended");
                }
                let live = api.list(&ListParams::default()).await?.items;
                let changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
                for object in live {
                    let version = version(&object)?;
                    ensure!(changes.contains_key(&version), "{} at {version} has not been seen", object.name_any());
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
        self.watches.iter().for_each(JoinHandle::abort);
    }
}

fn api(shop: &Shop<'_>, group: &str, kind: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(group, "v1", kind);
    Api::namespaced_with(shop.world.client.clone(), shop.name(), &ApiResource::from_gvk(&kind))
}

/// Watches on and on, each time from the last version that was seen.
async fn follow(api: Api<DynamicObject>, kind: &'static str, mut from: String, changes: Changes) -> Result<()> {
    loop {
        let Ok(stream) = api.watch(&WatchParams::default(), &from).await else { continue };
        let mut stream = std::pin::pin!(stream);
        while let Some(Ok(event)) = stream.next().await {
            let (object, deleted) = match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => (object, false),
                WatchEvent::Deleted(object) => (object, true),
                WatchEvent::Bookmark(bookmark) => {
                    from = bookmark.metadata.resource_version;
                    continue;
                }
                WatchEvent::Error(error) => bail!("the watch of {kind} failed: {error}"),
            };
            record(&changes, kind, &object, deleted)?;
            from = version(&object)?.to_string();
        }
    }
}

fn record(changes: &Changes, kind: &'static str, object: &DynamicObject, deleted: bool) -> Result<()> {
    let names = (!deleted).then(|| configmaps::names(&object.data["spec"]["template"]));
    let change = ((kind, object.name_any()), names);
    changes.lock().unwrap_or_else(PoisonError::into_inner).insert(version(object)?, change);
    Ok(())
}

fn version(object: &DynamicObject) -> Result<u64> {
    object.resource_version().context("an object has a version")?.parse().context("a version of etcd is a number")
}
