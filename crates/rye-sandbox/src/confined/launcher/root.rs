//! Builds the file system that the command sees: a fresh root with selected parts of the host's.
//!
//! The new root is a tmpfs, and the old one is below [`OLD`] until [`seal`] detaches it.

#![expect(
    unsafe_code,
    reason = "no library wraps mount_setattr; the block says why it is sound"
)]

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount,
    mount_change, move_mount, open_tree, unmount,
};
use rustix::process::pivot_root;
use rye_engine::protocol::ProjectAccess;

use super::{Context, Launch, LaunchError, LaunchSpec};
use crate::confined::protected::{Guard, GuardKind};

/// The host's root while the new one is built.
const OLD: &str = "/.host";

/// Programs and libraries. Where the host has a link, the command gets the same link.
const SYSTEM: [&str; 7] = [
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32",
];

/// Files of `/etc` that programs need and that contain no secrets.
const ETC: [&str; 36] = [
    "alternatives",
    "bash.bashrc",
    "ca-certificates",
    "ca-certificates.conf",
    "crypto-policies",
    "debian_version",
    "fonts",
    "gitconfig",
    "group",
    "host.conf",
    "hosts",
    "inputrc",
    "java",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "locale.alias",
    "locale.conf",
    "localtime",
    "lsb-release",
    "magic",
    "mime.types",
    "nsswitch.conf",
    "os-release",
    "passwd",
    "pki",
    "profile",
    "profile.d",
    "protocols",
    "services",
    "shells",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
    "timezone",
    "xattr.conf",
];

const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

const READ_ONLY: u64 = libc::MOUNT_ATTR_RDONLY;
const NO_SETUID: u64 = libc::MOUNT_ATTR_NOSUID;
const NO_DEVICES: u64 = libc::MOUNT_ATTR_NODEV;
const NO_PROGRAMS: u64 = libc::MOUNT_ATTR_NOEXEC;

/// Attributes of files that commands can read and execute, and of those that they can also write.
const VISIBLE: u64 = READ_ONLY | NO_SETUID | NO_DEVICES;
const WRITABLE: u64 = NO_SETUID | NO_DEVICES;

/// Builds the new root and makes it the root of this process.
pub(super) fn build(launch: &Launch) -> Result<(), LaunchError> {
    let spec = &launch.spec;
    enter_new_root()?;
    for path in SYSTEM {
        bind_or_link(Path::new(path))?;
    }
    for name in ETC {
        bind_or_link(&Path::new("/etc").join(name))?;
    }
    make_devices(spec)?;
    make_dir(Path::new("/proc"))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", flags, None).context("cannot mount /proc")?;
    mount_policy(spec)?;
    let mut masks = Vec::new();
    for path in &spec.masked {
        if mask(path)? {
            masks.push(path);
        }
    }
    mount_all(spec.programs.iter().map(|path| (path.as_path(), VISIBLE)))?;
    // Only now, because the programs may be below a mask.
    for path in masks {
        let dir = File::open(path).context("cannot open a masked directory")?;
        set_attributes(dir.as_fd(), READ_ONLY, false).context("cannot mask a directory")?;
    }
    if !launch.guards.is_empty() {
        let workspace = File::open(&spec.policy.workspace).context("cannot open the workspace")?;
        for guard in &launch.guards {
            apply_guard(workspace.as_fd(), guard)
                .context(format!("cannot protect {}", guard.path.display()))?;
        }
    }
    rustix::system::sethostname(b"sandbox").context("cannot set the host name")
}

/// Detaches the host's root and makes everything but the writable directories read-only.
pub(super) fn seal() -> Result<(), LaunchError> {
    unmount(OLD, UnmountFlags::DETACH).context("cannot detach the host's root")?;
    fs::remove_dir(OLD).context("cannot remove the host's mount point")?;
    for (path, flags) in [("/proc", READ_ONLY), ("/", READ_ONLY)] {
        let dir = File::open(path).context(format!("cannot open {path}"))?;
        set_attributes(dir.as_fd(), flags, false).context(format!("cannot seal {path}"))?;
    }
    Ok(())
}

