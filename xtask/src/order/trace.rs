//! Which functions a program runs: a trap at the beginning of each, taken away by the
//! first who steps on it.

#![expect(
    unsafe_code,
    reason = "tracing another process has no safe interface; each block says why it is sound"
)]

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::ptr;

use anyhow::{Context, Result, ensure};

use crate::run::{output, program};

/// The instruction that stops a process that is traced.
const TRAP: u8 = 0xcc;

/// The beginnings of a program's functions, each with the byte that is there.
pub(super) struct Functions(HashMap<u64, u8>);

impl Functions {
    /// Of a program that stands at a fixed place. What is no function, such as a table
    /// amid code, stays as it is.
    pub(super) fn of(path: &Path) -> Result<Self> {
        let path = path.to_string_lossy();
        let segments = output(&mut program("readelf", ["-lW", &*path]))?;
        let (place, address) = segments
            .lines()
            .find_map(code)
            .with_context(|| format!("{path} has no code"))?;
        let bytes = fs::read(&*path)?;
        let symbols = output(&mut program("readelf", ["-sW", &*path]))?;
        let byte = |at: u64| {
            let at = usize::try_from(at.checked_sub(address)? + place).ok()?;
            bytes.get(at).copied()
        };
        let functions = symbols.lines().filter_map(function);
        let functions = functions.filter_map(|at| Some((at, byte(at)?)));
        Ok(Self(functions.collect()))
    }

    /// Runs a command to its end and adds the functions that it, and what it forks, ran.
    /// A program that it executes runs on unobserved.
    pub(super) fn trace(&self, command: &mut Command, ran: &mut BTreeSet<u64>) -> Result<()> {
        // SAFETY: between fork and exec the child makes one system call.
        unsafe {
            command.pre_exec(|| ask(libc::PTRACE_TRACEME, 0, 0).map(drop));
        }
        let child = command
            .spawn()
            .context("cannot start what is to be traced")?;
        let main = libc::pid_t::try_from(child.id())?;
        let mut status = wait(main)?.1;
        let forks =
            libc::PTRACE_O_TRACEFORK | libc::PTRACE_O_TRACEVFORK | libc::PTRACE_O_TRACECLONE;
        let options = forks | libc::PTRACE_O_TRACEEXEC | libc::PTRACE_O_EXITKILL;
        ask(libc::PTRACE_SETOPTIONS, main, options.into())?;
        let memory = memory(main)?;
        for at in self.0.keys() {
            memory.write_all_at(&[TRAP], *at)?;
        }
        let mut process = main;
        loop {
            if libc::WIFSTOPPED(status) {
                self.go_on(process, status, ran)?;
            } else if process == main {
                ensure!(status == 0, "{command:?} failed");
                return Ok(());
            }
            (process, status) = wait(-1)?;
        }
    }

    /// Lets a process that has stopped go on.
    fn go_on(&self, process: libc::pid_t, status: i32, ran: &mut BTreeSet<u64>) -> Result<()> {
        let signal = libc::WSTOPSIG(status);
        if status >> 16 == libc::PTRACE_EVENT_EXEC {
            ask(libc::PTRACE_DETACH, process, 0)?;
            return Ok(());
        }
        let stepped = signal == libc::SIGTRAP && status >> 16 == 0;
        let gone_on = if stepped {
            self.clear(process, ran)
        } else {
            Ok(())
        };
        let of_tracing = [libc::SIGTRAP, libc::SIGSTOP].contains(&signal);
        let signal = if of_tracing { 0 } else { signal.into() };
        match gone_on.and_then(|()| ask(libc::PTRACE_CONT, process, signal).map(drop)) {
            // It was killed meanwhile, which its end will tell.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
            other => Ok(other?),
        }
    }

    /// Puts the byte back on whose trap a process stands, and the process before it.
    fn clear(&self, process: libc::pid_t, ran: &mut BTreeSet<u64>) -> io::Result<()> {
        // SAFETY: all zeroes is a value of this plain structure, and the kernel fills it.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        let data = (&raw mut registers).cast::<libc::c_void>();
        registers_of(libc::PTRACE_GETREGS, process, data)?;
        registers.rip -= 1;
        let Some(byte) = self.0.get(&registers.rip) else {
            return Ok(());
        };
        ran.insert(registers.rip);
        memory(process)?.write_all_at(&[*byte], registers.rip)?;
        let data = (&raw mut registers).cast::<libc::c_void>();
        registers_of(libc::PTRACE_SETREGS, process, data)
    }
}

/// Where a line of the segments' table says that the code is: in the file, in memory.
fn code(line: &str) -> Option<(u64, u64)> {
    let words: Vec<_> = line.split_whitespace().collect();
    let number = |at: usize| u64::from_str_radix(words.get(at)?.strip_prefix("0x")?, 16).ok();
    let is_code = words.first() == Some(&"LOAD") && words.contains(&"E");
    is_code.then(|| Some((number(1)?, number(2)?)))?
}

/// Where a line of the symbols' table says that a function begins.
fn function(line: &str) -> Option<u64> {
    let words: Vec<_> = line.split_whitespace().collect();
    let is_function = ["FUNC", "IFUNC"].contains(words.get(3)?) && words.get(6) != Some(&"UND");
    let address = u64::from_str_radix(words.get(1)?, 16).ok();
    address.filter(|_| is_function)
}

/// The memory of a process that is traced, which may be written to where it itself may not.
fn memory(process: libc::pid_t) -> io::Result<File> {
    let path = format!("/proc/{process}/mem");
    File::options().write(true).open(path)
}

fn registers_of(
    request: libc::c_uint,
    process: libc::pid_t,
    data: *mut libc::c_void,
) -> io::Result<()> {
    // SAFETY: both callers give registers of their own, which the kernel reads or fills.
    match unsafe { libc::ptrace(request, process, ptr::null_mut::<libc::c_void>(), data) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

fn ask(request: libc::c_uint, process: libc::pid_t, data: libc::c_long) -> io::Result<()> {
    let (nowhere, data) = (ptr::null_mut::<libc::c_void>(), data as *mut libc::c_void);
    // SAFETY: none of the requests made here lets the kernel write to our memory.
    match unsafe { libc::ptrace(request, process, nowhere, data) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_of_a_program_tell_where_its_code_and_its_functions_are() {
        let line = "  LOAD           0x3f7000 0x00000000007f7000 0x00000000007f7000 0xb2f 0xb2f R E 0x1000";
        assert_eq!(code(line), Some((0x3f_7000, 0x7f_7000)));
        assert_eq!(code(&line.replace("R E", "RW ")), None);
        for (line, begin) in [
            (
                "  1: 00000000007f7010  12 FUNC    LOCAL  DEFAULT    5 main",
                Some(0x7f_7010),
            ),
            (
                "  2: 00000000007f7020  12 IFUNC   GLOBAL DEFAULT    5 memcpy",
                Some(0x7f_7020),
            ),
            (
                "  3: 00000000007f7030  12 OBJECT  LOCAL  DEFAULT    5 table",
                None,
            ),
            (
                "  4: 0000000000000000   0 FUNC    GLOBAL DEFAULT  UND write",
                None,
            ),
            ("Symbol table '.symtab' contains 9 entries:", None),
        ] {
            assert_eq!(function(line), begin, "{line}");
        }
    }
}
