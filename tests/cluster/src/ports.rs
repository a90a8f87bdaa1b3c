//! Ports for servers on loopback.

use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, TcpListener},
    ops::Range,
    sync::Mutex,
};

use anyhow::{Result, bail};

use crate::random;

/// Below the range that the kernel gives to outgoing connections, which therefore cannot take a port between the look
/// and the server's start.
const RANGE: Range<u16> = 12_000..32_000;
const TRIES: usize = 200;

/// Ports that this process gave out: a port looks free until its server has started.
static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// A port of loopback that nothing listens on, given out once a process.
///
/// Another process can still take it before the server starts: start again with another port then.
///
/// # Errors
/// If none is found.
pub fn free_port() -> Result<u16> {
    let mut given = GIVEN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for _ in 0..TRIES {
        let port = RANGE.start + random::u16()? % (RANGE.end - RANGE.start);
        if !given.contains(&port) && TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok() {
            given.insert(port);
            return Ok(port);
        }
    }
    bail!("found no free port in {RANGE:?} in {TRIES} tries")
}