fn enter_new_root() -> Result<(), LaunchError> {
    let private = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    mount_change("/", private).context("cannot detach from the host's mounts")?;
    // Any directory works as a mount point; the mount is only visible in this namespace.
    let base = "/tmp";
    mount_tmpfs(base, "mode=0755,size=16m")?;
    fs::create_dir(format!("{base}{OLD}")).context("cannot create a mount point")?;
    pivot_root(base, format!("{base}{OLD}")).context("cannot change the root")?;
    std::env::set_current_dir("/").context("cannot enter the new root")
}

fn mount_tmpfs(target: &str, options: &str) -> Result<(), LaunchError> {
    let options = std::ffi::CString::new(options).context("invalid mount options")?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("tmpfs", target, "tmpfs", flags, Some(options.as_c_str()))
        .context(format!("cannot mount a tmpfs on {target}"))
}

/// A path of the host.
fn old(path: &Path) -> PathBuf {
    Path::new(OLD).join(path.strip_prefix("/").unwrap_or(path))
}

/// Shows a path of the host read-only, or copies it if it is a link. Skips it if it is missing.
fn bind_or_link(path: &Path) -> Result<(), LaunchError> {
    let Ok(metadata) = fs::symlink_metadata(old(path)) else {
        return Ok(());
    };
    if metadata.is_symlink() {
        if let Some(parent) = path.parent() {
            make_dir(parent)?;
        }
        let target = fs::read_link(old(path)).context("cannot read a link")?;
        return symlink(target, path).context(format!("cannot link {}", path.display()));
    }
    bind(path, path, VISIBLE)
}

/// Shows `source` of the host at `target`, with everything mounted below it.
fn bind(source: &Path, target: &Path, attributes: u64) -> Result<(), LaunchError> {
    let step = || format!("cannot mount {}", target.display());
    let tree = clone_tree(CWD, &old(source), OpenTreeFlags::AT_SYMLINK_NOFOLLOW);
    let tree = tree.context(step())?;
    set_attributes(tree.as_fd(), attributes, true).context(step())?;
    let is_dir = fs::metadata(old(source)).is_ok_and(|metadata| metadata.is_dir());
    if is_dir {
        make_dir(target)?;
    } else {
        make_file(target)?;
    }
    move_mount(
        &tree,
        "",
        CWD,
        target,
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
    )
    .context(step())
}

fn clone_tree(dir: impl AsFd, path: &Path, flags: OpenTreeFlags) -> rustix::io::Result<OwnedFd> {
    let clone = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE;
    open_tree(dir, path, clone | flags)
}

fn make_dir(path: &Path) -> Result<(), LaunchError> {
    let mut builder = fs::DirBuilder::new();
    let created = builder.recursive(true).mode(0o755).create(path);
    created.context(format!("cannot create {}", path.display()))
}

/// Creates an empty file as a mount point, unless there is one.
fn make_file(path: &Path) -> Result<(), LaunchError> {
    if fs::symlink_metadata(path).is_ok() {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        make_dir(parent)?;
    }
    let created = File::create_new(path).map(drop);
    created.context(format!("cannot create {}", path.display()))
}

fn make_devices(spec: &LaunchSpec) -> Result<(), LaunchError> {
    for name in DEVICES {
        let path = Path::new("/dev").join(name);
        if old(&path).exists() {
            bind(&path, &path, NO_SETUID | NO_PROGRAMS)?;
        }
    }
    for (name, target) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
        ("ptmx", "pts/ptmx"),
    ] {
        symlink(target, Path::new("/dev").join(name)).context("cannot create a link in /dev")?;
    }
    make_dir(Path::new("/dev/pts"))?;
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    let options = c"newinstance,ptmxmode=0666,mode=0620";
    mount("devpts", "/dev/pts", "devpts", flags, Some(options)).context("cannot mount /dev/pts")?;
    make_dir(Path::new("/dev/shm"))?;
    let size = spec.policy.limits.memory / 4;
    mount_tmpfs("/dev/shm", &format!("mode=1777,size={size}"))
}

