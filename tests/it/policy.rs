//! What somebody with confpin's token can do: what confpin does, and no more. The requests are dry runs, which policies
//! judge like any other.

use anyhow::{Context, Result, bail};
use k8s_openapi::{
    ByteString,
    api::{
        admissionregistration::v1::MutatingWebhookConfiguration,
        coordination::v1::Lease,
        core::v1::{ConfigMap, Secret},
    },
};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use serde_json::{Value, json};
use testcluster::wait_for;

use crate::support::{Kind, SOON, Shop, World, configmap, deployment, manifest, rights, tests};

tests! {
    Shared a_stolen_token_cannot_touch_a_configmap_that_is_no_snapshot,
    Shared a_stolen_token_creates_nothing_but_snapshots,
    Shared of_a_snapshot_only_owners_and_claims_change,
    Shared of_a_deployment_only_annotations_of_confpin_change,
    Shared of_a_rollout_only_annotations_of_confpin_change,
    Shared where_nothing_is_pinned_not_even_names_of_configmaps_change,
    Shared a_large_template_is_refreshed_within_the_cost_of_a_policy,
    Shared a_stolen_token_writes_no_secret_and_no_lease_but_confpins,
    Shared a_stolen_token_changes_nothing_of_the_webhook_but_its_ca,
}

const DRY_RUN: PostParams = PostParams { dry_run: true, field_manager: None };

/// What makes a snapshot another object.
type Change = fn(&mut ConfigMap);

/// Whoever has confpin's token.
struct Thief(Client);

impl Thief {
    async fn of(world: &World) -> Result<Self> {
        Ok(Self(rights::client(world.confpin.kubeconfig()).await?))
    }

    fn configmaps(&self, shop: &Shop<'_>) -> Api<ConfigMap> {
        Api::namespaced(self.0.clone(), shop.name())
    }

    fn workloads(&self, shop: &Shop<'_>, kind: Kind) -> Api<DynamicObject> {
        let kind = match kind {
            Kind::Deployment => GroupVersionKind::gvk("apps", "v1", "Deployment"),
            Kind::Rollout => GroupVersionKind::gvk("argoproj.io", "v1alpha1", "Rollout"),
        };
        Api::namespaced_with(self.0.clone(), shop.name(), &ApiResource::from_gvk(&kind))
    }
}

/// Whether a policy let a request pass.
fn passed<T>(result: kube::Result<T>) -> Result<bool> {
    match result {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.message.contains("ValidatingAdmissionPolicy 'confpin-") => Ok(false),
        Err(error) => Err(error).context("it was not a policy that refused"),
    }
}

/// Waits until a request is refused: a policy that was just made comes into force a moment later.
async fn refused<T>(what: &str, request: impl AsyncFn() -> kube::Result<T>) -> Result<()> {
    wait_for(&format!("{what} to be refused"), SOON, async || Ok((!passed(request().await)?).then_some(()))).await
}

async fn patch<K>(api: &Api<K>, name: &str, operations: &Value) -> kube::Result<K>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let patch: Patch<()> = Patch::Json(serde_json::from_value(operations.clone()).map_err(kube::Error::SerdeError)?);
    api.patch(name, &PatchParams { dry_run: true, ..PatchParams::default() }, &patch).await
}

/// A pinned Deployment `web`, and the name of its snapshot.
async fn pinned(shop: &Shop<'_>) -> Result<String> {
    shop.apply([configmap("app-config", "v1"), deployment("web").uses("app-config").json()]).await?;
    shop.wait_owned().await?;
    shop.deployment("web").name().await
}

async fn a_stolen_token_cannot_touch_a_configmap_that_is_no_snapshot(world: &World) -> Result<()> {
    let (shop, thief) = (world.shop("stolen").await?, Thief::of(world).await?);
    pinned(&shop).await?;
    let api = thief.configmaps(&shop);
    let marks = json!([
        {"op": "add", "path": "/metadata/labels", "value": {"confpin.dev/snapshot": "true"}},
        {"op": "add", "path": "/metadata/annotations", "value": {
            "confpin.dev/source": "app", "confpin.dev/content-hash": "0".repeat(64)}},
    ]);
    let value = json!([{"op": "replace", "path": "/data/value", "value": "evil"}]);
    for (what, operations) in [("a change of a source", value), ("a source that is made a snapshot", marks)] {
        refused(what, async || patch(&api, "app-config", &operations).await).await?;
    }
    for name in ["app-config", "kube-root-ca.crt"] {
        refused(&format!("the deletion of {name}"), async || {
            api.delete(name, &DeleteParams::default().dry_run()).await.map(|_| ())
        })
        .await?;
    }
    Ok(())
}

