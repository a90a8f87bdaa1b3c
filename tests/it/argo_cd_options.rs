//! Argo CD's options: which of them work with confpin, and what they change. The table of the guide's page says the
//! same.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use testcluster::{Program, wait_for};

use crate::support::{
    Kind, SOON, Shop, World,
    application::{Application, Options},
    argo_story, configmap, deployment, docs, tests,
};

tests! {
    Shared the_default_diff_is_out_of_sync_without_the_ignored_differences,
    Shared the_ca_bundle_is_ignored_in_confpins_own_configuration,
    Shared apply_out_of_sync_only_takes_a_refresh_with_the_server_side_diff,
    Shared apply_out_of_sync_only_leaves_the_workload_with_the_default_diff,
    Shared respect_ignore_differences_leaves_the_workload_on_a_config_only_commit,
    Shared replace_with_a_deployment,
    Shared replace_with_a_rollout,
    Shared tracking_by_label,
    Shared hooks_and_waves,
    Shared a_later_wave_of_the_configmap_takes_a_second_operation,
}

const SERVER_SIDE_DIFF: Options = Options { compare: "ServerSideDiff=true", sync: &[], no_self_heal: false };
const DEFAULT: Options = Options { compare: "", sync: &[], no_self_heal: false };

fn objects(image: &str, value: &str) -> [Value; 2] {
    [configmap("app-config", value), deployment("web").image(image).uses("app-config").json()]
}

/// The control of all tests that ignore differences.
async fn the_default_diff_is_out_of_sync_without_the_ignored_differences(world: &World) -> Result<()> {
    let shop = world.shop("argo").await?;
    let options = Options { no_self_heal: true, ..DEFAULT };
    let (application, _) = Application::begin(&shop, world.argo_cd().await?, &options, objects("web:1", "v1")).await?;
    application.wait_status("synchronised", |status| status["operationState"]["phase"] == "Succeeded").await?;
    application.refresh("hard").await?;
    assert_eq!(application.status_of("Deployment").await?, "OutOfSync");
    assert_eq!(application.status_of("ConfigMap").await?, "Synced");
    Ok(())
}

/// What a manifest says of it does not count, as confpin puts its own there. Asked of Argo CD's own program, since an
/// Application with that very object would take it from the other tests.
async fn the_ca_bundle_is_ignored_in_confpins_own_configuration(world: &World) -> Result<()> {
    let command = ["get", "mutatingwebhookconfiguration", "confpin", "--output=json"];
    let mut configuration: Value = serde_json::from_str(&world.cluster.kubectl(command).run().await?)?;
    let webhooks = configuration["webhooks"].as_array().map_or(0, Vec::len);
    let told = ignored_differences(world, &configuration).await?;
    let ignored: Vec<_> = told.lines().filter(|line| line.starts_with(['<', '>'])).collect();
    assert_eq!(ignored.len(), webhooks, "{told}");
    assert!(ignored.iter().all(|line| line.contains("caBundle: ")), "{told}");

    configuration["metadata"]["name"] = "other".into();
    let told = ignored_differences(world, &configuration).await?;
    assert!(told.contains("No fields are ignored"), "{told}");
    Ok(())
}

