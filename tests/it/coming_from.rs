//! What `docs/coming-from.md` says of confpin beside the way that it takes the place of.

use anyhow::Result;
use kube::ResourceExt;
use serde_json::{Value, json};
use testcluster::wait_for;

use crate::support::{SOON, World, configmap, deployment, manifest::Manifest, shop::owners, tests};

tests! {
    Shared a_checksum_beside_confpin_is_one_rollout_and_so_is_its_removal,
    Shared what_reloader_writes_takes_the_newest_and_stays_until_it_is_taken_away,
    Shared a_version_made_by_hand_is_copied_and_may_go,
    Shared owners_of_a_source_are_left_as_they_are,
}

fn web() -> Manifest {
    deployment("web").uses("app-config").replicas(0)
}

async fn a_checksum_beside_confpin_is_one_rollout_and_so_is_its_removal(world: &World) -> Result<()> {
    let shop = world.shop("checksum").await?;
    let web_object = shop.deployment("web");
    let checked = |sum: &str| {
        web().with(|object| object["spec"]["template"]["metadata"]["annotations"] = json!({"checksum/config": sum}))
    };
    for (value, manifest, sets) in [("v1", checked("1"), 1), ("v2", checked("2"), 2), ("v2", web(), 3)] {
        shop.apply([configmap("app-config", value), manifest.json()]).await?;
        web_object.wait_rolled_out().await?;
        assert_eq!((web_object.value().await?, web_object.replica_sets().await?.len()), (value.into(), sets));
    }
    Ok(())
}

async fn what_reloader_writes_takes_the_newest_and_stays_until_it_is_taken_away(world: &World) -> Result<()> {
    let shop = world.shop("reloader").await?;
    let web_object = shop.deployment("web");
    shop.apply([configmap("app-config", "v1"), web().json()]).await?;
    web_object.wait_rolled_out().await?;
    shop.apply([configmap("app-config", "v2")]).await?;
    // Its default strategy.
    let variable = "STAKATER_APP_CONFIG_CONFIGMAP";
    let patch = json!({"spec": {"template": {"spec": {"containers": [
        {"name": "main", "env": [{"name": variable, "value": "a-hash"}]},
    ]}}}});
    shop.kubectl(["patch", "deployment", "web", &format!("--patch={patch}")]).run().await?;
    web_object.wait_rolled_out().await?;
    assert_eq!((web_object.value().await?, web_object.replica_sets().await?.len()), ("v2".into(), 2));

    let variables =
        async || Ok::<_, anyhow::Error>(web_object.template().await?["spec"]["containers"][0]["env"].clone());
    shop.apply([web().json()]).await?;
    assert_eq!(variables().await?[0]["name"], variable, "`kubectl apply` leaves what it never wrote");
    shop.run(&format!("set env deployment/web {variable}-")).await?;
    web_object.wait_rolled_out().await?;
    assert_eq!(variables().await?, Value::Null);
    assert_eq!((web_object.value().await?, web_object.replica_sets().await?.len()), ("v2".into(), 3));
    Ok(())
}

async fn a_version_made_by_hand_is_copied_and_may_go(world: &World) -> Result<()> {
    let shop = world.shop("by-hand").await?;
    let web = shop.deployment("web");
    for version in ["v1", "v2"] {
        let name = format!("app-config-{version}");
        let mut source = configmap(&name, version);
        source["immutable"] = true.into();
        shop.apply([source, deployment("web").uses(&name).replicas(0).json()]).await?;
        web.wait_rolled_out().await?;
    }
    shop.run("delete configmap app-config-v1 app-config-v2").await?;
    for version in ["v1", "v2"] {
        shop.run("rollout undo deployment/web").await?;
        web.wait_rolled_out().await?;
        assert_eq!(web.value().await?, version);
    }
    shop.wait_owned().await
}

async fn owners_of_a_source_are_left_as_they_are(world: &World) -> Result<()> {
    let shop = world.shop("owned-source").await?;
    shop.apply([configmap("owner", "x")]).await?;
    let owner = shop.configmap("owner").await?;
    let mut source = configmap("app-config", "v1");
    source["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.metadata.uid}]);
    shop.apply([source, web().json()]).await?;
    let before = shop.configmap("app-config").await?;
    let web = shop.deployment("web");
    web.wait_rolled_out().await?;
    shop.wait_owned().await?;
    let after = shop.configmap("app-config").await?;
    assert_eq!((after.resource_version(), owners(&after)), (before.resource_version(), owners(&before)));

    shop.run("delete configmap owner").await?;
    wait_for("the source to go with its owner", SOON, async || {
        let left = shop.configmaps().await?;
        Ok((!left.iter().any(|object| object.name_any() == "app-config")).then_some(()))
    })
    .await?;
    assert_eq!(web.value().await?, "v1");
    Ok(())
}
