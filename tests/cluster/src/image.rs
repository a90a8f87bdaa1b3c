//! Container images without a registry: one layer of busybox and, if wanted, more files.

use std::{
    fmt::Write as _,
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::process::Command;

use crate::{kubectl::output, network::run};

/// An image that is on the real node: a shell, and a default command that runs until it is told to end.
pub const SAMPLE_IMAGE: &str = "testcluster.local/sample:1";

const BUSYBOX: &str = "/bin/busybox";
/// Ends at once when its pod is deleted, unlike a shell that sleeps.
const WAIT: &str = "trap 'exit 0' TERM INT; while :; do sleep 3600 & wait $!; done";

/// Builds the archive of an image in `folder`. `files` are paths in the image and where their content is.
pub(crate) async fn build(folder: &Path, name: &str, files: &[(&str, &Path)]) -> Result<PathBuf> {
    fs::create_dir_all(folder)?;
    let work = tempfile::tempdir_in(folder)?;
    let root = work.path().join("root");
    write_root(&root, files).await.with_context(|| format!("failed to write the files of the image {name}"))?;

    let layer = work.path().join("layer.tar");
    tar(&layer, &root, &["."]).await?;
    let configuration = json!({
        "architecture": std::env::consts::ARCH.replace("x86_64", "amd64").replace("aarch64", "arm64"),
        "os": "linux",
        "config": {"Env": ["PATH=/bin"], "Cmd": ["/bin/sh", "-c", WAIT]},
        "rootfs": {"type": "layers", "diff_ids": [digest(&layer)?]},
    });
    fs::write(work.path().join("config.json"), configuration.to_string())?;
    let manifest = json!([{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]);
    fs::write(work.path().join("manifest.json"), manifest.to_string())?;
    let archive = folder.join(format!("{}.tar", name.replace(['/', ':'], "_")));
    tar(&archive, work.path(), &["manifest.json", "config.json", "layer.tar"]).await?;
    Ok(archive)
}

async fn write_root(root: &Path, files: &[(&str, &Path)]) -> Result<()> {
    for folder in ["bin", "tmp", "etc"] {
        fs::create_dir_all(root.join(folder))?;
    }
    fs::set_permissions(root.join("tmp"), Permissions::from_mode(0o1777))?;
    fs::copy(BUSYBOX, root.join("bin/busybox"))?;
    for applet in run(BUSYBOX, ["--list"]).await?.lines().filter(|applet| *applet != "busybox") {
        symlink("busybox", root.join("bin").join(applet))?;
    }
    for (target, source) in files {
        copy(source, root, Path::new(target))?;
        for library in libraries(source).await? {
            copy(&library, root, &library)?;
        }
    }
    Ok(())
}

/// Copies a file to where it is in the image.
fn copy(source: &Path, root: &Path, target: &Path) -> Result<()> {
    let target = root.join(target.strip_prefix("/").unwrap_or(target));
    if let Some(parent) = target.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::copy(source, &target).with_context(|| format!("failed to copy {}", source.display()))?;
    Ok(())
}

/// The shared libraries of a program, with its loader; none of a static one or of another file.
async fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let mut command = Command::new("ldd");
    command.arg(program);
    let output = output(command, String::new()).await?;
    if !output.status.success() {
        return Ok(Vec::new());
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect())
}

async fn tar(archive: &Path, folder: &Path, members: &[&str]) -> Result<()> {
    let archive = format!("--file={}", archive.display());
    let folder = format!("--directory={}", folder.display());
    let options = ["--create", "--numeric-owner", "--owner=0", "--group=0", &archive, &folder];
    run("tar", options.into_iter().chain(members.iter().copied())).await.map(drop)
}

fn digest(path: &Path) -> Result<String> {
    let mut digest = String::from("sha256:");
    for byte in Sha256::digest(fs::read(path)?) {
        // Writing to a string does not fail.
        let _ = write!(digest, "{byte:02x}");
    }
    Ok(digest)
}
