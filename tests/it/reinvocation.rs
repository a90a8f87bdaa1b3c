//! Another webhook that adds a reference after confpin was asked: an injector of sidecars.

use std::{collections::BTreeSet, net::TcpListener, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use axum::{Json, body::Bytes, response::IntoResponse, response::Response};
use confpin::{
    observe::{health::Health, metrics::Metrics},
    tls::{self, authority::Authority, resolver::Resolver},
    webhook::server::{Handler, Limits, PATH, Server},
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{ByteString, api::admissionregistration::v1::MutatingWebhookConfiguration};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, PostParams},
};
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use testcluster::wait_for;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::support::{SOON, Shop, Workload, World, configmap, deployment, tests};

tests! {
    Shared what_a_later_webhook_adds_is_pinned_with_the_rest,
    Shared a_reference_that_only_a_later_webhook_adds_is_pinned_with_the_next_change,
}

const LIFE: SignedDuration = SignedDuration::from_hours(1);

/// Adds a container that takes its environment from `sidecar-config`, unless it is there.
struct Injector;

impl Handler for Injector {
    async fn review(&self, body: Bytes, _: tokio::time::Instant) -> Response {
        let review: Value = serde_json::from_slice(&body).unwrap_or_default();
        let request = &review["request"];
        let containers = &request["object"]["spec"]["template"]["spec"]["containers"];
        let is_there = containers.as_array().into_iter().flatten().any(|container| container["name"] == "sidecar");
        let mut response = json!({"uid": request["uid"], "allowed": true});
        if !is_there {
            let container = json!({"name": "sidecar", "image": "shop.example/sidecar:1",
                "envFrom": [{"configMapRef": {"name": "sidecar-config"}}]});
            let patch = json!([{"op": "add", "path": "/spec/template/spec/containers/-", "value": container}]);
            response["patchType"] = "JSONPatch".into();
            response["patch"] = json!(ByteString(patch.to_string().into_bytes()));
        }
        let answer = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
        Json(answer).into_response()
    }
}

/// Registers an injector for a namespace, which the API server asks after confpin: in the order of the names.
async fn inject(shop: &Shop<'_>) -> Result<AbortOnDropHandle<()>> {
    let authority = Authority::generate(Timestamp::now(), LIFE)?;
    let leaf = authority.issue(&[ServerName::from(std::net::Ipv4Addr::LOCALHOST)], Timestamp::now(), LIFE)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("https://{}{PATH}", listener.local_addr()?);
    let server = Server {
        tls: Arc::new(tls::server_config(Arc::new(Resolver::new(leaf.certified)), None)?),
        handler: Arc::new(Injector),
        limits: Limits::default(),
        drain: Duration::ZERO,
        health: Health::default(),
        metrics: Metrics::new(),
    };
    let serving = tokio::spawn(async move {
        if let Err(error) = server.run(listener, CancellationToken::new()).await {
            eprintln!("the injector ended: {error}");
        }
    });

    let registration: MutatingWebhookConfiguration = serde_json::from_value(json!({
        "metadata": {"name": format!("injector-{}", shop.name())},
        "webhooks": [{
            "name": "injector.shop.example",
            "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": url, "caBundle": ByteString(authority.ca_pem().into())},
            "failurePolicy": "Fail",
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": shop.name()}},
            "rules": [{"apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"],
                "operations": ["CREATE", "UPDATE"]}],
            "sideEffects": "None",
        }],
    }))?;
    assert!(registration.name_any().as_str() > confpin::pin::webhook_configuration::NAME);
    let registrations: Api<MutatingWebhookConfiguration> = Api::all(shop.world.client.clone());
    registrations.create(&PostParams::default(), &registration).await?;
    wait_for("the API server to ask the injector", SOON, async || {
        let probe = deployment("probe").json();
        let printed = shop.send(["create", "--dry-run=server", "--output=json"], [probe]).run().await?;
        Ok(printed.contains("sidecar-config").then_some(()))
    })
    .await?;
    Ok(AbortOnDropHandle::new(serving))
}

/// Takes the registration away, after which the server may end.
async fn end(shop: &Shop<'_>, injector: AbortOnDropHandle<()>) -> Result<()> {
    let registrations: Api<MutatingWebhookConfiguration> = Api::all(shop.world.client.clone());
    registrations.delete(&format!("injector-{}", shop.name()), &DeleteParams::default()).await?;
    drop(injector);
    Ok(())
}

/// The values of the snapshots that a workload names, by source.
async fn values(web: &Workload<'_>) -> Result<BTreeSet<(String, String)>> {
    let mut values = BTreeSet::new();
    for name in web.names().await? {
        let snapshot = web.shop.configmap(&name).await?;
        let source = snapshot.annotations().get("confpin.dev/source").context("it is no snapshot")?.clone();
        values.insert((source, snapshot.data.unwrap_or_default().remove("value").unwrap_or_default()));
    }
    Ok(values)
}

fn expected(app: &str, sidecar: &str) -> BTreeSet<(String, String)> {
    [("app-config", app), ("sidecar-config", sidecar)].map(|(source, value)| (source.into(), value.into())).into()
}

async fn what_a_later_webhook_adds_is_pinned_with_the_rest(world: &World) -> Result<()> {
    let shop = world.shop("injected").await?;
    let injector = inject(&shop).await?;
    let web = shop.deployment("web");
    let manifest = |image: &str| deployment("web").uses("app-config").image(image).replicas(0).json();
    shop.apply([configmap("app-config", "a1"), configmap("sidecar-config", "s1"), manifest("web:1")]).await?;
    assert_eq!(values(&web).await?, expected("a1", "s1"));
    let record = web.object().await?.annotations().get("confpin.dev/record").cloned().context("it has a record")?;
    assert!(["app-config", "sidecar-config"].iter().all(|source| record.contains(source)), "{record}");
    web.wait_rolled_out().await?;
    shop.wait_owned().await?;
    assert_eq!(shop.snapshots().await?.len(), 2);

    let generation = web.generation().await?;
    shop.apply([manifest("web:1")]).await?;
    assert_eq!(web.generation().await?, generation);

    // Only what was injected changes.
    shop.apply([configmap("sidecar-config", "s2"), manifest("web:2")]).await?;
    assert_eq!(values(&web).await?, expected("a1", "s2"));
    web.wait_rolled_out().await?;
    shop.run("rollout undo deployment/web").await?;
    web.wait_rolled_out().await?;
    assert_eq!(values(&web).await?, expected("a1", "s1"));
    assert_eq!(web.replica_sets().await?.len(), 2);
    shop.wait_owned().await?;
    end(&shop, injector).await
}

/// An API server asks again only whom it has asked before, and nobody asks confpin about a workload that names no
/// ConfigMap (`ShouldReinvokeWebhook` of the API server).
async fn a_reference_that_only_a_later_webhook_adds_is_pinned_with_the_next_change(world: &World) -> Result<()> {
    let shop = world.shop("injected-only").await?;
    let injector = inject(&shop).await?;
    let web = shop.deployment("web");
    shop.apply([configmap("sidecar-config", "s1"), deployment("web").replicas(0).json()]).await?;
    assert_eq!(web.names().await?, BTreeSet::from(["sidecar-config".to_owned()]));
    shop.run("set image deployment/web main=shop.example/web:2").await?;
    assert_eq!(values(&web).await?, BTreeSet::from([("sidecar-config".to_owned(), "s1".to_owned())]));
    end(&shop, injector).await
}