async fn a_stolen_token_creates_nothing_but_snapshots(world: &World) -> Result<()> {
    let (shop, thief) = (world.shop("stolen").await?, Thief::of(world).await?);
    let snapshot = shop.configmap(&pinned(&shop).await?).await?;
    let api = thief.configmaps(&shop);
    // As confpin makes it, in a name that is free.
    let hash = snapshot.annotations().get("confpin.dev/content-hash").context("a snapshot has it")?;
    let mut genuine = snapshot.clone();
    genuine.metadata = <_>::default();
    genuine.metadata.name = Some(format!("app-config-{}", &hash[..16]));
    genuine.metadata.labels = snapshot.metadata.labels.clone();
    genuine.metadata.annotations = snapshot.metadata.annotations.clone();
    assert!(passed(api.create(&DRY_RUN, &genuine).await)?, "a snapshot was refused");

    let changes: [(&str, Change); 7] = [
        ("one without the label", |it| it.metadata.labels = None),
        ("one that can be changed", |it| it.immutable = None),
        ("one of another name", |it| it.metadata.name = Some("aws-auth".into())),
        ("one without annotations", |it| it.metadata.annotations = None),
        ("one with a foreign label", |it| {
            it.labels_mut().insert("app.kubernetes.io/instance".into(), "x".into());
        }),
        ("one with a foreign annotation", |it| {
            it.annotations_mut().insert("example.com/reload".into(), "x".into());
        }),
        ("one with a finalizer", |it| it.finalizers_mut().push("example.com/hold".into())),
    ];
    for (what, change) in changes {
        let mut forged = genuine.clone();
        change(&mut forged);
        refused(what, async || api.create(&DRY_RUN, &forged).await).await?;
    }
    Ok(())
}

async fn of_a_snapshot_only_owners_and_claims_change(world: &World) -> Result<()> {
    let (shop, thief) = (world.shop("stolen").await?, Thief::of(world).await?);
    let name = pinned(&shop).await?;
    let api = thief.configmaps(&shop);
    let owner = |kind: &str, controller: bool| {
        let version = if kind == "ReplicaSet" { "apps/v1" } else { "v1" };
        let owner = json!({"apiVersion": version, "kind": kind, "name": "x", "uid": "y", "controller": controller});
        json!([{"op": "add", "path": "/metadata/ownerReferences/-", "value": owner}])
    };
    let annotation = |key: &str| {
        let path = format!("/metadata/annotations/{}", key.replace('/', "~1"));
        json!([{"op": "add", "path": path, "value": "x"}])
    };
    for operations in [
        owner("ReplicaSet", false),
        annotation("claims.confpin.dev/x-1"),
        json!([{"op": "remove", "path": "/metadata/ownerReferences"}]),
    ] {
        assert!(passed(patch(&api, &name, &operations).await)?, "{operations}");
    }
    for (what, operations) in [
        ("an owner that is no ReplicaSet", owner("Pod", false)),
        ("an owner that controls it", owner("ReplicaSet", true)),
        ("another source", annotation("confpin.dev/source")),
        ("a foreign annotation", annotation("example.com/x")),
        ("another label", json!([{"op": "add", "path": "/metadata/labels/x", "value": "y"}])),
        ("the label's removal", json!([{"op": "remove", "path": "/metadata/labels"}])),
        ("a finalizer", json!([{"op": "add", "path": "/metadata/finalizers", "value": ["example.com/hold"]}])),
    ] {
        refused(what, async || patch(&api, &name, &operations).await).await?;
    }
    assert!(passed(api.delete(&name, &DeleteParams::default().dry_run()).await)?);
    Ok(())
}

async fn of_a_deployment_only_annotations_of_confpin_change(world: &World) -> Result<()> {
    only_annotations_of_confpin_change(world, Kind::Deployment).await
}

async fn of_a_rollout_only_annotations_of_confpin_change(world: &World) -> Result<()> {
    only_annotations_of_confpin_change(world, Kind::Rollout).await
}

