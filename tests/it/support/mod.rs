//! The plumbing: one cluster and one confpin for all tests, a namespace for each, and words to say what a test is about.

pub mod application;
pub mod argo_story;
pub mod audit;
pub mod clients;
pub mod configmaps;
pub mod confpin;
pub mod docs;
pub mod events;
pub mod git;
pub mod history;
pub mod image;
pub mod installation;
pub mod lives;
pub mod load;
pub mod manifest;
pub mod namespaced;
pub mod plugin;
pub mod pods;
pub mod process;
pub mod reconciler;
pub mod rendered;
pub mod rights;
pub mod runner;
pub mod shop;
pub mod workload;
pub mod world;

use std::{env, time::Duration};

use anyhow::{Context, Result};

pub use manifest::{Kind, configmap, deployment, rollout};
pub(crate) use runner::tests;
pub use shop::Shop;
pub use workload::Workload;
pub use world::World;

/// How long anything may take that controllers do. A loaded machine is slow, and a test that passes never waits for it.
pub const SOON: Duration = Duration::from_secs(180);

/// How long a test goes on with something: the environment variable `name`, in seconds, for those who have more time than
/// CI has.
pub fn duration(name: &str, default: Duration) -> Result<Duration> {
    let Ok(text) = env::var(name) else { return Ok(default) };
    Ok(Duration::from_secs(text.parse().with_context(|| format!("{name}={text}: want a number of seconds"))?))
}
