//! Faults that a test makes: components that are stopped, killed or frozen.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use rustix::process::Signal;

use crate::{cluster::Cluster, components::Component, process::Process};

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
        self.wait_until_ready(component).await?;
        if component == Component::Etcd && self.processes().contains_key(&Component::ApiServer) {
            self.wait_until_ready(Component::ApiServer).await?;
        }
        Ok(())
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
        self.signal(component, Signal::STOP)
    }

    /// Ends what [`Cluster::pause`] began.
    ///
    /// # Errors
    /// If it does not run.
    pub fn resume(&self, component: Component) -> Result<()> {
        self.signal(component, Signal::CONT)
    }

    fn signal(&self, component: Component, signal: Signal) -> Result<()> {
        let processes = self.processes();
        let process = processes.get(&component).with_context(|| format!("{} does not run", component.name()))?;
        process.signal(signal)
    }

    fn take(&self, component: Component) -> Result<Process> {
        self.processes().remove(&component).with_context(|| format!("{} does not run", component.name()))
    }
}
