//! Helm: install, upgrade, an upgrade that fails, rollback.

use anyhow::{Context, Result};
use kube::ResourceExt;
use serde_json::json;
use testcluster::Program;

use crate::support::{Kind, Shop, World, configmap, manifest, tests, workload::revision};

tests! {
    Shared helm_3_with_a_deployment,
    Shared helm_4_with_a_deployment,
    Shared helm_3_with_a_rollout,
    Shared helm_4_with_a_rollout,
}

/// A version of Helm, and how it takes a failed upgrade back.
struct Helm {
    program: Program,
    atomic: &'static str,
}

const HELM_3: Helm = Helm { program: Program::Helm3, atomic: "--atomic" };
const HELM_4: Helm = Helm { program: Program::Helm4, atomic: "--rollback-on-failure" };

async fn helm_3_with_a_deployment(world: &World) -> Result<()> {
    story(world, &HELM_3, Kind::Deployment).await
}

async fn helm_4_with_a_deployment(world: &World) -> Result<()> {
    story(world, &HELM_4, Kind::Deployment).await
}

async fn helm_3_with_a_rollout(world: &World) -> Result<()> {
    story(world, &HELM_3, Kind::Rollout).await
}

async fn helm_4_with_a_rollout(world: &World) -> Result<()> {
    story(world, &HELM_4, Kind::Rollout).await
}

fn chart(shop: &Shop<'_>, kind: Kind) -> Result<String> {
    let web = manifest::workload(kind, "web").uses("app-config").env_from("app-config").image("{{ .Values.image }}");
    let web = web.with_pod(|pod| pod["nodeSelector"] = json!({"kubernetes.io/os": "{{ .Values.os }}"}));
    Ok(shop.chart([configmap("app-config", "{{ .Values.value }}"), web.json()])?.display().to_string())
}

/// Each step with both a new image and a new configuration: a configuration alone does not reach a Rollout by Helm 3,
/// which sends no empty patch.
async fn story(world: &World, helm: &Helm, kind: Kind) -> Result<()> {
    let shop = world.shop("helm").await?;
    let (chart, web) = (chart(&shop, kind)?, shop.workload(kind, "web"));
    let values = |version: u32, os: &str| format!("--set value=v{version},image=web:{version},os={os}");
    let helm = async |command: String| {
        let done = shop.run_client_any(helm.program, &command.replace("ATOMIC", helm.atomic)).await?;
        anyhow::Ok((done.status.success(), String::from_utf8_lossy(&done.stderr).into_owned()))
    };
    assert!(helm(format!("install shop {chart} {}", values(1, "linux"))).await?.0);
    web.wait_rolled_out().await?;
    assert_eq!((web.value().await?, web.replica_sets().await?.len()), ("v1".into(), 1));

    let generation = web.generation().await?;
    let (upgraded, told) = helm(format!("upgrade shop {chart} {}", values(1, "linux"))).await?;
    assert!(upgraded, "{told}");
    web.wait_rolled_out().await?;
    assert_eq!((web.value().await?, web.replica_sets().await?.len()), ("v1".into(), 1));
    if kind == Kind::Deployment {
        assert_eq!(web.generation().await?, generation);
    }

    let (upgraded, told) = helm(format!("upgrade shop {chart} {}", values(2, "linux"))).await?;
    assert!(upgraded, "{told}");
    web.wait_rolled_out().await?;
    assert_eq!((web.value().await?, web.replica_sets().await?.len()), ("v2".into(), 2));
    let current = async || {
        let newest = web.replica_sets().await?.into_iter().max_by_key(revision).context("there is a ReplicaSet")?;
        anyhow::Ok(newest.name_any())
    };
    let second = current().await?;

    if kind == Kind::Deployment {
        // No node has this system, so the upgrade fails: back to the old snapshot and the old ReplicaSet.
        let failing = format!("upgrade shop {chart} {} ATOMIC --timeout 6s", values(3, "none"));
        let (upgraded, told) = helm(failing).await?;
        assert!(!upgraded, "{told}");
        web.wait_rolled_out().await?;
        assert_eq!((web.value().await?, web.replica_sets().await?.len()), ("v2".into(), 3));
        assert_eq!(current().await?, second);
    }
    let (rolled_back, told) = helm("rollback shop 1".to_owned()).await?;
    assert!(rolled_back, "{told}");
    web.wait_rolled_out().await?;
    assert_eq!(web.value().await?, "v1");
    assert_eq!(web.replica_sets().await?.len(), if kind == Kind::Deployment { 3 } else { 2 });
    shop.wait_owned().await
}
