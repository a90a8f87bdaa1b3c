//! confpin without a ClusterRole, installed as `docs/install.md` says: one part by an administrator, the rest by a team that
//! has no more than the ClusterRole `admin` in its namespaces. confpin runs beside the cluster, with the rights and the
//! arguments that the two parts give it.

use std::{collections::BTreeSet, fs};

use anyhow::{Result, ensure};
use confpin::install::{self, user};
use confpin::pin::webhook_configuration::{PATH, client_by_url};
use k8s_openapi::api::{
    admissionregistration::v1::{MutatingWebhook, MutatingWebhookConfiguration},
    apps::v1::Deployment,
};
use kube::{Api, api::PostParams};
use serde_json::{Value, json};
use testcluster::{AuditEvent, Cluster, free_port, wait_for};

use crate::support::{
    Kind, SOON, Shop, World, configmap, confpin::Confpin, deployment, docs, manifest, shop::file, tests,
};

tests! {
    Own it_pins_follows_and_collects_by_roles_alone,
    Own a_namespace_that_is_not_watched_is_never_pinned,
}

/// The namespaces of the shipped overlay.
const SERVED: [&str; 2] = ["shop", "billing"];
/// Who applies the team's part.
const TEAM: [&str; 2] = ["--as=somebody", "--as-group=shop-team"];

/// A cluster with such an installation, and a port that its API server calls.
struct Namespaced {
    world: World,
    port: u16,
}

impl Namespaced {
    /// Installs both parts. What `before` holds is in each namespace from before. confpin is not started yet.
    async fn install(arguments: &[&str], before: &[Value]) -> Result<Self> {
        let (cluster, port) = (Cluster::builder().rollouts().start().await?, free_port()?);
        let namespaces =
            SERVED.map(|name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}));
        let prepared = namespaces.into_iter().chain(kinds_of_cert_manager()).chain([rights_that_extensions_add()]);
        cluster.kubectl(["apply", "--filename=-"]).stdin(file(prepared)).run().await?;
        for name in SERVED.iter().filter(|_| !before.is_empty()) {
            let create = ["create", "--filename=-", "--namespace", name];
            cluster.kubectl(create).stdin(file(before.iter().cloned())).run().await?;
        }
        run_part(&cluster, "administrator", &[]).await?;
        // New kinds, and what they add to `admin`, are there a moment later.
        wait_for("the team to install its part", SOON, async || run_part(&cluster, "team", &TEAM).await.map(Some))
            .await?;

        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
        fs::write(cluster.folder().join("confpin.crt"), made.cert.pem())?;
        fs::write(cluster.folder().join("confpin.key"), made.signing_key.serialize_pem())?;
        let client = client_by_url(format!("https://127.0.0.1:{port}{PATH}"), &made.cert.pem());
        change_webhooks(&cluster, |webhook| webhook.client_config = client.clone()).await?;
        let confpin = confpin(&cluster, port, arguments).await?;
        Ok(Self { world: World::new(cluster, confpin), port })
    }

    /// Starts confpin again, with other arguments.
    async fn start_with(&mut self, arguments: &[&str]) -> Result<()> {
        self.world.confpin.stop().await?;
        self.world.confpin = confpin(&self.world.cluster, self.port, arguments).await?;
        self.world.confpin.start().await
    }

    /// Ends confpin, and fails if it asked for anything that it may not, or that is beyond a namespace.
    async fn asked_for_nothing_beyond(&self, allowed: &[&str]) -> Result<()> {
        self.world.confpin.stop().await?;
        // A watch is in the log when it has ended.
        self.world.cluster.audit().mark().await?;
        let mut events = self.world.cluster.audit().logged()?;
        events.retain(|event| {
            event.user.username == user(install::NAMESPACE) && event.user_agent.starts_with("confpin/")
        });
        ensure!(events.len() > 10, "only {} requests of confpin's are in the audit log", events.len());
        let is_within = |event: &AuditEvent| {
            let namespace = event.object_ref.as_ref().map_or("", |object| object.namespace.as_str());
            event.response_status.code != 403 && allowed.contains(&namespace)
        };
        let beyond: Vec<_> = events.iter().filter(|event| !is_within(event)).collect();
        ensure!(beyond.is_empty(), "confpin asked for {beyond:?}");
        Ok(())
    }
}

