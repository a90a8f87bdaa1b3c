//! What `kubectl confpin` tells about workloads on a real cluster.

use anyhow::{Context, Result};
use kube::ResourceExt;
use serde_json::json;
use testcluster::{Cluster, Program, wait_for};

use crate::support::{
    SOON, Shop, World, configmap, deployment,
    plugin::{PLUGIN, assert_told},
    rollout, tests,
};

tests! {
    Shared status_tells_what_each_workload_is_pinned_to,
    Shared status_needs_a_readers_rights_and_names_those_that_lack,
    Shared colours_are_for_terminals,
    Shared kubectl_completes_the_plugin,
    Shared history_tells_the_configuration_of_each_revision,
    Shared diff_shows_what_changed_between_revisions_and_what_the_next_apply_brings,
    Shared kubectl_finds_the_plugin,
    Shared explain_tells_the_last_decision_and_why,
    Shared switches_are_set_and_admission_follows,
    Own orphans_are_told_with_the_time_that_they_have,
}

/// A namespace with one workload of each state.
async fn every_state(shop: &Shop<'_>) -> Result<()> {
    let web = |name: &str| deployment(name).replicas(0);
    let mut live = configmap("live", "1");
    live["metadata"]["annotations"]["confpin.dev/pin"] = "disabled".into();
    // Before the namespace is opted in.
    shop.apply([configmap("app-config", "1"), configmap("gone", "1"), live, web("old").uses("app-config").json()])
        .await?;
    let label = ["label", "namespace", shop.name(), "confpin.dev/pin=enabled"];
    shop.world.cluster.kubectl(label).run().await?;
    let out = web("out").uses("app-config").with(|object| {
        object["metadata"]["annotations"] = json!({"confpin.dev/pin": "disabled"});
    });
    let optional = web("optional").uses("nowhere").with_pod(|pod| {
        pod["volumes"][0]["configMap"]["optional"] = true.into();
    });
    shop.apply([
        web("behind").uses("app-config").json(),
        web("sourceless").uses("gone").json(),
        web("waits").uses("nowhere").json(),
        optional.json(),
        out.json(),
    ])
    .await?;
    // The API server hears of the label by a watch.
    wait_for("a workload to be pinned", SOON, async || {
        shop.run("rollout restart deployment/behind deployment/sourceless").await?;
        let pinned = async |name: &str| Ok::<_, anyhow::Error>(shop.deployment(name).name().await?.contains('-'));
        Ok((shop.deployment("behind").name().await? != "app-config" && pinned("sourceless").await?).then_some(()))
    })
    .await?;
    shop.apply([configmap("app-config", "2"), rollout("shop").replicas(0).uses("app-config").uses("live").json()])
        .await?;
    shop.run("delete configmap gone").await?;
    Ok(())
}

async fn status_tells_what_each_workload_is_pinned_to(world: &World) -> Result<()> {
    let shop = world.unlabelled_shop("status").await?;
    every_state(&shop).await?;
    let told = shop.plugin("status").await?;
    assert_told!(shop, "status", told.text()?);
    assert_told!(shop, "status of one", shop.plugin("status deploy/behind").await?.text()?);
    assert_eq!(shop.plugin("status rollout shop").await?.code, 0);
    assert_eq!(shop.plugin("status deploy/nothing").await?.code, 2);
    assert_eq!(shop.plugin("status pod/web").await?.code, 64);

    let json: serde_json::Value = serde_json::from_str(&shop.plugin("status -o json").await?.stdout)?;
    assert_eq!(json["namespaces"][shop.name()]["behind"], 1);
    assert_eq!(json["workloads"][0]["uses"][0]["state"], "behind");
    let all = shop.plugin("status -A").await?.stdout;
    assert!(all.starts_with("NAMESPACE ") && all.contains("deployment/behind"), "{all}");
    Ok(())
}

