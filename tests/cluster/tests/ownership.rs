//! Nothing of a cluster outlives the process that started it.

use std::{
    env, fs,
    future::pending,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use testcluster::{Cluster, Unavailable, wait_for};

/// Begins the line by which the owner tells the cluster's folder.
const FOLDER: &str = "folder=";
const SOON: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_killed_owner_leaves_nothing_behind() -> Result<()> {
    let mut owner = Command::new(env::current_exe()?)
        .args(["--exact", "owner", "--ignored", "--nocapture"])
        .stdout(Stdio::piped())
        .spawn()?;
    let output = BufReader::new(owner.stdout.take().context("its output is piped")?);
    let folder = output
        .lines()
        .map_while(Result::ok)
        .find_map(|line| Some(line.split_once(FOLDER)?.1.to_owned()))
        .context("the owner did not start a cluster")?;
    assert!(processes_of(&folder)?.len() >= 3);

    owner.kill()?;
    owner.wait()?;

    wait_for("every process to end", SOON, async || {
        let left = processes_of(&folder)?;
        if !left.is_empty() {
            bail!("still there: {left:#?}");
        }
        Ok(Some(()))
    })
    .await?;
    wait_for("the data and control groups to be removed", SOON, async || {
        let gone = !fs::exists(&folder)? && control_groups_of(&folder)?.is_empty();
        Ok(gone.then_some(()))
    })
    .await
}

#[tokio::test]
async fn a_dropped_cluster_leaves_nothing_behind() -> Result<()> {
    let cluster = Cluster::builder().controller_manager(false).start().await?;
    let folder = cluster.folder().display().to_string();
    drop(cluster);
    assert_eq!(processes_of(&folder)?, Vec::<String>::new());
    assert!(!fs::exists(&folder)?);
    Ok(())
}

#[tokio::test]
#[ignore = "run by a_killed_owner_leaves_nothing_behind, in a process of its own"]
async fn owner() -> Result<()> {
    let cluster = match Cluster::builder().real_node().start().await {
        Err(error) if error.downcast_ref::<Unavailable>().is_some() => Cluster::start().await?,
        started => started?,
    };
    println!("{FOLDER}{}", cluster.folder().display());
    pending().await
}

/// The command lines that name the folder.
fn processes_of(folder: &str) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        // A process may end while it is looked at.
        let Ok(line) = fs::read(entry?.path().join("cmdline")) else { continue };
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains(folder) {
            found.push(line);
        }
    }
    Ok(found)
}

/// The control groups that have the folder's name, in each hierarchy.
fn control_groups_of(folder: &str) -> Result<Vec<PathBuf>> {
    let root = Path::new("/sys/fs/cgroup");
    let name = Path::new(folder).file_name().context("the folder has a name")?;
    let hierarchies = fs::read_dir(root)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    let groups = hierarchies.into_iter().chain([root.to_owned()]).map(|hierarchy| hierarchy.join(name));
    Ok(groups.filter(|group| group.exists()).collect())
}
