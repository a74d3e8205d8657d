//! The view of a session in review mode: a process whose mount namespace has an overlay at the
//! path of the workspace. Commands join its namespaces, and it performs the file operations of
//! tools, so that both see the same files.

#![expect(
    unsafe_code,
    reason = "unshare is unsafe by nature; the block says why it is sound"
)]

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use lillux::path_policy::ProtectedPaths;
use rustix::fs::{Mode, OFlags, open};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::process::{DumpableBehavior, getpid, set_dumpable_behavior};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};
use rye_engine::sandbox::SandboxError;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::namespaces::{die_with_parent, map_own_user};
use super::{Context as _, LaunchError, error, guard_argument, report};
use crate::confined::files::{ConfinedFiles, FileOperation, FileRequest};
use crate::confined::policy::{ConfinementPolicy, ResolvedPolicy};
use crate::confined::protected::ProtectedFiles;
use crate::local::LocalFiles;

/// First argument of a launcher that is to be a view.
pub(in crate::confined) const VIEW: &str = "view";

/// What the sandbox tells the view.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::confined) struct ViewSpec {
    /// Directory with the session's changes, and one for the kernel on the same file system.
    pub(in crate::confined) upper: PathBuf,
    pub(in crate::confined) work: PathBuf,
    pub(in crate::confined) tmp: PathBuf,
    pub(in crate::confined) confinement: ConfinementPolicy,
    pub(in crate::confined) policy: ResolvedPolicy,
    /// The user's private directories and homes, and the project.
    pub(in crate::confined) private: Vec<PathBuf>,
    pub(in crate::confined) homes: Vec<PathBuf>,
    pub(in crate::confined) project: PathBuf,
}

/// A running view. It introduces itself with this.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::confined) struct ViewRef {
    pub(in crate::confined) pid: i32,
    /// Device number of the overlay.
    pub(in crate::confined) device: u64,
}

/// Mounts the overlay and serves requests on standard input, a socket, until it is closed.
pub(super) fn run(spec: Option<&std::ffi::OsStr>) -> ExitCode {
    let spec = spec.and_then(|text| serde_json::from_slice(text.as_bytes()).ok());
    let Some(spec) = spec else {
        return ExitCode::from(super::FAILED);
    };
    match mount_overlay(&spec).and_then(|view| Ok((view, files(&spec)?))) {
        Ok((view, files)) => match serve(&spec, &view, &files) {
            Ok(()) => ExitCode::SUCCESS,
            Err(source) => report("", &error("cannot serve files", source)),
        },
        Err(error) => report("", &error),
    }
}

fn mount_overlay(spec: &ViewSpec) -> Result<ViewRef, LaunchError> {
    let workspace = &spec.policy.workspace;
    set_dumpable_behavior(DumpableBehavior::Dumpable).context("cannot prepare the view")?;
    let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
    // SAFETY: the process has a single thread, and no descriptor table is unshared.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNS) }
        .context("cannot create namespaces")?;
    map_own_user(uid, gid)?;
    // Commands find the namespaces through `/proc`, which needs it.
    set_dumpable_behavior(DumpableBehavior::Dumpable).context("cannot prepare the view")?;
    die_with_parent()?;
    let private = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    mount_change("/", private).context("cannot detach from the host's mounts")?;
    // Descriptors, because mount options cannot contain every path.
    let (lower, upper, work) = (
        open_dir(workspace)?,
        open_dir(&spec.upper)?,
        open_dir(&spec.work)?,
    );
    let dir = |fd: &OwnedFd| format!("/proc/self/fd/{}", fd.as_raw_fd());
    let options = format!(
        "lowerdir={},upperdir={},workdir={},userxattr",
        dir(&lower),
        dir(&upper),
        dir(&work)
    );
    let options = std::ffi::CString::new(options).context("invalid mount options")?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount(
        "overlay",
        workspace,
        "overlay",
        flags,
        Some(options.as_c_str()),
    )
    .context("cannot mount an overlay on the workspace")?;
    let metadata = fs::symlink_metadata(workspace).context("cannot find the workspace")?;
    Ok(ViewRef {
        pid: getpid().as_raw_nonzero().get(),
        device: metadata.dev(),
    })
}

fn open_dir(path: &Path) -> Result<OwnedFd, LaunchError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    open(path, flags, Mode::empty()).context(format!("cannot open {}", path.display()))
}

/// Moves this process into the namespaces of a view.
pub(super) fn join(view: &ViewRef, workspace: &Path) -> Result<(), LaunchError> {
    let step = "cannot enter the session's view of the workspace";
    let namespace = |name: &str| File::open(format!("/proc/{}/ns/{name}", view.pid)).context(step);
    let (user, mount) = (namespace("user")?, namespace("mnt")?);
    move_into_link_name_space(user.as_fd(), Some(LinkNameSpaceType::User)).context(step)?;
    move_into_link_name_space(mount.as_fd(), Some(LinkNameSpaceType::Mount)).context(step)?;
    // Another process may have got the number of one that has ended.
    let metadata = fs::symlink_metadata(workspace).context(step)?;
    if metadata.dev() != view.device {
        return Err(error(step, "it has ended"));
    }
    Ok(())
}

