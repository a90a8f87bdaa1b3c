//! The admission webhook.

pub mod server;
