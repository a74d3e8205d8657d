//! Which instructions a program runs: it is stepped through, one by one.

#![expect(
    unsafe_code,
    reason = "tracing another process has no safe interface; each block says why it is sound"
)]

use std::collections::HashSet;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::ptr;

use anyhow::{Context, Result, ensure};

/// Runs a command to its end and adds the addresses that it, and what it forks, ran.
/// A program that it executes runs on unobserved.
pub(super) fn trace(command: &mut Command, addresses: &mut HashSet<u64>) -> Result<()> {
    // SAFETY: between fork and exec the child makes one system call.
    unsafe {
        command.pre_exec(|| ask(libc::PTRACE_TRACEME, 0, 0).map(drop));
    }
    let child = command
        .spawn()
        .context("cannot start what is to be traced")?;
    let main = libc::pid_t::try_from(child.id())?;
    let mut status = wait(main)?.1;
    let forks = libc::PTRACE_O_TRACEFORK | libc::PTRACE_O_TRACEVFORK | libc::PTRACE_O_TRACECLONE;
    let options = forks | libc::PTRACE_O_TRACEEXEC | libc::PTRACE_O_EXITKILL;
    ask(libc::PTRACE_SETOPTIONS, main, options.into())?;
    let mut process = main;
    loop {
        if libc::WIFSTOPPED(status) {
            go_on(process, status, addresses)?;
        } else if process == main {
            ensure!(status == 0, "{command:?} failed");
            return Ok(());
        }
        (process, status) = wait(-1)?;
    }
}

/// One step of a process that has stopped.
fn go_on(process: libc::pid_t, status: i32, addresses: &mut HashSet<u64>) -> Result<()> {
    let signal = libc::WSTOPSIG(status);
    if status >> 16 == libc::PTRACE_EVENT_EXEC {
        ask(libc::PTRACE_DETACH, process, 0)?;
        return Ok(());
    }
    // SAFETY: all zeroes is a value of this plain structure, which the kernel fills.
    let registers = unsafe {
        let mut registers: libc::user_regs_struct = std::mem::zeroed();
        let to = (&raw mut registers).cast::<libc::c_void>();
        libc::ptrace(
            libc::PTRACE_GETREGS,
            process,
            ptr::null_mut::<libc::c_void>(),
            to,
        );
        registers
    };
    addresses.insert(registers.rip);
    let of_tracing = [libc::SIGTRAP, libc::SIGSTOP].contains(&signal);
    let signal = if of_tracing { 0 } else { signal.into() };
    match ask(libc::PTRACE_SINGLESTEP, process, signal) {
        // It was killed meanwhile, which its end will tell.
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        other => Ok(other.map(drop)?),
    }
}

fn ask(request: libc::c_uint, process: libc::pid_t, data: libc::c_long) -> io::Result<i64> {
    let (nowhere, data) = (ptr::null_mut::<libc::c_void>(), data as *mut libc::c_void);
    // SAFETY: none of the requests made here lets the kernel write to our memory.
    match unsafe { libc::ptrace(request, process, nowhere, data) } {
        -1 => Err(io::Error::last_os_error()),
        done => Ok(done),
    }
}

fn wait(process: libc::pid_t) -> io::Result<(libc::pid_t, i32)> {
    let mut status = 0;
    // SAFETY: the status is ours to be written to.
    match unsafe { libc::waitpid(process, &raw mut status, libc::__WALL) } {
        -1 => Err(io::Error::last_os_error()),
        process => Ok((process, status)),
    }
}
