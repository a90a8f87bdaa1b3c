//! Snapshots that somebody deleted, or took the owners from: made again and owned again, or told.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::{
    ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use testcluster::wait_for;

use crate::support::{Kind, SOON, Shop, World, configmap, manifest, shop::owner_names, tests};

tests! {
    Shared a_deleted_snapshot_comes_back_and_an_event_tells,
    Shared a_snapshot_whose_content_is_gone_is_told_and_a_restart_cures_it,
    Shared a_lost_snapshot_of_an_old_revision_is_told_and_stops_nothing,
    Shared owner_references_that_were_taken_away_come_back,
    Shared a_restore_of_everything_under_new_uids_is_owned_again,
    Shared a_snapshot_that_is_deleted_again_and_again_comes_back_each_time,
    Shared a_snapshot_whose_recreation_fails_comes_back_once_it_can,
    Shared what_is_deleted_in_the_foreground_is_not_healed,
    Shared a_workload_that_is_deleted_in_the_foreground_and_applied_again_is_not_healed,
}

/// A workload that has been rolled out with each of the values.
async fn rolled_out(shop: &Shop<'_>, kind: Kind, values: &[&str]) -> Result<()> {
    for value in values {
        let objects = [configmap("app-config", value), manifest::workload(kind, "web").uses("app-config").json()];
        shop.apply(objects).await?;
        shop.workload(kind, "web").wait_rolled_out().await?;
    }
    shop.wait_owned().await
}

async fn a_deleted_snapshot_comes_back_and_an_event_tells(world: &World) -> Result<()> {
    for kind in [Kind::Deployment, Kind::Rollout] {
        let shop = world.shop("healed").await?;
        rolled_out(&shop, kind, &["v1"]).await?;
        let web = shop.workload(kind, "web");
        let (name, generation) = (web.name().await?, web.generation().await?);
        let before = shop.configmap(&name).await?;
        shop.run(&format!("delete configmap {name}")).await?;
        let event = web.wait_event("Healed", &name).await?;
        assert_eq!(event.type_.as_deref(), Some("Normal"));

        let after = shop.configmap(&name).await?;
        assert_ne!(after.uid(), before.uid());
        assert_eq!((&after.data, &after.immutable, after.labels()), (&before.data, &before.immutable, before.labels()));
        shop.wait_owned().await?;
        assert_eq!(web.generation().await?, generation, "it was rolled");
    }
    Ok(())
}

async fn a_snapshot_whose_content_is_gone_is_told_and_a_restart_cures_it(world: &World) -> Result<()> {
    for kind in [Kind::Deployment, Kind::Rollout] {
        let shop = world.shop("lost").await?;
        rolled_out(&shop, kind, &["v1"]).await?;
        let web = shop.workload(kind, "web");
        let lost = web.name().await?;
        shop.apply([configmap("app-config", "v2")]).await?;
        shop.run(&format!("delete configmap {lost}")).await?;
        let event = web.wait_event("SnapshotLost", &lost).await?;
        assert_eq!(event.type_.as_deref(), Some("Warning"));
        assert!(event.message.as_ref().is_some_and(|text| text.contains("rollout restart")), "{:?}", event.message);
        assert!(shop.snapshots().await?.is_empty(), "another content has the name");

        match kind {
            Kind::Deployment => drop(shop.run("rollout restart deployment/web").await?),
            Kind::Rollout => web.patch(&restart()).await?,
        }
        assert_eq!(web.value().await?, "v2");
        web.wait_rolled_out().await?;
    }
    Ok(())
}

/// A change of the template that is no other than a restart: that of Rollouts leaves the template alone.
fn restart() -> Value {
    json!({"spec": {"template": {"metadata": {"annotations": {"restarted": "now"}}}}})
}

async fn a_lost_snapshot_of_an_old_revision_is_told_and_stops_nothing(world: &World) -> Result<()> {
    let shop = world.shop("history").await?;
    let web = shop.deployment("web");
    rolled_out(&shop, Kind::Deployment, &["v1"]).await?;
    let lost = web.name().await?;
    rolled_out(&shop, Kind::Deployment, &["v2"]).await?;
    shop.run(&format!("delete configmap {lost}")).await?;
    web.wait_event("SnapshotLost", &lost).await?;

    // An undo brings back a template whose pods cannot start; the client is told so. Back is possible at once.
    let undo = shop.kubectl(["rollout", "undo", "deployment/web"]).run_any().await?;
    let told = String::from_utf8_lossy(&undo.stderr);
    assert!(undo.status.success() && told.contains("was deleted and its content is gone"), "{told}");
    assert_eq!(web.name().await?, lost);
    shop.run("rollout undo deployment/web").await?;
    web.wait_rolled_out().await?;
    assert_eq!(web.value().await?, "v2");

    // As soon as the source has that content again, so has the undo.
    shop.apply([configmap("app-config", "v1")]).await?;
    shop.run("rollout undo deployment/web").await?;
    web.wait_rolled_out().await?;
    assert_eq!((web.name().await?, web.value().await?), (lost, "v1".into()));
    shop.wait_owned().await
}

