//! An Application of Argo CD that brings a Git repository into the namespace of one test.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::Event;
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use serde_json::{Value, json};
use testcluster::{ArgoCd, wait_for};

use super::{SOON, Shop, git::GitRepository};

/// Asks Argo CD to look again; `hard` also for new commits. It takes the annotation away when it has looked.
const REFRESH: &str = "argocd.argoproj.io/refresh";
/// Comma-separated options of the diff.
const COMPARE: &str = "argocd.argoproj.io/compare-options";
/// Deletes what the Application brought when it is deleted.
const CASCADE: &str = "resources-finalizer.argocd.argoproj.io";

/// How an Application compares and synchronises.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Its `compare-options`.
    pub compare: &'static str,
    /// Its `syncOptions`.
    pub sync: &'static [&'static str],
    /// Not synchronised again where only the cluster has changed.
    pub no_self_heal: bool,
}

/// An Application, and the repository that it follows.
pub struct Application<'a> {
    pub repository: GitRepository,
    shop: &'a Shop<'a>,
    argo_cd: &'a ArgoCd,
}

impl<'a> Application<'a> {
    /// Creates one of the namespace's name, whose repository has these objects, and waits until it is synchronised.
    pub async fn create(
        shop: &'a Shop<'a>,
        argo_cd: &'a ArgoCd,
        options: &Options,
        objects: impl IntoIterator<Item = Value>,
    ) -> Result<Self> {
        let (application, commit) = Self::begin(shop, argo_cd, options, objects).await?;
        application.wait_synced(&commit).await?;
        Ok(application)
    }

