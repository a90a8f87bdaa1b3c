//! The same manifest again, dry runs and diffs.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use testcluster::wait_for;

use crate::support::{Kind, SOON, World, configmap, configmaps, manifest, tests, workload::only};

tests! {
    Shared applying_the_same_again_changes_nothing,
    Shared a_diff_of_the_same_is_empty_and_writes_nothing,
    Shared server_side_apply_twice_has_no_conflict_and_changes_nothing,
    Shared a_dry_run_answers_as_the_real_request_and_writes_nothing,
    Shared a_removed_record_is_written_again_without_a_rollout,
}

const KINDS: [Kind; 2] = [Kind::Deployment, Kind::Rollout];

fn shop_window(kind: Kind, value: &str) -> [Value; 2] {
    [configmap("app-config", value), manifest::workload(kind, "web").uses("app-config").env_from("app-config").json()]
}

async fn applying_the_same_again_changes_nothing(world: &World) -> Result<()> {
    let shop = world.shop("again").await?;
    for kind in KINDS {
        shop.apply(shop_window(kind, "v1")).await?;
        let web = shop.workload(kind, "web");
        web.wait_rolled_out().await?;
        shop.wait_owned().await?;
        let (names, snapshots) = (web.names().await?, shop.snapshots().await?);

        let generation = web.generation().await?;
        // A status may still be on its way, which a second look does not meet again.
        wait_for("an application that changes nothing", SOON, async || {
            let before = web.version().await?;
            shop.apply(shop_window(kind, "v1")).await?;
            let after = web.version().await?;
            ensure!(before == after, "{before:?} became {after:?}");
            Ok(Some(()))
        })
        .await?;
        assert_eq!(web.generation().await?, generation);
        assert_eq!(web.names().await?, names);
        assert_eq!(shop.snapshots().await?, snapshots);
        assert_eq!(web.replica_sets().await?.len(), 1);
        shop.run(&format!("delete {web}")).await?;
    }
    Ok(())
}

async fn a_diff_of_the_same_is_empty_and_writes_nothing(world: &World) -> Result<()> {
    let shop = world.shop("diff").await?;
    for kind in KINDS {
        for options in [&[][..], &["--server-side"]] {
            let send =
                |command| shop.send([command].into_iter().chain(options.iter().copied()), shop_window(kind, "v1"));
            let web = shop.workload(kind, "web");
            send("apply").run().await?;
            web.wait_rolled_out().await?;
            shop.wait_owned().await?;

            let mark = shop.mark().await?;
            let output = send("diff").run_any().await?;
            let shown = String::from_utf8_lossy(&output.stdout);
            let told = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && shown.is_empty(), "{web} {options:?}: {shown}{told}");
            let traffic = shop.since(&mark).await?;
            assert_eq!(traffic.writes(), Vec::<String>::new());
            assert!(!traffic.of_confpin().is_empty(), "the diff did not ask confpin");
            shop.run(&format!("delete {web} configmap/app-config")).await?;
            // Else its ReplicaSet may go, and its snapshot change hands, under the eyes of the next round.
            wait_for("everything of it to be collected", SOON, async || {
                Ok((shop.replica_sets().await?.is_empty() && shop.snapshots().await?.is_empty()).then_some(()))
            })
            .await?;
        }
    }
    Ok(())
}

async fn server_side_apply_twice_has_no_conflict_and_changes_nothing(world: &World) -> Result<()> {
    let shop = world.shop("ssa").await?;
    for kind in KINDS {
        let apply = || shop.send(["apply", "--server-side"], shop_window(kind, "v1")).run();
        apply().await?;
        let web = shop.workload(kind, "web");
        web.wait_rolled_out().await?;
        let version = web.version().await?;
        apply().await?;
        assert_eq!(web.version().await?, version, "{web}");

        shop.send(["apply", "--server-side"], shop_window(kind, "v2")).run().await?;
        assert_eq!(web.value().await?, "v2");
        web.wait_rolled_out().await?;
        assert_eq!(web.replica_sets().await?.len(), 2);
        shop.run(&format!("delete {web}")).await?;
    }
    Ok(())
}

async fn a_dry_run_answers_as_the_real_request_and_writes_nothing(world: &World) -> Result<()> {
    let shop = world.shop("dry").await?;
    for kind in KINDS {
        let web = shop.workload(kind, "web");
        for (value, image) in [("v1", "web:1"), ("v2", "web:1"), ("v2", "web:2"), ("v1", "web:1")] {
            shop.apply([configmap("app-config", value)]).await?;
            let manifest =
                manifest::workload(kind, "web").uses("app-config").env_from("app-config").image(image).json();
            let mark = shop.mark().await?;
            let dry = shop.send(["apply", "--dry-run=server", "--output=json"], [manifest.clone()]).run().await?;
            let traffic = shop.since(&mark).await?;
            ensure!(traffic.writes().iter().all(|write| !write.contains("confpin/")), "{:?}", traffic.writes());
            let foreseen = template_of(&dry)?;
            let name = only(configmaps::names(&foreseen))?;
            assert_ne!(name, "app-config");

            shop.apply([manifest]).await?;
            assert_eq!(web.template().await?, foreseen, "{web} with {value} and {image}");
            assert_eq!(web.value().await?, value);
        }
        shop.run(&format!("delete {web}")).await?;
    }
    Ok(())
}

async fn a_removed_record_is_written_again_without_a_rollout(world: &World) -> Result<()> {
    let shop = world.shop("record").await?;
    shop.apply(shop_window(Kind::Deployment, "v1")).await?;
    let web = shop.deployment("web");
    web.wait_rolled_out().await?;
    let record = async || {
        web.object().await.map(|object| object.metadata.annotations.unwrap_or_default().remove("confpin.dev/record"))
    };
    let (generation, before) = (web.generation().await?, record().await?);
    assert!(before.is_some());

    shop.run("annotate deployment/web confpin.dev/record-").await?;
    assert_eq!(record().await?, before);
    shop.run("annotate --overwrite deployment/web confpin.dev/record={}").await?;
    assert_eq!(record().await?, before);
    assert_eq!(web.generation().await?, generation);
    Ok(())
}

/// The pod template in what `kubectl` printed: an object, or a list of one.
fn template_of(printed: &str) -> Result<Value> {
    let value: Value = serde_json::from_str(printed).context("kubectl printed no JSON")?;
    let object = value["items"].get(0).unwrap_or(&value);
    Ok(object["spec"]["template"].clone())
}
