//! Snapshots that no ReplicaSet came for: the unused ones go after the grace period, and those that a template or a pod
//! names stay.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::{ResourceExt, api::ListParams};
use serde_json::{Value, json};
use testcluster::{Cluster, wait_for};

use crate::support::{
    SOON, Shop, World, configmap, deployment,
    lives::REFUSED,
    manifest::Manifest,
    shop::{owner_names, owners},
    tests,
};

tests! {
    Own what_nothing_names_goes_after_the_grace_period_and_the_rest_stays,
}

/// Side by side, since the claims of refused workloads are void only after minutes.
async fn what_nothing_names_goes_after_the_grace_period_and_the_rest_stays() -> Result<()> {
    let world = World::with_arguments(Cluster::builder(), &["--orphan-grace=1s", "--settle=0s"]).await?;
    tokio::try_join!(
        async { refused_by_a_quota(&world).await.context("refused by a quota") },
        async { refused_by_a_policy(&world).await.context("refused by a policy") },
        async { superseded_while_paused(&world).await.context("superseded while paused") },
        async { without_pods(&world).await.context("without pods") },
        async { outlived_by_its_pods(&world).await.context("outlived by its pods") },
    )?;
    Ok(())
}

fn web(value: &str) -> [Value; 2] {
    [configmap("app-config", value), manifest().json()]
}

fn manifest() -> Manifest {
    deployment("web").uses("app-config").replicas(0)
}

/// A quota counts after all webhooks: the second Deployment's snapshot is made in vain, the first one's is in use.
async fn refused_by_a_quota(world: &World) -> Result<()> {
    let shop = world.shop("quota").await?;
    shop.set_quota("count/deployments.apps", 1).await?;
    shop.apply(web("v1")).await?;
    shop.wait_owned().await?;
    let used = shop.deployment("web").name().await?;
    wait_for("the quota to be used up", SOON, async || {
        let used = shop.run("get resourcequota few --output=jsonpath={.status.used}").await?;
        Ok(used.contains(r#""count/deployments.apps":"1""#).then_some(()))
    })
    .await?;

    shop.apply([configmap("app-config", "v2")]).await?;
    let second = deployment("second").uses("app-config").replicas(0).json();
    refused(&shop, [second], "exceeded quota").await?;
    let snapshots = shop.snapshots().await?.len();
    assert_eq!(snapshots, 2, "no snapshot was made in vain, so there is nothing to collect");
    shop.wait_long_for_snapshots(REFUSED, [used.as_str()]).await?;
    shop.wait_owned().await
}

/// A policy judges after all webhooks: an update's new snapshot is made in vain, and the old one that another refused
/// update came back to has lost its owners for a while.
async fn refused_by_a_policy(world: &World) -> Result<()> {
    let shop = world.shop("policy").await?;
    for value in ["v1", "v2"] {
        shop.apply(web(value)).await?;
        shop.deployment("web").wait_rolled_out().await?;
    }
    shop.wait_owned().await?;
    let before = shop.snapshots().await?;
    let (version, second) = (shop.deployment("web").version().await?, shop.deployment("web").name().await?);
    let first = before.keys().find(|name| **name != second).context("there are two")?;
    forbid(&shop).await?;

    for (value, made) in [("v3", 3), ("v1", 3)] {
        let forbidden = manifest().with(|object| object["metadata"]["labels"] = json!({"forbidden": "yes"}));
        refused(&shop, [configmap("app-config", value), forbidden.json()], "not today").await?;
        assert_eq!(shop.snapshots().await?.len(), made);
    }
    let unowned = shop.configmap(first).await?;
    assert_eq!(
        owner_names(&unowned),
        Vec::<String>::new(),
        "a snapshot that is reused is out of the collector's reach"
    );
    assert_eq!(shop.deployment("web").version().await?, version);

    shop.wait_long_for_snapshots(REFUSED, before.keys().map(String::as_str)).await?;
    wait_for("the snapshots to be owned again", REFUSED, async || Ok(Some(shop.wait_owned().await?))).await?;
    assert_eq!(shop.configmap(first).await?.uid(), before[first].uid());
    Ok(())
}

/// Applies objects of which the Deployment is refused.
async fn refused(shop: &Shop<'_>, objects: impl IntoIterator<Item = Value>, told: &str) -> Result<()> {
    let output = shop.send(["apply"], objects).run_any().await?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(!output.status.success() && error.contains(told), "it was not refused: {error}");
    Ok(())
}

/// Forbids Deployments with a label in this namespace, and waits until that works.
async fn forbid(shop: &Shop<'_>) -> Result<()> {
    let name = shop.name();
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": [{
                "apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"],
                "resources": ["deployments"],
            }]},
            "validations": [{
                "expression": "!has(object.metadata.labels) || !('forbidden' in object.metadata.labels)",
                "message": "not today",
            }],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {
            "policyName": name, "validationActions": ["Deny"],
            "matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}},
        },
    });
    shop.apply([policy, binding]).await?;
    wait_for("the policy to be in force", SOON, async || {
        let output = shop.kubectl(["label", "deployment/web", "forbidden=yes", "--dry-run=server"]).run_any().await?;
        Ok((!output.status.success()).then_some(()))
    })
    .await
}

