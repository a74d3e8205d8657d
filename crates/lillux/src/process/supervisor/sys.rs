//! System calls that neither the standard library nor rustix wraps: fork without exec, clone
//! with shared memory until exec, signal masks.
//!
//! Everything here may run in a process forked from one with threads, or in a clone that shares
//! its parent's memory, so nothing allocates, locks or panics after the fork.

#![expect(
    unsafe_code,
    reason = "fork, clone and execve are unsafe by nature; each block says why it is sound"
)]

use std::ffi::{c_char, c_int, c_void};
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use super::super::image::{ExecStrings, Step};
use super::super::table;

/// Everything needed to launch a program, prepared in advance.
pub(in super::super) struct LaunchPlan<'a> {
    pub(in super::super) strings: ExecStrings<'a>,
    /// Descriptors for standard input, output and error. Each must be above 2.
    pub(in super::super) stdio: [BorrowedFd<'a>; 3],
}

/// The step that failed and its error number.
pub(in super::super) type LaunchFailure = (Step, i32);

/// The stacks of the clones until they execute their program.
pub(in super::super) struct Stack {
    base: *mut c_void,
}

impl Stack {
    /// Size of one stack. There are two, because a detached process is a clone of a clone.
    const HALF: usize = 64 * 1024;

    pub(in super::super) fn new() -> io::Result<Self> {
        // SAFETY: an anonymous private mapping at an address chosen by the kernel does not
        // overlap other memory.
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

    /// The upper ends of both stacks, since stacks grow down.
    fn tops(&self) -> [*mut c_void; 2] {
        // SAFETY: both are within, or one past the end of, the mapping created in `new`.
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
        // SAFETY: the mapping was created in `new` with this length, and no clone uses it:
        // `launch` returns only after its clones have executed a program or ended.
        unsafe { libc::munmap(self.base, Self::HALF * 2) };
    }
}

/// State shared with the clone, which runs in this memory while the caller is suspended.
struct Launch<'a> {
    plan: &'a LaunchPlan<'a>,
    inner_stack: *mut c_void,
    failed: Option<LaunchFailure>,
    /// Pid of the launching process, to detect its death before the parent-death signal is set.
    parent: i32,
    /// Pid and start time of a detached process.
    detached: (i32, u64),
}

/// Starts a process as a child of the caller in a new session. It is killed if the caller
/// dies. All signals must be blocked. On failure no process is left.
pub(in super::super) fn launch(
    plan: &LaunchPlan<'_>,
    stack: &mut Stack,
) -> Result<i32, LaunchFailure> {
    let [outer, inner] = stack.tops();
    let mut launch = Launch::new(plan, inner);
    let pid = launch.clone_onto(outer, exec_supervised)?;
    match launch.failed {
        None => Ok(pid),
        Some(failed) => {
            reap(pid);
            Err(failed)
        }
    }
}

/// Starts a detached process, which is not a child of the caller, in a new session. Returns its
/// pid and start time. On failure no process is left.
pub(in super::super) fn launch_detached(
    plan: &LaunchPlan<'_>,
    stack: &mut Stack,
) -> Result<(i32, u64), LaunchFailure> {
    let [outer, inner] = stack.tops();
    let mut launch = Launch::new(plan, inner);
    let mask = block_signals();
    let intermediate = launch.clone_onto(outer, fork_detached);
    restore_signals(&mask);
    reap(intermediate?);
    launch.failed.map_or(Ok(launch.detached), Err)
}

impl<'a> Launch<'a> {
    fn new(plan: &'a LaunchPlan<'a>, inner_stack: *mut c_void) -> Self {
        Self {
            plan,
            inner_stack,
            failed: None,
            parent: rustix::process::getpid().as_raw_nonzero().get(),
            detached: (0, 0),
        }
    }

