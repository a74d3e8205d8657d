//! The process that a command's tree hangs from.

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

use super::super::image::{Strings, pointers_needed};
use super::super::table;
use super::sys::{self, Arena, Failed, Plan, Stack, launch};
use super::wire::{Event, Run};
use crate::time::monotonic;

/// How often a tree that does not die is killed again. What is left may have
/// forked in the meantime.
pub(super) const KILL_AGAIN: Duration = Duration::from_millis(10);

/// What is not dead this long after being killed hangs in the kernel or belongs
/// to another user; it is reported, not waited for.
pub(in super::super) const GIVE_UP: Duration = Duration::from_secs(5);

/// Runs one command after the other until the program is gone. Gives `false`
/// if something of the last one is left.
pub(super) fn run(socket: OwnedFd, program: OwnedFd) -> bool {
    let warden = getppid();
    let is_clean = serve(socket, program);
    // The warden may have been stopped by the command, and could not end.
    wake(warden);
    is_clean
}

fn serve(socket: OwnedFd, program: OwnedFd) -> bool {
    let (Ok(children), Ok(stack)) = (sys::child_events(), Stack::new()) else {
        return true;
    };
    let _ = set_child_subreaper(Some(getpid()));
    let mut keeper = Keeper {
        socket,
        program,
        children,
        stack,
    };
    while let Some((run, stdio)) = keeper.next_job() {
        let [stdin, stdout, stderr] = stdio;
        let started = keeper.start(run, [&stdin, &stdout, &stderr]);
        // Whoever writes to it is to know when nobody reads any more.
        drop(stdin);
        // The others stay open here: what the command wrote is read when it has
        // ended, and the program need not be woken to hear of a stream's end
        // just before it hears of the command's.
        let _outputs = (stderr, (!run.read_elsewhere).then_some(stdout));
        let pid = match started {
            None => return true,
            Some(Err((step, errno))) => {
                keeper.tell(Event::Refused { step, errno });
                continue;
            }
            Some(Ok(pid)) => pid,
        };
        if run.announce {
            // Nobody but us can have reaped it, so even if it has ended, the number is its own.
            let start_time = table::stat(pid).ok().flatten();
            let start_time = start_time.map_or(0, |stat| stat.start_time);
            keeper.tell(Event::Started { pid, start_time });
        }
        match keeper.hold(pid, run) {
            Held::AllGone => {}
            Held::ProgramIsGone => return true,
            Held::Stuck => return false,
        }
    }
    true
}

struct Keeper {
    socket: OwnedFd,
    /// The program itself. It may die while a fork of it holds the socket open.
    program: OwnedFd,
    children: OwnedFd,
    stack: Stack,
}

/// How a tree was left.
enum Held {
    AllGone,
    ProgramIsGone,
    Stuck,
}

/// What is being done about the tree. All times are of the monotonic clock.
#[derive(Clone, Copy)]
enum Stage {
    /// Asked to end then, if ever.
    Running { until: Option<Duration> },
    /// Asked to end; killed from then on.
    Ending { until: Duration },
    /// Killed again and again until then.
    Killing { until: Duration },
}

impl Keeper {
    /// Waits for a command. `None` once the program is gone.
    fn next_job(&self) -> Option<(Run, [OwnedFd; 3])> {
        let mut header = [0; Run::SIZE];
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
        Some((Run::from_bytes(header), stdio))
    }

    /// Reads the rest of the job and launches it. `None` if the program went away meanwhile.
    fn start(&mut self, run: Run, stdio: [&OwnedFd; 3]) -> Option<Result<i32, Failed>> {
        let pointers = pointers_needed(run.argc, run.envc);
        let mut arena = Arena::new(run.block as usize, pointers).ok()?;
        let (table, block) = arena.parts();
        self.read_exactly(block)?;
        let plan = Plan {
            strings: Strings::read(block, run.argc, run.envc, table)?,
            stdio: stdio.map(AsFd::as_fd),
        };
        Some(launch(&plan, &mut self.stack))
    }

