//! The command lines of Argo CD's programs.

use std::{
    env,
    ffi::OsString,
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use anyhow::Result;

use super::{Part, Ready};
use crate::{ports::free_port, process::Launch};

/// Folders that the programs look into, none of which has anything here.
const FOLDERS: [&str; 5] = [
    "ARGOCD_TLS_DATA_PATH",
    "ARGOCD_SSH_DATA_PATH",
    "ARGOCD_GNUPGHOME",
    "ARGOCD_GPG_DATA_PATH",
    "ARGOCD_PLUGINSOCKFILEPATH",
];

/// What the command lines are made of.
pub(super) struct Parts {
    program: PathBuf,
    namespace: String,
    kubeconfig: PathBuf,
    /// Where the logs are.
    logs: PathBuf,
    /// Home and temporary files of all of them.
    folder: PathBuf,
    /// Where they find the programs that they start.
    path: OsString,
    redis: u16,
    repo_server: u16,
    repo_server_metrics: u16,
    controller_metrics: u16,
    server: u16,
    server_metrics: u16,
}

impl Parts {
    /// `entry` is the folder of the program and its assets.
    pub(super) fn new(entry: &Path, logs: &Path, namespace: &str, kubeconfig: PathBuf) -> Result<Self> {
        let folder = logs.join(namespace);
        fs::create_dir_all(&folder)?;
        // Started for each commit that is read, whether signatures matter or not.
        let script = "git-verify-wrapper.sh";
        fs::copy(entry.join(script), folder.join(script))?;
        fs::set_permissions(folder.join(script), Permissions::from_mode(0o755))?;
        let inherited = env::var_os("PATH").unwrap_or_default();
        let path = env::join_paths([folder.clone()].into_iter().chain(env::split_paths(&inherited)))?;
        Ok(Self {
            program: entry.join("argocd"),
            path,
            namespace: namespace.to_owned(),
            kubeconfig,
            logs: logs.to_owned(),
            folder,
            redis: free_port()?,
            repo_server: free_port()?,
            repo_server_metrics: free_port()?,
            controller_metrics: free_port()?,
            server: free_port()?,
            server_metrics: free_port()?,
        })
    }

    pub(super) fn server_address(&self) -> String {
        format!("127.0.0.1:{}", self.server)
    }

    pub(super) fn redis(&self) -> Part {
        let launch = self.launch("redis-server".into(), "redis").arguments([
            "--bind",
            "127.0.0.1",
            "--port",
            &self.redis.to_string(),
            "--save",
            "",
        ]);
        Part { launch, ready: Ready::Redis(self.redis) }
    }

    pub(super) fn repo_server(&self) -> Part {
        let launch = self.argo_cd("argocd-repo-server").arguments([
            format!("--port={}", self.repo_server),
            format!("--metrics-port={}", self.repo_server_metrics),
            "--address=127.0.0.1".into(),
            "--metrics-address=127.0.0.1".into(),
            "--disable-tls".into(),
            "--client-ca-path=".into(),
        ]);
        Part { launch, ready: Ready::Health(self.repo_server_metrics) }
    }

    pub(super) fn application_controller(&self) -> Part {
        let launch = self
            .client("argocd-application-controller")
            .arguments([format!("--metrics-port={}", self.controller_metrics)]);
        Part { launch, ready: Ready::Health(self.controller_metrics) }
    }

    pub(super) fn server(&self) -> Part {
        let launch = self.client("argocd-server").arguments([
            format!("--port={}", self.server),
            format!("--metrics-port={}", self.server_metrics),
            "--address=127.0.0.1".into(),
            "--metrics-address=127.0.0.1".into(),
            "--insecure".into(),
            "--disable-auth".into(),
        ]);
        Part { launch, ready: Ready::Health(self.server) }
    }

    fn launch(&self, program: PathBuf, name: &str) -> Launch {
        Launch::new(program, self.logs.join(format!("{}-{name}.log", self.namespace)))
            .environment("HOME", &self.folder)
            .environment("TMPDIR", &self.folder)
            .environment("PATH", &self.path)
    }

    /// One of the programs that the binary is, whatever its file is called.
    fn argo_cd(&self, name: &str) -> Launch {
        let launch = self.launch(self.program.clone(), name).environment("ARGOCD_BINARY_NAME", name);
        FOLDERS
            .into_iter()
            .fold(launch, |launch, variable| launch.environment(variable, &self.folder))
            .environment("ARGOCD_ASK_PASS_SOCK", self.folder.join("ask-pass.sock"))
            .environment("ARGOCD_GPG_ENABLED", "false")
            .arguments([format!("--redis=127.0.0.1:{}", self.redis)])
    }

    /// One that calls the API server and the repo-server.
    fn client(&self, name: &str) -> Launch {
        self.argo_cd(name)
            // `https://kubernetes.default.svc` in an Application is then the kubeconfig's cluster.
            .environment("ARGOCD_FAKE_IN_CLUSTER", "true")
            .environment("KUBECONFIG", &self.kubeconfig)
            .arguments([
                format!("--namespace={}", self.namespace),
                format!("--repo-server=127.0.0.1:{}", self.repo_server),
                "--repo-server-plaintext".into(),
            ])
    }
}
