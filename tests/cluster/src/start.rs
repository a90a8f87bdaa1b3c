//! How a cluster starts.

use std::{fs, net::Ipv4Addr, path::Path, sync::Mutex};

use anyhow::{Context, Result};
use kube::{
    Config,
    config::{KubeConfigOptions, Kubeconfig},
};

use crate::{
    builder::Builder,
    certificates::Certificates,
    cluster::Cluster,
    components::{Component, Layout, Ports},
    credentials::{User, write_kubeconfig, write_tokens},
    data::Data,
    image::SAMPLE_IMAGE,
    network::Network,
    packages,
    process::Launch,
    programs::Program,
    real_node::RealNode,
};

/// How often a start is tried whose ports another process took.
const STARTS: usize = 4;
/// The address of the Service `kubernetes`, by which pods call the API server.
const KUBERNETES_SERVICE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);

impl Cluster {
    pub(crate) async fn start_with(options: Builder) -> Result<Self> {
        build(&options).await?;
        let cluster = Self::start_api_server(&options).await?;
        if options.rollouts {
            cluster.create_rollouts_kinds().await?;
        }
        cluster.start_rest().await?;
        Ok(cluster)
    }

    /// Starts what needs no API server, and that, again with other ports if a port was taken in between.
    async fn start_api_server(options: &Builder) -> Result<Self> {
        let mut tries = 1;
        loop {
            let cluster = Self::prepare(options).await?;
            cluster.launch_all([Component::Etcd, Component::ApiServer]).await?;
            match tokio::try_join!(cluster.wait_until_ready(Component::ApiServer), cluster.start_container_runtime()) {
                Ok(_) => return Ok(cluster),
                Err(error) if tries < STARTS && format!("{error:#}").contains("address already in use") => tries += 1,
                Err(error) => return Err(error),
            }
        }
    }

    async fn start_container_runtime(&self) -> Result<()> {
        if self.real_node.is_some() {
            self.start_component(Component::Containerd).await?;
            self.node()?.load_image(SAMPLE_IMAGE, &[]).await?;
        }
        Ok(())
    }

    /// Writes everything that the programs read, and makes the network that they are in.
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
            write_kubeconfig(&layout.kubeconfig(user), &layout.server_url(), &layout.certificates.authority, &token)?;
        }
        let kubeconfig = layout.kubeconfig(User::Admin);
        let config = read_config(&kubeconfig).await?;
        let real_node = match &layout.network {
            Some(network) => Some(RealNode::create(&layout, network).await?),
            None => None,
        };
        Ok(Self {
            processes: Mutex::default(),
            argo_cd_kinds: tokio::sync::Mutex::default(),
            real_node,
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

    pub(crate) async fn launch_all(&self, components: impl IntoIterator<Item = Component>) -> Result<()> {
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
            Component::CertManager => self.layout.cert_manager().await,
            Component::Containerd => Ok(self.layout.containerd(self.real_node()?.first)),
            Component::Kubelet => {
                let first = self.real_node()?.first;
                let network = self.layout.network.as_ref().context("a real node has a network")?;
                self.layout.kubelet(first, network).await
            }
        }
    }
}

/// Builds what is missing before anything starts, so that no deadline includes a build.
async fn build(options: &Builder) -> Result<()> {
    if options.real_node {
        tokio::task::spawn_blocking(packages::ensure_for_real_node).await??;
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

async fn read_config(kubeconfig: &Path) -> Result<Config> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    Ok(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)
}
