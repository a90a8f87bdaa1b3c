//! The command line of each component.

use std::{
    net::Ipv4Addr,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use crate::{
    certificates::Certificates, credentials::User, network::Network, ports::free_port, process::Launch,
    programs::Program,
};

/// Label of the nodes: `fake` or `real`.
pub const NODE_LABEL: &str = "testcluster/node";

/// A running part of the cluster that a test can stop, kill, pause or start again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Component {
    /// The store.
    Etcd,
    /// The API server.
    ApiServer,
    /// The controllers of Kubernetes.
    ControllerManager,
    /// The scheduler.
    Scheduler,
    /// The player of the fake node.
    FakeNode,
    /// The Argo Rollouts controller.
    Rollouts,
    /// cert-manager's controllers and its CA injector.
    CertManager,
    /// The container runtime of the real node.
    Containerd,
    /// The agent of the real node.
    Kubelet,
}

impl Component {
    /// The name of its log file.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::FakeNode => "kwok",
            Self::Rollouts => "rollouts-controller",
            Self::CertManager => "cert-manager",
            Self::Containerd => "containerd",
            Self::Kubelet => "kubelet",
        }
    }
}

/// Addresses that stay the same over restarts.
#[derive(Debug, Clone)]
pub(crate) struct Ports {
    pub(crate) etcd: u16,
    pub(crate) etcd_peer: u16,
    pub(crate) api_server: u16,
    pub(crate) controller_manager: u16,
    pub(crate) scheduler: u16,
    pub(crate) rollouts_health: u16,
    pub(crate) rollouts_metrics: u16,
    pub(crate) cert_manager_health: u16,
}

impl Ports {
    pub(crate) fn choose() -> Result<Self> {
        Ok(Self {
            etcd: free_port()?,
            etcd_peer: free_port()?,
            api_server: free_port()?,
            controller_manager: free_port()?,
            scheduler: free_port()?,
            rollouts_health: free_port()?,
            rollouts_metrics: free_port()?,
            cert_manager_health: free_port()?,
        })
    }
}

/// What the command lines are made of.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) folder: PathBuf,
    pub(crate) ports: Ports,
    pub(crate) certificates: Certificates,
    /// The real node's, if there is one.
    pub(crate) network: Option<Network>,
    pub(crate) real_node_is_tainted: bool,
    pub(crate) api_server_flags: Vec<String>,
    pub(crate) controller_manager_flags: Vec<String>,
}

/// Requests a second that a component may send: the defaults of 20 to 50 are for shared clusters.
const CLIENT_RATE: &str = "--kube-api-qps=1000";
const CLIENT_BURST: &str = "--kube-api-burst=2000";

const AUDIT_POLICY: &str = r#"{
  "apiVersion": "audit.k8s.io/v1",
  "kind": "Policy",
  "omitStages": ["RequestReceived", "ResponseStarted"],
  "rules": [{"level": "Metadata"}]
}
"#;

impl Layout {
    pub(crate) fn kubeconfig(&self, user: User) -> PathBuf {
        self.folder.join(user.file())
    }

    /// A name that no other cluster has: the folder's.
    pub(crate) fn name(&self) -> Result<&str> {
        self.folder.file_name().and_then(|name| name.to_str()).context("the folder of a cluster has a name")
    }

    pub(crate) fn audit_log(&self) -> PathBuf {
        self.folder.join("audit.log")
    }

    pub(crate) fn token_file(&self) -> PathBuf {
        self.folder.join("tokens.csv")
    }

    pub(crate) fn log(&self, component: Component) -> PathBuf {
        self.folder.join(format!("{}.log", component.name()))
    }

    pub(crate) fn write_audit_policy(&self) -> Result<()> {
        std::fs::write(self.audit_policy(), AUDIT_POLICY).context("failed to write the audit policy")
    }

    fn audit_policy(&self) -> PathBuf {
        self.folder.join("audit-policy.json")
    }

    /// The API server's address: loopback, or where a node in its own network can reach it.
    fn api_server_address(&self) -> Ipv4Addr {
        self.network.as_ref().map_or(Ipv4Addr::LOCALHOST, |network| network.host)
    }

    pub(crate) fn server_url(&self) -> String {
        format!("https://{}:{}", self.api_server_address(), self.ports.api_server)
    }

    pub(crate) fn launch(&self, component: Component, program: PathBuf) -> Launch {
        Launch::new(program, self.log(component))
            .environment("HOME", &self.folder)
            // Nothing that the test process has in its environment changes how the cluster runs.
            .environment("KUBECONFIG", "")
    }

    pub(crate) async fn etcd(&self) -> Result<Launch> {
        let client = format!("http://127.0.0.1:{}", self.ports.etcd);
        let peer = format!("http://127.0.0.1:{}", self.ports.etcd_peer);
        Ok(self.launch(Component::Etcd, Program::Etcd.path().await?).arguments([
            "--name=testcluster".into(),
            format!("--data-dir={}", self.folder.join("etcd").display()),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=testcluster={peer}"),
            "--unsafe-no-fsync".into(),
            "--log-level=warn".into(),
        ]))
    }

