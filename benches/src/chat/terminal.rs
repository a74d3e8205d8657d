//! The chat on a pseudo-terminal.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use tempfile::TempDir;

/// Longer than any step takes.
const TIMEOUT: Duration = Duration::from_mins(1);

/// Output so far, and whether it has ended.
type Output = Arc<(Mutex<(Vec<u8>, bool)>, Condvar)>;

/// A chat on a terminal, which is killed on drop.
pub struct Terminal {
    child: Child,
    master: File,
    output: Output,
}

impl Terminal {
    pub fn open(home: &TempDir, args: &[&str]) -> Result<Self> {
        let (master, terminal) = open_pty()?;
        let mut command = Command::new(super::rye()?);
        command
            .arg("chat")
            .args(args)
            .env_clear()
            .env("HOME", home.path())
            .env("TERM", "xterm-256color")
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .current_dir(home.path().join("project"));
        let child = spawn_on(command, &terminal)?;
        drop(terminal);
        let output = Output::default();
        let (mut from, to) = (master.try_clone()?, Arc::clone(&output));
        std::thread::spawn(move || {
            let mut piece = [0; 16 * 1024];
            loop {
                // Reading from a terminal without a slave fails.
                let count = from.read(&mut piece).unwrap_or(0);
                let (all, changed) = &*to;
                let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
                all.0.extend(&piece[..count]);
                all.1 = count == 0;
                changed.notify_all();
                if count == 0 {
                    return;
                }
            }
        });
        Ok(Self {
            child,
            master,
            output,
        })
    }

    pub fn press(&self, keys: &str) -> Result<()> {
        Ok((&self.master).write_all(keys.as_bytes())?)
    }

    /// Waits for a text in the output, and drops the output up to it.
    pub fn until(&self, wanted: &str) -> Result<()> {
        self.wait(wanted, |all| {
            let found = find(all, wanted.as_bytes());
            if let Some(at) = found {
                all.drain(..at + wanted.len());
            }
            found.is_some()
        })
    }

    /// Waits for a text that little or no output follows.
    pub fn until_last(&self, wanted: &str) -> Result<()> {
        let settled = Duration::from_millis(500);
        loop {
            self.until(wanted)?;
            std::thread::sleep(settled);
            let (all, _) = &*self.output;
            let all = all.lock().unwrap_or_else(PoisonError::into_inner);
            if all.0.len() < 200 {
                return Ok(());
            }
        }
    }

    pub fn has_printed(&self, text: &str) -> bool {
        let (all, _) = &*self.output;
        let all = all.lock().unwrap_or_else(PoisonError::into_inner);
        find(&all.0, text.as_bytes()).is_some()
    }

    fn wait(&self, what: &str, mut is_there: impl FnMut(&mut Vec<u8>) -> bool) -> Result<()> {
        let (all, changed) = &*self.output;
        let end = Instant::now() + TIMEOUT;
        let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
        while !is_there(&mut all.0) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || all.1 {
                let text = String::from_utf8_lossy(&all.0).into_owned();
                bail!("waited for {what:?} and read {text:?}");
            }
            let waited = changed.wait_timeout(all, left);
            all = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }

    /// CPU time of all threads, in seconds.
    pub fn cpu_time(&self) -> Result<f64> {
        let mut nanoseconds = 0.0;
        for task in fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let line = fs::read_to_string(task?.path().join("schedstat"))?;
            let ran = line.split_whitespace().next().unwrap_or_default();
            nanoseconds += ran.parse::<f64>()?;
        }
        Ok(nanoseconds / 1e9)
    }

    /// Voluntary context switches of all threads.
    pub fn wakeups(&self) -> Result<f64> {
        let mut wakeups = 0.0;
        for task in fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let status = fs::read_to_string(task?.path().join("status"))?;
            let lines = status.lines();
            let mut counts = lines.filter_map(|it| it.strip_prefix("voluntary_ctxt_switches:"));
            wakeups += counts.next().unwrap_or_default().trim().parse::<f64>()?;
        }
        Ok(wakeups)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Run time of `/bin/true` on a terminal.
pub fn time_bin_true() -> Result<f64> {
    let (_master, terminal) = open_pty()?;
    let began = Instant::now();
    let mut child = spawn_on(Command::new("/bin/true"), &terminal)?;
    ensure!(child.wait()?.success());
    Ok(began.elapsed().as_secs_f64())
}

fn spawn_on(mut command: Command, terminal: &File) -> Result<Child> {
    let end = || Ok::<_, std::io::Error>(Stdio::from(OwnedFd::from(terminal.try_clone()?)));
    command.stdin(end()?).stdout(end()?).stderr(end()?);
    Ok(command.spawn()?)
}

/// Opens a pseudo-terminal: master and slave.
fn open_pty() -> Result<(File, File)> {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let size = Winsize {
        ws_row: 40,
        ws_col: 120,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&master, size)?;
    let name = ptsname(&master, Vec::new())?;
    let name = Path::new(std::ffi::OsStr::from_bytes(name.as_bytes()));
    let terminal = File::options().read(true).write(true).open(name)?;
    Ok((File::from(master), terminal))
}

fn find(all: &[u8], wanted: &[u8]) -> Option<usize> {
    all.windows(wanted.len()).position(|it| it == wanted)
}
