//! What the guide's page on Argo CD tells the reader to do, and what it says about an undo.

use anyhow::{Result, ensure};
use serde_json::Value;
use testcluster::{Program, wait_for};

use crate::support::{
    SOON, World,
    application::{Application, Options},
    configmap, deployment, docs, tests,
};

tests! {
    Shared the_settings_and_commands_of_the_page,
    Shared an_undo_is_taken_back_by_self_heal,
    Shared an_undo_stays_where_the_names_are_ignored,
}

const PAGE: &str = "argo-cd.md";

fn objects(value: &str) -> [Value; 2] {
    [configmap("app-config", value), deployment("web").uses("app-config").json()]
}

async fn the_settings_and_commands_of_the_page(world: &World) -> Result<()> {
    let (shop, argo_cd) = (world.shop("argo").await?, world.argo_cd().await?);
    let (web, name) = (shop.deployment("web"), shop.name());
    let application = Application::with_repository(&shop, argo_cd).await?;
    let commit = application.repository.commit(objects("v1")).await?;
    let manifest = docs::block(PAGE, "application")?;
    let manifest = manifest.replace("https://git.shop.example/shop.git", &application.repository.url());
    let manifest = manifest.replace("name: shop", &format!("name: {name}"));
    let manifest = manifest.replace("namespace: shop", &format!("namespace: {name}"));
    world.cluster.kubectl(["apply", "--filename=-"]).stdin(manifest).run().await?;
    application.wait_synced(&commit).await?;

    for command in docs::commands(PAGE, "diff")? {
        let mut argo_cd_client = world.cluster.command(Program::ArgoCd).await?;
        argo_cd_client.args(command.replace("shop", name).split(' ').skip(1));
        argo_cd_client.env("ARGOCD_SERVER", argo_cd.server()).env("ARGOCD_OPTS", "--plaintext").kill_on_drop(true);
        let output = argo_cd_client.output().await?;
        let (said, told) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        ensure!(output.status.success(), "`{command}` failed ({}): {said}{told}", output.status);
        let shows = said.contains(&web.name().await?);
        ensure!(shows == command.contains("tree"), "`{command}` prints {said}");
    }
    application.ensure_at_rest().await
}

/// Rolls out two configurations and undoes the second.
async fn undo<'a>(application: &Application<'a>, shop: &crate::support::Shop<'_>) -> Result<()> {
    application.commit(objects("v2")).await?;
    let web = shop.deployment("web");
    web.wait_rolled_out().await?;
    assert_eq!(web.value().await?, "v2");
    shop.run("rollout undo deployment/web").await?;
    Ok(())
}

async fn an_undo_is_taken_back_by_self_heal(world: &World) -> Result<()> {
    let (shop, options) = (world.shop("argo").await?, Options { compare: "ServerSideDiff=true", ..Options::default() });
    let application = Application::create(&shop, world.argo_cd().await?, &options, objects("v1")).await?;
    undo(&application, &shop).await?;
    let web = shop.deployment("web");
    wait_for("Argo CD to bring the configuration back", SOON, async || {
        Ok((application.operations().await? >= 3 && web.value().await? == "v2").then_some(()))
    })
    .await?;
    web.wait_rolled_out().await?;
    assert_eq!(web.replica_sets().await?.len(), 2);
    application.wait_status("synchronised", |status| status["sync"]["status"] == "Synced").await?;
    application.ensure_at_rest().await
}

async fn an_undo_stays_where_the_names_are_ignored(world: &World) -> Result<()> {
    let shop = world.shop("argo").await?;
    let argo_cd = world.patched_argo_cd().await?;
    let application = Application::create(&shop, argo_cd, &Options::default(), objects("v1")).await?;
    undo(&application, &shop).await?;
    let web = shop.deployment("web");
    web.wait_rolled_out().await?;
    application.ensure_at_rest().await?;
    assert_eq!(web.value().await?, "v1");
    application.ensure_one_operation_each(2).await?;
    // The next synchronisation, of whatever commit, moves forward.
    let [source, workload] = objects("v2");
    application.commit([source, workload, configmap("other", "v1")]).await?;
    web.wait_rolled_out().await?;
    assert_eq!((web.value().await?, web.replica_sets().await?.len()), ("v2".into(), 2));
    Ok(())
}
