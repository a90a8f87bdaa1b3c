//! A real Kubernetes for tests, without a container engine: the real programs, built from their Go modules, on free
//! ports of loopback.
//!
//! ```no_run
//! # async fn example() -> anyhow::Result<()> {
//! use testcluster::Cluster;
//!
//! let cluster = Cluster::builder().fake_node().start().await?;
//! let namespace = cluster.namespace("demo").label("team", "a").create().await?;
//! cluster.kubectl(["--namespace", namespace.name(), "create", "deployment", "web", "--image=web"]).run().await?;
//! # Ok(())
//! # }
//! ```
//!
//! The first start builds the programs, which takes minutes; see [`Program`]. They are kept in
//! `$CONFPIN_TESTCLUSTER_CACHE`, else `$XDG_CACHE_HOME/confpin-testcluster`, else `~/.cache/confpin-testcluster`.
//!
//! No program outlives the test process, and neither do its data. `CONFPIN_TESTCLUSTER_KEEP=1` keeps the data of
//! clusters that are dropped, and so does a panic that drops one; their place, with every log, is printed then.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod argo_cd;
mod audit;
mod builder;
mod cache;
mod cert_manager;
mod certificates;
mod cluster;
mod components;
mod control;
mod credentials;
mod data;
mod health;
mod image;
mod kinds;
mod kubectl;
mod namespace;
mod network;
mod nodes;
mod packages;
mod pods;
mod ports;
mod process;
mod programs;
mod random;
mod real_node;
mod rollouts;
mod start;
pub mod usage;
mod wait;

pub use argo_cd::ArgoCd;
pub use audit::{Audit, AuditEvent, AuditUser, Mark, ObjectRef, ResponseStatus};
pub use builder::Builder;
pub use cluster::Cluster;
pub use components::{Component, NODE_LABEL};
pub use image::SAMPLE_IMAGE;
pub use kubectl::Kubectl;
pub use namespace::{Namespace, NamespaceBuilder};
pub use packages::Unavailable;
pub use pods::Node;
pub use ports::free_port;
pub use programs::Program;
pub use wait::wait_for;
