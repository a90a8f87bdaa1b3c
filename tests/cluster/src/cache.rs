//! The cache of built programs, shared by all test processes of a user and outside the folder that `cargo clean` empties.
//!
//! One folder an entry, named by what the result depends on. An entry appears by a rename, so it is whole or absent.

use std::{
    env,
    fmt::Write as _,
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use crate::programs::{Asset, BUILD_ENVIRONMENT, BUILD_FLAGS, OWN_PACKAGE, Recipe};

/// Overrides the place of the cache.
const CACHE_VARIABLE: &str = "CONFPIN_TESTCLUSTER_CACHE";

/// The folder of the cache.
pub(crate) fn directory() -> Result<PathBuf> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set(CACHE_VARIABLE)
        .or_else(|| Some(set("XDG_CACHE_HOME")?.join("confpin-testcluster")))
        .or_else(|| Some(set("HOME")?.join(".cache/confpin-testcluster")))
        .with_context(|| format!("there is no place for the built programs: set {CACHE_VARIABLE} to a folder"))
}

/// The entry of a program, built if it is missing.
pub(crate) fn ensure(recipe: &Recipe) -> Result<PathBuf> {
    let directory = directory()?;
    let name = entry_name(recipe);
    let entry = directory.join(&name);
    if entry.exists() {
        return Ok(entry);
    }
    fs::create_dir_all(&directory).with_context(|| format!("failed to create the cache {}", directory.display()))?;
    let _lock = lock(&directory.join(format!("{name}.lock")), recipe)?;
    if !entry.exists() {
        build(recipe, &directory, &entry)?;
    }
    Ok(entry)
}

/// Everything that the result depends on goes into the name.
fn entry_name(recipe: &Recipe) -> String {
    let mut hash = Sha256::new();
    let mut add = |part: &str| {
        hash.update(part.len().to_le_bytes());
        hash.update(part);
    };
    [recipe.name, recipe.package, recipe.module.go_mod, recipe.module.go_sum, recipe.ldflags, recipe.toolchain]
        .into_iter()
        // Otherwise it only names what `package` names.
        .chain((recipe.package == OWN_PACKAGE).then_some(recipe.module.source))
        .chain(BUILD_FLAGS.iter().copied())
        .chain(BUILD_ENVIRONMENT.iter().flat_map(|(name, value)| [*name, *value]))
        .chain(recipe.assets.iter().flat_map(|asset| [asset.module, asset.path, asset.name]))
        .for_each(&mut add);
    let mut name = format!("{}-{}-", recipe.name, recipe.version);
    for byte in &hash.finalize()[..8] {
        // Writing to a string does not fail.
        let _ = write!(name, "{byte:02x}");
    }
    name
}

/// Held while the program is built, so that test processes that start together build it once.
fn lock(path: &Path, recipe: &Recipe) -> Result<File> {
    let failed = || format!("failed to lock {}", path.display());
    let file = File::create(path).with_context(failed)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            eprintln!("testcluster: waiting for another process that builds {} {}", recipe.name, recipe.version);
            file.lock().with_context(failed)?;
        }
        Err(TryLockError::Error(error)) => return Err(error).with_context(failed),
    }
    Ok(file)
}

fn build(recipe: &Recipe, directory: &Path, entry: &Path) -> Result<()> {
    let Recipe { name: program, version, duration, .. } = recipe;
    let name = entry_name(recipe);
    check_go()?;
    eprintln!("testcluster: building {program} {version} (once, takes about {duration})");
    let begin = Instant::now();

    // What an interrupted build left; the lock is ours.
    let temporary = directory.join(format!(".building-{name}"));
    remove(&temporary)?;
    let module = temporary.join("module");
    let result = temporary.join("entry");
    fs::create_dir(&temporary).with_context(|| format!("failed to create {}", temporary.display()))?;
    fs::create_dir(&module)?;
    fs::create_dir(&result)?;
    fs::write(module.join("go.mod"), recipe.module.go_mod)?;
    fs::write(module.join("go.sum"), recipe.module.go_sum)?;
    fs::write(module.join("main.go"), recipe.module.source)?;

    let mut command = go(recipe, &module);
    command.arg("build").args(BUILD_FLAGS).arg("-ldflags").arg(recipe.ldflags);
    command.arg("-o").arg(result.join(program)).arg(recipe.package);
    run(command).with_context(|| format!("failed to build {program} {version}"))?;
    for asset in recipe.assets {
        copy_asset(recipe, &module, asset, &result)
            .with_context(|| format!("failed to copy {} of {}", asset.path, asset.module))?;
    }

    fs::rename(&result, entry).with_context(|| format!("failed to move the built program to {}", entry.display()))?;
    remove(&temporary)?;
    eprintln!("testcluster: built {program} {version} in {:.0} s", begin.elapsed().as_secs_f64());
    Ok(())
}

/// A `go` command that ends with this process. The thread that starts it waits for it, as the signal needs.
fn go(recipe: &Recipe, module: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", "go"]);
    command.current_dir(module).envs(BUILD_ENVIRONMENT.iter().copied()).env("GOTOOLCHAIN", recipe.toolchain);
    command
}

/// Runs a `go` command and returns what it prints.
fn run(mut command: Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().context("failed to start go by setpriv (util-linux)")?;
    if !output.status.success() {
        bail!("{command:?} ended with {}:\n{}", output.status, String::from_utf8_lossy(&output.stderr).trim_end());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn check_go() -> Result<()> {
    match Command::new("go").arg("version").stdin(Stdio::null()).output() {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => bail!(
            "the programs of the test cluster are built from their Go modules, and there is no `go` in PATH: \
             install Go 1.26 or newer (later test runs use the built programs and need no Go)"
        ),
        Err(error) => Err(error).context("failed to start go"),
    }
}

fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("failed to remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}

fn copy_asset(recipe: &Recipe, module: &Path, asset: &Asset, entry: &Path) -> Result<()> {
    let mut list = go(recipe, module);
    list.args(["list", "-m", "-f", "{{.Dir}}", asset.module]);
    let source = Path::new(run(list)?.trim()).join(asset.path);
    copy(&source, &entry.join(asset.name))
}

/// Copies the files' content only: those of Go's module cache are read-only.
fn copy(from: &Path, to: &Path) -> Result<()> {
    if from.is_dir() {
        fs::create_dir_all(to)?;
        for item in fs::read_dir(from).with_context(|| format!("failed to read {}", from.display()))? {
            let item = item?;
            copy(&item.path(), &to.join(item.file_name()))?;
        }
    } else {
        fs::write(to, fs::read(from).with_context(|| format!("failed to read {}", from.display()))?)?;
    }
    Ok(())
}
