//! The process that a command's tree hangs from.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recvmsg, send};
use rustix::process::{Signal, WaitOptions, getpid, set_child_subreaper, wait};

use super::super::image::{Strings, pointers_needed};
use super::super::table;
use super::sys::{self, Arena, Failed, Plan, Stack, launch};
use super::wire::{Event, Run};
use crate::time::monotonic;

/// How often a tree that does not die is killed again. What is left may have
/// forked in the meantime.
const KILL_AGAIN: Duration = Duration::from_millis(10);

/// What is not dead this long after being killed hangs in the kernel or belongs
/// to another user; it is reported, not waited for.
const GIVE_UP: Duration = Duration::from_secs(5);

/// Runs one command after the other until the program is gone.
pub(super) fn run(socket: OwnedFd) {
    let (Ok([socket]), Ok(stack)) = (sys::keep_only([socket]), Stack::new()) else {
        return;
    };
    let Ok(children) = sys::child_events() else {
        return;
    };
    let _ = set_child_subreaper(Some(getpid()));
    let mut keeper = Keeper {
        socket,
        children,
        stack,
    };
    while let Some((run, stdio)) = keeper.next_job() {
        let pid = match keeper.start(run, stdio) {
            None => return,
            Some(Err((step, errno))) => {
                keeper.tell(Event::Refused { step, errno });
                continue;
            }
            Some(Ok(pid)) => pid,
        };
        if run.announce {
            // Nobody but us can have reaped it, so even if it has ended, the number is its own.
            let start_time = table::stat(pid).map_or(0, |stat| stat.start_time);
            keeper.tell(Event::Started { pid, start_time });
        }
        let grace = Duration::from_millis(run.grace_ms.into());
        if keeper.hold(pid, grace) != Held::AllGone {
            return;
        }
    }
}

struct Keeper {
    socket: OwnedFd,
    children: OwnedFd,
    stack: Stack,
}

/// How a tree was left.
#[derive(PartialEq)]
enum Held {
    /// Nothing of it is left, and the program is there for more.
    AllGone,
    /// The program is gone, or something could not be killed.
    Done,
}

/// What is being done about the tree. All times are of the monotonic clock.
#[derive(Clone, Copy)]
enum Stage {
    Running,
    /// Asked to end; killed from then on.
    Ending {
        until: Duration,
    },
    /// Killed again and again until then.
    Killing {
        until: Duration,
    },
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
    fn start(&mut self, run: Run, stdio: [OwnedFd; 3]) -> Option<Result<i32, Failed>> {
        let pointers = pointers_needed(run.argc, run.envc);
        let mut arena = Arena::new(run.block as usize, pointers).ok()?;
        let (table, block) = arena.parts();
        self.read_exactly(block)?;
        let plan = Plan {
            strings: Strings::read(block, run.argc, run.envc, table)?,
            stdio: [stdio[0].as_fd(), stdio[1].as_fd(), stdio[2].as_fd()],
        };
        let pid = launch(&plan, &mut self.stack);
        // Or the keeper would hold the tree's streams open.
        drop(stdio);
        Some(pid)
    }

    /// Holds a tree until nothing of it is left.
    fn hold(&self, main: i32, grace: Duration) -> Held {
        let me = getpid().as_raw_nonzero().get();
        let tree = |pid| table::is_descendant(pid, me);
        let mut program_is_there = true;
        let mut stage = Stage::Running;
        loop {
            let (main_status, all_gone) = reap(main);
            match (main_status, all_gone) {
                (Some(status), true) => self.tell(Event::Ended { status }),
                (Some(status), false) => self.tell(Event::Exited { status }),
                (None, true) => self.tell(Event::Gone),
                (None, false) => {}
            }
            if all_gone {
                return if program_is_there {
                    Held::AllGone
                } else {
                    Held::Done
                };
            }
            stage = match stage {
                Stage::Running if main_status.is_some() => end_tree(grace, &tree),
                Stage::Ending { until } if monotonic() >= until => Stage::Killing {
                    until: monotonic() + GIVE_UP,
                },
                other => other,
            };
            let wait_until = match stage {
                Stage::Running => None,
                Stage::Ending { until } => Some(until),
                Stage::Killing { until } => {
                    let left = table::signal(Signal::KILL, tree);
                    if monotonic() >= until {
                        let survivors = u32::try_from(left).unwrap_or(u32::MAX);
                        self.tell(Event::Stuck { survivors });
                        return Held::Done;
                    }
                    Some(monotonic() + KILL_AGAIN)
                }
            };
            let heard = self.wait_for_news(program_is_there, wait_until);
            let grace = match heard {
                Heard::Nothing => continue,
                Heard::End { grace } => grace,
                Heard::ProgramIsGone => {
                    program_is_there = false;
                    grace
                }
            };
            if matches!(stage, Stage::Running) {
                stage = end_tree(grace, &tree);
            }
        }
    }

    /// Waits until a child has ended, the program says something, or it is that late.
    fn wait_for_news(&self, program_is_there: bool, until: Option<Duration>) -> Heard {
        let listen = if program_is_there {
            PollFlags::IN
        } else {
            PollFlags::empty()
        };
        let socket: &OwnedFd = if program_is_there {
            &self.socket
        } else {
            &self.children
        };
        let mut watched = [
            PollFd::new(&self.children, PollFlags::IN),
            PollFd::new(socket, listen),
        ];
        let timeout = until.map(|until| {
            let left = until.saturating_sub(monotonic());
            Timespec::try_from(left).unwrap_or_default()
        });
        let _ = poll(&mut watched, timeout.as_ref());
        let spoken = program_is_there && !watched[1].revents().is_empty();
        if !watched[0].revents().is_empty() {
            drain(&self.children);
        }
        if !spoken {
            return Heard::Nothing;
        }
        let mut grace = [0; 4];
        match self.read_exactly(&mut grace) {
            Some(()) => Heard::End {
                grace: Duration::from_millis(u32::from_ne_bytes(grace).into()),
            },
            None => Heard::ProgramIsGone,
        }
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

enum Heard {
    Nothing,
    End { grace: Duration },
    ProgramIsGone,
}

/// Reaps whatever has ended. Gives the main process's status if it was among
/// it, and tells whether no child is left.
fn reap(main: i32) -> (Option<i32>, bool) {
    let mut main_status = None;
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if pid.as_raw_nonzero().get() == main => {
                main_status = Some(status.as_raw());
            }
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => return (main_status, false),
            Err(_) => return (main_status, true),
        }
    }
}

/// Asks every process of the tree to end. A stopped one is woken, or it could not.
fn end_tree(grace: Duration, tree: &impl Fn(i32) -> bool) -> Stage {
    if !grace.is_zero() {
        table::signal(Signal::TERM, tree);
        table::signal(Signal::CONT, tree);
    }
    Stage::Ending {
        until: monotonic() + grace,
    }
}

/// Takes note that children have ended; which ones is then asked of the
/// kernel. Of one signal at most one is pending, so one read takes it all.
pub(super) fn drain(children: &OwnedFd) {
    let _ = read(children, &mut [0; 128]);
}