async fn status_needs_a_readers_rights_and_names_those_that_lack(world: &World) -> Result<()> {
    let shop = world.shop("reader").await?;
    shop.apply([configmap("app-config", "1"), deployment("web").uses("app-config").replicas(0).json()]).await?;
    let configmaps: (&str, &str, &[&str]) = ("", "configmaps", &["get", "list"]);
    let deployments: (&str, &str, &[&str]) = ("apps", "deployments", &["list"]);
    let rollouts: (&str, &str, &[&str]) = ("argoproj.io", "rollouts", &["list"]);
    let namespaces: (&str, &str, &[&str]) = ("", "namespaces", &["get"]);

    let reader = shop.user("reader", &[configmaps, deployments, rollouts, namespaces]).await?;
    let told = shop.plugin_with("status", "", &reader).await?;
    assert_eq!((told.code, told.stderr.as_str()), (0, ""));
    assert!(told.stdout.contains("newest"), "{}", told.stdout);

    let half = shop.user("half", &[configmaps, deployments, namespaces]).await?;
    let told = shop.plugin_with("status", "", &half).await?;
    assert_eq!(told.code, 2);
    assert!(told.stdout.contains("newest"), "{}", told.stdout);
    assert!(told.stderr.contains(r#"cannot list resource "rollouts" in API group "argoproj.io""#), "{}", told.stderr);
    Ok(())
}

async fn colours_are_for_terminals(world: &World) -> Result<()> {
    let shop = world.shop("colours").await?;
    shop.apply([configmap("app-config", "1"), deployment("web").uses("app-config").replicas(0).json()]).await?;
    assert!(!shop.plugin("status").await?.stdout.contains('\x1b'));
    let on_terminal = async |variable: (&str, &str)| -> Result<String> {
        let mut script = tokio::process::Command::new("script");
        let command = format!("stty cols 80; {PLUGIN} status --namespace {}", shop.name());
        script.args(["--quiet", "--return", "--command", &command, "/dev/null"]).env_remove("NO_COLOR");
        script.env("KUBECONFIG", world.cluster.kubeconfig()).env("TERM", "xterm").env(variable.0, variable.1);
        Ok(String::from_utf8(script.stdin(std::process::Stdio::null()).output().await?.stdout)?)
    };
    let coloured = on_terminal(("NONE", "")).await?;
    assert!(coloured.contains("\x1b[32mnewest\x1b[0m"), "{coloured:?}");
    let plain = on_terminal(("NO_COLOR", "1")).await?;
    assert!(plain.contains("newest") && !plain.contains("\x1b["), "{plain:?}");
    Ok(())
}

async fn kubectl_finds_the_plugin(world: &World) -> Result<()> {
    let shop = world.shop("kubectl").await?;
    let folder = std::path::Path::new(PLUGIN).parent().unwrap_or(std::path::Path::new("/"));
    let mut kubectl = world.cluster.command(Program::Kubectl).await?;
    let output = kubectl.env("PATH", folder).args(["confpin", "status", "--namespace", shop.name()]).output().await?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let help = kubectl.arg("--help").output().await?;
    assert!(String::from_utf8_lossy(&help.stdout).contains("Usage: kubectl confpin status"), "{help:?}");
    Ok(())
}

async fn history_tells_the_configuration_of_each_revision(world: &World) -> Result<()> {
    let shop = world.shop("history").await?;
    let web = |value: &str| {
        let manifest =
            rollout("web").uses("app-config").uses("features").image(&format!("web:{value}")).with(|object| {
                object["spec"]["strategy"]["canary"]["steps"] = json!([{"setWeight": 20}, {"pause": {}}]);
            });
        [configmap("app-config", value), configmap("features", "same"), manifest.json()]
    };
    for value in ["1", "2"] {
        shop.apply(web(value)).await?;
        shop.rollout("web").wait_status("under way", |status| status["observedGeneration"].is_string()).await?;
        shop.argo_rollouts("promote web --full").await?;
        shop.rollout("web").wait_rolled_out().await?;
    }
    shop.apply(web("3")).await?;
    shop.rollout("web").wait_status("paused", |status| status["phase"] == "Paused" && status["replicas"] == 2).await?;
    assert_told!(shop, "history", shop.plugin("history ro/web").await?.text()?);
    let told = shop.plugin("diff rollout/web --from stable --to current").await?;
    assert_told!(shop, "diff of a canary", told.text()?);

    let json: serde_json::Value = serde_json::from_str(&shop.plugin("history rollout web -o json").await?.stdout)?;
    assert_eq!((&json[0]["number"], &json[0]["roles"][0]), (&3.into(), &"canary".into()));
    Ok(())
}

async fn diff_shows_what_changed_between_revisions_and_what_the_next_apply_brings(world: &World) -> Result<()> {
    let shop = world.shop("diff").await?;
    let file = |port: &str, logo: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "app-config"},
            "data": {"app.ini": format!("[server]\nport = {port}\n"), "level": "info"},
            "binaryData": {"logo.png": logo},
        })
    };
    let web = deployment("web").uses("app-config").replicas(0);
    for (port, logo) in [("80", "AP8="), ("8080", "AP8A")] {
        shop.apply([file(port, logo), web.json()]).await?;
        shop.deployment("web").wait_rolled_out().await?;
    }
    assert_told!(shop, "diff of revisions", shop.plugin("diff deploy/web --from 1 --to 2").await?.text()?);
    assert_eq!(shop.plugin("diff deploy/web").await?.code, 0);

    shop.apply([configmap("app-config", "another")]).await?;
    assert_told!(shop, "diff to the next", shop.plugin("diff deploy/web").await?.text()?);
    let (next, live) = (shop.plugin("diff deploy/web -o json"), shop.plugin("diff deploy/web --to live -o yaml"));
    let next: serde_json::Value = serde_json::from_str(&next.await?.stdout)?;
    assert!(live.await?.stdout.contains("to: app-config\n"));
    shop.apply([web.json()]).await?;
    assert_eq!(next[0]["to"], shop.deployment("web").name().await?.as_str());

    let told = shop.plugin("diff deploy/web --from 7").await?;
    assert_eq!((told.code, told.stdout.as_str()), (2, ""));
    assert!(told.stderr.contains("failed to find revision 7"), "{}", told.stderr);
    Ok(())
}

