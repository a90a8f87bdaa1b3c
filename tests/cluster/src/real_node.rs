//! The real node: containerd and a kubelet in namespaces of their own.
//!
//! The namespaces have a first process. When it ends the kernel kills all others in them, containers too, and takes
//! away their mounts and network. It is started like every other program, so it ends when the test process does.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use rustix::process::Pid;
use serde_json::json;

use crate::{
    components::{Component, Layout, NODE_LABEL, path_flag},
    credentials::User,
    health::READY,
    image,
    network::{Network, run},
    process::{Launch, Place, Process},
    programs::Program,
    wait_for,
};

/// The name of the Node object.
pub(crate) const NAME: &str = "real";
/// Within the node's own `/run`.
const SOCKET: &str = "/run/containerd/containerd.sock";
/// The first process: hides the folders of the host that the programs would write to, forwards the address of the
/// Service `kubernetes` to the API server, and waits, which also reaps what containers leave behind.
const FIRST: &str = r#"
set -e
mount --make-rshared /
mkdir -p /var/lib/cni
for folder in /run /var/lib/cni /var/log; do mount -t tmpfs -o mode=0755 testcluster "$folder"; done
mkdir -p /run/netns /run/containerd
for hierarchy in /sys/fs/cgroup/*/cgroup.procs /sys/fs/cgroup/cgroup.procs; do
    if [ -e "$hierarchy" ]; then mkdir -p "${hierarchy%/*}/$4"; fi
done
echo 1 > /proc/sys/net/ipv4/ip_forward
ip link set lo up
ip address add 10.96.0.1/32 dev lo
/bin/busybox nc -ll -p 443 -e /bin/busybox nc "$2" "$3" &
: > "$1/first"
while :; do sleep 3600 & wait $!; done
"#;

/// The namespaces of the real node.
#[derive(Debug)]
pub(crate) struct RealNode {
    pub(crate) first: Pid,
    _process: Process,
}

impl RealNode {
    /// Makes the namespaces and connects them with the host.
    pub(crate) async fn create(layout: &Layout, network: &Network) -> Result<Self> {
        let folder = node_folder(layout);
        fs::create_dir_all(&folder)?;
        network.write_configuration(&folder.join("cni"))?;
        fs::write(folder.join("containerd.toml"), containerd_configuration(&folder))?;
        fs::write(folder.join("kubelet.json"), kubelet_configuration(layout, network, &folder)?)?;

        let mut launch = Launch::new("/bin/sh", folder.join("first.log"))
            .arguments(["-c", FIRST, "testcluster-node"])
            .arguments([&folder])
            .arguments([network.host.to_string(), layout.ports.api_server.to_string(), layout.name()?.to_owned()]);
        launch.place = Place::NewNamespaces;
        let mut process = launch.start()?;
        let ready = folder.join("first");
        wait_for("the namespaces of the real node", READY, async || {
            process.check()?;
            Ok(ready.exists().then_some(()))
        })
        .await?;
        let first = process.pid()?;
        network.connect(first).await?;
        Ok(Self { first, _process: process })
    }

    /// Runs a command in the namespaces.
    pub(crate) async fn run(&self, arguments: &[&str]) -> Result<String> {
        let target = self.first.as_raw_nonzero().to_string();
        let enter = ["--target", &target, "--mount", "--net", "--pid", "--"];
        run("nsenter", enter.into_iter().chain(arguments.iter().copied())).await
    }

    /// Runs containerd's client for the kubelet's containers.
    pub(crate) async fn ctr(&self, arguments: &[&str]) -> Result<String> {
        let client = ["ctr", "--address", SOCKET, "--namespace", "k8s.io"];
        self.run(&client.into_iter().chain(arguments.iter().copied()).collect::<Vec<_>>()).await
    }

    /// An error unless containerd answers.
    pub(crate) async fn runtime_ready(&self) -> Result<()> {
        // Its client would wait for a socket that is not there for 10 s.
        let socket = format!("/proc/{}/root{SOCKET}", self.first.as_raw_nonzero());
        anyhow::ensure!(Path::new(&socket).exists(), "containerd does not listen on {SOCKET} yet");
        self.ctr(&["version"]).await.map(drop)
    }

    /// Builds an image and puts it on the node.
    pub(crate) async fn load_image(&self, layout: &Layout, name: &str, files: &[(&str, &Path)]) -> Result<()> {
        let archive = image::build(&node_folder(layout).join("images"), name, files).await?;
        self.import_images(&archive).await.with_context(|| format!("failed to load the image {name}"))
    }

    /// Puts the images of an archive on the node.
    pub(crate) async fn import_images(&self, archive: &Path) -> Result<()> {
        let path = archive.display().to_string();
        self.ctr(&["images", "import", "--snapshotter", "native", &path]).await.map(drop)
    }
}

impl Layout {
    pub(crate) fn containerd(&self, first: Pid) -> Launch {
        let configuration = node_folder(self).join("containerd.toml");
        let mut launch = Launch::new("/usr/bin/containerd", self.log(Component::Containerd))
            .arguments(["--config".into(), configuration]);
        launch.place = Place::NamespacesOf(first);
        launch
    }

    pub(crate) async fn kubelet(&self, first: Pid, network: &Network) -> Result<Launch> {
        let folder = node_folder(self);
        let mut launch = Launch::new(Program::Kubelet.path().await?, self.log(Component::Kubelet)).arguments([
            path_flag("--config", &folder.join("kubelet.json")),
            path_flag("--kubeconfig", &self.kubeconfig(User::RealNode)),
            path_flag("--root-dir", &folder.join("kubelet")),
            path_flag("--cert-dir", &folder.join("kubelet-certificates")),
            format!("--hostname-override={NAME}"),
            format!("--node-ip={}", network.node),
            format!("--node-labels={NODE_LABEL}={NAME}"),
        ]);
        launch.place = Place::NamespacesOf(first);
        Ok(launch)
    }
}

fn node_folder(layout: &Layout) -> PathBuf {
    layout.folder.join("node")
}

fn containerd_configuration(folder: &Path) -> String {
    let folder = folder.display();
    let image = image::SAMPLE_IMAGE;
    format!(
        r#"version = 2
root = "{folder}/containerd"
state = "/run/containerd"
[grpc]
address = "{SOCKET}"
[plugins."io.containerd.internal.v1.opt"]
path = "{folder}/opt"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{image}"
# The machine of a test may lack the right to lower it.
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".containerd]
# Works on every file system, also where overlays do not.
snapshotter = "native"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "{folder}/cni"
"#
    )
}

fn kubelet_configuration(layout: &Layout, network: &Network, folder: &Path) -> Result<String> {
    // Where there is a fake node as well, only pods that ask for the real one are to be placed here.
    let taints = if layout.real_node_is_tainted {
        json!([{"key": NODE_LABEL, "value": NAME, "effect": "NoSchedule"}])
    } else {
        json!([])
    };
    let configuration = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": network.node,
        "healthzBindAddress": "127.0.0.1",
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": false},
            "x509": {"clientCAFile": layout.certificates.authority},
        },
        "authorization": {"mode": "AlwaysAllow"},
        "tlsCertFile": layout.certificates.server,
        "tlsPrivateKeyFile": layout.certificates.server_key,
        "containerRuntimeEndpoint": format!("unix://{SOCKET}"),
        "registerWithTaints": taints,
        "volumePluginDir": folder.join("volume-plugins"),
        "podLogsDir": folder.join("pod-logs"),
        "resolvConf": "",
        // Control groups of either version, all below one that has the cluster's name.
        "failCgroupV1": false,
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": true,
        "cgroupRoot": format!("/{}", layout.name()?),
        "enforceNodeAllocatable": [],
        // The machine's own memory and disk are none of the test's business.
        "failSwapOn": false,
        "localStorageCapacityIsolation": false,
        "evictionHard": {"memory.available": "1Mi", "nodefs.available": "0%", "imagefs.available": "0%"},
        "makeIPTablesUtilChains": false,
        // A container that a test kills again and again comes back at once, and not after minutes.
        "crashLoopBackOff": {"maxContainerRestartPeriod": "1s"},
        // How soon a changed ConfigMap is seen in a volume: a minute by default.
        "syncFrequency": "5s",
    });
    Ok(format!("{configuration:#}\n"))
}
