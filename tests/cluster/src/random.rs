//! Random names, tokens and ports, from the kernel.

use std::{fs::File, io::Read};

use anyhow::{Context, Result};

fn bytes<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .context("failed to read /dev/urandom")?;
    Ok(bytes)
}

pub(crate) fn u16() -> Result<u16> {
    Ok(u16::from_le_bytes(bytes()?))
}

/// A secret of 128 bits.
pub(crate) fn token() -> Result<String> {
    Ok(format!("{:032x}", u128::from_le_bytes(bytes()?)))
}

/// A suffix for names that should not meet.
pub(crate) fn suffix() -> Result<String> {
    Ok(format!("{:08x}", u32::from_le_bytes(bytes()?)))
}