/// A workload whose template has all sorts of references to `app-config`.
fn all_sorts(kind: Kind) -> Value {
    manifest::workload(kind, "web")
        .uses("app-config")
        .env_from("app-config")
        .with_pod(|pod| {
            let projected = json!({"sources": [
                {"configMap": {"name": "app-config"}},
                {"serviceAccountToken": {"path": "token"}},
            ]});
            let volumes = pod["volumes"].as_array_mut().into_iter();
            volumes.for_each(|volumes| volumes.push(json!({"name": "all", "projected": projected})));
            pod["containers"][0]["env"] = json!([
                {"name": "PLAIN", "value": "x"},
                {"name": "VALUE", "valueFrom": {"configMapKeyRef": {"name": "app-config", "key": "value"}}},
            ]);
        })
        .with(|object| object["metadata"]["annotations"]["example.com/note"] = "x".into())
        .json()
}

async fn only_annotations_of_confpin_change(world: &World, kind: Kind) -> Result<()> {
    let (shop, thief) = (world.shop("stolen").await?, Thief::of(world).await?);
    shop.apply([configmap("app-config", "v1"), all_sorts(kind)]).await?;
    let api = thief.workloads(&shop, kind);
    let refresh = json!([{"op": "add", "path": "/metadata/annotations/confpin.dev~1refresh", "value": "x"}]);
    let before = shop.workload(kind, "web").names().await?;
    assert!(passed(patch(&api, "web", &refresh).await)?);
    // What the webhook makes of it where the source has changed: each place has another name.
    shop.apply([configmap("app-config", "v2")]).await?;
    let refreshed = patch(&api, "web", &refresh).await.context("a refresh was refused")?;
    let after = crate::support::configmaps::names(&refreshed.data["spec"]["template"]);
    assert!(before.is_disjoint(&after) && after.len() == 1, "{before:?} became {after:?}");

    let pod = |path: &str| format!("/spec/template/spec/{path}");
    let container = |path: &str| pod(&format!("containers/0/{path}"));
    for (path, value) in [
        ("/spec/replicas".to_owned(), json!(0)),
        ("/spec/template/metadata/labels/x".to_owned(), json!("y")),
        (pod("hostNetwork"), json!(true)),
        (pod("serviceAccountName"), json!("admin")),
        (pod("containers/-"), json!({"name": "more", "image": "evil"})),
        (pod("initContainers"), json!([{"name": "more", "image": "evil"}])),
        (pod("volumes/-"), json!({"name": "more", "hostPath": {"path": "/"}})),
        (pod("volumes/0/configMap/optional"), json!(true)),
        (pod("volumes/1/projected/sources/1/serviceAccountToken/path"), json!("other")),
        (container("image"), json!("evil")),
        (container("command"), json!(["evil"])),
        (container("env/0/value"), json!("evil")),
        (container("env/1/valueFrom/configMapKeyRef/key"), json!("other")),
        (container("env/1/valueFrom"), json!({"secretKeyRef": {"name": "s", "key": "k"}})),
        (container("envFrom/0"), json!({"secretRef": {"name": "s"}})),
        ("/metadata/labels".to_owned(), json!({"x": "y"})),
        ("/metadata/annotations/example.com~1note".to_owned(), json!("y")),
        ("/metadata/annotations/example.com~1more".to_owned(), json!("y")),
        ("/metadata/finalizers".to_owned(), json!(["example.com/hold"])),
    ] {
        let operations = json!([{"op": "add", "path": path, "value": value}]);
        refused(&path, async || patch(&api, "web", &operations).await).await?;
    }
    Ok(())
}

async fn where_nothing_is_pinned_not_even_names_of_configmaps_change(world: &World) -> Result<()> {
    let (shop, thief) = (world.unlabelled_shop("stolen").await?, Thief::of(world).await?);
    for kind in [Kind::Deployment, Kind::Rollout] {
        shop.apply([configmap("app-config", "v1"), all_sorts(kind)]).await?;
        let name = json!([{"op": "replace", "path": "/spec/template/spec/volumes/0/configMap/name", "value": "evil"}]);
        refused("another name", async || patch(&thief.workloads(&shop, kind), "web", &name).await).await?;
    }
    Ok(())
}