/// Of the current revision's snapshot and of an old one's.
async fn owner_references_that_were_taken_away_come_back(world: &World) -> Result<()> {
    for kind in [Kind::Deployment, Kind::Rollout] {
        let shop = world.shop("stripped").await?;
        rolled_out(&shop, kind, &["v1", "v2"]).await?;
        let version = shop.workload(kind, "web").version().await?;
        let before = shop.snapshots().await?;
        assert_eq!(before.len(), 2);
        for name in before.keys() {
            let patch = json!({"metadata": {"ownerReferences": null}});
            let after = shop.api::<ConfigMap>().patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
            assert_eq!(owner_names(&after), Vec::<String>::new());
        }
        shop.wait_owned().await?;
        for (name, before) in before {
            assert_eq!(shop.configmap(&name).await?.uid(), before.uid(), "{name}");
        }
        assert_eq!(shop.workload(kind, "web").version().await?, version);
    }
    Ok(())
}

/// As Velero restores: into another namespace, kind by kind, ConfigMaps first, without owner references and status.
async fn a_restore_of_everything_under_new_uids_is_owned_again(world: &World) -> Result<()> {
    let backed_up = world.shop("backup").await?;
    rolled_out(&backed_up, Kind::Deployment, &["v1", "v2"]).await?;
    let mut kinds = Vec::new();
    for kind in ["configmaps", "replicasets", "deployments"] {
        let printed = backed_up.run(&format!("get {kind} --output=json")).await?;
        let list: Value = serde_json::from_str(&printed)?;
        let objects = list["items"].as_array().context("a list")?.iter().filter(|object| is_ours(object));
        kinds.push(objects.cloned().map(without_identity).collect::<Vec<_>>());
    }

    let shop = world.shop("restored").await?;
    for objects in kinds {
        shop.send(["create"], objects).run().await?;
    }
    let (web, before) = (shop.deployment("web"), backed_up.deployment("web"));
    web.wait_rolled_out().await?;
    shop.wait_owned().await?;
    assert_eq!(web.template().await?, before.template().await?);
    assert_eq!(web.replica_sets().await?.len(), 2);
    let names = async |shop: &Shop<'_>| Ok::<_, anyhow::Error>(shop.snapshots().await?.into_keys().collect::<Vec<_>>());
    assert_eq!(names(&shop).await?, names(&backed_up).await?);
    for (name, snapshot) in shop.snapshots().await? {
        assert_eq!(snapshot.data, backed_up.configmap(&name).await?.data);
    }

    shop.run("rollout undo deployment/web").await?;
    web.wait_rolled_out().await?;
    assert_eq!(web.value().await?, "v1");
    wait_for("no third revision", SOON, async || Ok((web.replica_sets().await?.len() == 2).then_some(()))).await?;
    shop.wait_owned().await
}

async fn wait_back(shop: &Shop<'_>, name: &str, before: Option<String>) -> Result<()> {
    wait_for(&format!("{name} to be back"), SOON, async || {
        let found = shop.api::<ConfigMap>().get_opt(name).await?;
        Ok(found.filter(|found| found.uid() != before).map(drop))
    })
    .await
}

async fn a_snapshot_that_is_deleted_again_and_again_comes_back_each_time(world: &World) -> Result<()> {
    let shop = world.shop("again").await?;
    rolled_out(&shop, Kind::Deployment, &["v1"]).await?;
    let name = shop.deployment("web").name().await?;
    for _ in 0..3 {
        let before = shop.configmap(&name).await?.uid();
        shop.run(&format!("delete configmap {name}")).await?;
        wait_back(&shop, &name, before).await?;
    }
    shop.wait_owned().await
}

