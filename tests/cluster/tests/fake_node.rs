//! A cluster with a fake node and Argo Rollouts, which the tests of this file share.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    core::v1::{ConfigMap, Pod},
};
use kube::{
    Api, Client,
    api::{ListParams, ObjectMeta, PostParams},
};
use testcluster::{Cluster, Component, wait_for};
use tokio::sync::{Mutex, OnceCell};

const SOON: Duration = Duration::from_secs(60);

static CLUSTER: OnceCell<Cluster> = OnceCell::const_new();
/// Held by a test that counts requests or stops components.
static ALONE: Mutex<()> = Mutex::const_new(());

async fn cluster() -> Result<&'static Cluster> {
    CLUSTER.get_or_try_init(|| Cluster::builder().fake_node().rollouts().start()).await
}

fn workload(api_version: &str, kind: &str, strategy: &str) -> String {
    format!(
        r#"
apiVersion: {api_version}
kind: {kind}
metadata: {{name: web}}
spec:
  replicas: 3
  selector: {{matchLabels: {{app: web}}}}
  {strategy}
  template:
    metadata: {{labels: {{app: web}}}}
    spec:
      containers: [{{name: web, image: "example.invalid/web:1"}}]
"#
    )
}

#[tokio::test]
async fn a_deployment_runs_on_the_fake_node() -> Result<()> {
    let cluster = cluster().await?;
    let _alone = ALONE.lock().await;
    let namespace = cluster.namespace("deployment").label("team", "a").annotation("why", "test").create().await?;
    let apply = ["--namespace", namespace.name(), "apply", "-f", "-"];
    cluster.kubectl(apply).stdin(workload("apps/v1", "Deployment", "")).run().await?;

    let deployments: Api<Deployment> = Api::namespaced(cluster.client(), namespace.name());
    wait_for("the Deployment's replicas", SOON, async || {
        let ready = deployments.get("web").await?.status.and_then(|status| status.ready_replicas).unwrap_or(0);
        if ready < 3 {
            bail!("{ready} of 3 are ready");
        }
        Ok(Some(()))
    })
    .await?;
    let pods: Api<Pod> = Api::namespaced(cluster.client(), namespace.name());
    for pod in pods.list(&ListParams::default()).await? {
        assert_eq!(pod.spec.context("a pod has a spec")?.node_name.as_deref(), Some("fake"));
    }
    Ok(())
}

#[tokio::test]
async fn a_rollouts_replica_sets_come_and_go_with_it() -> Result<()> {
    let cluster = cluster().await?;
    let _alone = ALONE.lock().await;
    let namespace = cluster.namespace("rollout").create().await?;
    let apply = ["--namespace", namespace.name(), "apply", "-f", "-"];
    let rollout = workload("argoproj.io/v1alpha1", "Rollout", "strategy: {canary: {steps: [{pause: {}}]}}");
    cluster.kubectl(apply).stdin(rollout).run().await?;

    let sets: Api<ReplicaSet> = Api::namespaced(cluster.client(), namespace.name());
    wait_for("the Rollout's ReplicaSet", SOON, async || {
        let found = sets.list(&ListParams::default()).await?.items;
        let ready = found.iter().filter_map(|set| set.status.as_ref()?.ready_replicas).sum::<i32>();
        if ready < 3 {
            bail!("{ready} of 3 are ready in {} ReplicaSets", found.len());
        }
        Ok(Some(()))
    })
    .await?;

    cluster.kubectl(["--namespace", namespace.name(), "delete", "rollout", "web"]).run().await?;
    wait_for("the garbage collector to delete the ReplicaSet", SOON, async || {
        Ok(sets.list(&ListParams::default()).await?.items.is_empty().then_some(()))
    })
    .await
}

#[tokio::test]
async fn the_audit_log_counts_the_requests_of_one_client() -> Result<()> {
    let cluster = cluster().await?;
    let _alone = ALONE.lock().await;
    let namespace = cluster.namespace("audit").create().await?;
    let mut config = cluster.config();
    config.headers.push(("user-agent".parse()?, "counted".parse()?));
    let maps: Api<ConfigMap> = Api::namespaced(Client::try_from(config)?, namespace.name());
    let create = async |name: &str| {
        let metadata = ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() };
        maps.create(&PostParams::default(), &ConfigMap { metadata, ..ConfigMap::default() }).await
    };
    create("before").await?;

    let mark = cluster.audit().mark().await?;
    for round in 0..5 {
        create(&format!("map-{round}")).await?;
        maps.get("before").await?;
    }
    create("before").await.expect_err("the name is taken");
    let events = cluster.audit().since(&mark).await?;
    create("after").await?;

    let counted: Vec<_> = events.iter().filter(|event| event.user_agent == "counted").collect();
    let creations = counted.iter().filter(|event| event.is("create", "configmaps"));
    let codes: Vec<_> = creations.map(|event| event.response_status.code).collect();
    assert_eq!(codes, [201, 201, 201, 201, 201, 409]);
    assert_eq!(counted.iter().filter(|event| event.is("get", "configmaps")).count(), 5);
    assert_eq!(counted.len(), 11, "{counted:#?}");
    assert!(counted.iter().all(|event| event.user.username == "kubernetes-admin"));
    Ok(())
}

#[tokio::test]
async fn the_api_server_comes_back_with_what_it_had() -> Result<()> {
    let cluster = cluster().await?;
    let _alone = ALONE.lock().await;
    let namespace = cluster.namespace("restart").create().await?;

    cluster.kill(Component::ApiServer)?;
    let down = cluster.kubectl(["get", "namespaces"]).run_any().await?;
    assert!(!down.status.success());
    cluster.start_component(Component::ApiServer).await?;
    cluster.restart(Component::Etcd).await?;

    cluster.pause(Component::ApiServer)?;
    let request = cluster.kubectl(["get", "namespace", namespace.name()]);
    tokio::time::timeout(Duration::from_secs(2), request.run()).await.expect_err("it is frozen");
    cluster.resume(Component::ApiServer)?;
    cluster.kubectl(["get", "namespace", namespace.name()]).run().await?;
    Ok(())
}

#[tokio::test]
async fn a_service_accounts_token_is_its_identity() -> Result<()> {
    let cluster = cluster().await?;
    let _alone = ALONE.lock().await;
    let namespace = cluster.namespace("token").create().await?;
    let token = cluster.service_account_token(namespace.name(), "default").await?;
    let kubeconfig = cluster.kubeconfig_for_token(&token)?;

    let flag = format!("--kubeconfig={}", kubeconfig.display());
    let who = cluster.kubectl([&flag, "auth", "whoami"]).run().await?;
    assert!(who.contains(&format!("system:serviceaccount:{}:default", namespace.name())), "{who}");
    let refused = cluster.kubectl([&flag, "get", "secrets"]).run().await.expect_err("it has no rights");
    assert!(refused.to_string().contains("forbidden"), "{refused:#}");
    Ok(())
}
