//! The system calls that neither the standard library nor rustix wraps: fork
//! without exec, clone that shares memory until exec, signal masks.
//!
//! Everything here may run in a process forked from one with threads, or in a
//! clone that shares its parent's memory, so nothing allocates, locks or
//! panics after the fork.

#![expect(
    unsafe_code,
    reason = "fork, clone and execve are unsafe by nature; each block says why it is sound"
)]

use std::ffi::{c_char, c_int, c_void};
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use super::super::image::{Step, Strings};
use super::super::table;

/// All that a launch needs, prepared beforehand.
pub(in super::super) struct Plan<'a> {
    pub(in super::super) strings: Strings<'a>,
    /// None of them may be 0, 1 or 2.
    pub(in super::super) stdio: [BorrowedFd<'a>; 3],
}

/// The step that failed and its error number.
pub(in super::super) type Failed = (Step, i32);

/// The stacks on which a clone runs until it executes its program.
pub(in super::super) struct Stack {
    base: *mut c_void,
}

impl Stack {
    /// Two of these: a detached process is a clone of a clone.
    const HALF: usize = 64 * 1024;

    pub(in super::super) fn new() -> io::Result<Self> {
        // SAFETY: an anonymous private mapping at an address of the kernel's choice touches no memory of ours.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                Self::HALF * 2,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { base })
    }

    /// Stacks grow down, so these are their ends.
    fn tops(&self) -> [*mut c_void; 2] {
        // SAFETY: both are within, or one past the end of, the mapping made in `new`.
        unsafe {
            [
                self.base.byte_add(Self::HALF),
                self.base.byte_add(Self::HALF * 2),
            ]
        }
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, made in `new` with this length, and no clone runs on it any more:
        // `launch` returns only after its clones have executed a program or ended.
        unsafe { libc::munmap(self.base, Self::HALF * 2) };
    }
}

/// Shared with the clone, which runs in our memory while we are suspended.
struct Launch<'a> {
    plan: &'a Plan<'a>,
    inner_stack: *mut c_void,
    failed: Option<Failed>,
    /// Who launches. If it dies before its death is a signal, nobody would be told.
    keeper: i32,
    /// Only of a detached process: number and start time.
    detached: (i32, u64),
}

/// Starts a process as a child of the caller, leading a session of its
/// own, killed if the caller dies. All signals must be blocked. On failure
/// nothing is left running.
pub(in super::super) fn launch(plan: &Plan<'_>, stack: &mut Stack) -> Result<i32, Failed> {
    let [outer, inner] = stack.tops();
    let mut launch = Launch::new(plan, inner);
    let pid = launch.clone_onto(outer, become_kept)?;
    match launch.failed {
        None => Ok(pid),
        Some(failed) => {
            reap(pid);
            Err(failed)
        }
    }
}

/// Starts a process as nobody's child, leading a session of its own. Gives its
/// number and start time. On failure nothing is left running.
pub(in super::super) fn launch_detached(
    plan: &Plan<'_>,
    stack: &mut Stack,
) -> Result<(i32, u64), Failed> {
    let [outer, inner] = stack.tops();
    let mut launch = Launch::new(plan, inner);
    let mask = block_signals();
    let between = launch.clone_onto(outer, fork_again);
    restore_signals(&mask);
    reap(between?);
    launch.failed.map_or(Ok(launch.detached), Err)
}

impl<'a> Launch<'a> {
    fn new(plan: &'a Plan<'a>, inner_stack: *mut c_void) -> Self {
        Self {
            plan,
            inner_stack,
            failed: None,
            keeper: rustix::process::getpid().as_raw_nonzero().get(),
            detached: (0, 0),
        }
    }

    fn clone_onto(
        &mut self,
        stack: *mut c_void,
        entry: extern "C" fn(*mut c_void) -> c_int,
    ) -> Result<i32, Failed> {
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        // SAFETY: this is what posix_spawn does. The clone shares our memory, but VFORK suspends this
        // thread until it executes or exits, so `self` and the stack outlive it and nobody else uses them.
        // It runs with all signals blocked, so no handler of ours runs in it. `entry` makes only system calls
        // and never returns into our frames.
        let pid = unsafe { libc::clone(entry, stack, flags, ptr::from_mut(self).cast()) };
        if pid < 0 {
            return Err((Step::Clone, errno()));
        }
        Ok(pid)
    }
}

