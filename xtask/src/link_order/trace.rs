//! Traces which functions a program runs: sets a breakpoint at the start of each, and removes
//! it at the first hit.

#![expect(
    unsafe_code,
    reason = "ptrace has no safe interface; each block states why it is sound"
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

use crate::process::{capture, program};

/// Breakpoint instruction (`int3`).
const BREAKPOINT: u8 = 0xcc;

/// Addresses of a program's functions, each with its first byte.
pub(super) struct Functions(HashMap<u64, u8>);

impl Functions {
    /// Reads the symbols of a program that is linked at a fixed address. Data inside the code
    /// segment gets no breakpoint.
    pub(super) fn load(path: &Path) -> Result<Self> {
        let path = path.to_string_lossy();
        let segments = capture(&mut program("readelf", ["-lW", &*path]))?;
        let (offset, address) = segments
            .lines()
            .find_map(parse_code_segment)
            .with_context(|| format!("{path} has no code segment"))?;
        let bytes = fs::read(&*path)?;
        let symbols = capture(&mut program("readelf", ["-sW", &*path]))?;
        let byte = |at: u64| {
            let at = usize::try_from(at.checked_sub(address)? + offset).ok()?;
            bytes.get(at).copied()
        };
        let functions = symbols.lines().filter_map(parse_function);
        let functions = functions.filter_map(|at| Some((at, byte(at)?)));
        Ok(Self(functions.collect()))
    }

    /// Runs a command and adds the functions that it and its forks ran. Programs that it
    /// executes are not traced.
    pub(super) fn trace(&self, command: &mut Command, ran: &mut BTreeSet<u64>) -> Result<()> {
        // SAFETY: between fork and exec the child makes one system call.
        unsafe {
            command.pre_exec(|| ptrace(libc::PTRACE_TRACEME, 0, 0).map(drop));
        }
        let child = command.spawn().context("cannot start the traced command")?;
        let main = libc::pid_t::try_from(child.id())?;
        let mut status = wait(main)?.1;
        let forks =
            libc::PTRACE_O_TRACEFORK | libc::PTRACE_O_TRACEVFORK | libc::PTRACE_O_TRACECLONE;
        let options = forks | libc::PTRACE_O_TRACEEXEC | libc::PTRACE_O_EXITKILL;
        ptrace(libc::PTRACE_SETOPTIONS, main, options.into())?;
        let memory = open_memory(main)?;
        for at in self.0.keys() {
            memory.write_all_at(&[BREAKPOINT], *at)?;
        }
        let mut process = main;
        loop {
            if libc::WIFSTOPPED(status) {
                self.resume(process, status, ran)?;
            } else if process == main {
                ensure!(status == 0, "{command:?} failed");
                return Ok(());
            }
            (process, status) = wait(-1)?;
        }
    }

    /// Resumes a stopped process.
    fn resume(&self, process: libc::pid_t, status: i32, ran: &mut BTreeSet<u64>) -> Result<()> {
        let signal = libc::WSTOPSIG(status);
        if status >> 16 == libc::PTRACE_EVENT_EXEC {
            ptrace(libc::PTRACE_DETACH, process, 0)?;
            return Ok(());
        }
        let hit_breakpoint = signal == libc::SIGTRAP && status >> 16 == 0;
        let cleared = if hit_breakpoint {
            self.clear_breakpoint(process, ran)
        } else {
            Ok(())
        };
        let caused_by_tracing = [libc::SIGTRAP, libc::SIGSTOP].contains(&signal);
        let signal = if caused_by_tracing { 0 } else { signal.into() };
        match cleared.and_then(|()| ptrace(libc::PTRACE_CONT, process, signal).map(drop)) {
            // The process was killed meanwhile; `wait` reports its end.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
            other => Ok(other?),
        }
    }

    /// Restores the instruction at the breakpoint that a process hit, and steps it back.
    fn clear_breakpoint(&self, process: libc::pid_t, ran: &mut BTreeSet<u64>) -> io::Result<()> {
        // SAFETY: all zeroes is a valid value of this plain C structure.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        let data = (&raw mut registers).cast::<libc::c_void>();
        ptrace_registers(libc::PTRACE_GETREGS, process, data)?;
        registers.rip -= 1;
        let Some(byte) = self.0.get(&registers.rip) else {
            return Ok(());
        };
        ran.insert(registers.rip);
        open_memory(process)?.write_all_at(&[*byte], registers.rip)?;
        let data = (&raw mut registers).cast::<libc::c_void>();
        ptrace_registers(libc::PTRACE_SETREGS, process, data)
    }
}

/// Parses a line of the program headers: file offset and address of the code segment.
fn parse_code_segment(line: &str) -> Option<(u64, u64)> {
    let words: Vec<_> = line.split_whitespace().collect();
    let number = |at: usize| u64::from_str_radix(words.get(at)?.strip_prefix("0x")?, 16).ok();
    let is_code = words.first() == Some(&"LOAD") && words.contains(&"E");
    is_code.then(|| Some((number(1)?, number(2)?)))?
}

/// Parses a line of the symbol table: address of a function.
fn parse_function(line: &str) -> Option<u64> {
    let words: Vec<_> = line.split_whitespace().collect();
    let is_function = ["FUNC", "IFUNC"].contains(words.get(3)?) && words.get(6) != Some(&"UND");
    let address = u64::from_str_radix(words.get(1)?, 16).ok();
    address.filter(|_| is_function)
}

/// Memory of a traced process; writes ignore its page protection.
fn open_memory(process: libc::pid_t) -> io::Result<File> {
    let path = format!("/proc/{process}/mem");
    File::options().write(true).open(path)
}

fn ptrace_registers(
    request: libc::c_uint,
    process: libc::pid_t,
    data: *mut libc::c_void,
) -> io::Result<()> {
    // SAFETY: both callers pass a pointer to their own register structure.
    match unsafe { libc::ptrace(request, process, ptr::null_mut::<libc::c_void>(), data) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

fn ptrace(request: libc::c_uint, process: libc::pid_t, data: libc::c_long) -> io::Result<()> {
    let (no_address, data) = (ptr::null_mut::<libc::c_void>(), data as *mut libc::c_void);
    // SAFETY: no request made here lets the kernel write to our memory.
    match unsafe { libc::ptrace(request, process, no_address, data) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

fn wait(process: libc::pid_t) -> io::Result<(libc::pid_t, i32)> {
    let mut status = 0;
    // SAFETY: `status` is a valid pointer to a local variable.
    match unsafe { libc::waitpid(process, &raw mut status, libc::__WALL) } {
        -1 => Err(io::Error::last_os_error()),
        process => Ok((process, status)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_segment_and_functions_are_parsed_from_readelf() {
        let line = "  LOAD           0x3f7000 0x00000000007f7000 0x00000000007f7000 0xb2f 0xb2f R E 0x1000";
        assert_eq!(parse_code_segment(line), Some((0x3f_7000, 0x7f_7000)));
        assert_eq!(parse_code_segment(&line.replace("R E", "RW ")), None);
        for (line, address) in [
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
            assert_eq!(parse_function(line), address, "{line}");
        }
    }
}
