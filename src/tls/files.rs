//! A certificate and a key in two files that another program maintains.
//!
//! They are polled. The kubelet replaces a mounted Secret by swapping a symbolic link two directories up, of which a watch on
//! the files sees nothing.

use std::path::{Path, PathBuf};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem};
use rustls::sign::CertifiedKey;
use sha2::{Digest, Sha256};

use super::{Error, Leaf, Validity, provider};

/// Two files, and what they held when they were last good.
#[derive(Debug)]
pub struct Files {
    cert: PathBuf,
    key: PathBuf,
    /// A digest, so that no second copy of the key lies in memory.
    seen: [u8; 32],
}

impl Files {
    /// Reads both files for the first time.
    ///
    /// # Errors
    ///
    /// [`Error::Read`], [`Error::Pem`], [`Error::Pair`] and [`Error::Parse`] for files that are not a usable pair.
    pub async fn open(cert: PathBuf, key: PathBuf) -> Result<(Self, Leaf), Error> {
        let mut files = Self { cert, key, seen: [0; 32] };
        let content = files.read().await?;
        let leaf = files.parse(&content)?;
        files.seen = content.digest();
        Ok((files, leaf))
    }

    /// The pair, if it is another than the last good one.
    ///
    /// # Errors
    ///
    /// As for [`open`](Self::open). The same content is tried again by the next call.
    pub async fn changed(&mut self) -> Result<Option<Leaf>, Error> {
        let content = self.read().await?;
        let digest = content.digest();
        if digest == self.seen {
            return Ok(None);
        }
        // A swap between the two reads gives a certificate of before and a key of after: no pair, and nobody's mistake.
        if self.read().await?.digest() != digest {
            return Ok(None);
        }
        let leaf = self.parse(&content)?;
        self.seen = digest;
        Ok(Some(leaf))
    }

    async fn read(&self) -> Result<Content, Error> {
        Ok(Content { cert: read(&self.cert).await?, key: read(&self.key).await? })
    }

    fn parse(&self, content: &Content) -> Result<Leaf, Error> {
        let cert_error = |source| Error::Pem { path: self.cert.clone(), wanted: "a certificate", source };
        let chain: Vec<_> =
            CertificateDer::pem_slice_iter(&content.cert).collect::<Result<_, _>>().map_err(cert_error)?;
        let first = chain.first().ok_or_else(|| cert_error(pem::Error::NoItemsFound))?;
        let validity = Validity::of(first)?;
        let key = PrivateKeyDer::from_pem_slice(&content.key).map_err(|source| Error::Pem {
            path: self.key.clone(),
            wanted: "a private key",
            source,
        })?;
        let certified = CertifiedKey::from_der(chain, key, &provider()).map_err(Error::Pair)?;
        Ok(Leaf { certified: certified.into(), validity })
    }
}

struct Content {
    cert: Vec<u8>,
    key: Vec<u8>,
}

impl Content {
    fn digest(&self) -> [u8; 32] {
        // With the length in front, no byte can move from one file to the other unseen.
        let length = self.cert.len().to_be_bytes();
        Sha256::new().chain_update(length).chain_update(&self.cert).chain_update(&self.key).finalize().into()
    }
}

async fn read(path: &Path) -> Result<Vec<u8>, Error> {
    tokio::fs::read(path).await.map_err(|source| Error::Read { path: path.into(), source })
}
