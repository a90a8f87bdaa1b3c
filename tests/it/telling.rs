//! What people are told: Events on the workload, provenance on the snapshot, metrics; and what happens by
//! `--on-error=admit`.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Event;
use kube::{ResourceExt, api::ListParams};
use serde_json::json;
use testcluster::{Cluster, wait_for};

use crate::support::{Kind, SOON, Shop, Workload, World, configmap, deployment, manifest, tests, workload::only};

tests! {
    Shared the_events_of_a_workload_tell_its_story,
    Shared the_audit_log_says_what_became_of_each_name,
    Shared a_refusal_is_told_by_an_event_a_metric_and_the_audit_log,
    Shared a_snapshot_tells_where_it_came_from,
    Own on_error_admit_lets_the_whole_workload_in_unpinned,
}

/// Waits for an Event of confpin on an object: its reason, and a part of its note.
async fn wait_event(shop: &Shop<'_>, kind: Kind, name: &str, reason: &str, note: &str) -> Result<()> {
    wait_for(&format!("the Event {reason} on {kind:?} {name}"), SOON, async || {
        let events = shop.api::<Event>().list(&ListParams::default()).await?.items;
        let on_it = events.iter().filter(|event| {
            let object = &event.involved_object;
            object.kind.as_deref() == Some(&format!("{kind:?}")) && object.name.as_deref() == Some(name)
        });
        let told: Vec<_> = on_it.map(|event| (event.reason.clone(), event.message.clone())).collect();
        let found = told.iter().any(|(found, message)| {
            found.as_deref() == Some(reason) && message.as_ref().is_some_and(|message| message.contains(note))
        });
        ensure!(found, "it has {told:?}");
        Ok(Some(()))
    })
    .await
}

async fn the_events_of_a_workload_tell_its_story(world: &World) -> Result<()> {
    let shop = world.shop("events").await?;
    for kind in [Kind::Deployment, Kind::Rollout] {
        let (web, manifest) = (shop.workload(kind, "web"), manifest::workload(kind, "web").uses("app-config").json());
        shop.apply([manifest.clone()]).await?;
        wait_event(&shop, kind, "web", "SourceMissing", "app-config").await?;
        shop.apply([configmap("app-config", "v1"), manifest.clone()]).await?;
        wait_event(&shop, kind, "web", "Pinned", &web.name().await?).await?;
        web.wait_rolled_out().await?;
        shop.apply([configmap("app-config", "v2"), manifest]).await?;
        wait_event(&shop, kind, "web", "Refreshed", &web.name().await?).await?;
        web.wait_rolled_out().await?;
        if kind == Kind::Deployment {
            shop.run("rollout undo deployment/web --to-revision=2").await?;
            wait_event(&shop, kind, "web", "Kept", &web.name().await?).await?;
        }
        shop.run("delete configmap/app-config").await?;
    }
    Ok(())
}

/// What confpin noted in the audit log about a workload while something was done.
async fn noted<T>(web: &Workload<'_>, done: impl Future<Output = Result<T>>) -> Result<BTreeMap<String, String>> {
    let mark = web.shop.mark().await?;
    done.await?;
    web.shop.since(&mark).await?.noted(web.kind)
}

async fn the_audit_log_says_what_became_of_each_name(world: &World) -> Result<()> {
    let shop = world.shop("audit").await?;
    // All that is noted, so no content is.
    let expected = |noted: &[(&str, &str)]| -> BTreeMap<String, String> {
        noted.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect()
    };
    for kind in [Kind::Deployment, Kind::Rollout] {
        let early = shop.workload(kind, "early");
        let missing = shop.apply([manifest::workload(kind, "early").uses("late").json()]);
        assert_eq!(noted(&early, missing).await?, expected(&[("outcome", "source-missing")]), "{early}");

        let (web, manifest) = (shop.workload(kind, "web"), manifest::workload(kind, "web").uses("app-config").json());
        let pinned = noted(&web, shop.apply([configmap("app-config", "v1"), manifest])).await?;
        let first = web.name().await?;
        let names = format!("app-config -> {first}");
        assert_eq!(pinned, expected(&[("outcome", "pinned"), ("names", &names)]), "{web}");
        web.wait_rolled_out().await?;

        shop.apply([configmap("app-config", "v2")]).await?;
        let touch = json!({"spec": {"template": {"metadata": {"annotations": {"touched": "yes"}}}}});
        let refreshed = noted(&web, web.patch(&touch)).await?;
        let names = format!("{first} -> {}", web.name().await?);
        assert_eq!(refreshed, expected(&[("outcome", "refreshed"), ("names", &names)]), "{web}");
        web.wait_rolled_out().await?;

        let undo = async {
            match kind {
                Kind::Deployment => shop.run("rollout undo deployment/web").await,
                Kind::Rollout => shop.argo_rollouts("undo web").await,
            }
        };
        assert_eq!(noted(&web, undo).await?, expected(&[("outcome", "kept")]), "{web}");
        assert_eq!(web.name().await?, first);
    }
    Ok(())
}