async fn explain_tells_the_last_decision_and_why(world: &World) -> Result<()> {
    let shop = world.shop("explain").await?;
    let web = deployment("web").replicas(0).uses("app-config").json();
    for value in ["1", "2"] {
        shop.apply([configmap("app-config", value), web.clone()]).await?;
        shop.deployment("web").wait_rolled_out().await?;
    }
    shop.run("rollout undo deployment/web").await?;
    shop.deployment("web").wait_rolled_out().await?;
    shop.deployment("web").wait_event("Kept", "rollback").await?;
    assert_told!(shop, "explain an undo", shop.plugin("explain deploy/web").await?.text()?);

    let json: serde_json::Value = serde_json::from_str(&shop.plugin("explain deploy/web -o json").await?.stdout)?;
    assert_eq!(json["sources"][0]["state"], "behind");

    // Without the right to list Events it tells the rest.
    let get_list: &[&str] = &["get", "list"];
    let rights = [("", "configmaps", get_list), ("apps", "deployments", get_list), ("apps", "replicasets", get_list)];
    let reader = shop.user("reader", &rights).await?;
    let told = shop.plugin_with("explain deploy/web", "", &reader).await?;
    assert_eq!(told.code, 2);
    assert!(told.stdout.contains("a rollback kept"), "{}", told.stdout);
    for missing in [r#"cannot list resource "events""#, r#"cannot get resource "namespaces""#] {
        assert!(told.stderr.contains(missing), "{}", told.stderr);
    }
    Ok(())
}

