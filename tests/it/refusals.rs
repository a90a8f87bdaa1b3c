//! A workload that cannot be pinned is refused as a whole, with the cause and the cure.

use anyhow::{Result, bail};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Namespace},
};
use kube::{
    Api,
    api::{ListParams, PostParams},
};
use serde_json::json;
use testcluster::wait_for;

use crate::support::{SOON, World, configmap, deployment, tests};

tests! {
    Shared a_quota_refuses_the_workload_with_cause_and_cure,
    Shared at_a_full_quota_a_workload_whose_snapshots_exist_is_admitted,
    Shared more_configmaps_than_allowed_are_refused,
    Shared a_terminating_namespace_is_not_held_up,
}

async fn a_quota_refuses_the_workload_with_cause_and_cure(world: &World) -> Result<()> {
    let shop = world.shop("quota").await?;
    shop.apply([configmap("app-config", "v1"), configmap("other", "v1")]).await?;
    let present = wait_for("the root CA", SOON, async || {
        let found = shop.api::<ConfigMap>().list(&ListParams::default()).await?.items.len();
        Ok((found == 3).then_some(found))
    })
    .await?;
    // Room for one of the two snapshots.
    shop.set_quota("count/configmaps", present + 1).await?;
    let web = deployment("web").uses("app-config").uses("other").json();
    let output = shop.send(["apply"], [web.clone()]).run_any().await?;
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "it was admitted");
    for part in ["confpin could not pin this workload", "exceeded quota", "raise the namespace's quota for ConfigMaps"]
    {
        assert!(told.contains(part), "`{part}` is not in: {told}");
    }
    assert!(!shop.deployment("web").exists().await?);
    let created = shop.api::<Deployment>().create(&PostParams::default(), &serde_json::from_value(web.clone())?).await;
    assert_eq!(code_of(&created), 403);

    shop.set_quota("count/configmaps", present + 2).await?;
    shop.apply([web]).await?;
    assert_eq!(shop.deployment("web").names().await?.len(), 2);
    Ok(())
}

async fn at_a_full_quota_a_workload_whose_snapshots_exist_is_admitted(world: &World) -> Result<()> {
    let shop = world.shop("full").await?;
    let web = |name: &str, image: &str| deployment(name).uses("app-config").image(image).json();
    shop.apply([configmap("app-config", "v1"), web("one", "web:1")]).await?;
    let present = wait_for("the root CA", SOON, async || {
        let found = shop.api::<ConfigMap>().list(&ListParams::default()).await?.items.len();
        Ok((found == 3).then_some(found))
    })
    .await?;
    shop.set_quota("count/configmaps", present).await?;
    shop.apply([web("one", "web:2"), web("two", "web:1")]).await?;
    assert_eq!(shop.deployment("one").name().await?, shop.deployment("two").name().await?);
    Ok(())
}

/// The HTTP status of a refusal.
fn code_of<T>(result: &kube::Result<T>) -> u16 {
    match result {
        Err(kube::Error::Api(status)) => status.code,
        _ => 0,
    }
}

async fn more_configmaps_than_allowed_are_refused(world: &World) -> Result<()> {
    let shop = world.shop("many").await?;
    let volumes: Vec<_> = (0..257)
        .map(|index| json!({"name": format!("v{index}"), "configMap": {"name": format!("c{index}")}}))
        .collect();
    let web = deployment("web").with_pod(|pod| pod["volumes"] = json!(volumes));
    let output = shop.send(["apply"], [web.json()]).run_any().await?;
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && told.contains("at most 256 ConfigMaps") && told.contains("257"), "{told}");
    assert!(!shop.deployment("web").exists().await?);
    Ok(())
}

async fn a_terminating_namespace_is_not_held_up(world: &World) -> Result<()> {
    let shop = world.shop("terminating").await?;
    let web = deployment("web")
        .uses("app-config")
        .with(|object| object["metadata"]["finalizers"] = json!(["confpin.test/hold"]));
    shop.apply([configmap("app-config", "v1"), web.json()]).await?;
    shop.deployment("web").wait_rolled_out().await?;
    world.cluster.kubectl(["delete", "namespace", shop.name(), "--wait=false"]).run().await?;
    wait_for("the deletion to reach the Deployment", SOON, async || {
        let deleting = shop.deployment("web").object().await?.metadata.deletion_timestamp.is_some();
        let sources = shop.api::<ConfigMap>().get_opt("app-config").await?;
        Ok((deleting && sources.is_none()).then_some(()))
    })
    .await?;

    // A controller that changes the template and lets go: nothing can be created here any more.
    shop.deployment("web")
        .patch(&json!({"spec": {"template": {"metadata": {"labels": {"app": "web", "last": "words"}}}}}))
        .await?;
    shop.deployment("web").patch(&json!({"metadata": {"finalizers": null}})).await?;
    let namespaces: Api<Namespace> = Api::all(world.client.clone());
    wait_for("the namespace to be gone", SOON, async || {
        if let Some(namespace) = namespaces.get_opt(shop.name()).await? {
            bail!("{:?}", namespace.status);
        }
        Ok(Some(()))
    })
    .await
}
