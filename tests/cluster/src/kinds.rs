//! Kinds that are not Kubernetes' own.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context, Result};

use crate::{cluster::Cluster, wait_for};

/// How long the API server may take to serve a new kind.
const SERVED: Duration = Duration::from_secs(30);

impl Cluster {
    /// Creates the CustomResourceDefinitions in the files of a folder, and waits until this version of each is served.
    pub(crate) async fn create_kinds(&self, folder: &Path, version: &str) -> Result<()> {
        let mut command = vec!["create".to_owned(), "--validate=false".to_owned()];
        for file in fs::read_dir(folder).with_context(|| format!("failed to read {}", folder.display()))? {
            let path = file?.path();
            let named = path.file_name().is_some_and(|name| name != "kustomization.yaml");
            if named && path.extension().is_some_and(|extension| extension == "yaml") {
                command.push(format!("--filename={}", path.display()));
            }
        }
        // For each, a line such as `customresourcedefinition.apiextensions.k8s.io/rollouts.argoproj.io created`.
        let created = self.kubectl(command).run().await?;
        let names = created.lines().filter_map(|line| line.split_once('/')?.1.split(' ').next()?.split_once('.'));
        for (plural, group) in names {
            let path = format!("/apis/{group}/{version}/{plural}?limit=1");
            wait_for(&format!("{path} to be served"), SERVED, async || {
                self.probe(&self.server_url(), &path).await.map(Some)
            })
            .await?;
        }
        Ok(())
    }
}