async fn a_large_template_is_refreshed_within_the_cost_of_a_policy(world: &World) -> Result<()> {
    let (shop, thief) = (world.shop("large").await?, Thief::of(world).await?);
    let env: Vec<_> = (0..200)
        .map(|index| json!({"name": format!("E{index}"), "valueFrom": {"configMapKeyRef": {"name": "app-config", "key": "value"}}}))
        .collect();
    let volumes: Vec<_> =
        (0..256).map(|index| json!({"name": format!("v{index}"), "configMap": {"name": "app-config"}})).collect();
    let web = deployment("web").with_pod(|pod| {
        let image = pod["containers"][0]["image"].clone();
        pod["volumes"] = json!(volumes);
        pod["containers"] =
            (0..5).map(|index| json!({"name": format!("c{index}"), "image": image, "env": env})).collect();
    });
    shop.apply([configmap("app-config", "v1"), web.json()]).await?;
    let before = shop.deployment("web").name().await?;
    shop.apply([configmap("app-config", "v2")]).await?;
    let refresh = json!([{"op": "add", "path": "/metadata/annotations/confpin.dev~1refresh", "value": "x"}]);
    let refreshed = patch(&thief.workloads(&shop, Kind::Deployment), "web", &refresh).await?;
    let names = crate::support::configmaps::names(&refreshed.data["spec"]["template"]);
    assert!(names.len() == 1 && !names.contains(&before), "{before} became {names:?}");
    Ok(())
}

async fn a_stolen_token_writes_no_secret_and_no_lease_but_confpins(world: &World) -> Result<()> {
    let thief = Thief::of(world).await?;
    let secrets: Api<Secret> = Api::namespaced(thief.0.clone(), "confpin-system");
    let secret = |name: &str, of: &str| -> Result<Secret> {
        let account = json!({"kubernetes.io/service-account.name": "default"});
        Ok(serde_json::from_value(json!({"metadata": {"name": name, "annotations": account}, "type": of}))?)
    };
    let leases: Api<Lease> = Api::namespaced(thief.0.clone(), "confpin-system");
    let lease = |name: &str| -> Result<Lease> { Ok(serde_json::from_value(json!({"metadata": {"name": name}}))?) };
    assert!(passed(secrets.create(&DRY_RUN, &secret("confpin-ca", "Opaque")?).await)?);
    assert!(passed(leases.create(&DRY_RUN, &lease("confpin")?).await)?);

    let (other, token) = (secret("other", "Opaque")?, secret("confpin-ca", "kubernetes.io/service-account-token")?);
    refused("another Secret", async || secrets.create(&DRY_RUN, &other).await).await?;
    refused("a Secret that gets a token", async || secrets.create(&DRY_RUN, &token).await).await?;
    let other = lease("other")?;
    refused("another Lease", async || leases.create(&DRY_RUN, &other).await).await?;
    // Elsewhere it has no right at all.
    let elsewhere: Api<Secret> = Api::namespaced(thief.0.clone(), "default");
    match elsewhere.create(&DRY_RUN, &secret("confpin-ca", "Opaque")?).await {
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(()),
        other => bail!("{other:?}"),
    }
}

async fn a_stolen_token_changes_nothing_of_the_webhook_but_its_ca(world: &World) -> Result<()> {
    let thief = Thief::of(world).await?;
    let api: Api<MutatingWebhookConfiguration> = Api::all(thief.0.clone());
    let webhook = serde_json::to_value(world_webhook(world).await?)?["webhooks"][0].clone();
    let mut more = webhook.clone();
    more["name"] = "more.confpin.dev".into();
    let (client, bundle) = ("/webhooks/0/clientConfig", webhook["clientConfig"]["caBundle"].clone());
    let other = world.cluster.ca_pem().as_bytes().to_vec();
    let other = json!([{"op": "replace", "path": format!("{client}/caBundle"), "value": ByteString(other)}]);
    assert!(passed(patch(&api, "confpin", &other).await)?);

    let elsewhere = json!({"url": "https://127.0.0.1:1/mutate", "caBundle": bundle});
    for (path, value) in [
        (client, elsewhere),
        ("/webhooks/0/rules/0/resources", json!(["*"])),
        ("/webhooks/0/namespaceSelector", json!({})),
        ("/webhooks/0/matchConditions", json!([])),
        ("/webhooks/0/failurePolicy", json!("Ignore")),
        ("/webhooks/-", more),
        ("/metadata/annotations", json!({"cert-manager.io/inject-ca-from": "a/b"})),
        ("/metadata/labels", json!({"x": "y"})),
    ] {
        let operations = json!([{"op": "add", "path": path, "value": value}]);
        refused(path, async || patch(&api, "confpin", &operations).await).await?;
    }
    let removed = json!([{"op": "remove", "path": "/webhooks/0"}]);
    refused("the removal of a webhook", async || patch(&api, "confpin", &removed).await).await
}

async fn world_webhook(world: &World) -> Result<MutatingWebhookConfiguration> {
    Ok(Api::all(world.client.clone()).get("confpin").await?)
}
