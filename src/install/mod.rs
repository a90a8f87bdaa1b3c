//! What an installation in a cluster is made of and follows from the code: names, rights, and the policy that binds
//! confpin's own account. `examples/manifests.rs` writes it into `manifests/`; everything else there is written by hand.

pub mod policy;
pub mod rbac;

/// The namespace of an installation by kustomize. Helm's is the release's.
pub const NAMESPACE: &str = "confpin-system";
/// The name of the Service, the ServiceAccount, the Deployment and the roles.
pub const NAME: &str = "confpin";
/// The Lease whose holder reconciles, in the installation's namespace (`--lease`).
pub const LEASE: &str = "confpin";
/// The Secret that holds the CA of self-managed certificates, in the installation's namespace (`--ca-secret`).
pub const CA_SECRET: &str = "confpin-ca";

/// The user that the API server takes confpin for, in an installation in `namespace`.
#[must_use]
pub fn user(namespace: &str) -> String {
    format!("system:serviceaccount:{namespace}:{NAME}")
}
