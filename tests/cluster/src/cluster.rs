//! A running cluster: how it starts, and what a test can ask of it.

use std::{
    collections::BTreeMap,
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use http::Request;
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
};
use kube::{
    Api, Client, Config,
    api::PostParams,
    config::{KubeConfigOptions, Kubeconfig},
};

use crate::{
    audit::Audit,
    builder::Builder,
    certificates::Certificates,
    components::{Component, Layout, Ports},
    credentials::{User, write_kubeconfig, write_tokens},
    data::Data,
    image::SAMPLE_IMAGE,
    network::Network,
    packages,
    process::{Launch, Process},
    programs::Program,
    random,
    real_node::RealNode,
    wait_for,
};

/// How long a part may take to become ready on a loaded machine.
pub(crate) const READY: Duration = Duration::from_secs(90);
/// How often a start is tried whose ports another process took.
const STARTS: usize = 4;
/// The address of the Service `kubernetes`, by which pods call the API server.
const KUBERNETES_SERVICE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);
/// How long the tokens of [`Cluster::service_account_token`] are valid.
const TOKEN_SECONDS: i64 = 6 * 3600;

/// A cluster of the test process. Everything of it ends when it is dropped, and when the process ends in any way.
#[derive(Debug)]
pub struct Cluster {
    // Dropped first, so that nothing writes to the data when they are removed.
    processes: Mutex<BTreeMap<Component, Process>>,
    // All processes of the node end with this.
    real_node: Option<RealNode>,
    options: Builder,
    config: Config,
    kubeconfig: PathBuf,
    layout: Layout,
    data: Data,
}

impl Cluster {
    /// A cluster of etcd, API server and controller manager.
    ///
    /// # Errors
    /// See [`Builder::start`].
    pub async fn start() -> Result<Self> {
        Self::builder().start().await
    }

    /// A cluster with other parts.
    pub fn builder() -> Builder {
        Builder::new()
    }

    pub(crate) async fn start_with(options: Builder) -> Result<Self> {
        build(&options).await?;
        let mut cluster = Self::start_api_server(&options).await?;
        if options.rollouts {
            cluster.create_rollouts_kinds().await?;
        }
        if let Some(network) = &cluster.layout.network {
            cluster.real_node = Some(RealNode::create(&cluster.layout, network).await?);
            cluster.start_component(Component::Containerd).await?;
            cluster.node()?.load_image(SAMPLE_IMAGE, &[]).await?;
        }
        cluster.start_rest().await?;
        Ok(cluster)
    }