    /// Holds a tree until nothing of it is left.
    fn hold(&self, main: i32, run: Run) -> Held {
        let mut program_is_there = true;
        let mut timed_out = false;
        let mut main_status = None;
        let mut stage = Stage::Running {
            until: run
                .timeout
                .map(|timeout| monotonic().saturating_add(timeout)),
        };
        loop {
            let all_gone = reap(main, &mut main_status);
            if all_gone {
                let Some(status) = main_status else {
                    // Somebody else has reaped it. Better to know nothing than to guess.
                    self.tell(Event::Stuck {
                        survivors: 0,
                        status: None,
                        timed_out,
                    });
                    return Held::Stuck;
                };
                self.tell(Event::Ended { status, timed_out });
                return if program_is_there {
                    Held::AllGone
                } else {
                    Held::ProgramIsGone
                };
            }
            let wait_until = match stage {
                Stage::Running { until } => {
                    let time_is_up = until.is_some_and(|until| monotonic() >= until);
                    if main_status.is_some() || time_is_up || !program_is_there {
                        // A process that ends as its time is up has ended in time.
                        timed_out = time_is_up && main_status.is_none();
                        stage = end_tree(run.grace);
                        continue;
                    }
                    until
                }
                Stage::Ending { until } => {
                    if monotonic() >= until {
                        let until = monotonic() + GIVE_UP;
                        stage = Stage::Killing { until };
                        continue;
                    }
                    Some(until)
                }
                Stage::Killing { until } => {
                    let left = kill_tree(main_status.is_none().then_some(main));
                    if monotonic() >= until {
                        let survivors = u32::try_from(left).unwrap_or(u32::MAX).max(1);
                        self.tell(Event::Stuck {
                            survivors,
                            status: main_status,
                            timed_out,
                        });
                        return Held::Stuck;
                    }
                    Some(monotonic() + KILL_AGAIN)
                }
            };
            program_is_there &= self.wait_for_news(program_is_there, wait_until);
        }
    }

    /// Waits until a child has ended, the program is gone, or it is that late.
    /// Tells whether the program is there.
    fn wait_for_news(&self, program_is_there: bool, until: Option<Duration>) -> bool {
        // A program says nothing while its command runs, so its socket is readable when it is closed.
        let mut watched = [
            PollFd::new(&self.children, PollFlags::IN),
            PollFd::new(&self.socket, PollFlags::IN),
            PollFd::new(&self.program, PollFlags::IN),
        ];
        let count = if program_is_there { 3 } else { 1 };
        let watched = &mut watched[..count];
        let timeout = until.map(|until| {
            let left = until.saturating_sub(monotonic());
            Timespec::try_from(left).unwrap_or(Timespec {
                tv_sec: i64::MAX,
                tv_nsec: 0,
            })
        });
        if poll(watched, timeout.as_ref()).is_err() {
            return true;
        }
        if !watched[0].revents().is_empty() {
            drain(&self.children);
        }
        watched[1..].iter().all(|fd| fd.revents().is_empty())
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

    /// If the program is not there to hear it, the closed socket says so at the next wait.
    fn tell(&self, event: Event) {
        let _ = send(&self.socket, &event.to_bytes(), SendFlags::NOSIGNAL);
    }
}

/// Continues the warden, unless it is gone: then this process has another parent.
fn wake(warden: Option<Pid>) {
    if let Some(warden) = warden
        && getppid() == Some(warden)
    {
        let _ = kill_process(warden, Signal::CONT);
    }
}

/// Reaps whatever has ended, and notes the main process's status if it is
/// among it. Tells whether no child is left.
fn reap(main: i32, main_status: &mut Option<i32>) -> bool {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if pid.as_raw_nonzero().get() == main => {
                *main_status = Some(status.as_raw());
            }
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => return false,
            Err(_) => return true,
        }
    }
}

/// Asks every process of the tree to end. A stopped one is woken, or it could not.
fn end_tree(grace: Duration) -> Stage {
    let me = getpid().as_raw_nonzero().get();
    let tree = |pid| table::is_descendant(pid, me);
    if !grace.is_zero() {
        table::signal(Signal::TERM, tree);
        table::signal(Signal::CONT, tree);
    }
    Stage::Ending {
        until: monotonic().saturating_add(grace),
    }
}

/// Kills what is left, and tells how many that were.
///
/// First the children, of which the kernel keeps a list that is quick to read:
/// they are ours to reap, so their numbers are theirs. Whatever forks and
/// exits in a hurry comes to be one. Then the main process and its group by
/// number, should `/proc` not show them. Then all that is below us.
fn kill_tree(main: Option<i32>) -> usize {
    let me = getpid().as_raw_nonzero().get();
    table::kill_children();
    if let Some(main) = main {
        table::kill_leader(main);
    }
    table::signal(Signal::KILL, |pid| table::is_descendant(pid, me))
}

/// Takes note that children have ended; which ones is then asked of the
/// kernel. Of one signal at most one is pending, so one read takes it all.
pub(super) fn drain(children: &OwnedFd) {
    let _ = read(children, &mut [0; 128]);
}
