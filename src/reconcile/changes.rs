//! What a watch tells, made of what kube's watcher does.

use std::collections::HashSet;

use futures::{Stream, StreamExt};
use kube::Resource;
use kube::runtime::watcher::{self, Event};

use crate::observe::labels::Part;
use crate::reconcile::index::Key;
use crate::reconcile::watches::Feed;

/// What a watch tells.
pub(super) enum Change<K> {
    /// An object is new or has changed.
    Put(K),
    /// An object is gone.
    Gone(K),
    /// These are all that there are; `None` if all that there are have been told.
    Listed(Option<HashSet<Key>>),
}

impl Feed {
    /// Tells every change that a watch shows. A watch that fails is started again; one of a kind that the cluster does
    /// not have, or no longer has, shows an empty list each time, so that no restart is needed once it is installed.
    pub(super) async fn follow<K: Resource>(
        &self,
        name: &'static str,
        events: impl Stream<Item = watcher::Result<Event<K>>>,
        mut tell: impl FnMut(Change<K>),
    ) {
        let metrics = &self.reconciler.metrics;
        let watch = metrics.watch(name);
        // Except for the first list: before it, the index has no object that could be gone.
        let mut seen: Option<HashSet<Key>> = None;
        let mut begun = self.is_listed(name);
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.next().await {
            let change = match event {
                Ok(Event::Init) => {
                    watch.lists();
                    seen = std::mem::replace(&mut begun, true).then(HashSet::new);
                    continue;
                }
                Ok(Event::Apply(object)) => Change::Put(object),
                Ok(Event::InitApply(object)) => {
                    if let Some(seen) = &mut seen {
                        seen.insert(key_of(&object));
                    }
                    Change::Put(object)
                }
                Ok(Event::Delete(object)) => Change::Gone(object),
                Ok(Event::InitDone) => Change::Listed(seen.take()),
                Err(error) if is_unknown_kind(&error) => Change::Listed(Some(HashSet::new())),
                Err(error) => {
                    watch.failed(&error);
                    continue;
                }
            };
            let listed = matches!(change, Change::Listed(_));
            // What is known of an object whose event panics stays as it was until the next one.
            metrics.catch(Part::Watches, || tell(change));
            if listed {
                watch.has_listed();
                self.has_listed(name);
            }
        }
    }
}

/// The key of an object.
pub(super) fn key_of(object: &impl Resource) -> Key {
    let metadata = object.meta();
    Key::new(metadata.namespace.as_deref().unwrap_or_default(), metadata.name.as_deref().unwrap_or_default())
}

/// Whether the API server does not know the kind (404 for the list itself).
fn is_unknown_kind(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status)) => status.code == 404,
        _ => false,
    }
}