    fn clone_onto(
        &mut self,
        stack: *mut c_void,
        entry: extern "C" fn(*mut c_void) -> c_int,
    ) -> Result<i32, LaunchFailure> {
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        // SAFETY: posix_spawn does the same. The clone shares this memory, but VFORK suspends
        // this thread until the clone executes or exits, so `self` and the stack outlive it
        // and are not used elsewhere. All signals are blocked, so no handler runs in the
        // clone. `entry` only makes system calls and never returns into these frames.
        let pid = unsafe { libc::clone(entry, stack, flags, ptr::from_mut(self).cast()) };
        if pid < 0 {
            return Err((Step::Clone, errno()));
        }
        Ok(pid)
    }
}

/// Runs in the intermediate clone: starts the detached process and exits, which orphans it.
/// Until then only this clone can reap the process, so the pid and start time are valid even if
/// it has already ended.
extern "C" fn fork_detached(argument: *mut c_void) -> c_int {
    // SAFETY: `clone_onto` passed its `self` and does not use it until this clone exits.
    let launch = unsafe { &mut *argument.cast::<Launch<'_>>() };
    match launch.clone_onto(launch.inner_stack, exec_detached) {
        Ok(pid) if launch.failed.is_some() => reap(pid),
        Ok(pid) => {
            let stat = table::stat(pid).ok().flatten();
            launch.detached = (pid, stat.map_or(0, |stat| stat.start_time));
        }
        Err(failed) => launch.failed = Some(failed),
    }
    exit(0)
}

extern "C" fn exec_supervised(argument: *mut c_void) -> c_int {
    // SAFETY: plain system calls on constants; the launch is read as in `exec_program`.
    unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::getppid() != (*argument.cast::<Launch<'_>>()).parent {
            exit(127)
        }
    }
    exec_program(argument)
}

extern "C" fn exec_detached(argument: *mut c_void) -> c_int {
    // SAFETY: plain system calls. The clone's copies of the host's descriptors are marked
    // close-on-exec, so that a long-running process does not keep them open.
    unsafe {
        libc::setsid();
        libc::syscall(
            libc::SYS_close_range,
            3,
            u32::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        );
    }
    reset_all_signals();
    exec_program(argument)
}

