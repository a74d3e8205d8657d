//! The reaper: a subreaper process that runs one command at a time and ends its tree.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recvmsg, send};
use rustix::process::{
    Pid, Signal, WaitOptions, getpid, getppid, kill_process, set_child_subreaper, wait,
};

use super::super::image::{ExecStrings, pointers_needed};
use super::super::table;
use super::messages::{Event, RunRequest};
use super::sys::{self, Arena, LaunchFailure, LaunchPlan, Stack, launch};
use crate::time::monotonic;

/// Interval between attempts to kill a tree. Survivors may have forked in the meantime.
pub(super) const KILL_INTERVAL: Duration = Duration::from_millis(10);

/// Processes that are still alive this long after `SIGKILL` hang in the kernel or belong to
/// another user. They are reported as survivors.
pub(in super::super) const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs commands one after the other until the host is gone. Returns `false` if processes of
/// the last command survive.
pub(super) fn run(socket: OwnedFd, host: OwnedFd) -> bool {
    let fork_server = getppid();
    let is_clean = serve(socket, host);
    // The command may have stopped the fork server, which then could not end.
    continue_fork_server(fork_server);
    is_clean
}

fn serve(socket: OwnedFd, host: OwnedFd) -> bool {
    let (Ok(children), Ok(stack)) = (sys::child_events(), Stack::new()) else {
        return true;
    };
    let _ = set_child_subreaper(Some(getpid()));
    let mut reaper = Reaper {
        socket,
        host,
        children,
        stack,
    };
    while let Some((request, stdio)) = reaper.next_request() {
        let [stdin, stdout, stderr] = stdio;
        let started = reaper.start(request, [&stdin, &stdout, &stderr]);
        // A writer must get EPIPE when the command no longer reads.
        drop(stdin);
        // The outputs stay open here, so that the host is not woken for the end of a stream
        // just before the end of the command. It reads the rest when the command has ended.
        let stdout = (!request.external_stdout).then_some(stdout);
        // Nobody reads the outputs when the host is gone, and a command that still writes would
        // die of SIGPIPE in its grace time.
        let outputs = [Some(&stderr), stdout.as_ref()];
        let outputs = outputs.map(|pipe| table::open_read_end(pipe?.as_fd()));
        let pid = match started {
            None => return true,
            Some(Err((step, errno))) => {
                reaper.send(Event::LaunchFailed { step, errno });
                continue;
            }
            Some(Ok(pid)) => pid,
        };
        if request.announce_start {
            // Only this process can reap it, so the pid is valid even if it has ended.
            let start_time = table::stat(pid).ok().flatten();
            let start_time = start_time.map_or(0, |stat| stat.start_time);
            reaper.send(Event::Started { pid, start_time });
        }
        match reaper.supervise(pid, request, &outputs) {
            TreeOutcome::Ended => {}
            TreeOutcome::EndedWithoutHost => return true,
            TreeOutcome::Stuck => return false,
        }
    }
    true
}

struct Reaper {
    socket: OwnedFd,
    /// Pidfd of the host. A fork of the host may hold the socket open after the host's death.
    host: OwnedFd,
    /// Signalfd for `SIGCHLD`.
    children: OwnedFd,
    stack: Stack,
}

/// How the supervision of a tree ended.
enum TreeOutcome {
    Ended,
    EndedWithoutHost,
    Stuck,
}

/// What the reaper does with the tree. Times are of the monotonic clock.
#[derive(Clone, Copy)]
enum Stage {
    /// The command runs; it times out at `until`.
    Running { until: Option<Duration> },
    /// `SIGTERM` was sent; `SIGKILL` follows at `until`.
    Terminating { until: Duration },
    /// `SIGKILL` is sent repeatedly until `until`.
    Killing { until: Duration },
}