/// What Argo CD leaves out of its diff of an object, by the settings that confpin ships.
async fn ignored_differences(world: &World, object: &Value) -> Result<String> {
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(&file, object.to_string())?;
    let settings = concat!("--argocd-cm-path=", env!("CARGO_MANIFEST_DIR"), "/manifests/argocd/argocd-cm-patch.yaml");
    let mut command = world.cluster.command(Program::ArgoCd).await?;
    let arguments = ["admin", "settings", "resource-overrides", "ignore-differences", settings];
    let output = command.env("ARGOCD_BINARY_NAME", "argocd").args(arguments).arg(file.path()).output().await?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// When the operation begins, the ConfigMap is still the old one, so the workload is in sync and left out.
async fn apply_out_of_sync_only_takes_a_refresh_with_the_server_side_diff(world: &World) -> Result<()> {
    let shop = world.shop("argo").await?;
    let options = Options { sync: &["ApplyOutOfSyncOnly=true"], ..SERVER_SIDE_DIFF };
    let application = Application::create(&shop, world.argo_cd().await?, &options, objects("web:1", "v1")).await?;
    application.commit(objects("web:1", "v2")).await?;
    // A comparison that comes late, on a busy machine, sees the difference, and self-heal acts without being asked.
    let seen = (shop.deployment("web").value().await?, application.operations().await?);
    ensure!(seen == ("v1".into(), 2) || (3..=4).contains(&seen.1), "{seen:?}");
    follows_after_a_refresh(&shop, &application).await
}

/// Argo CD keeps the result of a server-side diff until the workload changes, or the commit, or until somebody asks for
/// a refresh. Then the workload is out of sync, and self-heal acts.
async fn follows_after_a_refresh(shop: &Shop<'_>, application: &Application<'_>) -> Result<()> {
    let web = shop.deployment("web");
    application.refresh("normal").await?;
    wait_for("the workload to follow", SOON, async || Ok((web.value().await? == "v2").then_some(()))).await?;
    web.wait_rolled_out().await?;
    assert_eq!(web.replica_sets().await?.len(), 2);
    application.wait_status("at rest", |status| status["sync"]["status"] == "Synced").await?;
    application.ensure_at_rest().await?;
    // A second one for the same commit may follow, see `ensure_one_operation_each`.
    let operations = application.operations().await?;
    ensure!((3..=4).contains(&operations), "{operations} operations");
    Ok(())
}

/// The names are ignored, so nothing shows that the workload has the old configuration; `on-change` brings it.
async fn apply_out_of_sync_only_leaves_the_workload_with_the_default_diff(world: &World) -> Result<()> {
    stays_until_on_change(world, &["ApplyOutOfSyncOnly=true"]).await
}

/// The stored names are put into what is sent, so a commit of the configuration alone changes no template.
async fn respect_ignore_differences_leaves_the_workload_on_a_config_only_commit(world: &World) -> Result<()> {
    stays_until_on_change(world, &["RespectIgnoreDifferences=true"]).await
}

async fn stays_until_on_change(world: &World, sync: &'static [&'static str]) -> Result<()> {
    let shop = world.shop("argo").await?;
    let (web, argo_cd) = (shop.deployment("web"), world.patched_argo_cd().await?);
    let application = Application::create(&shop, argo_cd, &Options { sync, ..DEFAULT }, objects("web:1", "v1")).await?;
    application.commit(objects("web:1", "v2")).await?;
    application.ensure_at_rest().await?;
    assert_eq!((web.value().await?, web.replica_sets().await?.len()), ("v1".into(), 1));
    application.ensure_one_operation_each(2).await?;

    // With the next change of the template it has the newest.
    application.commit(objects("web:2", "v2")).await?;
    web.wait_rolled_out().await?;
    assert_eq!((web.value().await?, web.replica_sets().await?.len()), ("v2".into(), 2));

    let command = docs::command("argo-cd.md", "on-change")?.replace("shop", shop.name());
    world.cluster.kubectl(command.split(' ').skip(1)).run().await?;
    application.commit(objects("web:2", "v3")).await?;
    wait_for("the workload to follow", SOON, async || Ok((web.value().await? == "v3").then_some(()))).await?;
    web.wait_rolled_out().await?;
    assert_eq!(web.replica_sets().await?.len(), 3);
    application.ensure_at_rest().await
}

async fn replace_with_a_deployment(world: &World) -> Result<()> {
    let options = Options { sync: &["Replace=true"], ..SERVER_SIDE_DIFF };
    argo_story::tell(world, world.argo_cd().await?, &options, Kind::Deployment).await
}

async fn replace_with_a_rollout(world: &World) -> Result<()> {
    let options = Options { sync: &["Replace=true"], ..SERVER_SIDE_DIFF };
    argo_story::tell(world, world.argo_cd().await?, &options, Kind::Rollout).await
}

async fn tracking_by_label(world: &World) -> Result<()> {
    argo_story::tell(world, world.labelling_argo_cd().await?, &SERVER_SIDE_DIFF, Kind::Deployment).await
}

/// A Job before and one after each synchronisation, and the ConfigMap in a wave before the workload.
async fn hooks_and_waves(world: &World) -> Result<()> {
    let shop = world.shop("argo").await?;
    let web = shop.deployment("web");
    let objects = |value| {
        let [source, workload] = objects("web:1", value);
        let after = job("PostSync", &json!([{"configMapRef": {"name": "app-config"}}]));
        [job("PreSync", &json!([])), in_wave(source, "1"), in_wave(workload, "2"), after]
    };
    let application = Application::create(&shop, world.argo_cd().await?, &SERVER_SIDE_DIFF, objects("v1")).await?;
    application.commit(objects("v2")).await?;
    web.wait_rolled_out().await?;
    assert_eq!((web.value().await?, web.replica_sets().await?.len()), ("v2".into(), 2));
    application.ensure_at_rest().await?;
    application.ensure_one_operation_each(2).await?;
    shop.wait_owned().await
}

async fn a_later_wave_of_the_configmap_takes_a_second_operation(world: &World) -> Result<()> {
    let shop = world.shop("argo").await?;
    let objects = |value| {
        let [source, workload] = objects("web:1", value);
        [in_wave(workload, "1"), in_wave(source, "2")]
    };
    // The ConfigMap is there already: pods of a node that runs containers would wait for it, and Argo CD for them.
    shop.apply([configmap("app-config", "v1")]).await?;
    let application = Application::create(&shop, world.argo_cd().await?, &SERVER_SIDE_DIFF, objects("v1")).await?;
    application.commit(objects("v2")).await?;
    follows_after_a_refresh(&shop, &application).await
}

fn in_wave(mut object: Value, wave: &str) -> Value {
    object["metadata"]["annotations"] = json!({"argocd.argoproj.io/sync-wave": wave});
    object
}

/// Jobs are not pinned. One that runs before the ConfigMap is there must not name it, with or without confpin.
fn job(hook: &str, environment: &Value) -> Value {
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": hook.to_lowercase(), "annotations": {
            "argocd.argoproj.io/hook": hook,
            "argocd.argoproj.io/hook-delete-policy": "BeforeHookCreation",
        }},
        "spec": {"template": {"spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "shop.example/job:1", "envFrom": environment}],
        }}},
    })
}