/// A paused Deployment has no ReplicaSet of its newest template. That one's snapshot stays, the one in between goes.
async fn superseded_while_paused(world: &World) -> Result<()> {
    let shop = world.shop("paused").await?;
    let web_in_state = |paused: bool| manifest().with(|object| object["spec"]["paused"] = paused.into()).json();
    let mut names = Vec::new();
    for (value, paused) in [("v1", false), ("v2", true), ("v3", true)] {
        shop.apply([configmap("app-config", value), web_in_state(paused)]).await?;
        names.push(shop.deployment("web").name().await?);
        if !paused {
            shop.deployment("web").wait_rolled_out().await?;
            shop.wait_owned().await?;
        }
    }
    assert_eq!(shop.deployment("web").replica_sets().await?.len(), 1);
    shop.wait_snapshots([names[0].as_str(), &names[2]]).await?;
    assert_eq!(owner_names(&shop.configmap(&names[2]).await?), Vec::<String>::new());

    shop.run("rollout resume deployment/web").await?;
    shop.deployment("web").wait_rolled_out().await?;
    assert_eq!(shop.deployment("web").value().await?, "v3");
    shop.wait_owned().await
}

/// Nobody runs, and a later start finds its configuration.
async fn without_pods(world: &World) -> Result<()> {
    let shop = world.shop("asleep").await?;
    shop.apply(web("v1")).await?;
    shop.wait_owned().await?;
    shop.apply([configmap("app-config", "v2")]).await?;
    shop.run("scale deployment/web --replicas=1").await?;
    let pod = wait_for("its pod", SOON, async || Ok(shop.pods("web").await?.into_values().next())).await?;
    let names = crate::support::configmaps::names(&json!({"spec": pod.spec}));
    assert!(names.contains(&shop.deployment("web").name().await?), "{names:?}");
    assert_eq!(shop.deployment("web").value().await?, "v1");

    shop.run("delete deployment/web").await?;
    shop.wait_snapshots([]).await
}

/// `--cascade=orphan` leaves pods behind that nothing else stands for.
async fn outlived_by_its_pods(world: &World) -> Result<()> {
    let shop = world.shop("orphan").await?;
    shop.apply([configmap("app-config", "v1"), deployment("web").uses("app-config").replicas(2).json()]).await?;
    shop.wait_owned().await?;
    let name = shop.deployment("web").name().await?;
    wait_for("its pods", SOON, async || Ok((shop.pods("web").await?.len() == 2).then_some(()))).await?;
    let before = shop.configmap(&name).await?;

    shop.run("delete deployment/web --cascade=orphan").await?;
    shop.wait_owned().await?;
    shop.run("delete replicasets --all --cascade=orphan").await?;
    wait_for("confpin to find that pods name the snapshot", SOON, async || {
        let line = |line: &&str| line.contains("unowned and still named") && line.contains(&name);
        ensure!(world.confpin.log()?.lines().any(|text| line(&text)), "{}", world.confpin.log_end());
        Ok(Some(()))
    })
    .await?;
    let pods = shop.api::<Pod>().list(&ListParams::default()).await?;
    assert_eq!((pods.items.len(), pods.items.iter().any(|pod| !owners(pod).is_empty())), (2, false));
    let after = shop.configmap(&name).await?;
    assert_eq!((after.uid(), owner_names(&after)), (before.uid(), Vec::new()));

    // One pod is enough. confpin looks again at any change of the snapshot, else every ten minutes.
    let pods: Vec<_> = pods.items.iter().map(ResourceExt::name_any).collect();
    let looked = world.confpin.log()?.matches("unowned and still named").count();
    shop.run(&format!("delete pod {} --grace-period=0 --force", pods[0])).await?;
    shop.run(&format!("annotate configmap {name} looked=again")).await?;
    wait_for("confpin to look again", SOON, async || {
        Ok((world.confpin.log()?.matches("unowned and still named").count() > looked).then_some(()))
    })
    .await?;
    assert_eq!(shop.configmap(&name).await?.uid(), before.uid());

    shop.run(&format!("delete pod {} --grace-period=0 --force", pods[1])).await?;
    shop.run(&format!("annotate configmap {name} looked=once-more --overwrite")).await?;
    shop.wait_snapshots([]).await
}