/// Sets up the standard streams and the working directory, and executes the program.
fn exec_program(argument: *mut c_void) -> ! {
    // SAFETY: `clone_onto` passed its `self` and does not use it until this clone executes or
    // exits.
    let launch = unsafe { &mut *argument.cast::<Launch<'_>>() };
    let LaunchPlan { strings, stdio } = launch.plan;
    // SAFETY: only async-signal-safe calls, on descriptors and NUL-terminated strings that the
    // suspended caller keeps alive; `ExecStrings` ends argv and envp with a null pointer.
    unsafe {
        for (target, source) in (0..).zip(stdio) {
            // All sources are above 2, so no target overwrites one.
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

/// Forks and runs `role` in the child, with all signals blocked so that none of the host's
/// handlers run there. `role` must neither allocate nor lock; see the module documentation. The
/// child exits with 0 if `role` returns true, else with 1.
pub(super) fn fork_child(role: impl FnOnce() -> bool) -> io::Result<i32> {
    let mask = block_signals();
    // SAFETY: the child runs `role` and exits; all roles respect the rules after a fork.
    let forked = match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => exit(c_int::from(!role())),
        pid => Ok(pid),
    };
    restore_signals(&mask);
    forked
}

/// Detaches a fork from the host's terminal, working directory, standard streams and signal
/// dispositions.
pub(super) fn detach_from_host(signals: SignalReset) -> io::Result<()> {
    match signals {
        SignalReset::All => reset_all_signals(),
        SignalReset::Required => [libc::SIGPIPE, libc::SIGCHLD]
            .into_iter()
            .for_each(reset_signal),
    }
    // SAFETY: plain system calls on constants. The standard streams are this fork's copies.
    unsafe {
        libc::setsid();
        libc::chdir(c"/".as_ptr());
        libc::prctl(libc::PR_SET_NAME, c"lillux-reaper".as_ptr());
        // Its memory is a copy of the host's, so no debugger may read it.
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

/// Closes every descriptor except the standard streams and `keep`, which is renumbered from 3.
pub(super) fn close_all_except<const N: usize>(keep: [OwnedFd; N]) -> io::Result<[OwnedFd; N]> {
    let above = (0..N).fold(3, |above: RawFd, _| above + 1);
    // SAFETY: the closed descriptors are this fork's copies, and it runs nothing but its role,
    // which owns only `keep`. `keep` is first moved above all targets, so that no move
    // overwrites another.
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
        // Fails on kernels older than 5.9: open copies would keep the host's pipes and locks.
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

/// A signalfd for `SIGCHLD`, which must be blocked.
pub(super) fn child_events() -> io::Result<OwnedFd> {
    signalfd(&signal_set(&[libc::SIGCHLD]))
}

/// Blocks `SIGINT` and `SIGTERM` and returns a signalfd for them.
pub(in super::super) fn block_shutdown_signals() -> io::Result<OwnedFd> {
    let set = signal_set(&[libc::SIGINT, libc::SIGTERM]);
    // SAFETY: the set is initialised, and nothing is written.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut()) };
    signalfd(&set)
}

fn signal_set(numbers: &[c_int]) -> libc::sigset_t {
    // SAFETY: the set is local, and sigemptyset initialises it before use.
    unsafe {
        let mut set: libc::sigset_t = mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for number in numbers {
            libc::sigaddset(&raw mut set, *number);
        }
        set
    }
}

/// A non-blocking signalfd for a set of blocked signals.
fn signalfd(set: &libc::sigset_t) -> io::Result<OwnedFd> {
    // SAFETY: the set is initialised; nothing else owns the new descriptor.
    unsafe {
        let fd = libc::signalfd(-1, set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Memory for one launch, from `mmap` because a fork must not use the heap.
pub(super) struct Arena {
    base: *mut c_void,
    bytes: usize,
    pointers: usize,
}

impl Arena {
    /// Allocates zeroed memory for this many bytes and pointers.
    pub(super) fn new(bytes: usize, pointers: usize) -> io::Result<Self> {
        let length = pointers * size_of::<*const c_char>() + bytes;
        // SAFETY: an anonymous private mapping at an address chosen by the kernel does not
        // overlap other memory.
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
        // SAFETY: the mapping is page-aligned, zeroed (null pointers and zero bytes are valid
        // values), as long as both parts together, which do not overlap, and borrowed mutably.
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
        // SAFETY: the mapping was created in `new` with this length; no borrow of it is left.
        unsafe { libc::munmap(self.base, length) };
    }
}

/// Ends this process at once, without running the host's exit handlers.
pub(super) fn exit(code: c_int) -> ! {
    // SAFETY: _exit only ends the process.
    unsafe { libc::_exit(code) }
}

/// Reaps a child that has ended or is about to. Returns also if other code of this process has
/// already reaped it.
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

/// Which signals to reset to their default disposition. An exec resets handlers, but ignored
/// signals stay ignored.
#[derive(Clone, Copy)]
pub(super) enum SignalReset {
    /// All signals.
    All,
    /// Only `SIGPIPE`, which every Rust program ignores, and `SIGCHLD`, which a reaper needs.
    /// Signals that the caller ignores, as under `nohup`, stay ignored. This is also faster:
    /// resetting all 64 takes longer than the rest of the setup.
    Required,
}

fn reset_all_signals() {
    const LAST: c_int = 64;
    (1..=LAST).for_each(reset_signal);
}

/// Uses the system call directly, because the C library refuses the signals that it uses itself.
fn reset_signal(number: c_int) {
    // The kernel's `struct sigaction` fits into this on every architecture; zero is SIG_DFL.
    let default = [0usize; 4];
    // SAFETY: installs no handler, reads at most the 32 bytes of `default`, writes nothing. The
    // kernel rejects signals that cannot be changed.
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
