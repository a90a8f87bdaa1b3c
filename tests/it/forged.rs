//! Claims and records that somebody wrote by hand, to stop confpin.

use anyhow::{Result, ensure};
use kube::ResourceExt;
use serde_json::{Value, json};
use testcluster::wait_for;

use crate::support::{SOON, World, configmap, deployment, tests};

tests! {
    Shared forged_claims_stop_nobody,
}

/// The first and the last time that can be written, and texts that are no claim at all.
const CLAIMS: [&str; 4] = [
    r#"{"kind":"Deployment.apps","name":"web","generation":1,"at":"-009999-01-02T01:59:59Z"}"#,
    r#"{"kind":"Deployment.apps","name":"web","generation":1,"at":"9999-12-30T22:00:00.999999999Z"}"#,
    r#"{"kind":"Deployment.apps","name":"../web","generation":-9223372036854775808,"at":"1970-01-01T00:00:00Z"}"#,
    "{",
];

/// A ConfigMap that looks like a snapshot to whoever sees its metadata only.
fn forged(name: &str, claim: &str) -> Value {
    let digits = name.trim_start_matches("x-");
    let hash = format!("{digits:0<64}");
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {
            "name": name,
            "labels": {"confpin.dev/snapshot": "true"},
            "annotations": {
                "confpin.dev/source": "x",
                "confpin.dev/content-hash": hash,
                "claims.confpin.dev/0000000000000000-1": claim,
            },
        },
    })
}

/// By whoever may create ConfigMaps and Deployments in a namespace that confpin does not even serve.
async fn forged_claims_stop_nobody(world: &World) -> Result<()> {
    let (referenced, unused) = (world.unlabelled_shop("forged").await?, world.unlabelled_shop("forged-unused").await?);
    for (number, claim) in CLAIMS.into_iter().enumerate() {
        let name = format!("x-{number:010}");
        let web = deployment(&format!("web-{number}")).env_from(&name).replicas(0);
        referenced.apply([forged(&name, claim), web.json()]).await?;
        unused.apply([forged(&name, claim)]).await?;
    }

    // They count for nothing, and go.
    referenced.wait_owned().await?;
    wait_for("the claims to be gone", SOON, async || {
        let snapshots = referenced.snapshots().await?;
        let has_claims =
            |snapshot: &&_| ResourceExt::annotations(*snapshot).keys().any(|key| key.starts_with("claims."));
        Ok((snapshots.values().find(has_claims).is_none()).then_some(()))
    })
    .await?;

    // All others go on.
    let shop = world.shop("honest").await?;
    shop.apply([configmap("app-config", "v1"), deployment("web").uses("app-config").json()]).await?;
    shop.deployment("web").wait_rolled_out().await?;
    shop.wait_owned().await?;
    assert_eq!(world.confpin.ask("readyz").await?, (200, "ok\n".to_owned()));
    assert!(world.confpin.metric("confpin_panics_total", "").await?.abs() < 0.5, "something panicked");

    // Nor do they stop the plugin.
    let told = unused.plugin("orphans --orphan-grace 1s").await?;
    ensure!(told.code == 0 && told.stderr.is_empty(), "{told:?}");
    assert_eq!(told.stdout.lines().count(), 1 + CLAIMS.len(), "{told:?}");
    unused.run("delete configmap --selector=confpin.dev/snapshot").await?;
    Ok(())
}
