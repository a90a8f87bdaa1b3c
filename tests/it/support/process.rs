//! Child processes that do not outlive the tests, however these end.
//!
//! The kernel kills a child when the thread that started it ends, so one thread that lives as long as the process
//! starts them all.

use std::{
    io,
    process::{Child, Command},
    sync::{LazyLock, Mutex, PoisonError, mpsc},
    thread,
};

type Request = (Command, mpsc::Sender<io::Result<Child>>);

static STARTER: LazyLock<Mutex<mpsc::Sender<Request>>> = LazyLock::new(|| {
    let (requests, received) = mpsc::channel::<Request>();
    thread::spawn(move || {
        for (mut command, reply) in received {
            // The one who asked may be gone.
            let _ = reply.send(command.spawn());
        }
    });
    Mutex::new(requests)
});

/// A command that is killed when this process ends.
pub fn command(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", program]);
    command
}

/// Starts a command from the thread that lives as long as the process.
pub fn spawn(command: Command) -> io::Result<Child> {
    let gone = || io::Error::other("the thread that starts processes is gone");
    let (reply, answer) = mpsc::channel();
    STARTER.lock().unwrap_or_else(PoisonError::into_inner).send((command, reply)).map_err(|_| gone())?;
    answer.recv().map_err(|_| gone())?
}