/// confpin as the team's Deployment has it, but for where it runs.
async fn confpin(cluster: &Cluster, port: u16, arguments: &[&str]) -> Result<Confpin> {
    let deployment = Api::<Deployment>::namespaced(cluster.client(), install::NAMESPACE).get(install::NAME).await?;
    let template = deployment.spec.and_then(|spec| spec.template.spec);
    let own = template.iter().flat_map(|pod| &pod.containers).flat_map(|container| container.args.iter().flatten());
    let own = own.map(String::as_str).filter(|argument| {
        // The rest is for a pod.
        ["--watch-namespace", "--lease"].iter().any(|option| argument.starts_with(option))
    });
    let namespace = format!("--namespace={}", install::NAMESPACE);
    let arguments: Vec<_> =
        own.chain([namespace.as_str(), "--identity=the-only-one"]).chain(arguments.iter().copied()).collect();
    let token = cluster.service_account_token(install::NAMESPACE, install::NAME).await?;
    let (cert, key) = (cluster.folder().join("confpin.crt"), cluster.folder().join("confpin.key"));
    let confpin = Confpin::new(cluster, &arguments)?.at(port).with_kubeconfig(cluster.kubeconfig_for_token(&token)?);
    Ok(confpin.with_certificate(&cert, &key, "confpin.log"))
}

/// Runs the commands of a part of the documentation, with more arguments.
async fn run_part(cluster: &Cluster, part: &str, arguments: &[&str]) -> Result<()> {
    for command in docs::commands("../install.md", part)? {
        let command = command.replace("manifests/", concat!(env!("CARGO_MANIFEST_DIR"), "/manifests/"));
        cluster.kubectl(command.split(' ').skip(1).chain(arguments.iter().copied())).run().await?;
    }
    Ok(())
}

/// cert-manager's kinds, for the objects that it would turn into the files that this test makes itself.
fn kinds_of_cert_manager() -> impl Iterator<Item = Value> {
    [("Issuer", "issuers"), ("Certificate", "certificates")].into_iter().map(|(kind, plural)| {
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.cert-manager.io")},
            "spec": {
                "group": "cert-manager.io",
                "names": {"kind": kind, "plural": plural},
                "scope": "Namespaced",
                "versions": [version],
            },
        })
    })
}

/// What Argo Rollouts and cert-manager add to the ClusterRole `admin` when they are installed.
fn rights_that_extensions_add() -> Value {
    let all = |group: &str, resources: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": ["*"]});
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "extensions", "labels": {"rbac.authorization.k8s.io/aggregate-to-admin": "true"}},
        "rules": [all("argoproj.io", &["rollouts"]), all("cert-manager.io", &["issuers", "certificates"])],
    })
}

/// Changes each webhook of the configuration.
async fn change_webhooks(cluster: &Cluster, mut change: impl FnMut(&mut MutatingWebhook)) -> Result<()> {
    let api: Api<MutatingWebhookConfiguration> = Api::all(cluster.client());
    let mut configuration = api.get(install::NAME).await?;
    configuration.webhooks.iter_mut().flatten().for_each(&mut change);
    api.replace(install::NAME, &PostParams::default(), &configuration).await?;
    Ok(())
}

async fn it_pins_follows_and_collects_by_roles_alone() -> Result<()> {
    let before = [configmap("old-config", "v1"), deployment("old").uses("old-config").replicas(0).json()];
    let installation = Namespaced::install(&["--settle=0s", "--min-interval=1s"], &before).await?;
    let world = &installation.world;
    world.confpin.start().await?;

    // Both namespaces are known, and a change of one a little later.
    let annotate = async |shop: &str, annotation: &str| {
        world.cluster.kubectl(["annotate", "namespace", shop, annotation]).run().await
    };
    wait_unpinned(world, 2).await?;
    annotate("billing", "confpin.dev/pin=disabled").await?;
    wait_unpinned(world, 1).await?;
    annotate("billing", "confpin.dev/pin-").await?;
    wait_unpinned(world, 2).await?;

    for name in SERVED {
        let shop = Shop::new(world, name);
        shop.run("delete deployment old").await?;
        for kind in [Kind::Deployment, Kind::Rollout] {
            pins_follows_and_collects(&shop, kind).await?;
        }
        let (web, manifest) = (shop.deployment("web"), deployment("web").uses("common").replicas(0));
        shop.apply([configmap("common", "v1"), manifest.json()]).await?;
        shop.apply([configmap("common", "v2")]).await?;
        assert_eq!(web.value().await?, "v1");
        annotate(name, "confpin.dev/rollout=on-change").await?;
        wait_for("the namespace's workload to follow", SOON, async || Ok((web.value().await? == "v2").then_some(())))
            .await?;
        shop.wait_owned().await?;
    }
    wait_unpinned(world, 0).await?;
    assert!((world.confpin.metric("confpin_leader", "").await? - 1.0).abs() < 0.1);
    installation.asked_for_nothing_beyond(&["shop", "billing", install::NAMESPACE]).await
}

