//! cert-manager makes confpin's certificates and renews them, and its CA injector tells the API server of the CA.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use confpin::tls::{Validity, bundle::Bundle};
use k8s_openapi::api::core::v1::Secret;
use kube::{ResourceExt, api::DeleteParams};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use serde_json::json;
use testcluster::wait_for;

use crate::support::{
    SOON, configmap, deployment,
    installation::{Installation, NAMESPACE},
    load::Load,
    tests,
};

tests! {
    Installed whatever_cert_manager_renews_every_workload_is_pinned,
}

/// Requests a second: enough to meet the moment in which two sides know different certificates, and little beside
/// other tests.
const RATE: u32 = 4;

/// A Certificate, and the Secret that cert-manager keeps for it.
type Kept = (&'static str, &'static str);
const CA: Kept = ("confpin-ca", "confpin-cert-manager-ca");
const SERVING: Kept = ("confpin", "confpin-certificate");

async fn whatever_cert_manager_renews_every_workload_is_pinned() -> Result<()> {
    let installation = Installation::start_with_cert_manager().await?;
    let shop = installation.world.shop("renewed").await?;
    let web = shop.deployment("web");
    let apply = async |value: &str| {
        shop.apply([configmap("app-config", value), deployment("web").uses("app-config").json()]).await?;
        web.wait_rolled_out().await?;
        assert_eq!(web.value().await?, value);
        shop.wait_owned().await
    };
    apply("v1").await?;
    let lives = lives(&installation).await?;
    let first_ca = certificate(&installation, CA).await?;
    assert_eq!(trusted(&installation).await?, Bundle::from_pem(first_ca.as_bytes()));

    let load = Load::start(&shop, RATE).await?;
    renew(&installation, SERVING).await?;
    wait_served(&installation).await?;

    // A Secret that somebody deletes is made again, with another key.
    replace(&installation, SERVING).await?;
    wait_served(&installation).await?;
    assert_eq!(trusted(&installation).await?, Bundle::from_pem(first_ca.as_bytes()));

    // The CA with its key, which is how it is renewed by itself. Nobody is told of it until the serving certificate is
    // renewed.
    renew(&installation, CA).await?;
    let second_ca = certificate(&installation, CA).await?;
    assert_eq!(trusted(&installation).await?, Bundle::from_pem(first_ca.as_bytes()));
    renew(&installation, SERVING).await?;
    wait_trusted(&installation, &[&first_ca, &second_ca]).await?;
    wait_served(&installation).await?;

    // A CA with another key. It is trusted beside the old one, long before the kubelet brings what it signed.
    replace(&installation, CA).await?;
    let third_ca = certificate(&installation, CA).await?;
    renew(&installation, SERVING).await?;
    wait_trusted(&installation, &[&first_ca, &second_ca, &third_ca]).await?;
    wait_served(&installation).await?;

    apply("v2").await?;
    let sent = load.end().await?;
    ensure!(sent > 50, "only {sent} requests were sent");
    assert_eq!(self::lives(&installation).await?, lives, "a replica was started again");
    Ok(())
}

/// The replicas, and how often each was started again.
async fn lives(installation: &Installation) -> Result<BTreeSet<(String, i32)>> {
    let pods = installation.pods().await?.into_iter();
    let restarts = pods.map(|pod| {
        let name = pod.name_any();
        let containers = pod.status.and_then(|status| status.container_statuses).unwrap_or_default();
        (name, containers.iter().map(|container| container.restart_count).sum())
    });
    Ok(restarts.collect())
}

/// A Certificate's certificate, in PEM.
async fn certificate(installation: &Installation, (_, secret): Kept) -> Result<String> {
    installation.value_of(secret, "tls.crt").await
}

/// Has cert-manager renew a Certificate, as `cmctl renew` does, and waits until it has.
async fn renew(installation: &Installation, kept: Kept) -> Result<()> {
    let before = certificate(installation, kept).await?;
    let condition = json!({
        "type": "Issuing",
        "status": "True",
        "reason": "ManuallyTriggered",
        "message": "asked for by a test",
        "lastTransitionTime": jiff::Timestamp::now(),
    });
    let patch = json!([{"op": "add", "path": "/status/conditions/-", "value": condition}]).to_string();
    let kubectl = installation.world.cluster.kubectl([
        "patch",
        "certificate",
        kept.0,
        "--namespace",
        NAMESPACE,
        "--subresource=status",
        "--type=json",
        "--patch",
        &patch,
    ]);
    kubectl.run().await?;
    wait_other(installation, kept, &before).await
}

/// Takes a Certificate's Secret away, and waits until there is another.
async fn replace(installation: &Installation, kept: Kept) -> Result<()> {
    let before = certificate(installation, kept).await?;
    installation.api::<Secret>().delete(kept.1, &DeleteParams::default()).await?;
    wait_other(installation, kept, &before).await
}

async fn wait_other(installation: &Installation, kept: Kept, before: &str) -> Result<()> {
    wait_for("cert-manager to issue another certificate", SOON, async || {
        Ok((certificate(installation, kept).await? != before).then_some(()))
    })
    .await
}

/// Waits until each replica serves the certificate that is in the Secret.
async fn wait_served(installation: &Installation) -> Result<()> {
    let pem = certificate(installation, SERVING).await?;
    let expiry = Validity::of(&CertificateDer::from_pem_slice(pem.as_bytes())?)?.not_after.as_second();
    wait_for("each replica to serve the new certificate", SOON, async || {
        let served = installation.metrics("confpin_certificate_expiry_timestamp_seconds").await?;
        Ok(served.values().all(|served| served.to_string() == expiry.to_string()).then_some(()))
    })
    .await
}

/// The CAs that the API server is told to trust.
async fn trusted(installation: &Installation) -> Result<Bundle> {
    Ok(Bundle::from_pem(installation.bundle().await?.as_bytes()))
}

async fn wait_trusted(installation: &Installation, authorities: &[&str]) -> Result<()> {
    let expected = Bundle::from_pem(authorities.concat().as_bytes());
    wait_for("the CA to be injected", SOON, async || Ok((trusted(installation).await? == expected).then_some(()))).await
}
