//! confpin's image, built from the Dockerfile without a registry.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context, Result, ensure};
use tokio::{process::Command, sync::OnceCell};

/// The image's name on the node.
pub const IMAGE: &str = "localhost/confpin:test";

/// The most that an image may weigh, in bytes, unpacked. In a registry it is less than half of that.
const LARGEST: u64 = 16_000_000;

static ARCHIVE: OnceCell<PathBuf> = OnceCell::const_new();

/// The archive of the image, built once in a process.
pub async fn archive() -> Result<&'static Path> {
    ARCHIVE.get_or_try_init(build).await.map(PathBuf::as_path)
}

async fn build() -> Result<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("image");
    let context = folder.join("context");
    fs::create_dir_all(&context)?;
    fs::copy(program(&folder.join("build")).await?, context.join("confpin"))?;
    let archive = folder.join("image.tar");
    if archive.exists() {
        fs::remove_file(&archive)?;
    }
    let dockerfile = Path::new(env!("CARGO_MANIFEST_DIR")).join("Dockerfile");
    let storage = folder.join("storage");
    let buildah = async |arguments: &[&str]| {
        let mut command = Command::new("buildah");
        command.args(["--storage-driver=vfs", "--root"]).arg(&storage).arg("--runroot").arg(storage.join("run"));
        run(command.args(arguments)).await
    };
    let (file, context) = (dockerfile.display().to_string(), context.display().to_string());
    buildah(&["bud", "--isolation=chroot", "--target=prebuilt", "--file", &file, "--tag", IMAGE, &context]).await?;
    buildah(&["push", IMAGE, &format!("docker-archive:{}:{IMAGE}", archive.display())]).await?;
    let size = fs::metadata(&archive)?.len();
    ensure!(size < LARGEST, "the image has {size} bytes, more than {LARGEST}");
    Ok(archive)
}

/// A static program for this machine. A release build, as an image has it.
async fn program(folder: &Path) -> Result<PathBuf> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args(["build", "--release", "--locked", "--package=confpin", "--bin=confpin", "--target", &target])
        .arg("--target-dir")
        .arg(folder)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        // Nothing of the build of the tests.
        .env_remove("CARGO_BUILD_TARGET_DIR")
        .env("RUSTFLAGS", "-C target-feature=+crt-static");
    run(&mut cargo).await?;
    Ok(folder.join(target).join("release/confpin"))
}

async fn run(command: &mut Command) -> Result<()> {
    let shown = format!("{:?}", command.as_std());
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await;
    let output = output.with_context(|| format!("failed to run {shown}"))?;
    ensure!(output.status.success(), "{shown} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}
