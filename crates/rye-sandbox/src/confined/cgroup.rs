//! Limits of a whole command, through a cgroup (version 2) of its own.
//!
//! A cgroup is created only where the system has delegated a part of its tree to this process: to
//! an ordinary user by ownership, to root by the mark that systemd sets. Only controllers that are
//! already enabled there are used.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{Access, access};

use super::policy::Limits;

/// Controllers that limit something here.
const CONTROLLERS: [&str; 3] = ["memory", "pids", "cpu"];

/// Period in which a CPU limit holds, in microseconds.
const CPU_PERIOD: u64 = 100_000;

/// A cgroup for one command. It is removed when this is dropped, after the command's end.
#[derive(Debug)]
pub(crate) struct Cgroup {
    dir: PathBuf,
}

impl Cgroup {
    /// Creates a cgroup with these limits, if a part of the tree is delegated to this process.
    pub(crate) fn create(limits: &Limits) -> Option<Self> {
        delegation()?.create(limits).ok()
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // A cgroup with a process that has not ended yet is removed by a later process.
        let _ = fs::remove_dir(&self.dir);
    }
}

/// Moves this process into a cgroup.
pub(super) fn enter(dir: &Path) -> io::Result<()> {
    add(dir, 0)
}

/// The controllers that limit whole commands; none if nothing is delegated to this process.
pub(super) fn controllers() -> Vec<String> {
    delegation().map_or_else(Vec::new, |found| found.controllers.clone())
}

/// A cgroup in which this process can create others.
#[derive(Debug, PartialEq, Eq)]
struct Delegation {
    dir: PathBuf,
    controllers: Vec<String>,
}

/// Found once per process.
fn delegation() -> Option<&'static Delegation> {
    static FOUND: OnceLock<Option<Delegation>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let memberships = fs::read_to_string("/proc/self/cgroup").ok()?;
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let found = Delegation::find(&memberships, &mounts)?;
        found.remove_stale();
        found.accepts_processes().then_some(found)
    });
    found.as_ref()
}

impl Delegation {
    /// Searches the cgroup of this process and those above it.
    fn find(memberships: &str, mounts: &str) -> Option<Self> {
        let own = memberships.lines().find_map(|it| it.strip_prefix("0::/"))?;
        let mount = mounts.lines().find_map(|line| {
            let (mount, file_system) = line.split_once(" - ")?;
            let is_version_2 = file_system.starts_with("cgroup2 ");
            mount.split(' ').nth(4).filter(|_| is_version_2)
        })?;
        let own = Path::new(mount).join(own);
        let mut candidates = own.ancestors().take_while(|dir| dir.starts_with(mount));
        candidates.find_map(|dir| {
            let enabled = fs::read_to_string(dir.join("cgroup.subtree_control")).ok()?;
            let enabled: Vec<_> = enabled.split_whitespace().collect();
            let useful = CONTROLLERS.iter().filter(|name| enabled.contains(name));
            let controllers: Vec<_> = useful.map(|name| (*name).to_owned()).collect();
            let is_usable = !controllers.is_empty() && is_delegated(dir, Path::new(mount));
            is_usable.then(|| Self {
                dir: dir.to_owned(),
                controllers,
            })
        })
    }

