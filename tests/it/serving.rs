//! The process itself: how it starts, ends, and gets over what happens around it.

use std::{collections::BTreeSet, fs, net::TcpListener, process::Output};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::ServiceAccount};
use kube::{
    Api,
    api::{ObjectMeta, PostParams},
};
use rustix::process::Signal;
use serde_json::{Value, json};
use testcluster::{Cluster, Component, wait_for};
use tokio::process::Command;

use crate::support::{
    SOON, World, configmap,
    confpin::{Confpin, PROGRAM},
    deployment, docs,
    manifest::Manifest,
    tests,
};

tests! {
    Own a_wrong_command_line_is_refused_before_a_port_is_bound,
    Own sigterm_answers_what_is_in_flight_and_ends_well,
    Own a_crash_of_the_api_server_is_got_over,
    Own what_was_admitted_just_before_a_crash_is_owned_after_it,
    Own a_missing_right_is_told_to_the_client,
    Own the_log_names_the_trace_of_a_request,
}

/// `confpin` with these arguments, and nothing of the tests' environment.
async fn confpin(arguments: &[&str]) -> Result<Output> {
    let command = Command::new(PROGRAM).args(arguments).env_clear().kill_on_drop(true).output();
    Ok(tokio::time::timeout(SOON, command).await??)
}

async fn a_wrong_command_line_is_refused_before_a_port_is_bound() -> Result<()> {
    // Binding this one would fail, with another message and another exit code.
    let taken = TcpListener::bind("127.0.0.1:0")?;
    let listen = format!("--listen={}", taken.local_addr()?);
    let url = "--webhook-url=https://127.0.0.1:1";
    for (arguments, told) in [
        (&[][..], "--webhook-url"),
        (&["--tls-cert=cert.pem"], "--tls-key"),
        (&[url, "--tls-cert=cert.pem", "--tls-key=key.pem"], "one of the three"),
        (&["--webhook-url=http://127.0.0.1:1"], "--webhook-url"),
        (&[url, "--orphan-grace=soon"], "--orphan-grace"),
        (&[url, "--max-body=1"], "--max-body"),
        (&[url, "--on-error=panic"], "--on-error"),
        (&[url, "--exempt-name=NOT_A_NAME"], "--exempt-name"),
        (&[url, "--log=confpin=loud"], "log"),
        (&[url, "--unheard-of"], "--unheard-of"),
    ] {
        let all: Vec<&str> = ["serve", &listen].into_iter().chain(arguments.iter().copied()).collect();
        let output = confpin(&all).await?;
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(64), "{arguments:?}: {error}");
        assert!(error.contains(told) && !error.contains("failed to listen"), "{arguments:?}: {error}");
    }
    let help = confpin(&["serve", "--help"]).await?;
    assert!(help.status.success() && String::from_utf8_lossy(&help.stdout).contains("CONFPIN_LISTEN"));
    Ok(())
}

fn web() -> Manifest {
    deployment("web").uses("app-config").replicas(0)
}

async fn sigterm_answers_what_is_in_flight_and_ends_well() -> Result<()> {
    let world = World::start(Cluster::builder().controller_manager(false)).await?;
    let shop = world.shop("drain").await?;
    shop.apply([configmap("app-config", "v1")]).await?;
    // confpin's reads get no answer now, so the request that comes stays in flight.
    world.cluster.pause(Component::Etcd)?;
    let deployments = shop.api::<Deployment>();
    let create = tokio::spawn(async move {
        deployments
            .create(&PostParams::default(), &serde_json::from_value(web().json())?)
            .await
            .map_err(anyhow::Error::from)
    });
    wait_for("a request to be in flight", SOON, async || {
        Ok((world.confpin.metric("confpin_requests_in_flight", "").await? > 0.0).then_some(()))
    })
    .await?;

    world.confpin.signal(Signal::TERM)?;
    wait_for("confpin not to be ready any more", SOON, async || {
        let (status, text) = world.confpin.ask("readyz").await?;
        Ok((status == 503 && text.contains("draining")).then_some(()))
    })
    .await?;
    world.cluster.resume(Component::Etcd)?;
    create.await?.context("the request in flight failed")?;
    assert_eq!(shop.deployment("web").value().await?, "v1");
    let status = world.confpin.wait_ended().await?;
    ensure!(status.success(), "it ended with {status}: {}", world.confpin.log_end());
    Ok(())
}

async fn a_crash_of_the_api_server_is_got_over() -> Result<()> {
    let world = World::start(Cluster::builder()).await?;
    let shop = world.shop("restart").await?;
    shop.apply([configmap("app-config", "v1"), web().json()]).await?;
    shop.wait_owned().await?;

    world.cluster.kill(Component::ApiServer)?;
    world.cluster.start_component(Component::ApiServer).await?;
    wait_for("a new configuration to be pinned", SOON, async || {
        shop.apply([configmap("app-config", "v2"), web().json()]).await?;
        Ok((shop.deployment("web").value().await? == "v2").then_some(()))
    })
    .await?;
    shop.deployment("web").wait_rolled_out().await?;
    assert_eq!(shop.deployment("web").replica_sets().await?.len(), 2);
    shop.wait_owned().await?;
    assert_eq!(shop.snapshots().await?.len(), 2);
    let (status, _) = world.confpin.ask("readyz").await?;
    assert_eq!(status, 200);
    Ok(())
}

