//! Argo CD. A cluster can have several, each in a namespace of its own, as most settings hold for all Applications.

mod parts;

use std::path::Path;

use anyhow::{Context, Result};
use http::Request;
use kube::{
    Api, Client, Config,
    api::{ApiResource, DynamicObject, PostParams},
    core::GroupVersionKind,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{
    cluster::Cluster,
    credentials::User,
    health::{READY, loopback},
    packages,
    process::{Launch, Process, log_end},
    programs::Program,
    random, wait_for,
};
use parts::Parts;

/// A running Argo CD. Its programs end when it is dropped.
#[derive(Debug)]
pub struct ArgoCd {
    namespace: String,
    config: Config,
    server: String,
    _processes: Vec<Process>,
}

/// One of its programs.
struct Part {
    launch: Launch,
    ready: Ready,
}

/// How to see that a program is ready.
#[derive(Clone, Copy)]
enum Ready {
    /// It answers to PING on this port.
    Redis(u16),
    /// It serves its health on this port.
    Health(u16),
}

impl ArgoCd {
    /// The namespace of its settings and its Applications.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The address of its API, which needs no TLS and no login.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// What its API answers to GET of a path.
    ///
    /// # Errors
    /// If it refuses or cannot be asked.
    pub async fn get(&self, path: &str) -> Result<Value> {
        let mut config = self.config.clone();
        config.cluster_url = format!("http://{}", self.server).parse()?;
        Ok(Client::try_from(config)?.request(Request::get(path).body(Vec::new())?).await?)
    }
}

impl Cluster {
    /// Creates a new namespace with the default settings of Argo CD, to be changed before
    /// [`start_argo_cd`](Self::start_argo_cd): a running Argo CD takes a moment to see a change.
    ///
    /// # Errors
    /// If its Debian packages cannot be had, which is [`Unavailable`](crate::Unavailable), or the API server refuses.
    pub async fn create_argo_cd(&self, namespace: &str) -> Result<()> {
        tokio::task::spawn_blocking(packages::ensure_for_argo_cd).await??;
        let entry = Program::ArgoCd.entry().await?;
        self.create_argo_cd_kinds(&entry.join("crds")).await?;
        self.kubectl(["create", "namespace", namespace]).run().await?;
        let in_namespace = format!("--namespace={namespace}");
        let config = format!("--kustomize={}", entry.join("config").display());
        self.kubectl(["apply", &in_namespace, &config]).run().await?;
        let key = json!({"stringData": {"server.secretkey": random::token()?}}).to_string();
        self.kubectl(["patch", &in_namespace, "secret", "argocd-secret", "--patch", &key]).run().await?;
        let project: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "AppProject",
            "metadata": {"name": "default"},
            "spec": {
                "sourceRepos": ["*"],
                "destinations": [{"namespace": "*", "server": "*"}],
                "clusterResourceWhitelist": [{"group": "*", "kind": "*"}],
            },
        }))?;
        // Not by kubectl, which may still have its list of kinds from before.
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("argoproj.io", "v1alpha1", "AppProject"));
        let projects: Api<DynamicObject> = Api::namespaced_with(self.client(), namespace, &kind);
        projects.create(&PostParams::default(), &project).await.context("failed to create the default AppProject")?;
        Ok(())
    }

    /// Creates the kinds, and waits until they are served. Once a cluster: a second apply of such big kinds takes the API
    /// server half a minute on a busy machine.
    async fn create_argo_cd_kinds(&self, folder: &Path) -> Result<()> {
        let mut created = self.argo_cd_kinds.lock().await;
        if *created {
            return Ok(());
        }
        self.create_kinds(folder, "v1alpha1").await.context("failed to create the kinds of Argo CD")?;
        *created = true;
        Ok(())
    }

    /// Starts the Argo CD of a namespace, and returns when it is ready.
    ///
    /// # Errors
    /// If a part does not become ready; the message has the end of its log.
    pub async fn start_argo_cd(&self, namespace: &str) -> Result<ArgoCd> {
        let entry = Program::ArgoCd.entry().await?;
        let kubeconfig = self.layout().kubeconfig(User::ArgoCd);
        let parts = Parts::new(&entry, self.folder(), namespace, kubeconfig)?;
        let mut processes = Vec::new();
        // In the order in which they need each other.
        for part in [parts.redis(), parts.repo_server(), parts.application_controller(), parts.server()] {
            processes.push(self.start_part(&part).await?);
        }
        Ok(ArgoCd {
            namespace: namespace.to_owned(),
            config: self.config(),
            server: parts.server_address(),
            _processes: processes,
        })
    }

    /// Starts a part and waits until it is ready, or has ended.
    async fn start_part(&self, part: &Part) -> Result<Process> {
        let mut process = part.launch.start()?;
        let log = &part.launch.log;
        let ready = wait_for("a part of Argo CD to be ready", READY, async || {
            if let Err(ended) = process.check() {
                return Ok(Some(Err(ended)));
            }
            match part.ready {
                Ready::Redis(port) => ping(port).await?,
                Ready::Health(port) => self.probe(&loopback("http", port), "/healthz").await?,
            }
            Ok(Some(Ok(())))
        })
        .await;
        ready.flatten().with_context(|| format!("the end of the log {}:\n{}", log.display(), log_end(log)))?;
        Ok(process)
    }
}

async fn ping(port: u16) -> Result<()> {
    let mut redis = TcpStream::connect(("127.0.0.1", port)).await?;
    redis.write_all(b"PING\r\n").await?;
    let mut answer = [0; 5];
    redis.read_exact(&mut answer).await?;
    anyhow::ensure!(&answer == b"+PONG", "it answers {:?}", String::from_utf8_lossy(&answer));
    Ok(())
}
