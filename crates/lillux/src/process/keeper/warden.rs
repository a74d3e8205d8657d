//! The process that forks keepers, and ends what a killed keeper leaves behind.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::dup;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recvmsg, send};
use rustix::process::{Signal, WaitOptions, getpid, kill_process, set_child_subreaper, wait};

use super::super::table;
use super::keep;
use super::sys::{self, Reset};
use super::wire::Event;

/// More keepers than this at one time are refused.
const MAX_KEEPERS: usize = 4096;

/// A keeper that is stopped more often than this is being attacked by its command. The
/// warden kills it, and with it the command.
const MAX_STOPS: u8 = 8;

/// Runs the warden until the program is gone and so is all that hung from it.
pub(super) fn run(socket: OwnedFd, first_keeper: OwnedFd, program: OwnedFd, signals: Reset) {
    let kept = sys::keep_only([socket, first_keeper, program]);
    let (Ok([socket, first_keeper, program]), Ok(())) = (kept, sys::leave_program(signals)) else {
        return;
    };
    let Ok(children) = sys::child_events() else {
        return;
    };
    let _ = set_child_subreaper(Some(getpid()));
    let mut warden = Warden {
        program,
        keepers: [0; MAX_KEEPERS],
        stops: [0; MAX_KEEPERS],
    };
    warden.fork_keeper(&first_keeper);
    drop(first_keeper);

    let mut program_is_there = true;
    loop {
        let mut watched = [
            PollFd::new(&children, PollFlags::IN),
            PollFd::new(&socket, PollFlags::IN),
            PollFd::new(&warden.program, PollFlags::IN),
        ];
        let count = if program_is_there { 3 } else { 1 };
        let watched = &mut watched[..count];
        if poll(watched, None).is_err() {
            continue;
        }
        let [ended, asked, gone] =
            [0, 1, 2].map(|at| watched.get(at).is_some_and(|fd| !fd.revents().is_empty()));
        if asked {
            match receive_socket(&socket) {
                Some(keeper) => warden.fork_keeper(&keeper),
                None => program_is_there = false,
            }
        }
        program_is_there &= !gone;
        if ended {
            keep::drain(&children);
        }
        let nobody_is_left = warden.reap();
        if !program_is_there && nobody_is_left {
            return;
        }
    }
}

struct Warden {
    program: OwnedFd,
    /// 0 where there is none.
    keepers: [i32; MAX_KEEPERS],
    /// How often each of them was stopped.
    stops: [u8; MAX_KEEPERS],
}

impl Warden {
    /// Forks a keeper and says so. If there is no room or no process to be had,
    /// the socket is dropped, and the program, seeing its end close, knows.
    fn fork_keeper(&mut self, socket: &OwnedFd) {
        let slots = self.keepers.iter_mut().zip(&mut self.stops);
        let slot = slots.into_iter().find(|(pid, _)| **pid == 0);
        let (Some((slot, stops)), Ok(its_socket), Ok(program)) =
            (slot, dup(socket), dup(&self.program))
        else {
            return;
        };
        let keeper = || match sys::keep_only([its_socket, program]) {
            Ok([socket, program]) => keep::run(socket, program),
            Err(_) => true,
        };
        if let Ok(pid) = sys::fork_off(keeper) {
            (*slot, *stops) = (pid, 0);
            let start_time = table::stat(pid).ok().flatten();
            let start_time = start_time.map_or(0, |stat| stat.start_time);
            let ready = Event::Ready { pid, start_time };
            let _ = send(socket, &ready.to_bytes(), SendFlags::NOSIGNAL);
        }
    }

    /// Takes note of children that ended, and tells whether none is left. If a
    /// keeper did not end by itself, what it kept is now ours: children that
    /// are no keepers, and all below them. A stopped keeper is continued; one that is
    /// stopped again and again could not end its tree, and is killed.
    fn reap(&mut self) -> bool {
        let mut all_in_order = true;
        let nobody_is_left = loop {
            let (pid, status) = match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
                Ok(Some(ended)) => ended,
                Ok(None) => break false,
                Err(_) => break true,
            };
            let number = pid.as_raw_nonzero().get();
            let mut slots = self.keepers.iter_mut().zip(&mut self.stops);
            let slot = slots.find(|(keeper, _)| **keeper == number);
            if status.stopped() {
                if let Some((_, stops)) = slot {
                    *stops = stops.saturating_add(1);
                    let is_attacked = *stops > MAX_STOPS;
                    let signal = if is_attacked {
                        Signal::KILL
                    } else {
                        Signal::CONT
                    };
                    let _ = kill_process(pid, signal);
                }
                continue;
            }
            all_in_order &= slot.is_some() && status.exit_status() == Some(0);
            if let Some((slot, _)) = slot {
                *slot = 0;
            }
        };
        if !all_in_order {
            let me = getpid().as_raw_nonzero().get();
            table::signal(Signal::KILL, |pid| {
                let mut below_no_keeper =
                    table::ancestry(pid).take_while(|(pid, _)| !self.keepers.contains(pid));
                below_no_keeper.any(|(_, stat)| stat.parent == me)
            });
        }
        nobody_is_left
    }
}

/// The next keeper's end of its socket, or `None` once the program is gone.
fn receive_socket(program: &OwnedFd) -> Option<OwnedFd> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(
        program.as_fd(),
        &mut [IoSliceMut::new(&mut byte)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    );
    if received.ok()?.bytes == 0 {
        return None;
    }
    control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    })
}