impl Reaper {
    /// Waits for a command. Returns `None` when the host is gone.
    fn next_request(&self) -> Option<(RunRequest, [OwnedFd; 3])> {
        let mut header = [0; RunRequest::SIZE];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            let mut into = [IoSliceMut::new(&mut header)];
            let flags = RecvFlags::CMSG_CLOEXEC;
            match recvmsg(&self.socket, &mut into, &mut control, flags) {
                Err(Errno::INTR) => {}
                other => break other.ok()?.bytes,
            }
        };
        if received == 0 {
            return None;
        }
        self.read_exactly(header.get_mut(received..)?)?;
        let mut fds = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        })?;
        let stdio = [fds.next()?, fds.next()?, fds.next()?];
        Some((RunRequest::from_bytes(header), stdio))
    }

    /// Reads the rest of the request and launches the command. Returns `None` if the host is
    /// gone.
    fn start(
        &mut self,
        request: RunRequest,
        stdio: [&OwnedFd; 3],
    ) -> Option<Result<i32, LaunchFailure>> {
        let pointers = pointers_needed(request.argc, request.envc);
        let mut arena = Arena::new(request.block_size as usize, pointers).ok()?;
        let (table, block) = arena.parts();
        self.read_exactly(block)?;
        let plan = LaunchPlan {
            strings: ExecStrings::parse(block, request.argc, request.envc, table)?,
            stdio: stdio.map(AsFd::as_fd),
        };
        Some(launch(&plan, &mut self.stack))
    }

    /// Supervises a tree until no process of it is left.
    ///
    /// `outputs` are the read ends of the tree's output pipes, which are read when the host is gone.
    fn supervise(
        &self,
        main: i32,
        request: RunRequest,
        outputs: &[Option<OwnedFd>; 2],
    ) -> TreeOutcome {
        let mut host_is_alive = true;
        let mut timed_out = false;
        let mut main_status = None;
        let mut stage = Stage::Running {
            until: request
                .timeout
                .map(|timeout| monotonic().saturating_add(timeout)),
        };
        loop {
            let has_children = reap(main, &mut main_status);
            if !has_children {
                let Some(status) = main_status else {
                    // The main process was reaped elsewhere, so its status is unknown.
                    self.send(Event::Stuck {
                        survivors: 0,
                        status: None,
                        timed_out,
                    });
                    return TreeOutcome::Stuck;
                };
                self.send(Event::Ended { status, timed_out });
                return if host_is_alive {
                    TreeOutcome::Ended
                } else {
                    TreeOutcome::EndedWithoutHost
                };
            }
            let wait_until = match stage {
                Stage::Running { until } => {
                    let is_over_time = until.is_some_and(|until| monotonic() >= until);
                    if main_status.is_some() || is_over_time || !host_is_alive {
                        // A process that ended at the same moment did not time out.
                        timed_out = is_over_time && main_status.is_none();
                        stage = terminate_tree(request.grace);
                        continue;
                    }
                    until
                }
                Stage::Terminating { until } => {
                    if monotonic() >= until {
                        let until = monotonic() + KILL_TIMEOUT;
                        stage = Stage::Killing { until };
                        continue;
                    }
                    Some(until)
                }
                Stage::Killing { until } => {
                    let left = kill_tree(main_status.is_none().then_some(main));
                    if monotonic() >= until {
                        let survivors = u32::try_from(left).unwrap_or(u32::MAX).max(1);
                        self.send(Event::Stuck {
                            survivors,
                            status: main_status,
                            timed_out,
                        });
                        return TreeOutcome::Stuck;
                    }
                    Some(monotonic() + KILL_INTERVAL)
                }
            };
            host_is_alive &= self.wait_for_event(host_is_alive, outputs, wait_until);
        }
    }

    /// Waits until a child has ended, the host is gone, or the time is reached. Returns
    /// whether the host is alive.
    fn wait_for_event(
        &self,
        host_is_alive: bool,
        outputs: &[Option<OwnedFd>; 2],
        until: Option<Duration>,
    ) -> bool {
        // The host sends nothing while its command runs, so its socket is readable only when
        // it is closed.
        let others = if host_is_alive {
            [&self.socket, &self.host]
        } else {
            outputs
                .each_ref()
                .map(|it| it.as_ref().unwrap_or(&self.children))
        };
        let [first, second] = others.map(|fd| PollFd::new(fd, PollFlags::IN));
        let mut watched = [PollFd::new(&self.children, PollFlags::IN), first, second];
        let timeout = until.map(|until| {
            let left = until.saturating_sub(monotonic());
            Timespec::try_from(left).unwrap_or(Timespec {
                tv_sec: i64::MAX,
                tv_nsec: 0,
            })
        });
        if poll(&mut watched, timeout.as_ref()).is_err() {
            return true;
        }
        if !watched[0].revents().is_empty() {
            drain(&self.children);
        }
        let is_quiet = watched[1..].iter().all(|fd| fd.revents().is_empty());
        if !host_is_alive {
            outputs.iter().flatten().for_each(discard);
        }
        is_quiet
    }

    fn read_exactly(&self, mut into: &mut [u8]) -> Option<()> {
        while !into.is_empty() {
            match read(&self.socket, &mut *into) {
                Ok(0) => return None,
                Ok(length) => into = into.get_mut(length..)?,
                Err(Errno::INTR) => {}
                Err(_) => return None,
            }
        }
        Some(())
    }

    /// Ignores errors: a closed socket is noticed at the next wait.
    fn send(&self, event: Event) {
        let _ = send(&self.socket, &event.to_bytes(), SendFlags::NOSIGNAL);
    }
}

/// Continues the fork server if it still is the parent of this process.
fn continue_fork_server(fork_server: Option<Pid>) {
    if let Some(fork_server) = fork_server
        && getppid() == Some(fork_server)
    {
        let _ = kill_process(fork_server, Signal::CONT);
    }
}

/// Reaps all children that have ended and stores the status of the main process. Returns
/// whether children are left.
fn reap(main: i32, main_status: &mut Option<i32>) -> bool {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if pid.as_raw_nonzero().get() == main => {
                *main_status = Some(status.as_raw());
            }
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

/// Sends `SIGTERM` to every process of the tree, and `SIGCONT` so that stopped ones can end.
fn terminate_tree(grace: Duration) -> Stage {
    let me = getpid().as_raw_nonzero().get();
    let tree = |pid| table::is_descendant(pid, me);
    if !grace.is_zero() {
        table::signal(Signal::TERM, tree);
        table::signal(Signal::CONT, tree);
    }
    Stage::Terminating {
        until: monotonic().saturating_add(grace),
    }
}

/// Kills the processes that are left and returns how many there were.
///
/// First the children from the kernel's list, which is fast to read; their pids are valid
/// until this process reaps them. Descendants that fork and exit quickly become children.
/// Then the main process and its group by pid, in case `/proc` does not show them. Then all
/// other descendants.
fn kill_tree(main: Option<i32>) -> usize {
    let me = getpid().as_raw_nonzero().get();
    table::kill_children();
    if let Some(main) = main {
        table::kill_leader(main);
    }
    table::signal(Signal::KILL, |pid| table::is_descendant(pid, me))
}

/// Clears the signalfd; `wait` then tells which children have ended. At most one `SIGCHLD` is
/// pending, so one read is enough.
pub(super) fn drain(children: &OwnedFd) {
    let _ = read(children, &mut [0; 128]);
}

/// Reads what is in a pipe, at most as much as a pipe usually holds.
fn discard(pipe: &OwnedFd) {
    let mut chunk = [0; 4096];
    for _ in 0..16 {
        if !matches!(read(pipe, &mut chunk), Ok(1..)) {
            break;
        }
    }
}
