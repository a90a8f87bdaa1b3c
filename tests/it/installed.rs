//! An installation in the cluster: its image, its manifests, two replicas, and nothing of this process.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Result, ensure};
use k8s_openapi::{
    ByteString,
    api::{admissionregistration::v1::MutatingWebhookConfiguration, core::v1::Secret, events::v1::Event},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
use testcluster::wait_for;

use crate::support::{
    SOON, configmap,
    confpin::ask,
    deployment,
    installation::{Installation, NAMESPACE},
    load::Load,
    tests,
};
use confpin::install::{CA_SECRET, NAME};
use confpin::tls::authority::Authority;
use confpin::tls::bundle::Bundle;

tests! {
    Installed it_pins_and_collects_and_is_uninstalled,
    Loaded it_is_replaced_and_rolled_back_under_load,
    Loaded certificates_are_rotated_under_load,
    Installed a_ca_that_is_lost_or_damaged_is_made_good,
    Installed a_ca_of_somebody_elses_is_used_and_never_written,
}

async fn it_pins_and_collects_and_is_uninstalled() -> Result<()> {
    let installation = Installation::start(&[]).await?;
    let shop = installation.world.shop("installed").await?;
    let manifest = deployment("web").uses("app").replicas(1).json();
    shop.apply([configmap("app", "a-secret-word"), manifest.clone()]).await?;
    shop.deployment("web").wait_rolled_out().await?;
    shop.wait_owned().await?;
    assert_eq!(shop.deployment("web").value().await?, "a-secret-word");

    let leader = installation.leader().await?;
    let leads = installation.metrics("confpin_leader").await?;
    assert_eq!(leads.get(&leader), Some(&1.0), "{leads:?}");
    assert_eq!(leads.len(), 2);
    assert!((leads.values().sum::<f64>() - 1.0).abs() < 0.1, "{leads:?}");
    for pod in installation.pods().await? {
        let address = pod.status.and_then(|status| status.pod_ip).unwrap_or_default();
        assert_eq!(ask(&format!("http://{address}:8080/readyz")).await?, (200, "ok\n".to_owned()));
    }

    shop.run("delete deployment web").await?;
    wait_for("the snapshots to be collected", SOON, async || Ok(shop.snapshots().await?.is_empty().then_some(())))
        .await?;
    let logs = installation.logs().await?;
    assert!(logs.contains("this replica reconciles"), "{logs}");
    assert!(!logs.contains("a-secret-word"), "content of a ConfigMap is in a log");

    // The documented order. Nothing may block, and nothing be refused, at any moment of it.
    let kubectl = |arguments: &str| installation.world.cluster.kubectl(arguments.split(' ')).run();
    kubectl("delete mutatingwebhookconfiguration confpin").await?;
    // API servers hear of it in a moment.
    wait_for("workloads to be admitted unpinned", SOON, async || {
        shop.apply([manifest.clone()]).await?;
        let names = shop.deployment("web").names().await?;
        shop.run("delete deployment web").await?;
        Ok((names == BTreeSet::from(["app".to_owned()])).then_some(()))
    })
    .await?;
    kubectl(&format!("delete namespace {NAMESPACE} --timeout=120s")).await?;
    shop.apply([manifest]).await?;
    shop.deployment("web").wait_rolled_out().await
}

async fn it_is_replaced_and_rolled_back_under_load() -> Result<()> {
    let installation = Installation::start(&[]).await?;
    let shop = installation.world.shop("replaced").await?;
    let load = Load::start(&shop, 20).await?;
    let first: BTreeSet<_> = installation.pods().await?.iter().map(ResourceExt::name_any).collect();
    let kubectl = |arguments: &str| {
        let namespace = format!("--namespace={NAMESPACE}");
        let arguments: Vec<_> = std::iter::once(namespace).chain(arguments.split(' ').map(str::to_owned)).collect();
        installation.world.cluster.kubectl(arguments).run()
    };
    for change in
        [&format!("set env deployment/{NAME} CONFPIN_ORPHAN_GRACE=9m"), &format!("rollout undo deployment/{NAME}")]
    {
        kubectl(change).await?;
        installation.wait_ready().await?;
        // Those that end answer until they have.
        kubectl(&format!("rollout status deployment/{NAME} --timeout=120s")).await?;
    }
    let last: BTreeSet<_> = installation.pods().await?.iter().map(ResourceExt::name_any).collect();
    assert!(first.is_disjoint(&last), "{first:?}, {last:?}");
    let sent = load.end().await?;
    ensure!(sent > 100, "only {sent} requests were sent");
    Ok(())
}

async fn certificates_are_rotated_under_load() -> Result<()> {
    const ROTATIONS: usize = 3;
    let installation = Installation::start(&["--ca-life=45s", "--certificate-life=15s"]).await?;
    let shop = installation.world.shop("rotated").await?;
    let load = Load::start(&shop, 50).await?;
    let (mut signers, mut certificates) = (BTreeSet::new(), BTreeSet::new());
    wait_for("the CA to be replaced several times", Duration::from_secs(300), async || {
        signers.insert(installation.secret_value("tls.crt").await?);
        for (pod, expiry) in installation.metrics("confpin_certificate_expiry_timestamp_seconds").await? {
            certificates.insert((pod, expiry.to_string()));
        }
        Ok((signers.len() > ROTATIONS).then_some(()))
    })
    .await?;
    let sent = load.end().await?;
    // Each replica renews its own several times in the life of a CA.
    ensure!(certificates.len() > 4 * ROTATIONS, "{} certificates", certificates.len());
    ensure!(sent > 1000, "only {sent} requests were sent");
    let trusted = Bundle::from_pem(installation.bundle().await?.as_bytes()).to_pem();
    let count = trusted.matches("BEGIN CERTIFICATE").count();
    ensure!((1..=3).contains(&count), "{count} CAs are trusted after {ROTATIONS} rotations");
    Ok(())
}

async fn a_ca_that_is_lost_or_damaged_is_made_good() -> Result<()> {
    let installation = Installation::start(&[]).await?;
    let secrets: Api<Secret> = installation.api();
    let (signer, bundle) = (installation.secret_value("tls.crt").await?, installation.bundle().await?);
    assert!(bundle.contains(&signer));
    let same_signer = async || Ok((installation.secret_value("tls.crt").await? == signer).then_some(()));

    secrets.delete(CA_SECRET, &DeleteParams::default()).await?;
    wait_for("the Secret to be made again with the same CA", SOON, same_signer).await?;

    damage(&secrets).await?;
    wait_for("the Secret to be replaced by the same CA", SOON, async || {
        let key = installation.secret_value("tls.key").await?;
        Ok(if key.starts_with("-----BEGIN") { same_signer().await? } else { None })
    })
    .await?;
    let events: Api<Event> = installation.api();
    wait_for("an Event that tells of it", SOON, async || {
        let events = events.list(&ListParams::default()).await?;
        Ok(events
            .items
            .iter()
            .any(|event| event.reason.as_deref() == Some("CertificateAuthorityReplaced"))
            .then_some(()))
    })
    .await?;

    let configurations: Api<MutatingWebhookConfiguration> = Api::all(installation.world.client.clone());
    let foreign = Authority::generate(jiff::Timestamp::now(), jiff::SignedDuration::from_hours(1))?;
    let patch = json!([{
        "op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": ByteString(foreign.ca_pem().into()),
    }]);
    let patch: Patch<()> = Patch::Json(serde_json::from_value(patch)?);
    configurations.patch(NAME, &PatchParams::default(), &patch).await?;
    wait_for("the CA bundle to be repaired", SOON, async || Ok((installation.bundle().await? == bundle).then_some(())))
        .await?;
    installation.world.wait_until_asked().await?;

    // Nobody knows the old CA any more.
    installation.scale(0).await?;
    damage(&secrets).await?;
    installation.scale(2).await?;
    installation.wait_ready().await?;
    assert_ne!(installation.secret_value("tls.crt").await?, signer);
    installation.world.wait_until_asked().await
}

async fn a_ca_of_somebody_elses_is_used_and_never_written() -> Result<()> {
    let installation = Installation::start(&[]).await?;
    installation.scale(0).await?;
    let secrets: Api<Secret> = installation.api();
    secrets.delete(CA_SECRET, &DeleteParams::default()).await?;
    let own = Authority::generate(jiff::Timestamp::now(), jiff::SignedDuration::from_hours(1))?;
    let secret = json!({
        "metadata": {"name": CA_SECRET},
        "type": "kubernetes.io/tls",
        "stringData": {"tls.crt": own.ca_pem(), "tls.key": own.key_pem()},
    });
    let made = secrets.create(&PostParams::default(), &serde_json::from_value(secret)?).await?;
    installation.scale(2).await?;
    installation.wait_ready().await?;
    installation.world.wait_until_asked().await?;
    assert!(installation.bundle().await?.contains(own.ca_pem()));
    assert_eq!(installation.secret().await?.resource_version(), made.resource_version());
    Ok(())
}

async fn damage(secrets: &Api<Secret>) -> Result<()> {
    let patch = json!({"stringData": {"tls.key": "no key"}});
    secrets.patch(CA_SECRET, &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}
