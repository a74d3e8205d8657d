//! Ports for programs that can't choose a free one themselves.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};

/// The first port below those that Linux assigns to connections and to listeners on port 0
/// (32768 and up), so that no other test gets the port before the program listens.
const FIRST: u16 = 15_000;
const COUNT: u16 = 15_000;

/// A port of this machine that is free and that the system doesn't assign to other programs.
///
/// ```
/// let port = rye_testkit::port::unassigned();
/// assert!(std::net::TcpListener::bind(("127.0.0.1", port)).is_ok());
/// ```
pub fn unassigned() -> u16 {
    let random = RandomState::new().build_hasher().finish();
    let start = u16::try_from(random % u64::from(COUNT)).unwrap();
    (0..COUNT)
        .map(|step| FIRST + (start + step) % COUNT)
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .unwrap()
}