/// Mounts the home directory, `/tmp`, the workspace and the paths of the policy.
fn mount_policy(spec: &LaunchSpec) -> Result<(), LaunchError> {
    let policy = &spec.policy;
    bind(&spec.tmp, Path::new("/tmp"), WRITABLE)?;
    if let Some(home) = &policy.home {
        make_dir(home)?;
        let size = policy.limits.memory / 4;
        mount_tmpfs(&home.to_string_lossy(), &format!("mode=0700,size={size}"))?;
    }
    let workspace = policy.workspace.as_path();
    let read = policy.read.iter().map(|path| (path.as_path(), VISIBLE));
    let write = policy.write.iter().map(|path| (path.as_path(), WRITABLE));
    let outside = |(path, _): &(&Path, u64)| !path.starts_with(workspace);
    let own = match policy.access {
        ProjectAccess::Workspace => Some((workspace, WRITABLE)),
        ProjectAccess::ReadOnly => Some((workspace, VISIBLE)),
        ProjectAccess::None => None,
    };
    mount_all(read.chain(write).filter(outside).chain(own))
}

/// Shows paths of the host at the same place, with these attributes. Skips those that are missing.
fn mount_all<'a>(mounts: impl Iterator<Item = (&'a Path, u64)>) -> Result<(), LaunchError> {
    let mut mounts: Vec<_> = mounts.collect();
    // Outer directories first. Of two mounts at one place, the last counts: the writable one.
    mounts.sort_by_key(|(path, _)| path.components().count());
    for (path, attributes) in mounts {
        // The path may be a link on the host.
        match canonical(path) {
            Ok(source) => bind(&source, path, attributes)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).context(format!("cannot find {}", path.display())),
        }
    }
    Ok(())
}

/// Resolves the links of a host path. Links are relative to the host's root.
fn canonical(path: &Path) -> io::Result<PathBuf> {
    let mut real = PathBuf::from("/");
    let mut left: Vec<_> = path
        .components()
        .rev()
        .map(|it| it.as_os_str().to_owned())
        .collect();
    let mut links = 0;
    while let Some(part) = left.pop() {
        match part.as_encoded_bytes() {
            b"/" => real = PathBuf::from("/"),
            b".." => {
                real.pop();
            }
            _ => {
                let next = real.join(&part);
                if fs::symlink_metadata(old(&next))?.is_symlink() {
                    links += 1;
                    if links > 40 {
                        return Err(rustix::io::Errno::LOOP.into());
                    }
                    let target = fs::read_link(old(&next))?;
                    let parts = target.components().rev();
                    left.extend(parts.map(|it| it.as_os_str().to_owned()));
                } else {
                    real = next;
                }
            }
        }
    }
    Ok(real)
}

/// Covers a path with an empty directory or file, if it is visible. Returns whether it is covered
/// by a directory, which stays writable for now.
fn mask(path: &Path) -> Result<bool, LaunchError> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => {
            mount_tmpfs(&path.to_string_lossy(), "mode=0555,size=4k")?;
            Ok(true)
        }
        Ok(_) => {
            let attributes = READ_ONLY | NO_SETUID | NO_PROGRAMS;
            bind(Path::new("/dev/null"), path, attributes)?;
            Ok(false)
        }
        Err(_) => Ok(false),
    }
}

/// Applies a guard without following links, so that it covers the file that was found.
fn apply_guard(workspace: BorrowedFd<'_>, guard: &Guard) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let target = openat2(workspace, &guard.path, flags, Mode::empty(), within)?;
    let tree = match guard.kind {
        GuardKind::ReadOnly => clone_tree(&target, Path::new(""), OpenTreeFlags::AT_EMPTY_PATH)?,
        GuardKind::Socket => clone_tree(CWD, Path::new("/dev/null"), OpenTreeFlags::empty())?,
    };
    set_attributes(tree.as_fd(), READ_ONLY | NO_SETUID, true)?;
    let both = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(move_mount(&tree, "", &target, "", both)?)
}

/// Sets attributes of a mount and detaches it from changes of the host's mounts.
fn set_attributes(mount: BorrowedFd<'_>, attributes: u64, recursive: bool) -> io::Result<()> {
    let change = libc::mount_attr {
        attr_set: attributes,
        attr_clr: 0,
        propagation: libc::MS_PRIVATE,
        userns_fd: 0,
    };
    let recursive = if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the descriptor is open, the path is an empty NUL-terminated string, and the kernel
    // only reads the structure, whose size is passed along.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | recursive,
            &raw const change,
            size_of::<libc::mount_attr>(),
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
