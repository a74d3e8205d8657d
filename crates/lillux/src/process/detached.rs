//! Starts detached processes, which outlive their caller.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::command::{Command, Stdin};
use super::handle::Handle;
use super::image::{ExecStrings, Image, LaunchError, pointers_needed};
use super::supervisor::{LaunchPlan, Stack, launch_detached};
use crate::error::{PathContext, PathError};

/// Error of [`spawn`].
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// The command could not be launched.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The log file could not be opened.
    #[error(transparent)]
    Log(#[from] PathError),
    /// [`Stdin::Bytes`] is not possible, because no process stays to write the bytes.
    #[error("a detached process cannot read its standard input from memory; pass a file")]
    Stdin,
    /// The operating system refused memory, a descriptor or access to `/proc`.
    #[error("cannot start a detached process: {0}")]
    Io(#[from] io::Error),
}

/// Starts a command in a new session, not as a child of this process, and does not wait for it.
/// Its output is appended to `log`, or dropped.
///
/// The command's limits do not apply, because no process stays to enforce them.
pub fn spawn(mut command: Command<'_>, log: Option<&Path>) -> Result<Handle, SpawnError> {
    let image = Image::build(&command)?;
    let null = || OpenOptions::new().read(true).write(true).open("/dev/null");
    let stdin: OwnedFd = match std::mem::take(&mut command.stdin) {
        Stdin::Null => null()?.into(),
        Stdin::Fd(fd) => fd,
        Stdin::Bytes(_) => return Err(SpawnError::Stdin),
    };
    let output: File = match log {
        None => null()?,
        Some(path) => OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(path)
            .at("open the log", path)?,
    };
    let mut pointers = vec![std::ptr::null(); pointers_needed(image.argc, image.envc)];
    let strings = ExecStrings::parse(&image.block, image.argc, image.envc, &mut pointers)
        .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
    // They are copied to 0, 1 and 2 one after the other, so none of them may be one of these.
    let [stdin, output] = [above_stdio(&stdin)?, above_stdio(&output)?];
    let plan = LaunchPlan {
        strings,
        stdio: [stdin.as_fd(), output.as_fd(), output.as_fd()],
    };
    let launched = launch_detached(&plan, &mut Stack::new()?);
    let (pid, start_time) = launched.map_err(|(step, errno)| {
        image.launch_error(&command, step, io::Error::from_raw_os_error(errno))
    })?;
    Ok(Handle::new(pid, start_time)?)
}

fn above_stdio(fd: impl AsFd) -> io::Result<OwnedFd> {
    Ok(rustix::io::fcntl_dupfd_cloexec(fd, 3)?)
}
