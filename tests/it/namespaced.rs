//! confpin without a ClusterRole: in the namespaces that it is told to watch, and in no other.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use confpin::install::{CA_SECRET, NAMESPACE};
use testcluster::{Cluster, wait_for};

use crate::support::{
    Kind, SOON, Shop, World, configmap,
    confpin::Confpin,
    deployment,
    installation::Installation,
    manifest,
    namespaced::{Namespaced, SERVED, asked_beyond, change_webhooks, run_part},
    rights, tests,
};

tests! {
    Own it_pins_follows_and_collects_by_roles_alone,
    Own a_namespace_that_is_not_watched_is_never_pinned,
    Own one_that_registers_itself_is_asked_about_its_namespaces_only,
    Installed two_replicas_with_certificates_of_their_own_need_one_right_beyond,
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
    installation.asked_for_nothing_beyond().await?;

    run_part(&world.cluster, "uninstall", &[]).await?;
    let roles = world.cluster.kubectl(["get", "roles,rolebindings", "--all-namespaces", "--output=name"]).run().await?;
    assert!(!roles.contains("confpin"), "left behind: {roles}");
    Ok(())
}

async fn pins_follows_and_collects(shop: &Shop<'_>, kind: Kind) -> Result<()> {
    let staying = manifest::workload(kind, "staying").uses("app-config").replicas(0);
    let following = manifest::workload(kind, "following").uses("app-config").replicas(0).on_change();
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
    installation.asked_for_nothing_beyond().await
}

async fn one_that_registers_itself_is_asked_about_its_namespaces_only() -> Result<()> {
    let cluster = Cluster::builder().controller_manager(false).start().await?;
    let confpin =
        Confpin::new(&cluster, &["--watch-namespace=shop"])?.with_kubeconfig(rights::install(&cluster).await?);
    let world = World::new(cluster, confpin);
    for command in ["create namespace shop", "label namespace shop confpin.dev/pin=enabled"] {
        world.cluster.kubectl(command.split(' ')).run().await?;
    }
    world.confpin.start().await?;
    let (shop, other) = (Shop::new(&world, "shop"), world.shop("other").await?);
    let (source, web) = (configmap("app-config", "v1"), deployment("web").uses("app-config").json());
    shop.apply([source.clone()]).await?;
    wait_for("the API server to ask confpin", SOON, async || {
        let names = "--output=jsonpath={.spec.template.spec.volumes[*].configMap.name}";
        let name = shop.send(["create", "--dry-run=server", names], [web.clone()]).run().await?;
        Ok(name.starts_with("app-config-").then_some(()))
    })
    .await?;
    other.apply([source, web]).await?;
    assert_eq!(other.deployment("web").names().await?, BTreeSet::from(["app-config".to_owned()]));
    let denials = world.confpin.metric("confpin_denials_total", "").await?;
    ensure!(denials < 1.0, "it was asked, and refused {denials} workloads");
    Ok(())
}

/// By the chart, with a real node: certificates that confpin makes itself need the right on the webhook configuration.
async fn two_replicas_with_certificates_of_their_own_need_one_right_beyond() -> Result<()> {
    let installation = Installation::start_namespaced(&SERVED).await?;
    let world = &installation.world;
    for name in SERVED {
        let shop = Shop::new(world, name);
        let objects = [configmap("app-config", "v1"), deployment("web").uses("app-config").json()];
        // API servers hear of the CA in a moment, and refuse till then.
        wait_for("a workload to be admitted", SOON, async || shop.apply(objects.clone()).await.map(Some)).await?;
        let web = shop.deployment("web");
        web.wait_rolled_out().await?;
        assert_eq!(web.value().await?, "v1");
        shop.wait_owned().await?;
        shop.run("delete deployment web").await?;
        shop.wait_snapshots([]).await?;
    }
    // One of them leads, in both namespaces.
    let leads = installation.metrics("confpin_leader").await?;
    assert_eq!((leads.len(), leads.get(&installation.leader().await?)), (2, Some(&1.0)), "{leads:?}");
    assert!((leads.values().sum::<f64>() - 1.0).abs() < 0.1, "{leads:?}");

    let kubectl = |command: &str| world.cluster.kubectl(command.split(' ')).run();
    kubectl(&format!(
        r#"patch secret {CA_SECRET} --namespace={NAMESPACE} --patch={{"stringData":{{"tls.key":"damaged"}}}}"#
    ))
    .await?;
    wait_for("the team to be told of the Secret", SOON, async || {
        let reasons =
            kubectl(&format!("get events --namespace={NAMESPACE} --output=jsonpath={{.items[*].reason}}")).await?;
        Ok(reasons.contains("CertificateAuthorityReplaced").then_some(()))
    })
    .await?;

    installation.scale(0).await?;
    assert_eq!(asked_beyond(world).await?, BTreeSet::from(["/mutatingwebhookconfigurations/confpin".to_owned()]));
    Ok(())
}
