//! Where the figures come from.

use std::fs;

use anyhow::Result;
use kube::Client;

/// The machine, the Kubernetes and how busy it is, in lines of Markdown.
pub async fn describe(client: &Client) -> Result<String> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("unknown");
        line.trim_start_matches([' ', '\t', ':']).trim().to_owned()
    };
    let cores = std::thread::available_parallelism()?;
    let processor = field(&read("/proc/cpuinfo"), "model name");
    let memory = field(&read("/proc/meminfo"), "MemTotal");
    let memory = memory.trim_end_matches(" kB").parse::<u64>().unwrap_or_default() / (1024 * 1024);
    let kernel = read("/proc/sys/kernel/osrelease");
    let load = read("/proc/loadavg");
    let load = load.split(' ').next().unwrap_or_default();
    let kubernetes = client.apiserver_version().await?.git_version;
    Ok(format!(
        "- {cores} cores ({processor}), {memory} GiB, Linux {}, load {load} at the start\n- Kubernetes {kubernetes}, etcd \
         without fsync, everything on this machine\n- confpin {}, this build: {}",
        kernel.trim(),
        env!("CARGO_PKG_VERSION"),
        if cfg!(debug_assertions) { "NOT OPTIMISED" } else { "optimised" },
    ))
}
