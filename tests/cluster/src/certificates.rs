//! The keys of a cluster: one authority, one certificate for every server, one client certificate for the API server's
//! calls to a kubelet, and the key that signs ServiceAccount tokens.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
};

use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType,
};

/// Names that the API server is called by.
const SERVER_NAMES: &[&str] = &["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"];

/// The files of a cluster's keys.
#[derive(Debug)]
pub(crate) struct Certificates {
    pub(crate) authority: PathBuf,
    pub(crate) authority_pem: String,
    pub(crate) server: PathBuf,
    pub(crate) server_key: PathBuf,
    pub(crate) kubelet_client: PathBuf,
    pub(crate) kubelet_client_key: PathBuf,
    pub(crate) token_key: PathBuf,
    pub(crate) token_public_key: PathBuf,
}

impl Certificates {
    /// Makes new keys in `folder`, with a server certificate for the given addresses.
    pub(crate) fn create(folder: &Path, addresses: &[Ipv4Addr]) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let authority_key = KeyPair::generate()?;
        let mut authority = CertificateParams::default();
        authority.distinguished_name.push(DnType::CommonName, "testcluster");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let authority_pem = authority.self_signed(&authority_key)?.pem();
        let issuer = Issuer::new(authority, authority_key);

        let mut server = CertificateParams::new(SERVER_NAMES.iter().map(ToString::to_string).collect::<Vec<_>>())?;
        server.subject_alt_names.extend(addresses.iter().map(|address| SanType::IpAddress(IpAddr::V4(*address))));
        server.distinguished_name.push(DnType::CommonName, "testcluster-server");
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let server_key = KeyPair::generate()?;

        let mut client = CertificateParams::default();
        client.distinguished_name.push(DnType::CommonName, "testcluster-kubelet-client");
        client.distinguished_name.push(DnType::OrganizationName, "system:masters");
        client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let client_key = KeyPair::generate()?;

        let token_key = KeyPair::generate()?;
        let write = |name: &str, content: String| -> Result<PathBuf> {
            let path = folder.join(name);
            fs::write(&path, content)?;
            Ok(path)
        };
        Ok(Self {
            authority: write("authority.crt", authority_pem.clone())?,
            authority_pem,
            server: write("server.crt", server.signed_by(&server_key, &issuer)?.pem())?,
            server_key: write("server.key", server_key.serialize_pem())?,
            kubelet_client: write("kubelet-client.crt", client.signed_by(&client_key, &issuer)?.pem())?,
            kubelet_client_key: write("kubelet-client.key", client_key.serialize_pem())?,
            token_key: write("service-account.key", token_key.serialize_pem())?,
            token_public_key: write("service-account.pub", token_key.public_key_pem())?,
        })
    }
}
