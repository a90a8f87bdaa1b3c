//! Child processes that never outlive the test process, however it ends.
//!
//! The kernel kills a child when the *thread* that started it ends (`PR_SET_PDEATHSIG`). Test threads come and go, so
//! one thread of the process, which lives as long as the process, starts every child. `setpriv` sets the signal, for
//! which this crate would need unsafe code.

use std::{
    ffi::OsString,
    fs::{self, OpenOptions},
    io,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{LazyLock, Mutex, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

/// How long a program has to end by itself before it is killed.
const GRACE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(10);
/// How much of a log an error message shows.
const LOG_LINES: usize = 15;

type Request = (Command, mpsc::Sender<io::Result<Child>>);

static STARTER: LazyLock<Mutex<mpsc::Sender<Request>>> = LazyLock::new(|| {
    let (requests, received) = mpsc::channel::<Request>();
    thread::Builder::new()
        .name("testcluster-starter".into())
        .spawn(move || {
            for (mut command, reply) in received {
                // The one who asked may be gone; then the child is dropped, and ends with this process.
                let _ = reply.send(command.spawn());
            }
        })
        .expect("a process that cannot start a thread cannot start a cluster");
    Mutex::new(requests)
});

/// Starts a command from the thread that lives as long as the process.
fn spawn(command: Command) -> io::Result<Child> {
    let (reply, answer) = mpsc::channel();
    let gone = |_| io::Error::other("the thread that starts processes is gone");
    STARTER.lock().unwrap_or_else(PoisonError::into_inner).send((command, reply)).map_err(|_| gone(mpsc::RecvError))?;
    answer.recv().map_err(gone)?
}

/// What to start, and where.
#[derive(Debug, Clone)]
pub(crate) struct Launch {
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) environment: Vec<(OsString, OsString)>,
    /// Output is appended to this file.
    pub(crate) log: PathBuf,
    pub(crate) place: Place,
}

/// The namespaces that a program runs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Those of the test process.
    Here,
    /// New ones, of which it is the first process: when it ends, everything in them ends.
    NewNamespaces,
    /// Those of another process.
    NamespacesOf(Pid),
}

/// A running child. Killed when dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
    /// Whether the program is a child of the child, which stands in other namespaces.
    inside: bool,
}

impl Launch {
    pub(crate) fn new(program: impl Into<PathBuf>, log: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            arguments: Vec::new(),
            environment: Vec::new(),
            log: log.into(),
            place: Place::Here,
        }
    }

    pub(crate) fn arguments(mut self, arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    pub(crate) fn environment(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    pub(crate) fn start(&self) -> Result<Process> {
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.log)
            .with_context(|| format!("failed to open {}", self.log.display()))?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]);
        match self.place {
            Place::Here => {}
            Place::NewNamespaces => {
                command.args(["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "--"]);
            }
            Place::NamespacesOf(first) => {
                let target = first.as_raw_nonzero().to_string();
                command.args(["nsenter", "--target", &target, "--mount", "--net", "--pid", "--"]);
            }
        }
        command
            .arg(&self.program)
            .args(&self.arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            // Ctrl-C in a terminal reaches the test process only, which decides.
            .process_group(0);
        let child = spawn(command).with_context(|| {
            format!("failed to start {} by setpriv: is the Debian package util-linux there?", self.program.display())
        })?;
        Ok(Process { child, log: self.log.clone(), inside: self.place != Place::Here })
    }
}

impl Process {
    /// The program's own process id; within namespaces, the one that it has outside of them.
    pub(crate) fn pid(&self) -> Result<Pid> {
        let outer = self.outer()?;
        if self.inside { only_child(outer) } else { Ok(outer) }
    }

    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        kill_process(self.pid()?, signal).context("failed to send a signal")
    }

    fn outer(&self) -> Result<Pid> {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).context("a child has an id")
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        let ended = self.child.try_wait().context("failed to look at a child process")?;
        if ended.is_none() && self.inside {
            // The one that stands between stops itself when its child stops, be it long after that went on, and would
            // not see the end of it.
            let _ = kill_process(self.outer()?, Signal::CONT);
        }
        Ok(ended)
    }

    /// An error with the end of the log if the program is not running any more.
    pub(crate) fn check(&mut self) -> Result<()> {
        match self.ended()? {
            None => Ok(()),
            Some(status) => {
                bail!("ended with {status}; the end of its log {}:\n{}", self.log.display(), log_end(&self.log))
            }
        }
    }

    /// Asks it to end and waits until it has; kills it if it takes too long.
    pub(crate) async fn stop(mut self) -> Result<()> {
        self.signal(Signal::TERM)?;
        let deadline = Instant::now() + GRACE;
        while self.ended()?.is_none() {
            if Instant::now() > deadline {
                bail!("did not end within {GRACE:?} of SIGTERM, so it is killed; see {}", self.log.display());
            }
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    /// Kills without waiting, so that many can end at the same time.
    pub(crate) fn kill(&mut self) {
        if self.inside
            && let Ok(pid) = self.pid()
        {
            // Already gone is as good.
            let _ = kill_process(pid, Signal::KILL);
        } else {
            let _ = self.child.kill();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        // Only reaps: the process was killed, and a failure leaves nothing to do.
        while let Ok(None) = self.ended() {
            std::thread::sleep(POLL);
        }
    }
}

/// The program that `unshare` or `nsenter` started.
fn only_child(parent: Pid) -> Result<Pid> {
    let parent = parent.as_raw_nonzero();
    let path = format!("/proc/{parent}/task/{parent}/children");
    let children = fs::read_to_string(&path).with_context(|| format!("failed to read {path}"))?;
    children
        .split_whitespace()
        .next()
        .and_then(|pid| Pid::from_raw(pid.parse().ok()?))
        .context("the program has not started yet, or has ended")
}

/// The last lines of a log.
pub(crate) fn log_end(path: &Path) -> String {
    let text = fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
}