async fn pins_follows_and_collects(shop: &Shop<'_>, kind: Kind) -> Result<()> {
    let staying = manifest::workload(kind, "staying").uses("app-config").replicas(0);
    let following = manifest::workload(kind, "following").uses("app-config").replicas(0).with(|object| {
        object["metadata"]["annotations"]["confpin.dev/rollout"] = "on-change".into();
    });
    // Until the API server knows where confpin is, it refuses.
    wait_for("workloads to be admitted", SOON, async || {
        shop.apply([configmap("app-config", "v1"), staying.json(), following.json()]).await.map(Some)
    })
    .await?;
    assert_eq!(shop.workload(kind, "staying").value().await?, "v1");
    shop.wait_owned().await?;

    shop.apply([configmap("app-config", "v2")]).await?;
    let following = shop.workload(kind, "following");
    wait_for("the source to be followed", SOON, async || Ok((following.value().await? == "v2").then_some(()))).await?;
    assert_eq!(shop.workload(kind, "staying").value().await?, "v1");
    shop.wait_owned().await?;

    shop.run(&format!("delete {} staying following", kind.plural())).await?;
    shop.wait_snapshots([]).await
}

async fn wait_unpinned(world: &World, workloads: u32) -> Result<()> {
    wait_for(&format!("{workloads} workloads to be unpinned"), SOON, async || {
        let found = world.confpin.metric("confpin_unpinned_workloads", "").await?;
        ensure!((found - f64::from(workloads)).abs() < 0.1, "there are {found}");
        Ok(Some(()))
    })
    .await
}

async fn a_namespace_that_is_not_watched_is_never_pinned() -> Result<()> {
    let mut installation = Namespaced::install(&[], &[]).await?;
    // The administrator's configuration reaches every labelled namespace.
    change_webhooks(&installation.world.cluster, |webhook| {
        let expressions = webhook.namespace_selector.as_mut().and_then(|it| it.match_expressions.as_mut());
        expressions.into_iter().for_each(|them| them.retain(|expression| expression.operator != "In"));
    })
    .await?;
    installation.world.confpin.start().await?;
    let other = installation.world.shop("other").await?;
    let (name, web) = (other.name().to_owned(), deployment("web").uses("app-config").replicas(0).json());
    other.apply([configmap("app-config", "v1")]).await?;
    let told_why = format!("confpin does not watch the namespace {name}: add it to --watch-namespace");
    for command in [&["apply", "--dry-run=server"][..], &["apply"]] {
        wait_for("the client to be told", SOON, async || {
            let output = other.send(command.iter().copied(), [web.clone()]).run_any().await?;
            let told = String::from_utf8_lossy(&output.stderr);
            ensure!(!output.status.success() && told.contains(&told_why), "it is told: {told}");
            Ok(Some(()))
        })
        .await?;
    }
    assert!(!other.deployment("web").exists().await?);
    assert!(installation.world.confpin.metric("confpin_denials_total", "not-watched").await? > 1.0);
    // Of what it would leave alone anyway it need not know anything.
    other.apply([deployment("exempt").uses("kube-root-ca.crt").replicas(0).json()]).await?;

    installation.start_with(&["--on-error=admit"]).await?;
    let other = Shop::new(&installation.world, &name);
    let output = other.send(["apply"], [web]).run_any().await?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success() && told.contains("Warning: confpin could not pin this workload"), "{told}");
    assert_eq!(other.deployment("web").names().await?, BTreeSet::from(["app-config".to_owned()]));
    assert!(other.snapshots().await?.is_empty());
    installation.asked_for_nothing_beyond(&["shop", "billing", install::NAMESPACE]).await
}