    pub(crate) async fn api_server(&self) -> Result<Launch> {
        let Certificates {
            authority,
            server,
            server_key,
            kubelet_client,
            kubelet_client_key,
            token_key,
            token_public_key,
            ..
        } = &self.certificates;
        let address = self.api_server_address();
        Ok(self
            .launch(Component::ApiServer, Program::KubeApiserver.path().await?)
            .arguments([
                format!("--etcd-servers=http://127.0.0.1:{}", self.ports.etcd),
                format!("--bind-address={address}"),
                format!("--secure-port={}", self.ports.api_server),
                format!("--advertise-address={address}"),
                path_flag("--client-ca-file", authority),
                path_flag("--tls-cert-file", server),
                path_flag("--tls-private-key-file", server_key),
                path_flag("--kubelet-client-certificate", kubelet_client),
                path_flag("--kubelet-client-key", kubelet_client_key),
                path_flag("--service-account-signing-key-file", token_key),
                path_flag("--service-account-key-file", token_public_key),
                path_flag("--token-auth-file", &self.token_file()),
                path_flag("--audit-policy-file", &self.audit_policy()),
                path_flag("--audit-log-path", &self.audit_log()),
            ])
            .arguments([
                "--service-account-issuer=https://kubernetes.default.svc",
                "--authorization-mode=Node,RBAC",
                "--service-cluster-ip-range=10.96.0.0/16",
                "--kubelet-preferred-address-types=InternalIP",
                // Webhook Services are called at their endpoints: there need not be a kube-proxy.
                "--enable-aggregator-routing=true",
                // An event is in the log before the request's handler returns; the log is one file of any size.
                "--audit-log-mode=blocking",
                "--audit-log-maxsize=100000",
                "--allow-privileged=true",
                "--profiling=false",
                "--endpoint-reconciler-type=none",
            ])
            .arguments(&self.api_server_flags))
    }

    pub(crate) async fn controller_manager(&self) -> Result<Launch> {
        let Certificates { authority, token_key, .. } = &self.certificates;
        Ok(self
            .launch(Component::ControllerManager, Program::KubeControllerManager.path().await?)
            .arguments(self.served(User::ControllerManager, self.ports.controller_manager))
            .arguments([
                path_flag("--root-ca-file", authority),
                path_flag("--service-account-private-key-file", token_key),
            ])
            .arguments([
                // Each controller calls by its own name, as where kubeadm installed it.
                "--use-service-account-credentials=true",
                "--concurrent-deployment-syncs=20",
                "--concurrent-replicaset-syncs=20",
                "--concurrent-statefulset-syncs=20",
            ])
            .arguments(&self.controller_manager_flags))
    }

    pub(crate) async fn scheduler(&self) -> Result<Launch> {
        Ok(self
            .launch(Component::Scheduler, Program::KubeScheduler.path().await?)
            .arguments(self.served(User::Scheduler, self.ports.scheduler)))
    }

    /// Flags of a component that calls the API server and serves its health.
    fn served(&self, user: User, port: u16) -> Vec<String> {
        let kubeconfig = self.kubeconfig(user);
        vec![
            path_flag("--kubeconfig", &kubeconfig),
            path_flag("--authentication-kubeconfig", &kubeconfig),
            path_flag("--authorization-kubeconfig", &kubeconfig),
            path_flag("--tls-cert-file", &self.certificates.server),
            path_flag("--tls-private-key-file", &self.certificates.server_key),
            "--bind-address=127.0.0.1".into(),
            format!("--secure-port={port}"),
            "--leader-elect=false".into(),
            CLIENT_RATE.into(),
            CLIENT_BURST.into(),
        ]
    }

    pub(crate) async fn fake_node(&self) -> Result<Launch> {
        let stages = Program::Kwok.entry().await?.join("stage");
        Ok(self.launch(Component::FakeNode, Program::Kwok.path().await?).arguments([
            path_flag("--kubeconfig", &self.kubeconfig(User::FakeNodes)),
            path_flag("--config", &stages.join("node/fast/node-initialize.yaml")),
            path_flag("--config", &stages.join("node/heartbeat-with-lease/node-heartbeat-with-lease.yaml")),
            path_flag("--config", &stages.join("pod/fast/pod-ready.yaml")),
            path_flag("--config", &stages.join("pod/fast/pod-complete.yaml")),
            path_flag("--config", &stages.join("pod/fast/pod-delete.yaml")),
            format!("--manage-nodes-with-label-selector={NODE_LABEL}=fake"),
            "--node-lease-duration-seconds=40".into(),
        ]))
    }

    pub(crate) async fn rollouts(&self) -> Result<Launch> {
        Ok(self
            .launch(Component::Rollouts, Program::RolloutsController.path().await?)
            .environment("ARGO_ROLLOUTS_NAMESPACE", "argo-rollouts")
            .arguments([
                path_flag("--kubeconfig", &self.kubeconfig(User::Rollouts)),
                "--leader-elect=false".into(),
                format!("--healthzPort={}", self.ports.rollouts_health),
                format!("--metricsport={}", self.ports.rollouts_metrics),
                "--qps=1000".into(),
                "--burst=2000".into(),
            ]))
    }
}

pub(crate) fn path_flag(flag: &str, path: &Path) -> String {
    format!("{flag}={}", path.display())
}
