//! Whatever a ConfigMap holds and whatever its name is.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use k8s_openapi::{ByteString, api::core::v1::ConfigMap};
use kube::{ResourceExt, api::PostParams};
use serde_json::json;

use crate::support::{Shop, World, configmap, deployment, tests, workload::only};

tests! {
    Shared binary_and_text_are_copied_byte_for_byte,
    Shared three_configmaps_of_one_mebibyte_are_pinned_in_one_workload,
    Shared names_with_dots_and_names_of_253_characters_are_pinned,
    Shared two_sources_with_the_same_content_have_a_snapshot_each,
    Shared a_source_named_like_a_snapshot_is_a_source,
    Shared a_snapshot_has_none_of_its_sources_labels_and_annotations,
    Shared an_immutable_source_is_pinned_like_any_other,
}

/// The most that the API server takes, over all keys and values.
const MOST: usize = 1 << 20;

async fn create(shop: &Shop<'_>, source: &ConfigMap) -> Result<ConfigMap> {
    Ok(shop.api().create(&PostParams::default(), source).await?)
}

async fn snapshot_of(shop: &Shop<'_>, workload: &str) -> Result<ConfigMap> {
    shop.configmap(&shop.deployment(workload).name().await?).await
}

async fn binary_and_text_are_copied_byte_for_byte(world: &World) -> Result<()> {
    let shop = world.shop("binary").await?;
    let bytes: Vec<u8> = (0..=255).chain([0, 255, 254, 13, 10]).collect();
    let text = "\u{feff}a: ü\r\n\ttrailing blank \n\n\u{1F600}";
    let source = ConfigMap {
        metadata: kube::api::ObjectMeta { name: Some("app-config".into()), ..<_>::default() },
        data: Some([("text".to_owned(), text.to_owned()), ("empty".to_owned(), String::new())].into()),
        binary_data: Some([("bytes".to_owned(), ByteString(bytes))].into()),
        ..<_>::default()
    };
    let source = create(&shop, &source).await?;
    shop.apply([deployment("web").uses("app-config").json()]).await?;
    let snapshot = snapshot_of(&shop, "web").await?;
    assert_eq!((&snapshot.data, &snapshot.binary_data), (&source.data, &source.binary_data));
    assert_eq!(snapshot.immutable, Some(true));
    Ok(())
}

async fn three_configmaps_of_one_mebibyte_are_pinned_in_one_workload(world: &World) -> Result<()> {
    let shop = world.shop("big").await?;
    let mut web = deployment("web");
    for (index, letter) in ["a", "b", "c"].into_iter().enumerate() {
        let name = format!("big-{index}");
        let value = letter.repeat(MOST - "value".len());
        create(&shop, &serde_json::from_value(configmap(&name, &value))?).await?;
        web = web.uses(&name);
    }
    shop.apply([web.json()]).await?;
    let names = shop.deployment("web").names().await?;
    assert_eq!(names.len(), 3);
    for name in names {
        let snapshot = shop.configmap(&name).await?;
        let value = snapshot.data.unwrap_or_default().remove("value").context("a value")?;
        assert_eq!(value.len(), MOST - "value".len());
        assert_eq!(snapshot.immutable, Some(true));
    }
    Ok(())
}

async fn names_with_dots_and_names_of_253_characters_are_pinned(world: &World) -> Result<()> {
    let shop = world.shop("names").await?;
    let label = "n".repeat(63);
    // Two that differ in their last character only, which no snapshot's name has room for.
    let long = |end: char| format!("{label}.{label}.{label}.{}{end}", "m".repeat(60));
    let sources = ["app.properties.v1".to_owned(), long('a'), long('b')];
    assert_eq!(sources[1].len(), 253);
    let mut snapshots = BTreeSet::new();
    for (index, source) in sources.iter().enumerate() {
        let name = format!("web-{index}");
        let web =
            deployment(&name).with_pod(|pod| pod["volumes"] = json!([{"name": "v", "configMap": {"name": source}}]));
        shop.apply([configmap(source, "same"), web.json()]).await?;
        let snapshot = snapshot_of(&shop, &name).await?;
        ensure!(snapshot.annotations().get("confpin.dev/source") == Some(source), "another source: {snapshot:?}");
        ensure!(snapshot.name_any().len() <= 253 && snapshot.name_any() != *source);
        shop.deployment(&name).wait_rolled_out().await?;
        snapshots.insert(snapshot.name_any());
    }
    assert_eq!(snapshots.len(), 3, "{snapshots:?}");
    assert!(snapshots.iter().any(|name| name.starts_with("app.properties.v1-")), "{snapshots:?}");
    shop.wait_owned().await
}

async fn two_sources_with_the_same_content_have_a_snapshot_each(world: &World) -> Result<()> {
    let shop = world.shop("twins").await?;
    shop.apply([configmap("one", "same"), configmap("two", "same"), deployment("web").uses("one").uses("two").json()])
        .await?;
    let sources: BTreeSet<_> = shop
        .snapshots()
        .await?
        .values()
        .filter_map(|snapshot| snapshot.annotations().get("confpin.dev/source").cloned())
        .collect();
    assert_eq!(sources, BTreeSet::from(["one".to_owned(), "two".to_owned()]));
    Ok(())
}

/// As kustomize names the ConfigMaps that it generates, and as a person may name one.
async fn a_source_named_like_a_snapshot_is_a_source(world: &World) -> Result<()> {
    let shop = world.shop("kustomize").await?;
    for source in ["app-config-bh8kk4c6t9", "app-config-74c6fe2300"] {
        for value in ["v1", "v2"] {
            shop.apply([configmap(source, value), deployment("web").uses(source).json()]).await?;
            let snapshot = snapshot_of(&shop, "web").await?;
            assert_eq!(snapshot.annotations().get("confpin.dev/source").map(String::as_str), Some(source));
            assert_eq!(shop.deployment("web").value().await?, value);
        }
    }
    Ok(())
}

async fn a_snapshot_has_none_of_its_sources_labels_and_annotations(world: &World) -> Result<()> {
    let shop = world.shop("tracking").await?;
    let mut source = configmap("app-config", "v1");
    source["metadata"]["labels"] =
        json!({"app.kubernetes.io/instance": "shop", "app.kubernetes.io/managed-by": "Helm"});
    source["metadata"]["annotations"] =
        json!({"argocd.argoproj.io/tracking-id": "x", "meta.helm.sh/release-name": "x"});
    shop.apply([source, deployment("web").uses("app-config").json()]).await?;
    let snapshot = only(shop.snapshots().await?.into_values())?;
    let keys = snapshot.labels().keys().chain(snapshot.annotations().keys());
    let foreign: Vec<_> =
        keys.filter(|key| !key.split('/').next().is_some_and(|prefix| prefix.ends_with("confpin.dev"))).collect();
    assert!(foreign.is_empty(), "{foreign:?}");
    Ok(())
}

async fn an_immutable_source_is_pinned_like_any_other(world: &World) -> Result<()> {
    let shop = world.shop("immutable").await?;
    let immutable = |value: &str| {
        let mut source = configmap("app-config", value);
        source["immutable"] = true.into();
        source
    };
    shop.apply([immutable("v1"), deployment("web").uses("app-config").json()]).await?;
    let first = shop.deployment("web").name().await?;
    // The only way to change it: kubelets may go on to serve the old one under the old name.
    shop.run("delete configmap/app-config").await?;
    shop.apply([immutable("v2"), deployment("web").uses("app-config").json()]).await?;
    assert_ne!(shop.deployment("web").name().await?, first);
    assert_eq!(shop.deployment("web").value().await?, "v2");
    Ok(())
}