async fn switches_are_set_and_admission_follows(world: &World) -> Result<()> {
    let shop = world.shop("switches").await?;
    let web = shop.deployment("web");
    shop.apply([configmap("app-config", "1"), deployment("web").replicas(0).uses("app-config").json()]).await?;
    web.wait_rolled_out().await?;
    let version = web.version().await?;
    assert_told!(shop, "opt-out dry run", shop.plugin("opt-out deploy/web --dry-run").await?.text()?);
    assert_eq!(web.version().await?, version);

    assert_eq!(shop.plugin("opt-out deployment web").await?.code, 0);
    web.restart().await?;
    assert_eq!(web.name().await?, "app-config");
    assert_eq!(shop.plugin("opt-in deploy/web").await?.code, 0);
    web.restart().await?;
    assert_eq!(web.value().await?, "1");

    assert_told!(shop, "on-change", shop.plugin("on-change deploy/web").await?.text()?);
    shop.apply([configmap("app-config", "2")]).await?;
    wait_for("the workload to follow", SOON, async || Ok((web.value().await? == "2").then_some(()))).await?;
    assert_eq!(shop.plugin("on-change deploy/web --off").await?.code, 0);
    assert_eq!(web.object().await?.annotations().get("confpin.dev/rollout"), None);

    assert_eq!(shop.plugin("opt-out cm/app-config").await?.code, 0);
    web.restart().await?;
    assert_eq!(web.name().await?, "app-config");
    let namespace = format!("opt-out ns/{}", shop.name());
    assert_eq!(shop.plugin(&namespace).await?.code, 0);
    assert!(shop.plugin("status").await?.stdout.contains("off (configmap)"));
    assert_eq!(shop.plugin("opt-in cm app-config").await?.code, 0);
    assert!(shop.plugin("status").await?.stdout.contains("off (namespace)"));
    assert_eq!(shop.plugin(&namespace.replace("out", "in")).await?.code, 0);
    assert!(shop.plugin("status").await?.stdout.contains("unpinned"));

    assert_eq!(shop.plugin("on-change cm/app-config").await?.code, 64);
    assert_eq!(shop.plugin("opt-out deploy/nothing").await?.code, 2);
    Ok(())
}

async fn orphans_are_told_with_the_time_that_they_have() -> Result<()> {
    let world = World::with_arguments(Cluster::builder(), &["--settle=0s"]).await?;
    let shop = world.shop("orphans").await?;
    // Of a workload that is refused after confpin has made its snapshot.
    shop.set_quota("count/deployments.apps", 0).await?;
    shop.apply([configmap("app-config", "1")]).await?;
    let web = deployment("web").replicas(0).uses("app-config").json();
    let refused = shop.send(["apply"], [web]).run_any().await?;
    assert!(!refused.status.success());
    assert_told!(shop, "orphans in the grace period", shop.plugin("orphans").await?.text()?);
    assert_told!(shop, "orphans claimed", shop.plugin("orphans --orphan-grace 0").await?.text()?);

    // What a pod names stays.
    let name = shop.snapshots().await?.into_keys().next().context("a snapshot")?;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "left"},
        "spec": {"containers": [{"name": "main", "image": "web", "envFrom": [{"configMapRef": {"name": name}}]}]},
    });
    shop.apply([pod]).await?;
    assert_told!(shop, "orphans that a pod names", shop.plugin("orphans -A").await?.text()?);
    Ok(())
}

/// By `kubectl`'s own completion, which every shell's script asks.
async fn kubectl_completes_the_plugin(world: &World) -> Result<()> {
    let shop = world.shop("complete").await?;
    let folder = world.cluster.folder().join(shop.name());
    std::fs::create_dir_all(&folder)?;
    let script = folder.join("kubectl_complete-confpin");
    std::fs::write(&script, shop.plugin_offline("completion kubectl", "").await?.stdout)?;
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    let plugins = std::path::Path::new(PLUGIN).parent().context("a program is in a folder")?;
    let path = std::env::join_paths([plugins, &folder, std::path::Path::new("/bin")])?;
    let complete = async |words: &[&str]| -> Result<String> {
        let mut kubectl = world.cluster.command(Program::Kubectl).await?;
        let output = kubectl.env("PATH", &path).args(["__complete", "confpin"]).args(words).output().await?;
        Ok(String::from_utf8(output.stdout)?)
    };
    assert_eq!(complete(&["st"]).await?, "status\n:4\n");
    assert_eq!(complete(&["render", "-f", ""]).await?, ":0\n");

    for (shell, has) in
        [("bash", "complete -F"), ("zsh", "#compdef kubectl-confpin"), ("fish", "complete -c kubectl-confpin")]
    {
        let script = shop.plugin_offline(&format!("completion {shell}"), "").await?.stdout;
        assert!(script.contains(has), "{shell}");
    }
    Ok(())
}
