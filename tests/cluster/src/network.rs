//! The network of the real node: a link between the host and the node's own network namespace.
//!
//! The link goes away with the namespace, which goes away with its last process: there is nothing to clean up.

use std::{net::Ipv4Addr, path::Path};

use anyhow::{Context, Result, bail};
use rustix::process::Pid;
use tokio::process::Command;

use crate::{kubectl::output, random};

/// How often an address range is tried that something else uses.
const TRIES: usize = 50;

/// Addresses of the real node's network: of a `/24`, the first two for the link and the second half for pods.
#[derive(Debug, Clone)]
pub(crate) struct Network {
    /// The host's end of the link.
    pub(crate) host: Ipv4Addr,
    /// The node's end of the link.
    pub(crate) node: Ipv4Addr,
    /// The name of the host's end.
    interface: String,
}

impl Network {
    /// Chooses a range that nothing on the host uses.
    pub(crate) async fn choose() -> Result<Self> {
        let routes = run("ip", ["-4", "-oneline", "address"]).await? + &run("ip", ["-4", "route"]).await?;
        for _ in 0..TRIES {
            let [second, third] = random::u16()?.to_le_bytes();
            let second = 128 | second >> 1;
            if !routes.contains(&format!("10.{second}.{third}.")) {
                return Ok(Self {
                    host: Ipv4Addr::new(10, second, third, 1),
                    node: Ipv4Addr::new(10, second, third, 2),
                    interface: format!("tc{}", random::suffix()?),
                });
            }
        }
        bail!("found no address range for the real node that no route of this machine uses")
    }

    /// The addresses of pods.
    pub(crate) fn pods(&self) -> String {
        let [a, b, c, _] = self.host.octets();
        format!("{a}.{b}.{c}.128/25")
    }

    /// Links the host with the network namespace of `first`.
    pub(crate) async fn connect(&self, first: Pid) -> Result<()> {
        let Self { host, node, interface, .. } = self;
        let pid = first.as_raw_nonzero().to_string();
        let on_host = async |command: &str| run("ip", command.split(' ')).await.map(drop);
        on_host(&format!("link add {interface} type veth peer name eth0 netns {pid}")).await?;
        on_host(&format!("address add {host}/30 dev {interface}")).await?;
        on_host(&format!("link set {interface} up")).await?;
        let on_node = async |command: &str| {
            let enter = ["--target", &pid, "--net", "--", "ip"];
            run("nsenter", enter.into_iter().chain(command.split(' '))).await
        };
        on_node(&format!("address add {node}/30 dev eth0")).await?;
        on_node("link set lo up").await?;
        on_node("link set eth0 up").await?;
        on_node(&format!("route add default via {host}")).await?;
        on_host(&format!("route add {} via {node} dev {interface}", self.pods())).await
    }

    /// Writes the configuration by which containerd connects pods.
    pub(crate) fn write_configuration(&self, folder: &Path) -> Result<()> {
        let configuration = serde_json::json!({
            "cniVersion": "0.4.0",
            "name": "testcluster",
            "plugins": [{
                "type": "ptp",
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{"subnet": self.pods()}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                    "dataDir": "/run/testcluster-addresses",
                },
            }],
        });
        std::fs::create_dir_all(folder)?;
        std::fs::write(folder.join("10-testcluster.conflist"), configuration.to_string())
            .with_context(|| format!("failed to write into {}", folder.display()))
    }
}

/// Runs a program of the system and returns what it printed.
pub(crate) async fn run(program: &str, arguments: impl IntoIterator<Item = &str>) -> Result<String> {
    let mut command = Command::new(program);
    command.args(arguments);
    let shown = format!("{:?}", command.as_std());
    let output = output(command, String::new()).await?;
    if !output.status.success() {
        bail!("{shown} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
