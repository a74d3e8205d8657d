//! Commands that the user runs with `!`: in the workspace, as the user, without a sandbox.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::{Pid, Signal, kill_process_group};

/// Bytes of the output that are kept, from its end.
const MAX_OUTPUT: usize = 256 * 1024;

/// Kills the process group of a command, once.
#[derive(Debug, Clone, Default)]
pub(crate) struct KillHandle(Arc<Mutex<Option<Pid>>>);

impl KillHandle {
    /// Kills what is running. Returns whether something was.
    pub(crate) fn kill(&self) -> bool {
        let group = self.lock().take();
        group.is_some_and(|group| kill_process_group(group, Signal::KILL).is_ok())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Pid>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs a command line and returns its output, both streams in the order of their arrival, and
/// its status. Blocks until every process that holds the output has ended.
pub(crate) fn run(
    line: &str,
    directory: &Path,
    handle: &KillHandle,
) -> io::Result<(String, ExitStatus)> {
    let (mut reader, writer) = io::pipe()?;
    let mut command = Command::new("sh");
    command
        .args(["-c", line])
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .process_group(0);
    let mut child = command.spawn()?;
    // It holds the writing end of the pipe.
    drop(command);
    *handle.lock() = Some(Pid::from_child(&child));
    let read = read_end(&mut reader);
    let ended = wait(&mut child, handle);
    Ok((read?, ended?))
}

/// Waits for the process. Its group must not be killed afterwards: the number may be reused.
fn wait(child: &mut Child, handle: &KillHandle) -> io::Result<ExitStatus> {
    let ended = child.wait();
    handle.lock().take();
    ended
}

/// The end of the output.
fn read_end(reader: &mut impl io::Read) -> io::Result<String> {
    let (mut bytes, mut piece) = (Vec::new(), [0; 16 * 1024]);
    loop {
        let count = reader.read(&mut piece)?;
        if count == 0 {
            break;
        }
        bytes.extend(&piece[..count]);
        if bytes.len() > 2 * MAX_OUTPUT {
            bytes.drain(..bytes.len() - MAX_OUTPUT);
        }
    }
    let from = bytes.len().saturating_sub(MAX_OUTPUT);
    Ok(String::from_utf8_lossy(&bytes[from..]).into_owned())
}

/// What the model reads about a command that the user ran.
pub(crate) fn note(line: &str, output: &str, ending: &str) -> String {
    let fence = if output.contains("```") {
        "~~~~"
    } else {
        "```"
    };
    let output = output.trim_end();
    format!("I ran `{line}` ({ending}):\n{fence}\n{output}\n{fence}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_streams_and_the_status_are_returned() {
        let dir = tempfile::tempdir().unwrap();
        let line = "echo one; echo two >&2; pwd; exit 3";
        let (output, status) = run(line, dir.path(), &KillHandle::default()).unwrap();
        let dir = dir.path().canonicalize().unwrap();
        assert_eq!(output, format!("one\ntwo\n{}\n", dir.display()));
        assert_eq!(status.code(), Some(3));
    }

    #[test]
    fn only_the_end_of_long_output_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let (output, _) = run("seq 300000", dir.path(), &KillHandle::default()).unwrap();
        assert_eq!(output.len(), MAX_OUTPUT);
        assert!(output.ends_with("\n300000\n"));
    }

    #[test]
    fn killed_command_ends_with_its_children() {
        let dir = tempfile::tempdir().unwrap();
        let handle = KillHandle::default();
        let (path, other) = (dir.path().to_owned(), handle.clone());
        let running = std::thread::spawn(move || run("sleep 600 & sleep 600", &path, &other));
        while !handle.kill() {
            std::thread::yield_now();
        }
        let (_, status) = running.join().unwrap().unwrap();
        assert!(!status.success());
        assert!(!handle.kill());
    }
}
