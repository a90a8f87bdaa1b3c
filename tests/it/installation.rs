//! The manifests: kustomize and Helm render the same objects, and a real API server takes them and lets them go.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
    process::Output,
};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::{Api, api::ListParams};
use serde_json::Value;
use testcluster::{Cluster, Program, wait_for};
use tokio::process::Command;

use crate::support::{SOON, tests};

tests! {
    Own helm_and_kustomize_render_the_same_objects,
    Own the_two_parts_are_the_whole,
    Own the_two_parts_can_have_certificates_of_their_own,
    Own two_teams_can_have_an_installation_each,
    Own the_chart_refuses_wrong_values,
    Own the_chart_brings_argo_cds_settings,
    Own each_way_to_install_is_accepted_and_leaves_nothing_behind,
}

const NAMESPACE: &str = "confpin-system";
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
const HELMS: [Program; 2] = [Program::Helm3, Program::Helm4];
/// Helm, built by its module alone, takes itself for one of an old Kubernetes.
const KUBE_VERSION: &str = "--kube-version=1.36.3";

/// Objects by kind, namespace and name.
type Objects = BTreeMap<(String, String, String), Value>;

fn folder(path: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "manifests", path].iter().collect()
}

fn overlay(name: &str) -> String {
    folder(&format!("overlays/{name}")).display().to_string()
}

fn chart() -> String {
    folder("chart/confpin").display().to_string()
}

/// Runs a program that needs no cluster.
async fn run_any(program: Program, arguments: &[&str]) -> Result<Output> {
    let mut command = Command::new(program.path().await?);
    Ok(command.args(arguments).env_remove("KUBECONFIG").kill_on_drop(true).output().await?)
}

async fn run(program: Program, arguments: &[&str]) -> Result<String> {
    printed(run_any(program, arguments).await?, arguments)
}

/// Runs Helm against a cluster.
async fn run_helm(cluster: &Cluster, helm: Program, arguments: &[&str]) -> Result<String> {
    let output = cluster.command(helm).await?.args(arguments).kill_on_drop(true).output().await?;
    printed(output, arguments)
}

/// What a program printed that must have succeeded.
fn printed(output: Output, arguments: &[&str]) -> Result<String> {
    ensure!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

async fn by_kustomize(name: &str) -> Result<Objects> {
    objects(&run(Program::Kubectl, &["kustomize", &overlay(name)]).await?)
}

async fn by_helm(helm: Program, values: &str) -> Result<Objects> {
    let (chart, namespace) = (chart(), format!("--namespace={NAMESPACE}"));
    let values = format!("--set={values}");
    objects(&run(helm, &["template", "confpin", &chart, &namespace, KUBE_VERSION, &values]).await?)
}

/// The objects of a YAML file, less what Helm adds to mark them as its own.
fn objects(text: &str) -> Result<Objects> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).context("it is no YAML")?;
    let objects = documents.into_iter().filter(|object| !object.is_null()).map(|mut object| {
        if let Some(labels) = object["metadata"]["labels"].as_object_mut() {
            labels.retain(|key, _| {
                let helms = ["instance", "version", "managed-by"];
                key != "helm.sh/chart" && !helms.iter().any(|name| *key == format!("app.kubernetes.io/{name}"))
            });
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let metadata = &object["metadata"];
        ((text(&object["kind"]), text(&metadata["namespace"]), text(&metadata["name"])), object)
    });
    Ok(objects.collect())
}

async fn helm_and_kustomize_render_the_same_objects() -> Result<()> {
    for (overlay, values) in OVERLAYS {
        let mut kustomize = by_kustomize(overlay).await?;
        // Helm makes the namespace before it looks at a chart.
        let namespace = kustomize.remove(&("Namespace".to_owned(), String::new(), NAMESPACE.to_owned()));
        let is_team = overlay == "namespaced/team";
        assert!(namespace.is_some() != is_team && kustomize.len() > 10, "{overlay}: {:?}", kustomize.keys());
        for helm in HELMS {
            let chart = by_helm(helm, values).await?;
            assert_eq!(kustomize.keys().collect::<Vec<_>>(), chart.keys().collect::<Vec<_>>(), "{overlay}, {helm:?}");
            for (name, object) in &kustomize {
                assert_eq!(object, &chart[name], "{overlay}, {helm:?}: {name:?}");
            }
        }
    }
    Ok(())
}

