//! The folder of one cluster's data, removed however the test process ends.

use std::{
    env, fs,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
};

use anyhow::{Context, Result};

use crate::random;

/// Memory where there is some: etcd writes much, and nothing has to survive.
const MEMORY: &str = "/dev/shm";
/// What a cluster may need of it, with a real node and its images. Containers often have 64 MiB.
const ENOUGH: u64 = 2 << 30;
/// Keeps the data of every cluster when set to 1.
const KEEP_VARIABLE: &str = "CONFPIN_TESTCLUSTER_KEEP";
/// A file of this name in the folder keeps it.
const KEEP_FILE: &str = "keep";

/// Waits for the end of its standard input, which comes when the test process ends, even by SIGKILL. Then removes the
/// folder and the control groups of pods. Tries again while killed programs are still on their way out.
const JANITOR: &str = r#"
folder=$1 name=${1##*/} tries=0
while read -r _; do :; done
if [ -e "$folder/keep" ]; then exit 0; fi
while [ "$tries" -lt 100 ]; do
    find /sys/fs/cgroup -depth -type d -path "*/$name*" -exec rmdir {} + 2>/dev/null
    rm -rf -- "$folder" 2>/dev/null
    if [ ! -e "$folder" ] && [ -z "$(find /sys/fs/cgroup -type d -name "$name" 2>/dev/null)" ]; then exit 0; fi
    tries=$((tries + 1))
    sleep 0.1
done
"#;

/// The data folder of a cluster.
#[derive(Debug)]
pub(crate) struct Data {
    path: PathBuf,
    /// Ends, after removing the folder, when its standard input is closed.
    janitor: Child,
}

impl Data {
    pub(crate) fn create() -> Result<Self> {
        let name = format!("testcluster-{}", random::suffix()?);
        let in_memory = if free_space(MEMORY) >= ENOUGH { create_in(Path::new(MEMORY), &name).ok() } else { None };
        let path = match in_memory {
            Some(path) => path,
            None => create_in(&env::temp_dir(), &name)?,
        };
        let janitor = Command::new("sh")
            .args(["-c", JANITOR, "testcluster-janitor"])
            .arg(&path)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            // Outlives a Ctrl-C in the terminal.
            .process_group(0)
            .spawn()
            .context("failed to start the shell that removes the data")?;
        Ok(Self { path, janitor })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        let asked = env::var_os(KEEP_VARIABLE).is_some_and(|value| value == "1");
        if asked || thread::panicking() {
            let kept = fs::write(self.path.join(KEEP_FILE), "");
            if kept.is_ok() {
                eprintln!("testcluster: the cluster's data and logs are kept in {}", self.path.display());
            }
        }
        drop(self.janitor.stdin.take());
        // Waits for the removal; a failure of that leaves nothing to do.
        let _ = self.janitor.wait();
    }
}

fn create_in(parent: &Path, name: &str) -> Result<PathBuf> {
    let path = parent.join(name);
    fs::create_dir(&path).with_context(|| format!("failed to create {}", path.display()))?;
    Ok(path)
}

/// The free bytes of a file system, or none if there is no such folder.
fn free_space(folder: &str) -> u64 {
    rustix::fs::statvfs(folder).map_or(0, |status| status.f_bavail.saturating_mul(status.f_frsize))
}
