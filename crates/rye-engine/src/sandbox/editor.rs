//! A sandbox whose files a person may have open in an editor, with text that is not saved.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use lillux::path_policy::PathClass;
use rye_protocol::SandboxKind;

use super::{
    Confinement, Exec, ExecObserver, ExecOutput, FileInfo, Grants, ResolvedPath, Sandbox,
    SandboxError, SandboxFuture, WalkOptions, WalkResult,
};
use crate::BoxFuture;
use crate::review::ChangeReview;

/// The files of an editor, by absolute path.
pub trait EditorFiles: Send + Sync + 'static {
    /// Text of a file, with changes that are not saved; `None` if the editor cannot tell.
    fn read<'a>(&'a self, file: &'a Path) -> BoxFuture<'a, Option<String>>;
    /// Writes a file. Returns false if the editor cannot.
    fn write<'a>(&'a self, file: &'a Path, text: &'a str) -> BoxFuture<'a, bool>;
}

/// The sandbox for a tool call, with the files of the editor if there is one. Files in memory and
/// those of a review are not the files that an editor shows.
pub(crate) fn with_editor(
    sandbox: &Arc<dyn Sandbox>,
    editor: Option<Arc<dyn EditorFiles>>,
) -> Arc<dyn Sandbox> {
    let workspace = sandbox.working_dir().filter(|_| sandbox.review().is_none());
    match (workspace, editor) {
        (Some(workspace), Some(editor)) => Arc::new(EditorSandbox {
            inner: Arc::clone(sandbox),
            workspace: workspace.into(),
            editor,
        }),
        _ => Arc::clone(sandbox),
    }
}

struct EditorSandbox {
    inner: Arc<dyn Sandbox>,
    workspace: PathBuf,
    editor: Arc<dyn EditorFiles>,
}

impl EditorSandbox {
    /// The absolute path of a file that the editor may show: a plain file of the workspace.
    async fn shown_file(&self, path: &str) -> Option<PathBuf> {
        let file = self.workspace.join(path);
        let goes_up = file.components().any(|it| it == Component::ParentDir);
        if goes_up || !file.starts_with(&self.workspace) {
            return None;
        }
        let resolved = self.inner.resolve_path(path).await;
        let is_plain = resolved.class == PathClass::Plain && resolved.path == path;
        is_plain.then(|| file.components().collect())
    }

    /// Writes a file through the editor, if it can.
    async fn write_shown(&self, path: &str, bytes: &[u8]) -> bool {
        let Ok(text) = std::str::from_utf8(bytes) else {
            return false;
        };
        let Some(file) = self.shown_file(path).await else {
            return false;
        };
        // An editor may accept a file that it does not write.
        self.editor.write(&file, text).await && self.inner.stat(path).await.is_ok()
    }
}

impl Sandbox for EditorSandbox {
    fn kind(&self) -> SandboxKind {
        self.inner.kind()
    }

    fn confinement(&self) -> Confinement {
        self.inner.confinement()
    }

    fn working_dir(&self) -> Option<String> {
        self.inner.working_dir()
    }

    fn location(&self) -> Option<String> {
        self.inner.location()
    }

    fn read<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, Vec<u8>> {
        Box::pin(async move {
            // First the sandbox, which may refuse.
            let saved = self.inner.read(path).await?;
            if std::str::from_utf8(&saved).is_err() {
                return Ok(saved);
            }
            let Some(file) = self.shown_file(path).await else {
                return Ok(saved);
            };
            let shown = self.editor.read(&file).await;
            Ok(shown.map_or(saved, String::into_bytes))
        })
    }

    fn write<'a>(&'a self, path: &'a str, bytes: &'a [u8]) -> SandboxFuture<'a, ()> {
        Box::pin(async move {
            if self.write_shown(path, bytes).await {
                return Ok(());
            }
            self.inner.write(path, bytes).await
        })
    }

    fn write_resolved<'a>(
        &'a self,
        path: &'a str,
        permitted: &'a ResolvedPath,
        bytes: &'a [u8],
    ) -> SandboxFuture<'a, ()> {
        Box::pin(async move {
            let is_same = self.inner.resolve_path(path).await == *permitted;
            if is_same && self.write_shown(path, bytes).await {
                return Ok(());
            }
            self.inner.write_resolved(path, permitted, bytes).await
        })
    }

    fn list<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, Vec<FileInfo>> {
        self.inner.list(path)
    }

    fn read_many<'a>(
        &'a self,
        paths: &'a [String],
        longest: u64,
    ) -> BoxFuture<'a, Vec<Result<Vec<u8>, SandboxError>>> {
        self.inner.read_many(paths, longest)
    }

    fn walk<'a>(&'a self, walk: &'a WalkOptions) -> SandboxFuture<'a, WalkResult> {
        self.inner.walk(walk)
    }

    fn stat<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, FileInfo> {
        self.inner.stat(path)
    }

    fn stat_many<'a>(
        &'a self,
        paths: &'a [String],
    ) -> BoxFuture<'a, Vec<Result<FileInfo, SandboxError>>> {
        self.inner.stat_many(paths)
    }

    fn mkdir<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, ()> {
        self.inner.mkdir(path)
    }

    fn rm<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, ()> {
        self.inner.rm(path)
    }

    fn rmdir<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, ()> {
        self.inner.rmdir(path)
    }

    fn set_executable<'a>(&'a self, path: &'a str, executable: bool) -> SandboxFuture<'a, ()> {
        self.inner.set_executable(path, executable)
    }

    fn kill<'a>(&'a self, process: &'a str) -> BoxFuture<'a, ()> {
        self.inner.kill(process)
    }

    fn resolve_path<'a>(&'a self, path: &'a str) -> BoxFuture<'a, ResolvedPath> {
        self.inner.resolve_path(path)
    }

    fn widened(&self, grants: &Grants) -> Result<Arc<dyn Sandbox>, SandboxError> {
        self.inner.widened(grants)
    }

    fn settle_quarantined<'a>(&'a self, paths: &'a [String], keep: bool) -> SandboxFuture<'a, ()> {
        self.inner.settle_quarantined(paths, keep)
    }

    fn review(&self) -> Option<&dyn ChangeReview> {
        self.inner.review()
    }

    fn exec<'a>(
        &'a self,
        exec: Exec,
        observer: &'a dyn ExecObserver,
    ) -> SandboxFuture<'a, ExecOutput> {
        self.inner.exec(exec, observer)
    }
}
