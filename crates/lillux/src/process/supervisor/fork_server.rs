//! The fork server: forks reapers and ends the trees of killed reapers.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::dup;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recvmsg, send};
use rustix::process::{Signal, WaitOptions, getpid, kill_process, set_child_subreaper, wait};

use super::super::table;
use super::messages::Event;
use super::reaper;
use super::sys::{self, SignalReset};

/// Maximum number of reapers at a time.
const MAX_REAPERS: usize = 4096;

/// A reaper that is stopped more often is under attack by its command. The fork server kills
/// the reaper and its command.
const MAX_STOPS: u8 = 8;

/// Runs the fork server until the host and all descendants are gone.
pub(super) fn run(socket: OwnedFd, first_reaper: OwnedFd, host: OwnedFd, signals: SignalReset) {
    let fds = sys::close_all_except([socket, first_reaper, host]);
    let (Ok([socket, first_reaper, host]), Ok(())) = (fds, sys::detach_from_host(signals)) else {
        return;
    };
    let Ok(children) = sys::child_events() else {
        return;
    };
    let _ = set_child_subreaper(Some(getpid()));
    let mut server = ForkServer {
        host,
        reapers: [0; MAX_REAPERS],
        stops: [0; MAX_REAPERS],
    };
    server.fork_reaper(&first_reaper);
    drop(first_reaper);

    let mut host_is_alive = true;
    loop {
        let mut watched = [
            PollFd::new(&children, PollFlags::IN),
            PollFd::new(&socket, PollFlags::IN),
            PollFd::new(&server.host, PollFlags::IN),
        ];
        let count = if host_is_alive { 3 } else { 1 };
        let watched = &mut watched[..count];
        if poll(watched, None).is_err() {
            continue;
        }
        let [child_ended, request_arrived, host_died] =
            [0, 1, 2].map(|at| watched.get(at).is_some_and(|fd| !fd.revents().is_empty()));
        if request_arrived {
            match receive_socket(&socket) {
                Some(reaper) => server.fork_reaper(&reaper),
                None => host_is_alive = false,
            }
        }
        host_is_alive &= !host_died;
        if child_ended {
            reaper::drain(&children);
        }
        let has_children = server.reap();
        if !host_is_alive && !has_children {
            return;
        }
    }
}

struct ForkServer {
    /// Pidfd of the host.
    host: OwnedFd,
    /// Pids of the reapers; 0 marks a free slot.
    reapers: [i32; MAX_REAPERS],
    /// How often each reaper was stopped.
    stops: [u8; MAX_REAPERS],
}

impl ForkServer {
    /// Forks a reaper and sends [`Event::Ready`]. On failure the socket is dropped, so the
    /// host sees it close.
    fn fork_reaper(&mut self, socket: &OwnedFd) {
        let slots = self.reapers.iter_mut().zip(&mut self.stops);
        let slot = slots.into_iter().find(|(pid, _)| **pid == 0);
        let (Some((slot, stops)), Ok(its_socket), Ok(host)) = (slot, dup(socket), dup(&self.host))
        else {
            return;
        };
        let run_reaper = || match sys::close_all_except([its_socket, host]) {
            Ok([socket, host]) => reaper::run(socket, host),
            Err(_) => true,
        };
        if let Ok(pid) = sys::fork_child(run_reaper) {
            (*slot, *stops) = (pid, 0);
            let start_time = table::stat(pid).ok().flatten();
            let start_time = start_time.map_or(0, |stat| stat.start_time);
            let ready = Event::Ready { pid, start_time };
            let _ = send(socket, &ready.to_bytes(), SendFlags::NOSIGNAL);
        }
    }

    /// Reaps children that have ended and returns whether any are left. If a reaper did not
    /// end normally, the processes of its tree are now children of the fork server and are
    /// killed with their descendants. A stopped reaper is continued; one that is stopped
    /// repeatedly could not end its tree and is killed.
    fn reap(&mut self) -> bool {
        let mut all_normal = true;
        let has_children = loop {
            let (pid, status) = match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
                Ok(Some(ended)) => ended,
                Ok(None) => break true,
                Err(_) => break false,
            };
            let number = pid.as_raw_nonzero().get();
            let mut slots = self.reapers.iter_mut().zip(&mut self.stops);
            let slot = slots.find(|(reaper, _)| **reaper == number);
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
            all_normal &= slot.is_some() && status.exit_status() == Some(0);
            if let Some((slot, _)) = slot {
                *slot = 0;
            }
        };
        if !all_normal {
            let me = getpid().as_raw_nonzero().get();
            table::signal(Signal::KILL, |pid| {
                let mut outside_reapers =
                    table::ancestry(pid).take_while(|(pid, _)| !self.reapers.contains(pid));
                outside_reapers.any(|(_, stat)| stat.parent == me)
            });
        }
        has_children
    }
}

/// Receives the socket for the next reaper. Returns `None` when the host is gone.
fn receive_socket(host: &OwnedFd) -> Option<OwnedFd> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(
        host.as_fd(),
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
