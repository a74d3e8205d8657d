//! A real terminal, whose other end is listened to.

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

/// Longer than anything takes.
const PATIENCE: Duration = Duration::from_mins(1);

/// What was said so far, and whether that was all.
type Heard = Arc<(Mutex<(Vec<u8>, bool)>, Condvar)>;

/// A chat on a terminal. It is ended when this goes.
pub struct Terminal {
    child: Child,
    other_end: File,
    heard: Heard,
}

impl Terminal {
    pub fn open(home: &TempDir, args: &[&str]) -> Result<Self> {
        let (other_end, terminal) = pair()?;
        let mut command = Command::new(super::rye()?);
        command
            .arg("chat")
            .args(args)
            .env_clear()
            .env("HOME", home.path())
            .env("TERM", "xterm-256color")
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .current_dir(home.path().join("project"));
        let child = on(command, &terminal)?;
        drop(terminal);
        let heard = Heard::default();
        let (mut from, to) = (other_end.try_clone()?, Arc::clone(&heard));
        std::thread::spawn(move || {
            let mut piece = [0; 16 * 1024];
            loop {
                // A terminal that nobody holds any more gives an error.
                let count = from.read(&mut piece).unwrap_or(0);
                let (all, news) = &*to;
                let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
                all.0.extend(&piece[..count]);
                all.1 = count == 0;
                news.notify_all();
                if count == 0 {
                    return;
                }
            }
        });
        Ok(Self {
            child,
            other_end,
            heard,
        })
    }

    pub fn press(&self, keys: &str) -> Result<()> {
        Ok((&self.other_end).write_all(keys.as_bytes())?)
    }

    /// Waits until it has said something; what it said before that is forgotten.
    pub fn until(&self, wanted: &str) -> Result<()> {
        self.wait(wanted, |all| {
            let found = place(all, wanted.as_bytes());
            if let Some(at) = found {
                all.drain(..at + wanted.len());
            }
            found.is_some()
        })
    }

    /// Waits until it has said something, and nothing after it for a while.
    pub fn until_last(&self, wanted: &str) -> Result<()> {
        let settled = Duration::from_millis(500);
        loop {
            self.until(wanted)?;
            std::thread::sleep(settled);
            let (all, _) = &*self.heard;
            let all = all.lock().unwrap_or_else(PoisonError::into_inner);
            if all.0.len() < 200 {
                return Ok(());
            }
        }
    }

    pub fn has_said(&self, words: &str) -> bool {
        let (all, _) = &*self.heard;
        let all = all.lock().unwrap_or_else(PoisonError::into_inner);
        place(&all.0, words.as_bytes()).is_some()
    }

    fn wait(&self, what: &str, mut is_there: impl FnMut(&mut Vec<u8>) -> bool) -> Result<()> {
        let (all, news) = &*self.heard;
        let end = Instant::now() + PATIENCE;
        let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
        while !is_there(&mut all.0) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || all.1 {
                let said = String::from_utf8_lossy(&all.0).into_owned();
                bail!("waited for {what:?} and heard {said:?}");
            }
            let waited = news.wait_timeout(all, left);
            all = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }

    /// Seconds that all of its threads have run.
    pub fn processor_time(&self) -> Result<f64> {
        let mut nanoseconds = 0.0;
        for task in fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let line = fs::read_to_string(task?.path().join("schedstat"))?;
            let ran = line.split_whitespace().next().unwrap_or_default();
            nanoseconds += ran.parse::<f64>()?;
        }
        Ok(nanoseconds / 1e9)
    }

    /// How often any of its threads has waited and gone on.
    pub fn wakings(&self) -> Result<f64> {
        let mut wakings = 0.0;
        for task in fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let status = fs::read_to_string(task?.path().join("status"))?;
            let lines = status.lines();
            let mut counts = lines.filter_map(|it| it.strip_prefix("voluntary_ctxt_switches:"));
            wakings += counts.next().unwrap_or_default().trim().parse::<f64>()?;
        }
        Ok(wakings)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How long a process takes that does nothing, on a terminal as well.
pub fn of_nothing() -> Result<f64> {
    let (_other_end, terminal) = pair()?;
    let began = Instant::now();
    let mut child = on(Command::new("/bin/true"), &terminal)?;
    ensure!(child.wait()?.success());
    Ok(began.elapsed().as_secs_f64())
}

fn on(mut command: Command, terminal: &File) -> Result<Child> {
    let end = || Ok::<_, std::io::Error>(Stdio::from(OwnedFd::from(terminal.try_clone()?)));
    command.stdin(end()?).stdout(end()?).stderr(end()?);
    Ok(command.spawn()?)
}

/// Both ends of a terminal.
fn pair() -> Result<(File, File)> {
    let other_end = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
    grantpt(&other_end)?;
    unlockpt(&other_end)?;
    let size = Winsize {
        ws_row: 40,
        ws_col: 120,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&other_end, size)?;
    let name = ptsname(&other_end, Vec::new())?;
    let name = Path::new(std::ffi::OsStr::from_bytes(name.as_bytes()));
    let terminal = File::options().read(true).write(true).open(name)?;
    Ok((File::from(other_end), terminal))
}

fn place(all: &[u8], wanted: &[u8]) -> Option<usize> {
    all.windows(wanted.len()).position(|it| it == wanted)
}
