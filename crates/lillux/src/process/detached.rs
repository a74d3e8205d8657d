//! Processes that are meant to outlive their caller.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::command::{Command, Stdin};
use super::handle::Handle;
use super::image::{Image, LaunchError, Strings, pointers_needed};
use super::keeper::{Plan, Stack, launch_detached};
use crate::error::{At, PathError};

/// Why a detached process could not be started.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// The command itself.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The log file.
    #[error(transparent)]
    Log(#[from] PathError),
    /// Standard input from memory needs somebody to write it, and nobody stays.
    #[error("a detached process cannot be given its standard input from memory; give it a file")]
    Stdin,
    /// Memory, descriptors or `/proc`.
    #[error("cannot start a detached process: {0}")]
    Io(#[from] io::Error),
}

/// Starts a command as nobody's child, leading a session of its own, and does
/// not wait for it. Its output is appended to `log`, or dropped.
///
/// Of the command's limits none apply: nobody is left to see to them.
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
    let strings = Strings::read(&image.block, image.argc, image.envc, &mut pointers)
        .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
    // They are put in the places of 0, 1 and 2 one after the other, so none may stand there.
    let [stdin, output] = [above_stdio(&stdin)?, above_stdio(&output)?];
    let plan = Plan {
        strings,
        stdio: [stdin.as_fd(), output.as_fd(), output.as_fd()],
    };
    let launched = launch_detached(&plan, &mut Stack::new()?);
    let (pid, start_time) = launched.map_err(|(step, errno)| {
        image.explain(&command, step, io::Error::from_raw_os_error(errno))
    })?;
    Ok(Handle::new(pid, start_time)?)
}

fn above_stdio(fd: impl AsFd) -> io::Result<OwnedFd> {
    Ok(rustix::io::fcntl_dupfd_cloexec(fd, 3)?)
}