fn files(spec: &ViewSpec) -> Result<ConfinedFiles, LaunchError> {
    let local = LocalFiles::new(&spec.policy.workspace).context("cannot open the workspace")?;
    let protected = ProtectedPaths {
        private: spec.private.clone(),
        homes: spec.homes.clone(),
    };
    Ok(ConfinedFiles {
        local: local.protected(protected, &spec.project),
        policy: spec.policy.clone(),
        tmp: spec.tmp.clone(),
    })
}

fn serve(spec: &ViewSpec, view: &ViewRef, files: &ConfinedFiles) -> io::Result<()> {
    let stdin = io::stdin().as_fd().try_clone_to_owned()?;
    let mut stream = File::from(stdin);
    // The probe has no use for it, and `/dev/null` as standard input.
    let _ = write_frame(&mut stream, &json!(view), &[]);
    loop {
        let Some((request, body)) = read_frame(&mut stream)? else {
            return Ok(());
        };
        let outcome = match serde_json::from_value(request) {
            Ok(request) => perform(spec, files, request, &body),
            Err(error) => Err(SandboxError::Exec(error.to_string())),
        };
        match outcome {
            Ok((value, bytes)) => write_frame(&mut stream, &json!({ "ok": value }), &bytes)?,
            Err(error) => write_frame(&mut stream, &json!({ "error": error }), &[])?,
        }
    }
}

fn perform(
    spec: &ViewSpec,
    files: &ConfinedFiles,
    request: FileRequest,
    body: &[u8],
) -> Result<(Value, Vec<u8>), SandboxError> {
    let FileRequest { operation, policy } = request;
    let unprotected = policy.unprotected.clone();
    let files = ConfinedFiles {
        policy,
        ..files.clone()
    };
    let value = match operation {
        FileOperation::Read(path) => return Ok((Value::Null, files.read(&path)?)),
        FileOperation::Guards => {
            let home = spec.policy.home.as_deref();
            let mut found = ProtectedFiles::find(&spec.policy.workspace, &spec.confinement, home);
            found.release(&unprotected);
            let guards = found.guards();
            let arguments = guards.iter().map(guard_argument);
            let arguments: Vec<_> = arguments.map(|it| it.as_bytes().to_vec()).collect();
            return Ok((Value::Null, arguments.join(&0)));
        }
        FileOperation::Visible(path) => {
            let real = files.visible(&path)?;
            json!(real.to_string_lossy())
        }
        FileOperation::Resolve(path) => json!(files.resolve_path(&path)),
        FileOperation::Walk(walk) => {
            let walk = files.host_walk(&walk)?;
            json!(files.local.walk(&walk, &AtomicBool::new(false))?)
        }
        FileOperation::Write(path) => done(files.write(&path, body))?,
        FileOperation::WriteResolved(path, permitted) => {
            done(files.write_resolved(&path, &permitted, body))?
        }
        FileOperation::List(path) => json!(files.list(&path)?),
        FileOperation::Stat(path) => json!(files.stat(&path)?),
        FileOperation::Mkdir(path) => done(files.mkdir(&path))?,
        FileOperation::Rm(path) => done(files.rm(&path))?,
        FileOperation::Rmdir(path) => done(files.rmdir(&path))?,
        FileOperation::SetExecutable(path, executable) => {
            done(files.set_executable(&path, executable))?
        }
    };
    Ok((value, Vec::new()))
}

/// The result of an operation without a value.
fn done(outcome: Result<(), SandboxError>) -> Result<Value, SandboxError> {
    outcome.map(|()| Value::Null)
}

/// Writes a message: the lengths of its two parts, a JSON value and bytes.
pub(in crate::confined) fn write_frame(
    stream: &mut impl Write,
    value: &Value,
    body: &[u8],
) -> io::Result<()> {
    let value = serde_json::to_vec(value)?;
    let mut frame = Vec::with_capacity(16 + value.len() + body.len());
    frame.extend((value.len() as u64).to_le_bytes());
    frame.extend((body.len() as u64).to_le_bytes());
    frame.extend(value);
    frame.extend(body);
    stream.write_all(&frame)
}

/// Reads a message; `None` if the other side has closed the stream.
pub(in crate::confined) fn read_frame(
    stream: &mut impl Read,
) -> io::Result<Option<(Value, Vec<u8>)>> {
    let mut lengths = [0; 16];
    match stream.read_exact(&mut lengths) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let length = |bytes: &[u8]| {
        let bytes = bytes.try_into().map(u64::from_le_bytes);
        usize::try_from(bytes.unwrap_or(0)).map_err(io::Error::other)
    };
    let mut value = vec![0; length(&lengths[..8])?];
    stream.read_exact(&mut value)?;
    let mut body = vec![0; length(&lengths[8..])?];
    stream.read_exact(&mut body)?;
    Ok(Some((serde_json::from_slice(&value)?, body)))
}