    /// The same without waiting. Returns also the commit.
    pub async fn begin(
        shop: &'a Shop<'a>,
        argo_cd: &'a ArgoCd,
        options: &Options,
        objects: impl IntoIterator<Item = Value>,
    ) -> Result<(Self, String)> {
        let application = Self::with_repository(shop, argo_cd).await?;
        let commit = application.repository.commit(objects).await?;
        let object: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "Application",
            "metadata": {"name": shop.name(), "annotations": {COMPARE: options.compare}, "finalizers": [CASCADE]},
            "spec": {
                "project": "default",
                "source": {"repoURL": application.repository.url(), "path": ".", "targetRevision": "HEAD"},
                "destination": {"server": "https://kubernetes.default.svc", "namespace": shop.name()},
                "syncPolicy": {
                    "automated": {"prune": true, "selfHeal": !options.no_self_heal},
                    "syncOptions": options.sync,
                },
            },
        }))?;
        application.api().create(&PostParams::default(), &object).await?;
        Ok((application, commit))
    }

    /// One of the namespace's name that is to be created otherwise, and its empty repository.
    pub async fn with_repository(shop: &'a Shop<'a>, argo_cd: &'a ArgoCd) -> Result<Self> {
        let folder = shop.world.cluster.folder().join(format!("{}-repository", shop.name()));
        Ok(Self { repository: GitRepository::create(&folder).await?, shop, argo_cd })
    }

    /// Commits these objects and waits until they are synchronised and healthy.
    pub async fn commit(&self, objects: impl IntoIterator<Item = Value>) -> Result<()> {
        let commit = self.repository.commit(objects).await?;
        self.follow(&commit).await
    }

    /// Waits until a commit is synchronised and healthy.
    pub async fn follow(&self, commit: &str) -> Result<()> {
        self.refresh("hard").await?;
        self.wait_synced(commit).await
    }

    /// Asks Argo CD to compare again, and waits until it has.
    pub async fn refresh(&self, how: &str) -> Result<()> {
        let patch = json!({"metadata": {"annotations": {REFRESH: how}}});
        self.api().patch(self.shop.name(), &PatchParams::default(), &Patch::Merge(patch)).await?;
        wait_for("Argo CD to compare", SOON, async || {
            Ok((!self.object().await?.annotations().contains_key(REFRESH)).then_some(()))
        })
        .await
    }

    /// Waits until Argo CD says that all is as in this commit, and healthy.
    pub async fn wait_synced(&self, commit: &str) -> Result<()> {
        self.wait_status(&format!("synchronised to {commit} and healthy"), |status| {
            status["sync"]["status"] == "Synced"
                && status["sync"]["revision"] == commit
                && status["health"]["status"] == "Healthy"
                && status["operationState"]["phase"] == "Succeeded"
                && status["operationState"]["syncResult"]["revision"] == commit
        })
        .await
    }

    /// Waits until its status is as wanted.
    pub async fn wait_status(&self, what: &str, mut is: impl FnMut(&Value) -> bool) -> Result<()> {
        wait_for(&format!("the Application to be {what}"), SOON, async || {
            let status = self.status().await?;
            if !is(&status) {
                let resources = status["resources"].as_array().into_iter().flatten();
                let resources = resources.map(|found| format!("{} {}", found["kind"], found["status"]));
                bail!(
                    "{} at {}, {}, {} to {}: {}; {}; {:?}",
                    status["sync"]["status"],
                    status["sync"]["revision"],
                    status["health"]["status"],
                    status["operationState"]["phase"],
                    status["operationState"]["syncResult"]["revision"],
                    status["operationState"]["message"],
                    status["conditions"],
                    resources.collect::<Vec<_>>()
                );
            }
            Ok(Some(()))
        })
        .await
    }

    /// Its status.
    pub async fn status(&self) -> Result<Value> {
        Ok(self.object().await?.data["status"].clone())
    }

    /// The sync status of one kind of its resources.
    pub async fn status_of(&self, kind: &str) -> Result<String> {
        let status = self.status().await?;
        let found = status["resources"].as_array().into_iter().flatten().find(|resource| resource["kind"] == kind);
        Ok(found.and_then(|found| found["status"].as_str()).context("there is no such resource")?.to_owned())
    }

    /// How many operations it has begun.
    pub async fn operations(&self) -> Result<usize> {
        Ok(self.operation_events().await?.len())
    }

    /// Fails unless each of so many commits was synchronised, and by one operation. A second one may follow at once:
    /// after an operation Argo CD compares with what its watches have shown, and while these lag, self-heal believes that
    /// nothing was done.
    pub async fn ensure_one_operation_each(&self, commits: usize) -> Result<()> {
        let messages: Vec<_> = self.operation_events().await?.into_iter().filter_map(|event| event.message).collect();
        let revisions: BTreeSet<_> = messages.iter().filter_map(|message| message.split('\'').nth(1)).collect();
        let each = |revision: &&str| messages.iter().filter(|message| message.contains(*revision)).count();
        ensure!(
            revisions.len() == commits && revisions.iter().all(|revision| each(revision) <= 2),
            "the operations for {commits} commits are {messages:?}"
        );
        Ok(())
    }

    async fn operation_events(&self) -> Result<Vec<Event>> {
        let events: Api<Event> = Api::namespaced(self.shop.world.client.clone(), self.argo_cd.namespace());
        let fields = format!("involvedObject.name={},reason=OperationStarted", self.shop.name());
        Ok(events.list(&ListParams::default().fields(&fields)).await?.items)
    }

    /// Fails if comparing again and again finds a difference, or makes Argo CD begin an operation.
    pub async fn ensure_at_rest(&self) -> Result<()> {
        let operations = self.operations().await?;
        for how in ["normal", "hard", "normal"] {
            self.refresh(how).await?;
            let said = self.status().await?["sync"]["status"].clone();
            ensure!(said == "Synced", "after a {how} refresh it is {said}");
        }
        let now = self.operations().await?;
        ensure!(now == operations, "{} operations without a commit", now - operations);
        self.wait_status("healthy", |status| status["health"]["status"] == "Healthy").await
    }

    /// The resource tree, as the web interface shows it.
    pub async fn tree(&self) -> Result<Vec<Value>> {
        let tree = self.argo_cd.get(&format!("/api/v1/applications/{}/resource-tree", self.shop.name())).await?;
        Ok(tree["nodes"].as_array().cloned().unwrap_or_default())
    }

    /// Deletes it with all that it brought, and waits for its end.
    pub async fn delete(&self) -> Result<()> {
        self.api().delete(self.shop.name(), &DeleteParams::default()).await?;
        wait_for("the Application to be gone", SOON, async || {
            Ok(self.api().get_opt(self.shop.name()).await?.is_none().then_some(()))
        })
        .await
    }

    async fn object(&self) -> Result<DynamicObject> {
        Ok(self.api().get(self.shop.name()).await?)
    }

    fn api(&self) -> Api<DynamicObject> {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("argoproj.io", "v1alpha1", "Application"));
        Api::namespaced_with(self.shop.world.client.clone(), self.argo_cd.namespace(), &kind)
    }
}