/// The clone between a caller and a detached process. By exiting it makes the
/// process nobody's child. Until then it alone could reap it, so what it notes
/// of the number is of that process, even if it has ended already.
extern "C" fn fork_again(argument: *mut c_void) -> c_int {
    // SAFETY: `clone_onto` passed its `self`, which it does not use until we exit.
    let launch = unsafe { &mut *argument.cast::<Launch<'_>>() };
    match launch.clone_onto(launch.inner_stack, become_detached) {
        Ok(pid) if launch.failed.is_some() => reap(pid),
        Ok(pid) => {
            let stat = table::stat(pid).ok().flatten();
            launch.detached = (pid, stat.map_or(0, |stat| stat.start_time));
        }
        Err(failed) => launch.failed = Some(failed),
    }
    exit(0)
}

extern "C" fn become_kept(argument: *mut c_void) -> c_int {
    // SAFETY: plain system calls on constants; the launch is read as in `become_program`.
    unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::getppid() != (*argument.cast::<Launch<'_>>()).keeper {
            exit(127)
        }
    }
    become_program(argument)
}

extern "C" fn become_detached(argument: *mut c_void) -> c_int {
    // SAFETY: plain system calls. The descriptors marked are the clone's own copies, those of the program
    // that are not to outlive it in a process that may run for years.
    unsafe {
        libc::setsid();
        libc::syscall(
            libc::SYS_close_range,
            3,
            u32::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        );
    }
    default_signals();
    become_program(argument)
}

/// The last thing a clone does: take its place and execute.
fn become_program(argument: *mut c_void) -> ! {
    // SAFETY: `clone_onto` passed its `self`, which it does not use until we execute or exit.
    let launch = unsafe { &mut *argument.cast::<Launch<'_>>() };
    let Plan { strings, stdio } = launch.plan;
    // SAFETY: only async-signal-safe calls, on descriptors and NUL-terminated strings that the suspended
    // caller keeps alive; argv and envp end in a null pointer, as `Strings` promises.
    unsafe {
        for (target, source) in (0..).zip(stdio) {
            // The sources are all above 2, so no target overwrites one.
            if libc::dup2(source.as_raw_fd(), target) < 0 {
                launch.failed = Some((Step::Stdio, errno()));
                exit(127)
            }
        }
        if libc::chdir(strings.cwd.as_ptr()) < 0 {
            launch.failed = Some((Step::Cwd, errno()));
            exit(127)
        }
        let mut none: libc::sigset_t = mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
        libc::execve(
            strings.program.as_ptr(),
            strings.argv.as_ptr(),
            strings.envp.as_ptr(),
        );
    }
    launch.failed = Some((Step::Exec, errno()));
    exit(127)
}

/// Forks, and runs `role` in the child, with all signals blocked, so that no
/// handler of the program runs in it. `role` must neither allocate nor lock:
/// see the module. The child's exit code tells whether all went well.
pub(super) fn fork_off(role: impl FnOnce() -> bool) -> io::Result<i32> {
    let mask = block_signals();
    // SAFETY: the child runs `role` and exits; all roles keep to what is allowed after a fork.
    let forked = match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => exit(c_int::from(!role())),
        pid => Ok(pid),
    };
    restore_signals(&mask);
    forked
}

/// Leaves the terminal, the folder and the standard streams of the program forked from, and what that does
/// on signals.
pub(super) fn leave_program(signals: Reset) -> io::Result<()> {
    match signals {
        Reset::All => default_signals(),
        Reset::Needed => [libc::SIGPIPE, libc::SIGCHLD]
            .into_iter()
            .for_each(default_signal),
    }
    // SAFETY: plain system calls on constants. The standard streams replaced are this fork's copies.
    unsafe {
        libc::setsid();
        libc::chdir(c"/".as_ptr());
        libc::prctl(libc::PR_SET_NAME, c"lillux-keeper".as_ptr());
        // Its memory is a copy of the program's: not for a debugger's eyes.
        libc::prctl(libc::PR_SET_DUMPABLE, 0);
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
        if null < 0 {
            return Err(io::Error::last_os_error());
        }
        for stream in 0..3 {
            libc::dup2(null, stream);
        }
        if null > 2 {
            libc::close(null);
        }
    }
    Ok(())
}