/// A team may install nothing that is in no namespace, and no quota.
async fn the_two_parts_are_the_whole() -> Result<()> {
    for (certificates, cluster_roles) in [("self-managed", &["confpin-certificates"][..]), ("cert-manager", &[])] {
        for helm in HELMS {
            let part = async |part: &str| {
                by_helm(helm, &format!("certificates={certificates},watchNamespaces={{shop,billing}},part={part}"))
                    .await
            };
            let (mut administrator, team, all) =
                (part("administrator").await?, part("team").await?, part("all").await?);
            let is_teams =
                |(kind, namespace, _): &(String, String, String)| !namespace.is_empty() && kind != "ResourceQuota";
            assert!(team.keys().all(is_teams) && !administrator.keys().any(is_teams), "{certificates}, {helm:?}");
            let namespaces: BTreeSet<_> = team.keys().map(|(_, namespace, _)| namespace.as_str()).collect();
            assert_eq!(namespaces, BTreeSet::from(["billing", NAMESPACE, "shop"]));
            let found = administrator.keys().filter(|(kind, ..)| kind == "ClusterRole").map(|(.., name)| name.as_str());
            assert_eq!(found.collect::<Vec<_>>(), cluster_roles);
            administrator.extend(team);
            assert_eq!(administrator, all, "{certificates}, {helm:?}");
        }
    }
    Ok(())
}

/// With another word in place of `cert-manager`, as docs/install.md says.
async fn the_two_parts_can_have_certificates_of_their_own() -> Result<()> {
    let copy = tempfile::tempdir()?;
    let output = Command::new("cp").arg("--recursive").arg(folder("")).arg(copy.path()).output().await?;
    printed(output, &["cp"])?;
    for part in ["administrator", "team"] {
        let folder = copy.path().join("manifests/overlays/namespaced").join(part);
        let file = folder.join("kustomization.yaml");
        let text = fs::read_to_string(&file)?;
        ensure!(text.contains("- ../../cert-manager\n"), "{part} has certificates of nobody's");
        fs::write(&file, text.replace("- ../../cert-manager\n", "- ../../self-managed\n"))?;
        let mut kustomize = objects(&run(Program::Kubectl, &["kustomize", &folder.display().to_string()]).await?)?;
        kustomize.retain(|(kind, ..), _| kind != "Namespace");
        let values = format!("priorityClassName=,watchNamespaces={{shop,billing}},part={part}");
        assert_eq!(kustomize, by_helm(Program::Helm4, &values).await?, "{part}");
    }
    Ok(())
}

async fn two_teams_can_have_an_installation_each() -> Result<()> {
    let cluster = Cluster::builder().controller_manager(false).start().await?;
    for helm in HELMS {
        for team in ["shop", "billing"] {
            let (own, team) =
                (format!("{helm:?}-{team}-confpin").to_lowercase(), format!("{helm:?}-{team}").to_lowercase());
            for namespace in [&own, &team] {
                cluster.kubectl(["create", "namespace", namespace]).run().await?;
            }
            let values = format!("--set=certificates=cert-manager,watchNamespaces={{{team}}},nameSuffix=-{team}");
            let arguments = ["template", "confpin", &chart(), "--namespace", &own, KUBE_VERSION, &values];
            let mut objects = objects(&run(helm, &arguments).await?)?;
            // Its kinds are not there.
            objects.retain(|_, object| object["apiVersion"] != "cert-manager.io/v1");
            let policies =
                objects.keys().filter(|(kind, ..)| kind == "ValidatingAdmissionPolicy").map(|(.., name)| name);
            let bound = objects.values().filter_map(|object| object["spec"]["policyName"].as_str());
            assert_eq!(policies.collect::<Vec<_>>(), bound.collect::<Vec<_>>());
            // Fails if anything of that name is there.
            let create = ["create", "--validate=strict", "--filename=-"];
            cluster.kubectl(create).stdin(crate::support::shop::file(objects.into_values())).run().await?;
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
    let mut objects = by_kustomize("cert-manager").await?;
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
