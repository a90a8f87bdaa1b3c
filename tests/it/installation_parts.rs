//! An installation in two parts: an administrator's, and a team's.

use std::{collections::BTreeSet, fs};

use anyhow::{Result, ensure};
use confpin::install::NAMESPACE;
use testcluster::{Cluster, Program};
use tokio::process::Command;

use crate::support::{
    rendered::{HELMS, by_helm, by_kustomize, folder, printed},
    shop::file,
    tests,
};

tests! {
    Own the_two_parts_are_the_whole,
    Own the_two_parts_can_have_certificates_of_their_own,
    Own two_teams_can_have_an_installation_each,
}

/// A team may install nothing that is in no namespace, and no quota.
async fn the_two_parts_are_the_whole() -> Result<()> {
    for (certificates, cluster_roles) in [("self-managed", &["confpin-certificates"][..]), ("cert-manager", &[])] {
        for helm in HELMS {
            let part = async |part: &str| {
                let values = format!("certificates={certificates},watchNamespaces={{shop,billing}},part={part}");
                by_helm(helm, NAMESPACE, &values).await
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
        let mut kustomize = by_kustomize(&folder.display().to_string()).await?;
        kustomize.retain(|(kind, ..), _| kind != "Namespace");
        let values = format!("priorityClassName=,watchNamespaces={{shop,billing}},part={part}");
        assert_eq!(kustomize, by_helm(Program::Helm4, NAMESPACE, &values).await?, "{part}");
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
            let values = format!("certificates=cert-manager,watchNamespaces={{{team}}},nameSuffix=-{team}");
            let mut objects = by_helm(helm, &own, &values).await?;
            // Its kinds are not there.
            objects.retain(|_, object| object["apiVersion"] != "cert-manager.io/v1");
            let policies =
                objects.keys().filter(|(kind, ..)| kind == "ValidatingAdmissionPolicy").map(|(.., name)| name);
            let bound = objects.values().filter_map(|object| object["spec"]["policyName"].as_str());
            assert_eq!(policies.collect::<Vec<_>>(), bound.collect::<Vec<_>>());
            // Fails if anything of that name is there.
            let create = ["create", "--validate=strict", "--filename=-"];
            cluster.kubectl(create).stdin(file(objects.into_values())).run().await?;
        }
    }
    Ok(())
}
