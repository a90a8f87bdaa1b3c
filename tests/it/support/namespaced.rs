//! confpin without a ClusterRole, installed as `docs/install.md` says: one part by an administrator, the rest by a team that
//! has no more than the ClusterRole `admin` in its namespaces. confpin runs beside the cluster, with the rights and the
//! arguments that the two parts give it.

use std::{collections::BTreeSet, fs};

use anyhow::{Result, ensure};
use confpin::install::{NAME, NAMESPACE, user};
use confpin::pin::webhook_configuration::{PATH, client_by_url};
use k8s_openapi::api::{
    admissionregistration::v1::{MutatingWebhook, MutatingWebhookConfiguration},
    apps::v1::Deployment,
};
use kube::{Api, api::PostParams};
use serde_json::{Value, json};
use testcluster::{Cluster, free_port, wait_for};

use super::{SOON, World, confpin::Confpin, docs, shop::file};

/// The namespaces of the shipped overlay.
pub const SERVED: [&str; 2] = ["shop", "billing"];
/// Who applies the team's part.
const TEAM: [&str; 2] = ["--as=somebody", "--as-group=shop-team"];

/// A cluster with such an installation, and a port that its API server calls.
pub struct Namespaced {
    pub world: World,
    port: u16,
}

impl Namespaced {
    /// Installs both parts. What `before` holds is in each namespace from before. confpin is not started yet.
    pub async fn install(arguments: &[&str], before: &[Value]) -> Result<Self> {
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
    pub async fn start_with(&mut self, arguments: &[&str]) -> Result<()> {
        self.world.confpin.stop().await?;
        self.world.confpin = confpin(&self.world.cluster, self.port, arguments).await?;
        self.world.confpin.start().await
    }

    /// Ends confpin, and fails if it asked for anything that it may not, or beyond its namespaces.
    pub async fn asked_for_nothing_beyond(&self) -> Result<()> {
        // A watch is in the log when it has ended.
        self.world.confpin.stop().await?;
        let beyond = asked_beyond(&self.world).await?;
        ensure!(beyond.is_empty(), "confpin asked for {beyond:?}");
        Ok(())
    }
}

/// What confpin asked for in no namespace, or in another one than it serves or is installed in.
///
/// # Errors
/// If it was refused anything.
pub async fn asked_beyond(world: &World) -> Result<BTreeSet<String>> {
    world.cluster.audit().mark().await?;
    let mut events = world.cluster.audit().logged()?;
    events.retain(|event| event.user.username == user(NAMESPACE) && event.user_agent.starts_with("confpin/"));
    let refused: Vec<_> = events.iter().filter(|event| event.response_status.code == 403).collect();
    ensure!(refused.is_empty(), "confpin was refused {refused:?}");
    let within = [SERVED[0], SERVED[1], NAMESPACE];
    let objects = events.iter().filter_map(|event| event.object_ref.as_ref());
    let (inside, beyond): (Vec<_>, Vec<_>) = objects.partition(|object| within.contains(&object.namespace.as_str()));
    ensure!(inside.len() > 10, "only {inside:?} is in the audit log");
    Ok(beyond.into_iter().map(|object| format!("{}/{}/{}", object.namespace, object.resource, object.name)).collect())
}

/// confpin as the team's Deployment has it, but for where it runs.
async fn confpin(cluster: &Cluster, port: u16, arguments: &[&str]) -> Result<Confpin> {
    let deployment = Api::<Deployment>::namespaced(cluster.client(), NAMESPACE).get(NAME).await?;
    let template = deployment.spec.and_then(|spec| spec.template.spec);
    let own = template.iter().flat_map(|pod| &pod.containers).flat_map(|container| container.args.iter().flatten());
    let own = own.map(String::as_str).filter(|argument| {
        // The rest is for a pod.
        ["--watch-namespace", "--lease"].iter().any(|option| argument.starts_with(option))
    });
    let namespace = format!("--namespace={}", NAMESPACE);
    let arguments: Vec<_> =
        own.chain([namespace.as_str(), "--identity=the-only-one"]).chain(arguments.iter().copied()).collect();
    let token = cluster.service_account_token(NAMESPACE, NAME).await?;
    let (cert, key) = (cluster.folder().join("confpin.crt"), cluster.folder().join("confpin.key"));
    let confpin = Confpin::new(cluster, &arguments)?.at(port).with_kubeconfig(cluster.kubeconfig_for_token(&token)?);
    Ok(confpin.with_certificate(&cert, &key, "confpin.log"))
}

/// Runs the commands of a part of the documentation, with more arguments.
pub async fn run_part(cluster: &Cluster, part: &str, arguments: &[&str]) -> Result<()> {
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
pub async fn change_webhooks(cluster: &Cluster, mut change: impl FnMut(&mut MutatingWebhook)) -> Result<()> {
    let api: Api<MutatingWebhookConfiguration> = Api::all(cluster.client());
    let mut configuration = api.get(NAME).await?;
    configuration.webhooks.iter_mut().flatten().for_each(&mut change);
    api.replace(NAME, &PostParams::default(), &configuration).await?;
    Ok(())
}
