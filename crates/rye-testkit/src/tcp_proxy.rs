//! A TCP proxy that can cut or stall the connections through it.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::thread;
use std::time::Duration;

/// How often a connection checks what it may do.
const TICK: Duration = Duration::from_millis(5);

const PASS: u8 = 0;
const STALL: u8 = 1;
const CUT: u8 = 2;

/// Forwards connections to a server until told otherwise.
#[derive(Debug)]
pub struct TcpProxy {
    address: SocketAddr,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    mode: AtomicU8,
    /// Whether to close the connection that gets the next answer.
    swallows_answer: AtomicBool,
}

impl TcpProxy {
    /// Starts a proxy on a free port.
    pub fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::<State>::default();
        let own = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if own.mode.load(Ordering::Acquire) == CUT {
                    continue;
                }
                let Ok(upstream) = TcpStream::connect(server) else {
                    continue;
                };
                for (from, to, is_answer) in
                    [(&client, &upstream, false), (&upstream, &client, true)]
                {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let state = Arc::clone(&own);
                    thread::spawn(move || {
                        let _ = forward(&from, &to, is_answer, &state);
                        let _ = from.shutdown(Shutdown::Both);
                        let _ = to.shutdown(Shutdown::Both);
                    });
                }
            }
        });
        Self { address, state }
    }

    /// The address of the proxy.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Forwards everything, also what was stalled.
    pub fn pass(&self) {
        self.state.mode.store(PASS, Ordering::Release);
    }

    /// Forwards nothing any more, but keeps the connections open.
    pub fn stall(&self) {
        self.state.mode.store(STALL, Ordering::Release);
    }

    /// Closes all connections and accepts none.
    pub fn cut(&self) {
        self.state.mode.store(CUT, Ordering::Release);
    }

    /// Closes the connection that gets the next answer of the server, instead of forwarding the
    /// answer.
    pub fn swallow_next_answer(&self) {
        self.state.swallows_answer.store(true, Ordering::Release);
    }
}

fn forward(from: &TcpStream, to: &TcpStream, is_answer: bool, state: &State) -> io::Result<()> {
    from.set_read_timeout(Some(TICK))?;
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let length = match (&*from).read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(length) => length,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                ) =>
            {
                0
            }
            Err(error) => return Err(error),
        };
        loop {
            match state.mode.load(Ordering::Acquire) {
                PASS => break,
                CUT => return Ok(()),
                _ => thread::sleep(TICK),
            }
        }
        if length == 0 {
            continue;
        }
        if is_answer && state.swallows_answer.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        (&*to).write_all(&buffer[..length])?;
    }
}
