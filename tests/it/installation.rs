//! The manifests: kustomize and Helm render the same objects, and a real API server takes them and lets them go.

use std::fs;

use anyhow::{Context, Result, ensure};
use confpin::install::NAMESPACE;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::{Api, api::ListParams};
use serde_json::Value;
use testcluster::{Cluster, wait_for};

use crate::support::{
    SOON,
    rendered::{HELMS, KUBE_VERSION, by_helm, by_kustomize, chart, overlay, run, run_any, run_helm},
    tests,
};

tests! {
    Own helm_and_kustomize_render_the_same_objects,
    Own the_chart_refuses_wrong_values,
    Own the_chart_brings_argo_cds_settings,
    Own each_way_to_install_is_accepted_and_leaves_nothing_behind,
}

/// The overlays, and the values by which the chart makes the same.
const OVERLAYS: [(&str, &str); 4] = [
    ("self-managed", "certificates=self-managed"),
    ("cert-manager", "certificates=cert-manager"),
    (
        "namespaced/administrator",
        "certificates=cert-manager,priorityClassName=,watchNamespaces={shop,billing},part=administrator",
    ),
    ("namespaced/team", "certificates=cert-manager,priorityClassName=,watchNamespaces={shop,billing},part=team"),
];

async fn helm_and_kustomize_render_the_same_objects() -> Result<()> {
    for (name, values) in OVERLAYS {
        let mut kustomize = by_kustomize(&overlay(name)).await?;
        // Helm makes the namespace before it looks at a chart.
        let namespace = kustomize.remove(&("Namespace".to_owned(), String::new(), NAMESPACE.to_owned()));
        let is_team = name == "namespaced/team";
        assert!(namespace.is_some() != is_team && kustomize.len() > 10, "{name}: {:?}", kustomize.keys());
        for helm in HELMS {
            let chart = by_helm(helm, NAMESPACE, values).await?;
            assert_eq!(kustomize.keys().collect::<Vec<_>>(), chart.keys().collect::<Vec<_>>(), "{name}, {helm:?}");
            for (key, object) in &kustomize {
                assert_eq!(object, &chart[key], "{name}, {helm:?}: {key:?}");
            }
        }
    }
    Ok(())
}

