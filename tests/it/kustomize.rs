//! kustomize: plain ConfigMaps, and generated ones that are pruned at once.

use std::{fs, path::PathBuf};

use anyhow::{Result, ensure};
use kube::ResourceExt;
use serde_json::Value;

use crate::support::{Kind, Shop, World, configmap, docs, manifest, tests, workload::only};

tests! {
    Shared kustomize_with_plain_configmaps,
    Shared kustomize_with_generated_configmaps_that_are_pruned_at_once,
}

const PAGE: &str = "kustomize.md";

/// A folder with a kustomization.
struct Folder(PathBuf);

impl Folder {
    fn create(shop: &Shop<'_>, kustomization: &str, workload: &Value) -> Result<Self> {
        let folder = Self(shop.world.cluster.folder().join(format!("{}-kustomize", shop.name())));
        fs::create_dir_all(&folder.0)?;
        folder.write("kustomization.yaml", kustomization)?;
        folder.write("web.yaml", &workload.to_string())?;
        Ok(folder)
    }

    fn write(&self, name: &str, content: &str) -> Result<()> {
        Ok(fs::write(self.0.join(name), content)?)
    }

    /// A command of the page.
    async fn run(&self, shop: &Shop<'_>, name: &str) -> Result<String> {
        let command = docs::command(PAGE, name)?.replace("--kustomize .", &format!("--kustomize {}", self.0.display()));
        shop.kubectl(command.split(' ').skip(1)).run().await
    }
}

async fn kustomize_with_plain_configmaps(world: &World) -> Result<()> {
    for kind in [Kind::Deployment, Kind::Rollout] {
        let shop = world.shop("kustomize").await?;
        let (web, workload) = (shop.workload(kind, "web"), manifest::workload(kind, "web").uses("app-config"));
        let folder = Folder::create(&shop, &docs::block(PAGE, "plain")?, &workload.json())?;
        let steps =
            [("web:1", "v1", 1), ("web:1", "v1", 1), ("web:1", "v2", 2), ("web:2", "v2", 3), ("web:3", "v3", 4)];
        for (image, value, sets) in steps {
            folder.write("config.yaml", &configmap("app-config", value).to_string())?;
            folder.write("web.yaml", &workload.clone().image(image).json().to_string())?;
            folder.run(&shop, "apply").await?;
            web.wait_rolled_out().await?;
            let found = (web.value().await?, web.replica_sets().await?.len());
            ensure!(found == (value.to_owned(), sets), "{kind:?} with {image} and {value} has {found:?}");
        }
        shop.wait_owned().await?;
    }
    Ok(())
}

async fn kustomize_with_generated_configmaps_that_are_pruned_at_once(world: &World) -> Result<()> {
    let shop = world.shop("kustomize").await?;
    let (web, generator) = (shop.deployment("web"), docs::block(PAGE, "generator")?);
    let workload = manifest::workload(Kind::Deployment, "web").uses("app-config").json();
    let folder = Folder::create(&shop, &generator, &workload)?;
    folder.run(&shop, "prune").await?;
    web.wait_rolled_out().await?;
    let (first, source) = (web.name().await?, generated(&shop).await?);
    ensure!(first.starts_with(&source), "{first} is a snapshot of {source}");

    folder.write("kustomization.yaml", &generator.replace("value=v1", "value=v2"))?;
    folder.run(&shop, "prune").await?;
    web.wait_rolled_out().await?;
    assert_eq!((web.value().await?, web.replica_sets().await?.len()), ("v2".into(), 2));
    // The first one's source is gone, and its snapshot is not.
    assert_ne!(generated(&shop).await?, source);
    shop.wait_owned().await?;
    shop.run("rollout undo deployment/web").await?;
    web.wait_rolled_out().await?;
    assert_eq!((web.name().await?, web.value().await?), (first, "v1".into()));

    // The same kustomization again: forward, and nothing more after that.
    for _ in 0..2 {
        folder.run(&shop, "prune").await?;
        web.wait_rolled_out().await?;
        assert_eq!((web.value().await?, web.replica_sets().await?.len()), ("v2".into(), 2));
    }
    shop.wait_owned().await
}

/// The one ConfigMap that kustomize made.
async fn generated(shop: &Shop<'_>) -> Result<String> {
    let all: Vec<String> = shop.configmaps().await?.iter().map(ResourceExt::name_any).collect();
    let snapshots = shop.snapshots().await?;
    only(all.into_iter().filter(|name| name.starts_with("app-config-") && !snapshots.contains_key(name)))
}
