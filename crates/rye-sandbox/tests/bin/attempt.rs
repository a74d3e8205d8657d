//! Attempts to leave the sandbox that need system calls. Exits with 0 if an attempt succeeds.

#![expect(
    unsafe_code,
    reason = "the attempts are raw system calls with arguments that are valid outside"
)]
#![expect(clippy::unwrap_used, reason = "a test program may panic")]

use std::ffi::{CString, c_int, c_long};
use std::io::Read as _;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixStream};
use std::path::Path;
use std::process::ExitCode;
use std::ptr::null;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let succeeded = match arguments.as_slice() {
        ["unix", path] => speaks(UnixStream::connect(path)),
        ["abstract", name] => {
            let address = SocketAddr::from_abstract_name(name).unwrap();
            speaks(UnixStream::connect_addr(&address))
        }
        ["tcp", address] => speaks(TcpStream::connect(address)),
        ["udp", address] => {
            UdpSocket::bind("127.0.0.1:0").is_ok_and(|socket| socket.send_to(b"x", address).is_ok())
        }
        ["socket", domain, kind, protocol] => {
            let [domain, kind, protocol] = [domain, kind, protocol].map(|it| it.parse().unwrap());
            // SAFETY: all arguments are plain numbers.
            unsafe { libc::socket(domain, kind, protocol) >= 0 }
        }
        // Signal 0 only checks the permission.
        ["kill", pid] => call(libc::SYS_kill, [number(pid), 0, 0, 0]),
        ["pidfd", pid] => call(libc::SYS_pidfd_open, [number(pid), 0, 0, 0]),
        ["pidfd_getfd", pid] => pidfd_getfd(number(pid)),
        ["ptrace", pid] => call(
            libc::SYS_ptrace,
            [libc::PTRACE_SEIZE.into(), number(pid), 0, 0],
        ),
        ["read_memory", pid, address] => {
            read_memory(pid.parse().unwrap(), address.parse().unwrap())
        }
        ["unshare"] => call(libc::SYS_unshare, [libc::CLONE_NEWUSER.into(), 0, 0, 0]),
        ["clone"] => clone_user_namespace(),
        ["setns", pid] => {
            let file = std::fs::File::open(format!("/proc/{pid}/ns/uts")).unwrap();
            let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
            call(libc::SYS_setns, [fd.into(), 0, 0, 0])
        }
        ["mount", target] => mount(target),
        ["chroot"] => {
            let root = CString::new("/usr").unwrap();
            call(libc::SYS_chroot, [root.as_ptr() as c_long, 0, 0, 0])
        }
        ["clone3"] => clone3_user_namespace(),
        ["unshare_mounts"] => call(libc::SYS_unshare, [libc::CLONE_NEWNS.into(), 0, 0, 0]),
        // The size of the buffer, which changes nothing.
        ["syslog"] => {
            call(libc::SYS_syslog, [10, 0, 0, 0]) && std::fs::File::open("/dev/kmsg").is_ok()
        }
        ["setuid", user] => call(libc::SYS_setuid, [number(user), 0, 0, 0]),
        ["unix_datagram", path] => {
            let socket = UnixDatagram::unbound();
            socket.is_ok_and(|it| it.send_to(b"x", path).is_ok())
        }
        ["listen"] => TcpListener::bind("127.0.0.1:0").is_ok(),
        ["exchange", one, other] => exchange(one, other),
        ["swap", dir, target] => swap(dir, target),
        ["terminal_input"] => {
            let byte = b'x';
            let pointer = (&raw const byte).expose_provenance();
            let pointer = c_long::try_from(pointer).unwrap();
            let request = c_long::try_from(libc::TIOCSTI).unwrap();
            call(libc::SYS_ioctl, [0, request, pointer, 0])
        }
        ["keyctl"] => call(libc::SYS_keyctl, [0, -3, 0, 0]),
        ["userfaultfd"] => call(libc::SYS_userfaultfd, [1, 0, 0, 0]),
        ["bpf"] => bpf(),
        ["perf"] => perf(),
        ["io_uring"] => {
            let parameters = [0_u8; 120];
            call(
                libc::SYS_io_uring_setup,
                [4, parameters.as_ptr() as c_long, 0, 0],
            )
        }
        ["handle", path] => open_by_handle(path),
        ["foreign"] => foreign_call(),
        ["x32"] => call(0x4000_0000 | libc::SYS_getpid, [0; 4]),
        ["fork_bomb"] => forks(1000),
        ["memory_bomb"] => touches_memory(256 << 20),
        ["descriptor_bomb"] => (0..500)
            .map(|_| std::fs::File::open("/dev/null"))
            .collect::<Result<Vec<_>, _>>()
            .is_ok(),
        other => panic!("unknown attempt {other:?}"),
    };
    ExitCode::from(u8::from(!succeeded))
}