async fn the_chart_refuses_wrong_values() -> Result<()> {
    let chart = chart();
    for helm in HELMS {
        run(helm, &["lint", "--strict", &chart, KUBE_VERSION]).await?;
        let template = async |value: &str| {
            run_any(helm, &["template", "confpin", &chart, KUBE_VERSION, &format!("--set={value}")]).await
        };
        for value in [
            "replicas=0",
            "replicas=two",
            "certificates=none",
            "webhook.failurePolicy=fail",
            "logFormat=xml",
            "image.repository=",
            "image.name=confpin",
            "extraArgs={serve}",
            "networkPolicy.apiServerPorts={0}",
            "argoCd.patch=yes",
            "watchNamespaces={Shop}",
            "part=everything",
            "nameSuffix=shop",
            "certificates=self-managed,nameSuffix=-shop",
            "replicaCount=3",
        ] {
            let output = template(value).await?;
            let told = String::from_utf8_lossy(&output.stderr);
            let (field, _) = value.split_once('=').context("it sets a value")?;
            let names_it = field.split('.').any(|part| told.contains(part));
            assert!(!output.status.success() && names_it, "{helm:?} took {value}: {told}");
        }
        for value in ["replicas=3", "priorityClassName=", "extraArgs={--orphan-grace=1h}", "image.tag=1.2.3"] {
            let output = template(value).await?;
            assert!(output.status.success(), "{helm:?}, {value}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
    Ok(())
}

/// As its notes say: Argo CD's own ConfigMap is not the chart's to change.
async fn the_chart_brings_argo_cds_settings() -> Result<()> {
    let cluster = Cluster::start().await?;
    let kubectl = async |arguments: &[&str]| cluster.kubectl(arguments).run().await;
    kubectl(&["create", "namespace", "argocd"]).await?;
    for helm in HELMS {
        let url = "--from-literal=url=https://argocd.shop";
        kubectl(&["create", "configmap", "argocd-cm", "--namespace=argocd", url]).await?;
        let chart = chart();
        let install =
            ["install", "pins", &chart, "--namespace", NAMESPACE, "--create-namespace", "--set=argoCd.patch=true"];
        let notes = run_helm(&cluster, helm, &install).await?;

        // The two commands, the first of which writes the file that the second reads.
        let told: Vec<_> = notes.lines().filter_map(|line| line.strip_prefix("  kubectl ")).collect();
        let words = |line: &str| line.split(' ').map(|word| word.trim_matches('\'').to_owned()).collect::<Vec<_>>();
        let (get, file) =
            told.iter().find_map(|line| line.split_once(" > ")).context("the notes tell how to get the patch")?;
        let patch = told.iter().find(|line| line.starts_with("patch ")).context("the notes tell how to apply it")?;
        let path = cluster.folder().join(file).display().to_string();
        fs::write(&path, cluster.kubectl(words(get)).run().await?)?;
        cluster
            .kubectl(words(patch).into_iter().map(|word| if word == file { path.clone() } else { word }))
            .run()
            .await?;

        let text = kubectl(&["get", "configmap", "argocd-cm", "--namespace=argocd", "--output=json"]).await?;
        let found: Value = serde_json::from_str(&text)?;
        let expected = serde_json::to_value(confpin::argo_cd::settings_patch().data)?;
        let expected = expected.as_object().context("the settings are a map")?;
        for (key, value) in expected {
            assert_eq!(&found["data"][key], value, "{helm:?}: {key}");
        }
        assert_eq!(found["data"]["url"], "https://argocd.shop");

        run_helm(&cluster, helm, &["uninstall", "pins", "--namespace", NAMESPACE]).await?;
        kubectl(&["delete", "configmap", "argocd-cm", "--namespace=argocd"]).await?;
    }
    Ok(())
}

async fn each_way_to_install_is_accepted_and_leaves_nothing_behind() -> Result<()> {
    let cluster = Cluster::start().await?;
    let kubectl = async |arguments: &[&str]| cluster.kubectl(arguments).run().await;

    // Both modes; cert-manager's own kinds are not there.
    let mut objects = by_kustomize(&overlay("cert-manager")).await?;
    objects.retain(|(kind, ..), object| kind != "Namespace" && object["apiVersion"] != "cert-manager.io/v1");
    kubectl(&["create", "namespace", NAMESPACE]).await?;
    let file = crate::support::shop::file(objects.into_values());
    let dry_run = ["apply", "--server-side", "--dry-run=server", "--validate=strict", "--filename=-"];
    cluster.kubectl(dry_run).stdin(file).run().await?;
    kubectl(&["delete", "namespace", NAMESPACE]).await?;

    let overlay = overlay("self-managed");
    kubectl(&["apply", "--validate=strict", "--kustomize", &overlay]).await?;
    wait_for_pods(&cluster).await?;
    kubectl(&["delete", "mutatingwebhookconfiguration", "confpin"]).await?;
    kubectl(&["delete", "--kustomize", &overlay, "--ignore-not-found"]).await?;
    nothing_is_left(&cluster).await?;

    for helm in HELMS {
        let helm = async |arguments: &[&str]| run_helm(&cluster, helm, arguments).await;
        helm(&["install", "pins", &chart(), "--namespace", NAMESPACE, "--create-namespace"]).await?;
        wait_for_pods(&cluster).await?;
        helm(&["upgrade", "pins", &chart(), "--namespace", NAMESPACE, "--set=replicas=3"]).await?;
        helm(&["uninstall", "pins", "--namespace", NAMESPACE]).await?;
        kubectl(&["delete", "namespace", NAMESPACE]).await?;
        nothing_is_left(&cluster).await?;

        for part in ["administrator", "team"] {
            let values = format!("--set=part={part},watchNamespaces={{default}},priorityClassName=");
            helm(&["install", part, &chart(), "--namespace", NAMESPACE, "--create-namespace", &values]).await?;
        }
        wait_for_pods(&cluster).await?;
        for part in ["administrator", "team"] {
            helm(&["uninstall", part, "--namespace", NAMESPACE]).await?;
        }
        kubectl(&["delete", "namespace", NAMESPACE]).await?;
        nothing_is_left(&cluster).await?;
    }
    Ok(())
}

/// Waits until the pods have passed admission: the namespace's pod security, and the quota.
async fn wait_for_pods(cluster: &Cluster) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(cluster.client(), NAMESPACE);
    wait_for("the pods to be made", SOON, async || {
        let found = pods.list(&ListParams::default().labels("app.kubernetes.io/name=confpin")).await?;
        Ok((found.items.len() == 2).then_some(()))
    })
    .await
}

async fn nothing_is_left(cluster: &Cluster) -> Result<()> {
    let kinds = "clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings,\
                 mutatingwebhookconfigurations";
    let found = cluster.kubectl(["get", kinds, "--output=name"]).run().await?
        + &cluster.kubectl(["get", "roles,rolebindings", "--namespace=default", "--output=name"]).run().await?;
    let ours: Vec<_> = found.lines().filter(|name| name.contains("confpin")).collect();
    ensure!(ours.is_empty(), "left behind: {ours:?}");
    let namespaces: Api<Namespace> = Api::all(cluster.client());
    wait_for("the namespace to be gone", SOON, async || {
        Ok(namespaces.get_opt(NAMESPACE).await?.is_none().then_some(()))
    })
    .await
}
