//! The socket through which the command reaches the egress proxy.

#![expect(
    unsafe_code,
    reason = "no library brings a network interface up; the block says why it is sound"
)]

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    sendmsg, socket_with,
};

use super::{Context, LaunchError};

/// The port of the proxy. The network namespace is new, so it is free.
pub(in super::super) const PROXY_PORT: u16 = 3128;

/// Listens in the own network namespace and sends the socket to the proxy.
pub(super) fn connect_proxy(proxy: &Path) -> Result<(), LaunchError> {
    bring_up_loopback().context("cannot bring up the loopback interface")?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, PROXY_PORT));
    let listener = listener.context("cannot listen for the egress proxy")?;
    let step = "cannot reach the egress proxy";
    let proxy = UnixStream::connect(proxy).context(step)?;
    let listener = [listener.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&listener));
    let sent = sendmsg(
        &proxy,
        &[IoSlice::new(&[0])],
        &mut control,
        SendFlags::empty(),
    );
    sent.map(drop).context(step)
}

fn bring_up_loopback() -> io::Result<()> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)?;
    let mut name = [0; libc::IFNAMSIZ];
    for (to, from) in name.iter_mut().zip(c"lo".to_bytes()) {
        *to = from.cast_signed();
    }
    let up = libc::c_short::try_from(libc::IFF_UP).map_err(io::Error::other)?;
    let request = libc::ifreq {
        ifr_name: name,
        ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_flags: up },
    };
    // SAFETY: the descriptor is open, and the kernel only reads the structure, whose name ends
    // with a zero byte.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
