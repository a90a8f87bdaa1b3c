//! Argo Rollouts' ways to roll out: the configuration belongs to the ReplicaSet in each of them.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::{apps::v1::ReplicaSet, core::v1::Service};
use kube::ResourceExt;
use serde_json::{Value, json};
use testcluster::wait_for;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use crate::support::{
    SOON, Shop, Workload, World, configmap, configmaps, manifest::Manifest, rollout, tests, workload::only,
};

tests! {
    Shared blue_and_green_have_a_configuration_each,
    Shared a_failed_analysis_goes_back_to_the_old_configuration,
}

/// The label by which a Service selects the pods of one ReplicaSet.
const HASH: &str = "rollouts-pod-template-hash";

fn web() -> Manifest {
    rollout("web").replicas(2).uses("app-config")
}

/// The `value` of the configuration of a ReplicaSet.
async fn value_of(shop: &Shop<'_>, set: &ReplicaSet) -> Result<String> {
    let names: BTreeSet<_> = configmaps::names(&serde_json::to_value(&set.spec)?["template"]);
    let snapshot = shop.configmap(&only(names)?).await?;
    snapshot.data.unwrap_or_default().remove("value").context("the snapshot has no such key")
}

/// The `value` that the pods behind a Service have.
async fn value_behind(web: &Workload<'_>, service: &str) -> Result<String> {
    let service = web.shop.api::<Service>().get(service).await?;
    let selector = service.spec.and_then(|spec| spec.selector).unwrap_or_default();
    let hash = selector.get(HASH).context("the Service selects no ReplicaSet yet")?;
    let sets = web.replica_sets().await?;
    let set = sets.iter().find(|set| set.labels().get(HASH) == Some(hash)).context("its ReplicaSet is not there")?;
    value_of(web.shop, set).await
}

async fn wait_behind(web: &Workload<'_>, active: &str, preview: &str) -> Result<()> {
    wait_for(&format!("{active} to be active and {preview} the preview"), SOON, async || {
        let found = (value_behind(web, "active").await?, value_behind(web, "preview").await?);
        ensure!(found == (active.to_owned(), preview.to_owned()), "they are {found:?}");
        Ok(Some(()))
    })
    .await
}

async fn blue_and_green_have_a_configuration_each(world: &World) -> Result<()> {
    let shop = world.shop("blue-green").await?;
    let service = |name: &str| {
        let spec = json!({"selector": {"app": "web"}, "ports": [{"port": 80}]});
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec})
    };
    let manifest = web().with(|object| {
        object["spec"]["strategy"] = json!({"blueGreen": {
            "activeService": "active",
            "previewService": "preview",
            "autoPromotionEnabled": false,
            "scaleDownDelaySeconds": 1,
        }});
    });
    let web = shop.rollout("web");
    shop.apply([service("active"), service("preview"), configmap("app-config", "blue"), manifest.json()]).await?;
    web.wait_rolled_out().await?;
    wait_behind(&web, "blue", "blue").await?;

    shop.apply([configmap("app-config", "green"), manifest.json()]).await?;
    web.wait_status("paused", |status| status["phase"] == "Paused").await?;
    wait_behind(&web, "blue", "green").await?;
    // Whatever happens to the source now, each side keeps what it has.
    shop.run("delete configmap/app-config").await?;
    shop.argo_rollouts("promote web").await?;
    wait_behind(&web, "green", "green").await?;
    web.wait_rolled_out().await?;

    shop.apply([configmap("app-config", "red"), manifest.json()]).await?;
    wait_behind(&web, "green", "red").await?;
    shop.argo_rollouts("abort web").await?;
    web.wait_status("aborted", |status| status["phase"] == "Degraded").await?;
    assert_eq!(value_behind(&web, "active").await?, "green");
    shop.argo_rollouts("undo web").await?;
    web.wait_rolled_out().await?;
    assert_eq!(value_behind(&web, "active").await?, "green");
    assert_eq!(web.replica_sets().await?.len(), 3);
    shop.wait_owned().await
}

async fn a_failed_analysis_goes_back_to_the_old_configuration(world: &World) -> Result<()> {
    let shop = world.shop("analysis").await?;
    let template = json!({
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "AnalysisTemplate",
        "metadata": {"name": "verdict"},
        "spec": {"metrics": [{
            "name": "verdict",
            "successCondition": "result == 'good'",
            "provider": {"web": {"url": serve_verdict("bad").await?, "jsonPath": "{$.verdict}"}},
        }]},
    });
    let manifest = web().with(|object| {
        let analysis = json!({"analysis": {"templates": [{"templateName": "verdict"}]}});
        object["spec"]["strategy"]["canary"]["steps"] = json!([{"setWeight": 50}, analysis]);
    });
    let web = shop.rollout("web");
    shop.apply([template, configmap("app-config", "v1"), manifest.json()]).await?;
    web.wait_rolled_out().await?;
    let stable = only(web.replica_sets().await?)?.name_any();

    shop.apply([configmap("app-config", "v2"), manifest.clone().image("web:2").json()]).await?;
    web.wait_status("aborted by the analysis", |status| {
        status["abort"] == true && status["phase"] == "Degraded" && status["HPAReplicas"] == 2
    })
    .await?;
    // All pods are the stable ReplicaSet's, with its configuration; the failed one keeps its own, without pods.
    wait_for("only stable pods to be left", SOON, async || {
        let mut found = Vec::new();
        for set in web.replica_sets().await? {
            let pods = set.status.as_ref().map_or(0, |status| status.replicas);
            found.push((set.name_any() == stable, pods, value_of(&shop, &set).await?));
        }
        ensure!(found == [(true, 2, "v1".to_owned()), (false, 0, "v2".to_owned())], "there are {found:?}");
        Ok(Some(()))
    })
    .await?;

    // Back to what is stable, by the manifests of before: no new ReplicaSet, no new analysis.
    shop.apply([configmap("app-config", "v1"), manifest.json()]).await?;
    web.wait_rolled_out().await?;
    assert_eq!((web.value().await?, web.replica_sets().await?.len()), ("v1".into(), 2));
    shop.wait_owned().await
}

/// Serves the verdict to whoever asks, on loopback, and returns where.
async fn serve_verdict(verdict: &str) -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/", listener.local_addr()?);
    let body: Value = json!({"verdict": verdict});
    let body = body.to_string();
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            // A request that is cut off is asked again.
            let _ = connection.read(&mut [0; 4096]).await;
            let _ = connection.write_all(answer.as_bytes()).await;
        }
    });
    Ok(url)
}