/// A quota stands for every reason for which a creation can fail for a while.
async fn a_snapshot_whose_recreation_fails_comes_back_once_it_can(world: &World) -> Result<()> {
    let shop = world.shop("quota").await?;
    rolled_out(&shop, Kind::Deployment, &["v1"]).await?;
    let name = shop.deployment("web").name().await?;
    shop.set_quota("count/configmaps", 1).await?;
    let mark = shop.mark().await?;
    shop.run(&format!("delete configmap {name}")).await?;
    wait_for("the creation to be rejected", SOON, async || {
        let writes = shop.since(&mark).await?.writes();
        let is_rejected = |write: &String| write.starts_with("create configmaps/") && write.ends_with(": 403");
        Ok(writes.iter().any(is_rejected).then_some(()))
    })
    .await?;
    shop.run("delete resourcequota few").await?;
    wait_back(&shop, &name, None).await?;
    shop.wait_owned().await
}

/// A finalizer keeps the pods, as if they took long to stop: Kubernetes deletes the snapshots while the Deployment, its
/// ReplicaSets and its pods are still there.
async fn what_is_deleted_in_the_foreground_is_not_healed(world: &World) -> Result<()> {
    let shop = world.shop("foreground").await?;
    let slow = manifest::workload(Kind::Deployment, "slow").uses("app-config").with(|object| {
        object["spec"]["template"]["metadata"]["finalizers"] = json!(["test.example/slow"]);
    });
    let mut snapshots = Vec::new();
    for value in ["v1", "v2"] {
        shop.apply([configmap("app-config", value), slow.json()]).await?;
        wait_for("the pods to run", SOON, async || {
            let ready = shop.deployment("slow").data().await?["status"]["updatedReplicas"].as_i64();
            Ok((ready == Some(1)).then_some(()))
        })
        .await?;
        snapshots.push(shop.deployment("slow").name().await?);
    }
    shop.wait_owned().await?;
    let mark = shop.mark().await?;
    shop.run("delete deployment slow --cascade=foreground --wait=false").await?;
    wait_for("the snapshots to be deleted", SOON, async || Ok(shop.snapshots().await?.is_empty().then_some(())))
        .await?;
    assert!(shop.deployment("slow").exists().await?, "the pods are not slow");

    // Whatever confpin does for what was deleted before, it does for this one too.
    let witness = manifest::workload(Kind::Deployment, "web").uses("app-config").replicas(0);
    shop.apply([witness.json()]).await?;
    let web = shop.deployment("web");
    web.wait_rolled_out().await?;
    let name = web.name().await?;
    let healed = shop.configmap(&name).await?.uid();
    wait_for("the witness to be owned", SOON, async || {
        Ok((!owner_names(&shop.configmap(&name).await?).is_empty()).then_some(()))
    })
    .await?;
    shop.run(&format!("delete configmap {name}")).await?;
    web.wait_event("Healed", &name).await?;
    wait_back(&shop, &name, healed).await?;

    let made = shop.since(&mark).await?.writes();
    let of_the_deleted = made.iter().filter(|write| write.starts_with(&format!("create configmaps/{}", snapshots[0])));
    assert_eq!(of_the_deleted.count(), 0, "{made:?}");
    assert!(!shop.has_event("slow", "Healed").await? && !shop.has_event("slow", "SnapshotLost").await?);
    finish_pods(&shop).await?;
    wait_for("the Deployment to be gone", SOON, async || Ok((!shop.deployment("slow").exists().await?).then_some(())))
        .await?;
    shop.run("delete deployment web --cascade=foreground").await?;
    wait_for("nothing to be left", SOON, async || Ok(shop.snapshots().await?.is_empty().then_some(()))).await
}

/// Takes the finalizer from all pods.
async fn finish_pods(shop: &Shop<'_>) -> Result<()> {
    let pods = shop.api::<Pod>();
    for pod in pods.list(&ListParams::default()).await? {
        let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        pods.patch(&pod.name_any(), &PatchParams::default(), &patch).await?;
    }
    Ok(())
}

async fn a_workload_that_is_deleted_in_the_foreground_and_applied_again_is_not_healed(world: &World) -> Result<()> {
    const ROUNDS: usize = 20;
    let shop = world.shop("reapplied").await?;
    for _ in 0..ROUNDS {
        rolled_out(&shop, Kind::Deployment, &["v1"]).await?;
        shop.run("delete deployment web --cascade=foreground").await?;
    }
    rolled_out(&shop, Kind::Deployment, &["v1"]).await?;
    assert!(!shop.has_event("web", "Healed").await? && !shop.has_event("web", "SnapshotLost").await?);
    Ok(())
}

fn is_ours(object: &Value) -> bool {
    object["metadata"]["name"] != "kube-root-ca.crt"
}

fn without_identity(mut object: Value) -> Value {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for field in ["uid", "resourceVersion", "namespace", "ownerReferences", "creationTimestamp", "managedFields"] {
            metadata.remove(field);
        }
    }
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    object
}