    fn create(&self, limits: &Limits) -> io::Result<Cgroup> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("rye-{}-{number}", std::process::id());
        let cgroup = Cgroup {
            dir: self.dir.join(name),
        };
        fs::create_dir(&cgroup.dir)?;
        for controller in &self.controllers {
            let settings = match controller.as_str() {
                "memory" => vec![
                    ("memory.max", limits.memory.to_string()),
                    ("memory.oom.group", "1".to_owned()),
                ],
                "pids" => vec![("pids.max", limits.processes.to_string())],
                _ => limits.cpu_percent.map_or_else(Vec::new, |percent| {
                    let quota = percent.saturating_mul(CPU_PERIOD / 100);
                    vec![("cpu.max", format!("{quota} {CPU_PERIOD}"))]
                }),
            };
            for (file, value) in settings {
                fs::write(cgroup.dir.join(file), value)?;
            }
        }
        Ok(cgroup)
    }

    /// Whether the kernel moves a process there.
    fn accepts_processes(&self) -> bool {
        let unlimited = Limits {
            processes: 1000,
            memory: u64::MAX >> 1,
            file_size: 0,
            open_files: 0,
            cpu_percent: None,
        };
        let Ok(cgroup) = self.create(&unlimited) else {
            return false;
        };
        let waiting = Command::new("/bin/cat")
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn();
        let Ok(mut waiting) = waiting else {
            return false;
        };
        let is_moved = add(&cgroup.dir, waiting.id()).is_ok();
        drop(waiting.stdin.take());
        let _ = waiting.wait();
        is_moved
    }

    /// Removes cgroups of processes that were killed.
    fn remove_stale(&self) {
        for entry in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let owner = name.strip_prefix("rye-").and_then(|it| it.split_once('-'));
            if owner.is_some_and(|(pid, _)| !Path::new("/proc").join(pid).exists()) {
                let _ = fs::remove_dir(entry.path());
            }
        }
    }
}

fn add(dir: &Path, pid: u32) -> io::Result<()> {
    let mut file = fs::File::options()
        .write(true)
        .open(dir.join("cgroup.procs"))?;
    file.write_all(pid.to_string().as_bytes())
}

/// Whether the system has left a cgroup to this process.
fn is_delegated(dir: &Path, mount: &Path) -> bool {
    let is_writable = [dir.to_owned(), dir.join("cgroup.procs")]
        .iter()
        .all(|path| access(path, Access::WRITE_OK).is_ok());
    let user = rustix::process::getuid();
    let is_marked = |dir: &Path| {
        let mut value = [0; 1];
        let read = rustix::fs::getxattr(dir, "user.delegate", &mut value);
        read.is_ok() && value == *b"1"
    };
    let mut above = dir.ancestors().take_while(|dir| dir.starts_with(mount));
    is_writable
        && if user.is_root() {
            above.any(is_marked)
        } else {
            fs::metadata(dir).is_ok_and(|metadata| metadata.uid() == user.as_raw())
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The file system of cgroups is imitated by an ordinary directory.
    #[test]
    fn nearest_delegated_cgroup_with_controllers_is_used() -> io::Result<()> {
        let dir = tempfile::tempdir()?;
        let mount = fs::canonicalize(dir.path())?;
        let app = mount.join("user/app");
        fs::create_dir_all(app.join("terminal"))?;
        for (cgroup, enabled) in [("user/app/terminal", ""), ("user/app", "pids memory io")] {
            fs::write(mount.join(cgroup).join("cgroup.subtree_control"), enabled)?;
            fs::write(mount.join(cgroup).join("cgroup.procs"), "")?;
        }
        let memberships = "1:name=systemd:/x\n0::/user/app/terminal\n";
        let mounts = format!(
            "29 23 0:26 / /sys rw - sysfs sysfs rw\n\
             30 29 0:27 / {} rw shared:4 - cgroup2 cgroup2 rw\n",
            mount.display()
        );
        let found = Delegation::find(memberships, &mounts);
        if rustix::process::getuid().is_root() {
            assert_eq!(found, None, "the mark of a delegation is missing");
        } else {
            let found = found.ok_or(io::ErrorKind::NotFound)?;
            assert_eq!(found.dir, app);
        }
        let delegation = Delegation {
            dir: app,
            controllers: CONTROLLERS.map(str::to_owned).to_vec(),
        };
        let limits = Limits {
            processes: 64,
            memory: 1 << 20,
            file_size: 0,
            open_files: 0,
            cpu_percent: Some(150),
        };
        let cgroup = delegation.create(&limits)?;
        for (file, expected) in [
            ("memory.max", "1048576"),
            ("memory.oom.group", "1"),
            ("pids.max", "64"),
            ("cpu.max", "150000 100000"),
        ] {
            assert_eq!(fs::read_to_string(cgroup.dir().join(file))?, expected);
        }
        assert_eq!(Delegation::find("1:memory:/\n", &mounts), None);
        Ok(())
    }
}