async fn what_was_admitted_just_before_a_crash_is_owned_after_it() -> Result<()> {
    let world = World::start(Cluster::builder()).await?;
    let shop = world.shop("crash").await?;
    // The ReplicaSet is not there before confpin is gone.
    world.cluster.pause(Component::ControllerManager)?;
    shop.apply([configmap("app-config", "v1"), web().json()]).await?;
    world.confpin.kill()?;
    world.cluster.resume(Component::ControllerManager)?;
    shop.deployment("web").wait_rolled_out().await?;
    // Neither a scale nor a label needs confpin; a new template does.
    shop.run("scale deployment/web --replicas=1").await?;
    let refused = shop.kubectl(["set", "image", "deployment/web", "main=web:2"]).run_any().await?;
    assert!(!refused.status.success());
    assert_eq!(shop.deployment("web").value().await?, "v1");

    world.start_confpin().await?;
    shop.wait_owned().await?;
    shop.run("set image deployment/web main=web:3").await?;
    assert_eq!(shop.deployment("web").value().await?, "v1");
    Ok(())
}

async fn a_missing_right_is_told_to_the_client() -> Result<()> {
    let world = World::start(Cluster::builder()).await?;
    world.confpin.stop().await?;
    // All but the right to create ConfigMaps.
    let accounts: Api<ServiceAccount> = Api::namespaced(world.client.clone(), "default");
    let metadata = ObjectMeta { name: Some("confpin".into()), ..<_>::default() };
    accounts.create(&PostParams::default(), &ServiceAccount { metadata, ..<_>::default() }).await?;
    let rules = |verbs: &[&str]| {
        json!([
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs},
            {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "list", "watch"]},
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
            {"apiGroups": ["apps"], "resources": ["deployments", "replicasets"], "verbs": ["get", "list", "watch"]},
            {"apiGroups": ["argoproj.io"], "resources": ["rollouts"], "verbs": ["get", "list", "watch"]},
            {"apiGroups": ["admissionregistration.k8s.io"], "resources": ["mutatingwebhookconfigurations"], "verbs": ["*"]},
        ])
    };
    grant(&world, &rules(&["get", "list", "watch"])).await?;
    let token = world.cluster.service_account_token("default", "confpin").await?;
    let confpin = Confpin::new(&world.cluster, &[])?.with_kubeconfig(world.cluster.kubeconfig_for_token(&token)?);
    confpin.start().await?;

    let shop = world.shop("rights").await?;
    shop.apply([configmap("app-config", "v1")]).await?;
    wait_for("the client to be told", SOON, async || {
        let output = shop.send(["apply"], [web().json()]).run_any().await?;
        let told = String::from_utf8_lossy(&output.stderr);
        ensure!(!output.status.success(), "it was admitted");
        for part in ["cannot create resource \"configmaps\"", "give confpin's ServiceAccount this right"] {
            ensure!(told.contains(part), "`{part}` is not in: {told}");
        }
        Ok(Some(()))
    })
    .await?;
    assert!(!shop.deployment("web").exists().await?);

    // With it, and the one to own snapshots, nothing is missing.
    grant(&world, &rules(&["get", "list", "watch", "create", "patch", "delete"])).await?;
    wait_for("the right to be there", SOON, async || {
        shop.apply([web().json()]).await?;
        Ok(Some(()))
    })
    .await?;
    shop.deployment("web").wait_rolled_out().await?;
    shop.wait_owned().await
}

async fn grant(world: &World, rules: &Value) -> Result<()> {
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "confpin"}, "rules": rules});
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "confpin"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "confpin"},
        "subjects": [{"kind": "ServiceAccount", "name": "confpin", "namespace": "default"}],
    });
    let file = crate::support::shop::file([role, binding]);
    world.cluster.kubectl(["apply", "--filename", "-"]).stdin(file).run().await.context("failed to grant rights")?;
    Ok(())
}

async fn the_log_names_the_trace_of_a_request() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("tracing.yaml");
    fs::write(&file, docs::block("../operations.md", "tracing")?)?;
    let flag = format!("--tracing-config-file={}", file.display());
    let world = World::start(Cluster::builder().api_server_flags([flag])).await?;
    let shop = world.shop("traces").await?;
    shop.apply([configmap("app-config", "v1"), deployment("first").uses("app-config").json()]).await?;
    shop.apply([deployment("second").uses("app-config").json()]).await?;

    let log = world.confpin.log()?;
    let lines = log.lines().filter(|line| line.contains(shop.name()) && line.contains("admitted"));
    let trace = |line: &str| Some(line.split_once("trace_id=\"")?.1.split_once('"')?.0.to_owned());
    let traces: BTreeSet<_> = lines.filter_map(trace).collect();
    assert_eq!(traces.len(), 2, "{log}");
    assert!(traces.iter().all(|trace| trace.len() == 32), "{traces:?}");
    Ok(())
}
