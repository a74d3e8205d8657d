//! The tier `full`: new namespaces, and the processes launcher, init and command.

#![expect(
    unsafe_code,
    reason = "fork is unsafe by nature; each block says why it is sound"
)]

use std::fs;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::process::exit;

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    DumpableBehavior, Gid, Pid, Signal, Uid, WaitOptions, getgid, getpid, getppid, getuid,
    kill_process, set_dumpable_behavior, set_parent_process_death_signal, wait, waitpid,
};
use rustix::thread::UnshareFlags;

use super::{
    Context, FAILED, Launch, LaunchError, error, landlock, network, privileges, report, root,
    seccomp, view,
};

/// Runs the command in new namespaces and then ends this process with the exit code or signal
/// of the command. Returns only if the namespaces cannot be created.
pub(super) fn run(launch: &Launch) -> LaunchError {
    let parent = getppid();
    let policy = &launch.spec.policy;
    let view = launch.spec.view.as_ref();
    let joined = view.map_or(Ok(()), |view| view::join(view, &policy.workspace));
    if let Err(error) = joined.and_then(|()| enter()) {
        return error;
    }
    // The change of credentials has cleared the parent-death signal that the supervisor set.
    if let Err(error) = die_with_parent() {
        return error;
    }
    if getppid() != parent {
        return error("cannot start", "the supervisor has ended");
    }
    if let Some(proxy) = &launch.spec.proxy
        && let Err(error) = network::connect_proxy(proxy)
    {
        return error;
    }
    let (status, their_status) = match pipe_with(PipeFlags::CLOEXEC).context("cannot create a pipe")
    {
        Ok(pipe) => pipe,
        Err(error) => return error,
    };
    let init = match fork() {
        Ok(None) => {
            drop(status);
            init(launch, File::from(their_status))
        }
        Ok(Some(pid)) => pid,
        Err(error) => return error,
    };
    drop(their_status);
    let mut bytes = [0; 4];
    let status = File::from(status).read_exact(&mut bytes);
    let _ = waitpid(Some(init), WaitOptions::empty());
    match status {
        Ok(()) => end_like(i32::from_ne_bytes(bytes)),
        // Init was killed, or has reported why it failed.
        Err(_) => exit(FAILED.into()),
    }
}

/// Creates the namespaces and maps the current user and group to themselves.
fn enter() -> Result<(), LaunchError> {
    let (uid, gid) = (getuid(), getgid());
    // A process can write its own `uid_map` and `gid_map` only while it is dumpable.
    set_dumpable_behavior(DumpableBehavior::Dumpable).context("cannot prepare the launcher")?;
    let flags = UnshareFlags::NEWUSER
        | UnshareFlags::NEWNS
        | UnshareFlags::NEWPID
        | UnshareFlags::NEWNET
        | UnshareFlags::NEWIPC
        | UnshareFlags::NEWUTS
        | UnshareFlags::NEWCGROUP;
    // SAFETY: the process has a single thread, and no descriptor table is unshared.
    unsafe { rustix::thread::unshare_unsafe(flags) }.context("cannot create namespaces")?;
    map_own_user(uid, gid)?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable).context("cannot protect the launcher")
}

/// Maps a user and a group to themselves in a new user namespace.
pub(super) fn map_own_user(uid: Uid, gid: Gid) -> Result<(), LaunchError> {
    let map =
        |file: &str, text: String| fs::write(file, text).context(format!("cannot write {file}"));
    map("/proc/self/setgroups", "deny".to_owned())?;
    map("/proc/self/gid_map", format!("{0} {0} 1", gid.as_raw()))?;
    map("/proc/self/uid_map", format!("{0} {0} 1", uid.as_raw()))
}

pub(super) fn die_with_parent() -> Result<(), LaunchError> {
    set_parent_process_death_signal(Some(Signal::KILL)).context("cannot bind to the supervisor")
}

/// Process 1 of the pid namespace.
fn init(launch: &Launch, mut status: File) -> ! {
    let failed = |error: &LaunchError| -> ! {
        report(&launch.spec.nonce, error);
        exit(FAILED.into())
    };
    let confine = || {
        die_with_parent()?;
        root::build(launch)?;
        privileges::limit_processes(launch.spec.policy.limits.processes);
        root::seal()?;
        privileges::limit_resources(&launch.spec.policy.limits)?;
        privileges::give_up()?;
        landlock::restrict_inside(&launch.spec)?;
        seccomp::apply(match launch.spec.proxy {
            Some(_) => seccomp::Sockets::UnixAndTcp,
            None => seccomp::Sockets::Unix,
        })?;
        // Giving up privileges may have cleared the parent-death signal.
        die_with_parent()
    };
    if let Err(error) = confine() {
        failed(&error);
    }
    let command = match fork() {
        Ok(None) => failed(&launch.exec()),
        Ok(Some(pid)) => pid,
        Err(error) => failed(&error),
    };
    close_streams();
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, ended))) if pid == command => {
                let _ = status.write_all(&ended.as_raw().to_ne_bytes());
                exit(0);
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => exit(FAILED.into()),
        }
    }
}

/// Closes the streams of the command, so that a reader of its output sees their end.
fn close_streams() {
    if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdin(&null);
        let _ = rustix::stdio::dup2_stdout(&null);
        let _ = rustix::stdio::dup2_stderr(&null);
    }
}

/// Ends this process with the exit code, or by the signal, of the command.
fn end_like(status: i32) -> ! {
    if libc::WIFSIGNALED(status) {
        let signal = libc::WTERMSIG(status);
        // SAFETY: restores the default action of a signal; this process has no handlers.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
        if let Some(signal) = Signal::from_named_raw(signal) {
            let _ = kill_process(getpid(), signal);
        }
        exit(128 + signal);
    }
    exit(libc::WEXITSTATUS(status))
}

/// Forks; returns `None` in the child.
fn fork() -> Result<Option<Pid>, LaunchError> {
    // SAFETY: this program has one thread, so the child may do what its parent may do.
    match unsafe { libc::fork() } {
        -1 => Err(error("cannot fork", io::Error::last_os_error())),
        pid => Ok(Pid::from_raw(pid)),
    }
}
