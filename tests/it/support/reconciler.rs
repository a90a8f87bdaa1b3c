//! A confpin that only reconciles, beside one that answers admissions: it can be frozen, killed and started again while
//! admissions go on.

use std::fs;

use anyhow::Result;

use super::{World, confpin::Confpin};

impl World {
    /// One that does not run yet. The world's own confpin should not reconcile.
    pub fn reconciler(&self, arguments: &[&str]) -> Result<Confpin> {
        let folder = self.cluster.folder();
        let (cert, key) = (folder.join("reconciler.crt"), folder.join("reconciler.key"));
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
        fs::write(&cert, made.cert.pem())?;
        fs::write(&key, made.signing_key.serialize_pem())?;
        let confpin = Confpin::new(&self.cluster, arguments)?.with_kubeconfig(self.confpin.kubeconfig().to_owned());
        Ok(confpin.with_certificate(&cert, &key, "reconciler.log"))
    }
}
