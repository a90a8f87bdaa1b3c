//! `--client-ca`, with an API server that shows the certificate as `docs/security.md` says.

use std::{fs, path::Path};

use anyhow::{Context, Result, ensure};
use axum::http::{Method, Request, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use kube::Api;
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use serde_json::json;
use testcluster::{Cluster, free_port};

use crate::support::{Shop, World, configmap, confpin::Confpin, deployment, docs, rights, tests};

tests! {
    Own only_a_caller_with_a_certificate_of_the_ca_is_answered,
}

/// A CA of callers, and a certificate of it: PEM.
struct Caller {
    ca: String,
    certificate: String,
    key: String,
}

impl Caller {
    fn new() -> Result<Self> {
        let ca_key = KeyPair::generate()?;
        let mut ca = CertificateParams::default();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let ca_pem = ca.self_signed(&ca_key)?.pem();
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, &Issuer::new(ca, ca_key))?.pem();
        Ok(Self { ca: ca_pem, certificate, key: key.serialize_pem() })
    }
}

/// Writes the files of the documentation, and returns the flag of the API server.
fn configure(folder: &Path, caller: &Caller, port: u16) -> Result<String> {
    let write = |name: &str, text: &str| fs::write(folder.join(name), text).with_context(|| name.to_owned());
    write("webhook-clients-ca.pem", &caller.ca)?;
    write("webhook-client.pem", &caller.certificate)?;
    write("webhook-client-key.pem", &caller.key)?;
    let placed = |text: String| text.replace("/etc/kubernetes/confpin", &folder.display().to_string());
    write("admission.yaml", &placed(docs::block("../security.md", "admission")?))?;
    let callers = placed(docs::block("../security.md", "callers")?);
    let service = "confpin.confpin-system.svc";
    ensure!(callers.contains(service), "the documentation names another Service");
    write("webhook-callers.yaml", &callers.replace(service, &format!("127.0.0.1:{port}")))?;
    Ok(format!("--admission-control-config-file={}", folder.join("admission.yaml").display()))
}

async fn only_a_caller_with_a_certificate_of_the_ca_is_answered() -> Result<()> {
    let (folder, port, caller) = (tempfile::tempdir()?, free_port()?, Caller::new()?);
    let flag = configure(folder.path(), &caller, port)?;
    let cluster = Cluster::builder().api_server_flags([flag]).start().await?;
    let kubeconfig = rights::install(&cluster).await?;
    let client_ca = format!("--client-ca={}", folder.path().join("webhook-clients-ca.pem").display());
    let confpin = Confpin::new(&cluster, &[&client_ca])?.at(port).with_kubeconfig(kubeconfig);
    let world = World::new(cluster, confpin);
    // A request of the API server's is pinned.
    world.start_confpin().await?;
    let shop = world.shop("callers").await?;
    shop.apply([configmap("app-config", "v1")]).await?;

    let stranger = Caller::new()?;
    for shown in [None, Some(&stranger)] {
        let refused = world.confpin.metric("confpin_connection_errors_total", "").await?;
        let answer = post_review(&shop, port, shown).await;
        ensure!(answer.is_err(), "a caller without a certificate of the CA was answered: {answer:?}");
        ensure!(shop.snapshots().await?.is_empty(), "and had a snapshot made");
        ensure!(world.confpin.metric("confpin_connection_errors_total", "").await? > refused, "it was not counted");
    }
    // The same request, so that it was for the certificate.
    let answer = post_review(&shop, port, Some(&caller)).await?;
    ensure!(answer.contains("JSONPatch"), "{answer}");
    assert_eq!(shop.snapshots().await?.len(), 1);

    shop.apply([deployment("web").uses("app-config").replicas(0).json()]).await?;
    assert_eq!(shop.deployment("web").value().await?, "v1");
    Ok(())
}

/// Posts a review of a new Deployment as the API server would, with a certificate or without.
async fn post_review(shop: &Shop<'_>, port: u16, shown: Option<&Caller>) -> Result<String> {
    let registrations: Api<MutatingWebhookConfiguration> = Api::all(shop.world.client.clone());
    let registration = registrations.get(confpin::pin::webhook_configuration::NAME).await?;
    let bundle = registration.webhooks.into_iter().flatten().find_map(|webhook| webhook.client_config.ca_bundle);
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&bundle.context("the webhook has a CA bundle")?.0) {
        roots.add(certificate?)?;
    }
    let config = ClientConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    let config = match shown {
        None => config.with_no_client_auth(),
        Some(caller) => config.with_client_auth_cert(
            vec![CertificateDer::from_pem_slice(caller.certificate.as_bytes())?],
            PrivateKeyDer::from_pem_slice(caller.key.as_bytes())?,
        )?,
    };
    let connector = HttpsConnectorBuilder::new().with_tls_config(config).https_only().enable_http1().build();
    let client = Client::builder(TokioExecutor::new()).build(connector);
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "a-uid",
        "kind": {"group": "apps", "version": "v1", "kind": "Deployment"},
        "resource": {"group": "apps", "version": "v1", "resource": "deployments"},
        "name": "web",
        "namespace": shop.name(),
        "operation": "CREATE",
        "userInfo": {"username": "somebody"},
        "object": deployment("web").uses("app-config").json(),
        "dryRun": false,
    }});
    let request = Request::builder()
        .method(Method::POST)
        .uri(format!("https://127.0.0.1:{port}{}?timeout=10s", confpin::webhook::server::PATH))
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(review.to_string())))?;
    let answer = client.request(request).await?;
    ensure!(answer.status().is_success(), "it answered {}", answer.status());
    Ok(String::from_utf8_lossy(&answer.into_body().collect().await?.to_bytes()).into_owned())
}