    /// Starts etcd and the API server, again with other ports if a port was taken in between.
    async fn start_api_server(options: &Builder) -> Result<Self> {
        let mut tries = 1;
        loop {
            let cluster = Self::prepare(options).await?;
            cluster.launch_all([Component::Etcd, Component::ApiServer]).await?;
            match cluster.wait_until_ready(Component::ApiServer).await {
                Ok(()) => return Ok(cluster),
                Err(error) if tries < STARTS && format!("{error:#}").contains("address already in use") => tries += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes everything that the programs read.
    async fn prepare(options: &Builder) -> Result<Self> {
        let data = Data::create()?;
        let folder = data.path();
        fs::create_dir_all(folder.join("home"))?;
        let network = if options.real_node { Some(Network::choose().await?) } else { None };
        let mut addresses = vec![Ipv4Addr::LOCALHOST, KUBERNETES_SERVICE];
        addresses.extend(network.iter().flat_map(|network| [network.host, network.node]));
        let layout = Layout {
            folder: folder.to_owned(),
            ports: Ports::choose()?,
            certificates: Certificates::create(&folder.join("certificates"), &addresses)?,
            network,
            real_node_is_tainted: options.real_node && options.fake_node,
            api_server_flags: options.api_server_flags.clone(),
            controller_manager_flags: options.controller_manager_flags.clone(),
        };
        layout.write_audit_policy()?;
        for (user, token) in write_tokens(&layout.token_file())? {
            let server = match (user, &layout.network) {
                (User::RealNode, Some(network)) => format!("https://{}:{}", network.host, layout.ports.api_server),
                _ => server_url(&layout),
            };
            write_kubeconfig(&layout.kubeconfig(user), &server, &layout.certificates.authority, &token)?;
        }
        let kubeconfig = layout.kubeconfig(User::Admin);
        let config = read_config(&kubeconfig).await?;
        Ok(Self {
            processes: Mutex::default(),
            real_node: None,
            options: options.clone(),
            config,
            kubeconfig,
            layout,
            data,
        })
    }

    /// Starts what needs the API server, all at once.
    async fn start_rest(&self) -> Result<()> {
        let options = &self.options;
        let components: Vec<_> = [
            (options.controller_manager, Component::ControllerManager),
            (options.scheduler, Component::Scheduler),
            (options.fake_node, Component::FakeNode),
            (options.rollouts, Component::Rollouts),
            (options.real_node, Component::Kubelet),
        ]
        .into_iter()
        .filter_map(|(wanted, component)| wanted.then_some(component))
        .collect();
        if options.fake_node {
            self.create_fake_node().await?;
        }
        self.launch_all(components.iter().copied()).await?;
        for component in components {
            self.wait_until_ready(component).await?;
        }
        if options.controller_manager {
            self.wait_for_service_account("default").await?;
        }
        Ok(())
    }

    async fn launch_all(&self, components: impl IntoIterator<Item = Component>) -> Result<()> {
        for component in components {
            let process = self.launch(component).await?.start()?;
            self.processes().insert(component, process);
        }
        Ok(())
    }

    async fn launch(&self, component: Component) -> Result<Launch> {
        match component {
            Component::Etcd => self.layout.etcd().await,
            Component::ApiServer => self.layout.api_server().await,
            Component::ControllerManager => self.layout.controller_manager().await,
            Component::Scheduler => self.layout.scheduler().await,
            Component::FakeNode => self.layout.fake_node().await,
            Component::Rollouts => self.layout.rollouts().await,
            Component::Containerd => Ok(self.layout.containerd(self.real_node()?.first)),
            Component::Kubelet => {
                let first = self.real_node()?.first;
                let network = self.layout.network.as_ref().context("a real node has a network")?;
                self.layout.kubelet(first, network).await
            }
        }
    }

    /// Waits until the component says that it is ready, or has ended.
    async fn wait_until_ready(&self, component: Component) -> Result<()> {
        let name = component.name();
        let deadline = Instant::now() + READY;
        loop {
            self.check(component)?;
            let error = match self.ready(component).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            if Instant::now() > deadline {
                let log = self.logs(component);
                let end = crate::process::log_end(&log);
                return Err(error.context(format!(
                    "{name} is not ready after {READY:?}; the end of its log {}:\n{end}",
                    log.display()
                )));
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    }

    /// An error if any of the components that this one needs is not running.
    fn check(&self, component: Component) -> Result<()> {
        let mut processes = self.processes();
        let needed = if component == Component::ApiServer { [Component::Etcd, component] } else { [component; 2] };
        for component in needed {
            if let Some(process) = processes.get_mut(&component) {
                process.check().with_context(|| format!("{} does not run", component.name()))?;
            }
        }
        Ok(())
    }

    async fn ready(&self, component: Component) -> Result<()> {
        let ports = &self.layout.ports;
        match component {
            Component::Etcd => self.probe("http", ports.etcd, "/health").await,
            Component::ApiServer => self.probe("https", ports.api_server, "/readyz").await,
            Component::ControllerManager => self.probe("https", ports.controller_manager, "/healthz").await,
            Component::Scheduler => self.probe("https", ports.scheduler, "/readyz").await,
            Component::Rollouts => self.probe("http", ports.rollouts_health, "/healthz").await,
            Component::FakeNode => self.node_ready("fake").await,
            Component::Containerd => self.real_node()?.runtime_ready().await,
            Component::Kubelet => self.node_ready("real").await,
        }
    }

    /// Asks a component for its health.
    async fn probe(&self, scheme: &str, port: u16, path: &str) -> Result<()> {
        let mut config = self.config.clone();
        config.cluster_url = format!("{scheme}://127.0.0.1:{port}").parse()?;
        config.default_retry = false;
        config.read_timeout = Some(Duration::from_secs(10));
        let client = Client::try_from(config)?;
        client.request_text(Request::get(path).body(Vec::new())?).await?;
        Ok(())
    }

    /// Waits until pods can be made in the namespace.
    pub(crate) async fn wait_for_service_account(&self, namespace: &str) -> Result<()> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client(), namespace);
        wait_for("the default ServiceAccount", READY, async || Ok(accounts.get_opt("default").await?)).await?;
        Ok(())
    }

    pub(crate) fn real_node(&self) -> Result<&RealNode> {
        self.real_node.as_ref().context("the cluster has no real node: ask for it by Cluster::builder().real_node()")
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(crate) fn has_controller_manager(&self) -> bool {
        self.processes().contains_key(&Component::ControllerManager)
    }

    fn processes(&self) -> MutexGuard<'_, BTreeMap<Component, Process>> {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a test asks of the whole cluster.
impl Cluster {
    /// A new client as admin, for the async runtime that calls this. Do not share one between tests: each has a
    /// runtime of its own.
    ///
    /// # Panics
    /// Outside of an async runtime.
    #[must_use]
    pub fn client(&self) -> Client {
        Client::try_from(self.config.clone()).expect("the configuration made the client that saw the cluster start")
    }

    /// The configuration of [`Cluster::client`], to change before making a client of it.
    #[must_use]
    pub fn config(&self) -> Config {
        self.config.clone()
    }

    /// The kubeconfig file of the admin.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// A new kubeconfig file for the bearer of a token.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn kubeconfig_for_token(&self, token: &str) -> Result<PathBuf> {
        let path = self.folder().join(format!("token-{}.kubeconfig", random::suffix()?));
        write_kubeconfig(&path, &self.server_url(), &self.layout.certificates.authority, token)?;
        Ok(path)
    }

    /// A token of a ServiceAccount, as a pod of it would have.
    ///
    /// # Errors
    /// If there is no such account.
    pub async fn service_account_token(&self, namespace: &str, name: &str) -> Result<String> {
        let request = TokenRequest {
            spec: Some(TokenRequestSpec { expiration_seconds: Some(TOKEN_SECONDS), ..TokenRequestSpec::default() }),
            ..TokenRequest::default()
        };
        let answer: TokenRequest = Api::<ServiceAccount>::namespaced(self.client(), namespace)
            .create_subresource("token", name, &PostParams::default(), &request)
            .await
            .with_context(|| format!("failed to get a token of the ServiceAccount {namespace}/{name}"))?;
        answer.status.and_then(|status| status.token).context("the answer to a token request has no token")
    }

    /// The API server's address on loopback.
    #[must_use]
    pub fn server_url(&self) -> String {
        server_url(&self.layout)
    }

    /// The certificate of the authority that signed the API server's.
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        &self.layout.certificates.authority_pem
    }

    /// The folder of the cluster's files: data, logs, keys. Removed at the end, unless `CONFPIN_TESTCLUSTER_KEEP=1` is
    /// set or the test panics.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.data.path()
    }

    /// The list of requests that the API server answered.
    #[must_use]
    pub fn audit(&self) -> Audit {
        Audit::new(self.layout.audit_log(), self.config.clone())
    }
}

/// What a test does to single components.
impl Cluster {
    /// The log of a component, over all its restarts.
    #[must_use]
    pub fn logs(&self, component: Component) -> PathBuf {
        self.layout.log(component)
    }

    /// Ends a component by SIGTERM and waits until it is gone.
    ///
    /// # Errors
    /// If it does not run, or does not end in time (it is killed then).
    pub async fn stop_component(&self, component: Component) -> Result<()> {
        let process = self.take(component)?;
        process.stop().await.with_context(|| format!("failed to stop {}", component.name()))
    }

    /// Starts a component, with the same address and data as before, and waits until it is ready.
    ///
    /// # Errors
    /// If it runs already or does not become ready.
    pub async fn start_component(&self, component: Component) -> Result<()> {
        if self.processes().contains_key(&component) {
            bail!("{} runs already", component.name());
        }
        self.launch_all([component]).await?;
        self.wait_until_ready(component).await
    }

    /// Stops a component and starts it again.
    ///
    /// # Errors
    /// If either fails.
    pub async fn restart(&self, component: Component) -> Result<()> {
        self.stop_component(component).await?;
        self.start_component(component).await
    }

    /// Ends a component by SIGKILL.
    ///
    /// # Errors
    /// If it does not run.
    pub fn kill(&self, component: Component) -> Result<()> {
        drop(self.take(component)?);
        Ok(())
    }

    /// Freezes a component: its connections stay open and nothing answers.
    ///
    /// # Errors
    /// If it does not run.
    pub fn pause(&self, component: Component) -> Result<()> {
        self.signal(component, rustix::process::Signal::STOP)
    }

    /// Ends what [`Cluster::pause`] began.
    ///
    /// # Errors
    /// If it does not run.
    pub fn resume(&self, component: Component) -> Result<()> {
        self.signal(component, rustix::process::Signal::CONT)
    }

    fn signal(&self, component: Component, signal: rustix::process::Signal) -> Result<()> {
        let processes = self.processes();
        let process = processes.get(&component).with_context(|| format!("{} does not run", component.name()))?;
        process.signal(signal)
    }

    fn take(&self, component: Component) -> Result<Process> {
        self.processes().remove(&component).with_context(|| format!("{} does not run", component.name()))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // All at once; each is then waited for as it is dropped.
        for process in self.processes().values_mut() {
            process.kill();
        }
    }
}

/// Builds what is missing before anything starts, so that no deadline includes a build.
async fn build(options: &Builder) -> Result<()> {
    if options.real_node {
        tokio::task::spawn_blocking(packages::ensure).await??;
    }
    let wanted = [
        (true, Program::Etcd),
        (true, Program::KubeApiserver),
        (true, Program::Kubectl),
        (options.controller_manager, Program::KubeControllerManager),
        (options.scheduler, Program::KubeScheduler),
        (options.fake_node, Program::Kwok),
        (options.rollouts, Program::RolloutsController),
        (options.real_node, Program::Kubelet),
    ];
    for (wanted, program) in wanted {
        if wanted {
            program.path().await?;
        }
    }
    Ok(())
}

fn server_url(layout: &Layout) -> String {
    format!("https://127.0.0.1:{}", layout.ports.api_server)
}

async fn read_config(kubeconfig: &Path) -> Result<Config> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    Ok(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)
}
