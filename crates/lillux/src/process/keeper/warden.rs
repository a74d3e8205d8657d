//! The process that forks keepers, and ends what a killed keeper leaves behind.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::dup;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recvmsg, send};
use rustix::process::{Signal, WaitOptions, getpid, set_child_subreaper, wait};

use super::super::table;
use super::keep;
use super::sys;
use super::wire::Event;

/// More keepers than this at one time are refused.
const MAX_KEEPERS: usize = 4096;

/// Runs the warden until the program is gone and so are all keepers.
pub(super) fn run(socket: OwnedFd, first_keeper: OwnedFd) {
    let (Ok(()), Ok([socket, first_keeper])) =
        (sys::leave_program(), sys::keep_only([socket, first_keeper]))
    else {
        return;
    };
    let Ok(children) = sys::child_events() else {
        return;
    };
    let _ = set_child_subreaper(Some(getpid()));
    let mut warden = Warden {
        keepers: [0; MAX_KEEPERS],
    };
    warden.fork_keeper(&first_keeper);
    drop(first_keeper);

    let mut program = Some(socket);
    loop {
        let mut watched = [
            PollFd::new(&children, PollFlags::IN),
            PollFd::new(&children, PollFlags::empty()),
        ];
        if let Some(socket) = &program {
            watched[1] = PollFd::new(socket, PollFlags::IN);
        }
        let _ = poll(&mut watched, None);
        let asked = !watched[1].revents().is_empty();
        if !watched[0].revents().is_empty() {
            keep::drain(&children);
            warden.reap();
        }
        if asked && let Some(socket) = &program {
            match receive_socket(socket) {
                Some(keeper) => warden.fork_keeper(&keeper),
                None => program = None,
            }
        }
        if program.is_none() && warden.is_alone() {
            return;
        }
    }
}

struct Warden {
    /// 0 where there is none.
    keepers: [i32; MAX_KEEPERS],
}

impl Warden {
    /// Forks a keeper and says so. If there is no room or no process to be had,
    /// the socket is dropped, and the program, seeing its end close, knows.
    fn fork_keeper(&mut self, socket: &OwnedFd) {
        let slot = self.keepers.iter_mut().find(|pid| **pid == 0);
        let (Some(slot), Ok(its_socket)) = (slot, dup(socket)) else {
            return;
        };
        if let Ok(pid) = sys::fork_off(|| keep::run(its_socket)) {
            *slot = pid;
            let _ = send(socket, &Event::Ready.to_bytes(), SendFlags::NOSIGNAL);
        }
    }

    fn is_alone(&self) -> bool {
        self.keepers.iter().all(|pid| *pid == 0)
    }

    /// Takes note of keepers that ended. If one did not end by itself, what it
    /// kept is now ours: children that are no keepers, and all below them.
    fn reap(&mut self) {
        let mut all_in_order = true;
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            let pid = pid.as_raw_nonzero().get();
            match self.keepers.iter_mut().find(|keeper| **keeper == pid) {
                Some(slot) => *slot = 0,
                None => all_in_order = false,
            }
            all_in_order &= status.exit_status() == Some(0);
        }
        if all_in_order {
            return;
        }
        let me = getpid().as_raw_nonzero().get();
        table::signal(Signal::KILL, |pid| {
            self.stands_below_me_without_a_keeper(pid, me)
        });
    }

    fn stands_below_me_without_a_keeper(&self, pid: i32, me: i32) -> bool {
        let mut current = pid;
        while !self.keepers.contains(&current) {
            match table::stat(current) {
                Some(stat) if stat.parent == me => return true,
                Some(stat) if stat.parent > 1 => current = stat.parent,
                _ => return false,
            }
        }
        false
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