fn number(text: &str) -> c_long {
    text.parse().unwrap()
}

fn call(number: c_long, [a, b, c, d]: [c_long; 4]) -> bool {
    // SAFETY: the callers pass numbers, or pointers to memory that lives until after the call.
    unsafe { libc::syscall(number, a, b, c, d) >= 0 }
}

/// Whether the listener outside answers.
fn speaks(stream: std::io::Result<impl std::io::Read>) -> bool {
    let mut answer = [0; 5];
    stream.is_ok_and(|mut stream| stream.read_exact(&mut answer).is_ok() && &answer == b"hello")
}

fn pidfd_getfd(pid: c_long) -> bool {
    // SAFETY: all arguments are plain numbers.
    let pidfd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    pidfd >= 0 && call(libc::SYS_pidfd_getfd, [pidfd, 0, 0, 0])
}

fn read_memory(pid: c_int, address: usize) -> bool {
    let mut bytes = [0_u8; 8];
    let local = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    let remote = libc::iovec {
        iov_base: address as *mut _,
        iov_len: bytes.len(),
    };
    // SAFETY: the local buffer is valid; the kernel checks the remote address.
    let read = unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) };
    read == 8
}

fn clone_user_namespace() -> bool {
    let flags = c_long::from(libc::CLONE_NEWUSER | libc::SIGCHLD);
    // SAFETY: without CLONE_VM this is a fork; the child exits at once.
    match unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) } {
        // SAFETY: ends the child without running destructors of the parent.
        0 => unsafe { libc::_exit(0) },
        pid => pid > 0,
    }
}

fn clone3_user_namespace() -> bool {
    // struct clone_args: flags, pidfd, child_tid, parent_tid, exit_signal and three more.
    let mut arguments = [0_u64; 8];
    arguments[0] = libc::CLONE_NEWUSER.unsigned_abs().into();
    arguments[4] = libc::SIGCHLD.unsigned_abs().into();
    let size = size_of_val(&arguments);
    // SAFETY: without CLONE_VM this is a fork; the child exits at once.
    match unsafe { libc::syscall(libc::SYS_clone3, arguments.as_ptr(), size) } {
        // SAFETY: ends the child.
        0 => unsafe { libc::_exit(0) },
        pid => pid > 0,
    }
}

/// Exchanges two files or directories atomically.
fn exchange(one: &str, other: &str) -> bool {
    let [one, other] = [one, other].map(|path| CString::new(path).unwrap());
    // SAFETY: the strings are NUL-terminated.
    unsafe {
        libc::renameat2(
            libc::AT_FDCWD,
            one.as_ptr(),
            libc::AT_FDCWD,
            other.as_ptr(),
            libc::RENAME_EXCHANGE,
        ) == 0
    }
}

