//! A stream of requests that each have to be pinned, for tests of what happens meanwhile.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use kube::{Api, api::PostParams};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use super::{Shop, configmap, configmaps, deployment};

/// Dry runs at a fixed rate: each calls the webhook, and leaves nothing behind that would have to be rolled out.
pub struct Load {
    stop: CancellationToken,
    sent: Arc<AtomicUsize>,
    failures: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Load {
    /// Begins to send `rate` requests a second.
    pub async fn start(shop: &Shop<'_>, rate: u32) -> Result<Self> {
        shop.apply([configmap("load", "1")]).await?;
        let api: Api<Deployment> = shop.api();
        let workload: Deployment = serde_json::from_value(deployment("load").uses("load").json())?;
        let (stop, sent, failures) = (CancellationToken::new(), Arc::default(), Arc::default());
        let task = tokio::spawn(send(api, workload, rate, stop.clone(), Arc::clone(&sent), Arc::clone(&failures)));
        Ok(Self { stop, sent, failures, task })
    }

    /// Ends, and tells how many requests were sent.
    ///
    /// # Errors
    /// If one was not answered well, or not pinned.
    pub async fn end(self) -> Result<usize> {
        self.stop.cancel();
        self.task.await?;
        let failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let sent = self.sent.load(Ordering::Relaxed);
        ensure!(failures.is_empty(), "{} of {sent} requests failed; the first: {}", failures.len(), failures[0]);
        Ok(sent)
    }
}

async fn send(
    api: Api<Deployment>,
    workload: Deployment,
    rate: u32,
    stop: CancellationToken,
    sent: Arc<AtomicUsize>,
    failures: Arc<Mutex<Vec<String>>>,
) {
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / rate);
    let mut requests = JoinSet::new();
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        let (api, workload, failures) = (api.clone(), workload.clone(), failures.clone());
        sent.fetch_add(1, Ordering::Relaxed);
        requests.spawn(async move {
            if let Err(error) = pinned(&api, &workload).await {
                failures.lock().unwrap_or_else(PoisonError::into_inner).push(format!("{error:#}"));
            }
        });
        while requests.try_join_next().is_some() {}
    }
    requests.join_all().await;
}

async fn pinned(api: &Api<Deployment>, workload: &Deployment) -> Result<()> {
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let answer = api.create(&dry_run, workload).await?;
    let names = configmaps::names(&serde_json::to_value(&answer.spec)?["template"]);
    ensure!(names.iter().all(|name| name.starts_with("load-")), "not pinned: {names:?}");
    Ok(())
}