async fn a_refusal_is_told_by_an_event_a_metric_and_the_audit_log(world: &World) -> Result<()> {
    let shop = world.shop("refused").await?;
    shop.apply([configmap("app-config", "v1"), deployment("web").uses("app-config").json()]).await?;
    shop.set_quota("count/configmaps", 0).await?;
    shop.kubectl(["patch", "configmap", "app-config", "--patch", r#"{"data": {"value": "v2"}}"#]).run().await?;
    let denied = async || world.confpin.metric("confpin_denials_total", r#"reason="forbidden""#).await;
    let (before, mark) = (denied().await?, shop.mark().await?);
    let output = shop.send(["apply"], [deployment("web").uses("app-config").json()]).run_any().await?;
    assert!(!output.status.success(), "it was admitted");
    assert!(denied().await? > before);
    let (noted, told) = (shop.since(&mark).await?.noted(Kind::Deployment)?, String::from_utf8_lossy(&output.stderr));
    assert_eq!(noted.keys().collect::<Vec<_>>(), ["error", "outcome"]);
    assert_eq!(noted["outcome"], "denied");
    assert!(noted["error"].contains("exceeded quota") && told.contains(&noted["error"]), "{noted:?} and {told}");
    assert_eq!(shop.deployment("web").value().await?, "v1");
    wait_event(&shop, Kind::Deployment, "web", "Refused", "quota").await
}

async fn a_snapshot_tells_where_it_came_from(world: &World) -> Result<()> {
    let shop = world.shop("provenance").await?;
    shop.apply([configmap("app-config", "v1"), deployment("web").uses("app-config").json()]).await?;
    shop.deployment("web").wait_rolled_out().await?;
    shop.wait_owned().await?;
    let source = shop.configmap("app-config").await?;
    let snapshot = only(shop.snapshots().await?.into_values())?;
    let told = |key: &str| snapshot.annotations().get(&format!("confpin.dev/{key}")).cloned();
    assert_eq!(told("source"), Some("app-config".to_owned()));
    assert_eq!(told("source-uid"), source.uid());
    assert_eq!(told("source-resource-version"), source.resource_version());
    let hash = told("content-hash").unwrap_or_default();
    assert_eq!(hash.len(), 64);
    assert_eq!(snapshot.name_any(), format!("app-config-{}", &hash[..10]));
    Ok(())
}

async fn on_error_admit_lets_the_whole_workload_in_unpinned() -> Result<()> {
    let world = World::with_arguments(Cluster::builder(), &["--on-error=admit"]).await?;
    let shop = world.shop("admit").await?;
    shop.apply([configmap("one", "v1"), configmap("two", "v1")]).await?;
    shop.set_quota("count/configmaps", 0).await?;
    let mark = shop.mark().await?;
    let output = shop.send(["apply"], [deployment("web").uses("one").uses("two").json()]).run_any().await?;
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    assert!(
        told.contains("Warning: confpin could not pin this workload: its pods follow the live ConfigMaps"),
        "{told}"
    );
    assert_eq!(shop.deployment("web").names().await?, BTreeSet::from(["one".to_owned(), "two".to_owned()]));
    let noted = shop.since(&mark).await?.noted(Kind::Deployment)?;
    assert_eq!(noted.keys().collect::<Vec<_>>(), ["error", "outcome"]);
    assert_eq!(noted["outcome"], "admitted-unpinned");
    assert!(noted["error"].contains("exceeded quota"), "{noted:?}");
    let admitted = world.confpin.metric("confpin_admissions_total", r#"outcome="admitted-unpinned""#).await?;
    assert!(admitted >= 1.0, "the metric says {admitted}");
    wait_event(&shop, Kind::Deployment, "web", "NotPinned", "").await
}