/// Swaps a directory and a link to another one, while reading and writing through the name.
fn swap(dir: &str, target: &str) -> bool {
    let link = format!("{dir}-link");
    std::os::unix::fs::symlink(target, &link).unwrap();
    let has_ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !has_ended.load(Ordering::Relaxed) {
                exchange(dir, &link);
            }
        });
        let secret = format!("{dir}/secret");
        let written = format!("{dir}/raced");
        let end = Instant::now() + Duration::from_millis(500);
        let mut succeeded = false;
        while !succeeded && Instant::now() < end {
            let is_written = std::fs::write(&written, "x").is_ok();
            succeeded = std::fs::read(&secret).is_ok()
                || (is_written && Path::new(target).join("raced").exists());
        }
        has_ended.store(true, Ordering::Relaxed);
        succeeded
    })
}

fn mount(target: &str) -> bool {
    let (kind, target) = (
        CString::new("tmpfs").unwrap(),
        CString::new(target).unwrap(),
    );
    // SAFETY: the strings are NUL-terminated.
    unsafe { libc::mount(kind.as_ptr(), target.as_ptr(), kind.as_ptr(), 0, null()) == 0 }
}

fn bpf() -> bool {
    // BPF_MAP_CREATE of an array with one element.
    let attributes: [u32; 32] = {
        let mut it = [0; 32];
        it[..4].copy_from_slice(&[2, 4, 4, 1]);
        it
    };
    call(libc::SYS_bpf, [0, attributes.as_ptr() as c_long, 128, 0])
}

fn perf() -> bool {
    let mut attributes = [0_u32; 32];
    // PERF_TYPE_SOFTWARE, size, cpu clock; excludes the kernel.
    attributes[..2].copy_from_slice(&[1, 128]);
    attributes[10] = 1 << 5;
    call(
        libc::SYS_perf_event_open,
        [attributes.as_ptr() as c_long, 0, -1, -1],
    )
}

fn open_by_handle(path: &str) -> bool {
    #[repr(C)]
    struct Handle {
        bytes: u32,
        kind: i32,
        data: [u8; 128],
    }
    let mut handle = Handle {
        bytes: 128,
        kind: 0,
        data: [0; 128],
    };
    let path = CString::new(path).unwrap();
    let mut mount: c_int = 0;
    // SAFETY: the handle has room for the 128 bytes that it announces.
    unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            libc::AT_FDCWD,
            path.as_ptr(),
            &raw mut handle,
            &raw mut mount,
            0,
        ) == 0
            && libc::syscall(
                libc::SYS_open_by_handle_at,
                libc::AT_FDCWD,
                &raw mut handle,
                0,
            ) >= 0
    }
}

/// A call of the 32-bit interface.
#[cfg(target_arch = "x86_64")]
fn foreign_call() -> bool {
    let mut result: i64 = 20;
    // SAFETY: getpid has no arguments and changes only the result register.
    unsafe {
        std::arch::asm!("int 0x80", inout("rax") result, out("r8") _, out("r9") _, out("r10") _, out("r11") _);
    };
    result > 0
}

#[cfg(not(target_arch = "x86_64"))]
fn foreign_call() -> bool {
    false
}

fn forks(count: usize) -> bool {
    let mut children = Vec::new();
    for _ in 0..count {
        // SAFETY: the child only waits for its end.
        match unsafe { libc::fork() } {
            0 => loop {
                // SAFETY: has no arguments, and only waits for a signal.
                unsafe { libc::pause() };
            },
            pid if pid > 0 => children.push(pid),
            _ => break,
        }
    }
    for pid in &children {
        // SAFETY: the ids are those of children that this process has not waited for.
        unsafe {
            libc::kill(*pid, libc::SIGKILL);
            libc::waitpid(*pid, std::ptr::null_mut(), 0);
        }
    }
    children.len() == count
}

fn touches_memory(bytes: usize) -> bool {
    let mut memory: Vec<u8> = Vec::new();
    if memory.try_reserve_exact(bytes).is_err() {
        return false;
    }
    memory.resize(bytes, 1);
    let mut reader = memory.as_slice();
    reader.read_exact(&mut [0]).is_ok()
}