/// Closes every descriptor but the standard streams and those to keep, which become 3 and up in their order.
pub(super) fn keep_only<const N: usize>(keep: [OwnedFd; N]) -> io::Result<[OwnedFd; N]> {
    let above = (0..N).fold(3, |above: RawFd, _| above + 1);
    // SAFETY: the descriptors closed are this fork's copies, which no value in its memory will use: it runs
    // nothing but its role, which owns `keep` alone. `keep` is moved above all targets first, so that no
    // move overwrites another.
    unsafe {
        let mut high = [-1; N];
        for (slot, fd) in high.iter_mut().zip(&keep) {
            *slot = libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, above);
            if *slot < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        mem::forget(keep);
        for (target, fd) in (3..).zip(high) {
            if libc::dup3(fd, target, libc::O_CLOEXEC) < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        // Older kernels than 5.9 have no such call, and keeping the program's descriptors open would
        // keep its pipes and locks.
        if libc::syscall(libc::SYS_close_range, above, u32::MAX, 0) < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut next = 2;
        Ok([(); N].map(|()| {
            next += 1;
            OwnedFd::from_raw_fd(next)
        }))
    }
}

/// Readable whenever a child has ended. `SIGCHLD` must be blocked.
pub(super) fn child_events() -> io::Result<OwnedFd> {
    signals(&set_of(&[libc::SIGCHLD]))
}

/// Readable whenever this process is asked to end, which it is not ended by any more.
pub(in super::super) fn end_signals() -> io::Result<OwnedFd> {
    let set = set_of(&[libc::SIGINT, libc::SIGTERM]);
    // SAFETY: the set is initialised, and nothing is written.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut()) };
    signals(&set)
}

fn set_of(numbers: &[c_int]) -> libc::sigset_t {
    // SAFETY: the set is local, and initialised by sigemptyset before use.
    unsafe {
        let mut set: libc::sigset_t = mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for number in numbers {
            libc::sigaddset(&raw mut set, *number);
        }
        set
    }
}

/// Readable whenever one of these signals, which are blocked, has come.
fn signals(set: &libc::sigset_t) -> io::Result<OwnedFd> {
    // SAFETY: the set is initialised; the new descriptor is ours alone.
    unsafe {
        let fd = libc::signalfd(-1, set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Memory for one launch, outside the heap.
pub(super) struct Arena {
    base: *mut c_void,
    bytes: usize,
    pointers: usize,
}

impl Arena {
    /// Room for this many bytes and pointers, all zero.
    pub(super) fn new(bytes: usize, pointers: usize) -> io::Result<Self> {
        let length = pointers * size_of::<*const c_char>() + bytes;
        // SAFETY: an anonymous private mapping at an address of the kernel's choice touches no memory of ours.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            base,
            bytes,
            pointers,
        })
    }

    pub(super) fn parts(&mut self) -> (&mut [*const c_char], &mut [u8]) {
        let table = self.base.cast::<*const c_char>();
        // SAFETY: the mapping is page-aligned, zeroed (a null pointer and a zero byte are valid values), as
        // long as the two parts together, which do not overlap, and borrowed mutably.
        unsafe {
            (
                std::slice::from_raw_parts_mut(table, self.pointers),
                std::slice::from_raw_parts_mut(table.add(self.pointers).cast(), self.bytes),
            )
        }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let length = self.pointers * size_of::<*const c_char>() + self.bytes;
        // SAFETY: the mapping is ours, made in `new` with this length; no borrow of it is left.
        unsafe { libc::munmap(self.base, length) };
    }
}

/// Ends this process at once, without running anything that belongs to the program it was forked from.
pub(super) fn exit(code: c_int) -> ! {
    // SAFETY: _exit only ends the process.
    unsafe { libc::_exit(code) }
}

/// Waits for a child of ours that has ended or is about to. If somebody else
/// in this program has reaped it already, that is as good.
pub(super) fn reap(pid: i32) {
    // SAFETY: waitpid with a null status pointer writes nothing.
    while unsafe { libc::waitpid(pid, ptr::null_mut(), 0) } < 0 && errno() == libc::EINTR {}
}

fn block_signals() -> libc::sigset_t {
    // SAFETY: both sets are local; sigfillset initialises one, sigprocmask the other.
    unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        before
    }
}

fn restore_signals(mask: &libc::sigset_t) {
    // SAFETY: the mask came from `block_signals`.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, ptr::null_mut()) };
}

/// Which signals are to do again what they do by default. An exec resets
/// handlers, but what is ignored stays ignored.
#[derive(Clone, Copy)]
pub(super) enum Reset {
    /// All: what a large program ignores is its own affair.
    All,
    /// `SIGPIPE`, which every Rust program ignores, and `SIGCHLD`, without which
    /// a keeper hears nothing. What a small program ignores besides was handed
    /// down to it, as by `nohup`, and is handed on. Asking for each of 64 takes
    /// longer than the rest of getting ready.
    Needed,
}

fn default_signals() {
    const LAST: c_int = 64;
    (1..=LAST).for_each(default_signal);
}

/// The C library would refuse the numbers it uses itself, so the kernel is asked.
fn default_signal(number: c_int) {
    // The kernel's `struct sigaction` on every architecture fits into this; zero is SIG_DFL.
    let default = [0usize; 4];
    // SAFETY: installs no code, reads at most the 32 bytes of `default`, writes nothing. A number that cannot
    // be changed is refused.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigaction,
            number,
            default.as_ptr(),
            ptr::null_mut::<c_void>(),
            8usize,
        )
    };
}

fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}
