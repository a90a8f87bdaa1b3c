//! confpin pins ConfigMaps: see the modules. (The design on one page lands with the main job.)
#![forbid(unsafe_code)]

pub mod app;
pub mod cli;
pub mod cluster;
pub mod config;
pub mod observe;
pub mod pin;
pub mod reconcile;
pub mod tls;
pub mod webhook;
