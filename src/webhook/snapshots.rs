//! Makes sure that the snapshots of a plan exist, and finds their names.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;

use crate::cluster::snapshots::Write;
use crate::cluster::{self, Cluster};
use crate::pin::claim::{self, Claim};
use crate::pin::decision::Pin;
use crate::pin::snapshot;
use crate::webhook::claims::Claims;

/// How a snapshot came to be named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Made {
    /// It was created.
    Created,
    /// It was there and is claimed.
    Reused,
    /// A dry run: nothing was written.
    Nothing,
}

/// Why there is no snapshot.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server refused or could not be asked.
    #[error(transparent)]
    Cluster(#[from] cluster::Error),
    /// Foreign objects have all of its names.
    #[error(
        "all names that a snapshot of ConfigMap {source_name} can have are taken by other objects; delete {name} if you do not need it"
    )]
    NamesTaken {
        /// The source.
        source_name: String,
        /// The preferred name.
        name: String,
    },
    /// It came and went while we looked.
    #[error("snapshot {name} changes too fast; try again")]
    Unsteady {
        /// The snapshot.
        name: String,
    },
}

/// How often a name is looked at again when the object that had it is gone the next moment.
const ROUNDS: usize = 5;

/// Reads and writes the snapshots of one namespace for one request.
pub struct Snapshots<'a> {
    /// Where they are.
    pub cluster: &'a Cluster,
    /// What other requests claim meanwhile.
    pub claims: &'a Claims,
    /// The namespace.
    pub namespace: &'a str,
    /// What this request has read already, by name.
    pub known: &'a BTreeMap<String, Option<ConfigMap>>,
}

impl Snapshots<'_> {
    async fn read(&self, name: &str) -> Result<Option<ConfigMap>, cluster::Error> {
        match self.known.get(name) {
            Some(known) => Ok(known.clone()),
            None => self.cluster.configmap(self.namespace, name).await,
        }
    }

    /// Whether the preferred name of `pin` is a snapshot that serves it. Writes nothing.
    ///
    /// # Errors
    /// When the API server refuses or cannot be asked.
    pub async fn stands(&self, pin: &Pin) -> Result<bool, cluster::Error> {
        let Some(name) = pin.candidates.first() else { return Ok(false) };
        Ok(self.read(name).await?.is_some_and(|found| snapshot::serves(&found, &pin.source.name, &pin.source.hash)))
    }

    /// The name that [`Snapshots::make`] would find. Writes nothing.
    ///
    /// # Errors
    /// When the API server refuses or cannot be asked, or no name is free.
    pub async fn foresee(&self, pin: &Pin) -> Result<String, Error> {
        for name in &pin.candidates {
            if pin.can_have(self.read(name).await?.as_ref()) {
                return Ok(name.clone());
            }
        }
        Err(names_taken(pin))
    }

    /// Makes sure that a snapshot for `pin` exists and carries `claim`, and returns its name.
    ///
    /// # Errors
    /// When the API server refuses or cannot be asked, or no name is free.
    pub async fn make(&self, pin: &Pin, claim: &Claim) -> Result<(String, Made), Error> {
        for name in &pin.candidates {
            if let Some(made) = self.make_as(name, pin, claim).await? {
                return Ok((name.clone(), made));
            }
        }
        Err(names_taken(pin))
    }

    /// `None` when a foreign object has the name.
    async fn make_as(&self, name: &str, pin: &Pin, claim: &Claim) -> Result<Option<Made>, Error> {
        // Reading comes first. Creating optimistically would save a read, but a quota charges even for a creation that
        // ends in a conflict, and at its limit refuses it: then a snapshot that exists could not be used.
        let mut found = self.read(name).await?;
        for _ in 0..ROUNDS {
            let Some(existing) = found else {
                let snapshot = pin.source.snapshot(name, Some(claim));
                if let Write::Done(_) = self.cluster.create_snapshot(self.namespace, &snapshot).await? {
                    return Ok(Some(Made::Created));
                }
                found = self.cluster.configmap(self.namespace, name).await?;
                continue;
            };
            if !snapshot::serves(&existing, &pin.source.name, &pin.source.hash) {
                return Ok(None);
            }
            let uid = existing.metadata.uid.as_deref().unwrap_or_default();
            if claim::stands(&existing, claim) {
                return Ok(Some(Made::Reused));
            }
            let key = (self.namespace.to_owned(), name.to_owned(), uid.to_owned());
            let write =
                async |claims: Vec<Claim>| self.cluster.claim_snapshot(self.namespace, name, uid, &claims).await;
            if self.claims.make(key, claim, write).await? == Write::Done(()) {
                return Ok(Some(Made::Reused));
            }
            found = self.cluster.configmap(self.namespace, name).await?;
        }
        Err(Error::Unsteady { name: name.to_owned() })
    }
}

fn names_taken(pin: &Pin) -> Error {
    Error::NamesTaken {
        source_name: pin.source.name.clone(),
        name: pin.candidates.first().cloned().unwrap_or_default(),
    }
}
