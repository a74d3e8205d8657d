//! A sandbox wrapper that measures commands.

use std::sync::Arc;
use std::time::Instant;

use rye_protocol::SandboxKind;
use tracing::{field, info_span};

use super::{
    Exec, ExecObserver, ExecOutput, FileInfo, ResolvedPath, Sandbox, SandboxError, SandboxFuture,
    WalkOptions, WalkResult,
};
use crate::BoxFuture;
use crate::metrics::{Metric, Metrics};

/// Wraps a sandbox and records metrics of its commands.
pub(crate) struct InstrumentedSandbox {
    pub(crate) inner: Arc<dyn Sandbox>,
    pub(crate) metrics: Arc<Metrics>,
}

impl Sandbox for InstrumentedSandbox {
    fn kind(&self) -> SandboxKind {
        self.inner.kind()
    }

    fn working_dir(&self) -> Option<String> {
        self.inner.working_dir()
    }

    fn read<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, Vec<u8>> {
        self.inner.read(path)
    }

    fn write<'a>(&'a self, path: &'a str, bytes: &'a [u8]) -> SandboxFuture<'a, ()> {
        self.inner.write(path, bytes)
    }

    fn write_resolved<'a>(
        &'a self,
        path: &'a str,
        permitted: &'a ResolvedPath,
        bytes: &'a [u8],
    ) -> SandboxFuture<'a, ()> {
        self.inner.write_resolved(path, permitted, bytes)
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

    fn mkdir<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, ()> {
        self.inner.mkdir(path)
    }

    fn rm<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, ()> {
        self.inner.rm(path)
    }

    fn kill<'a>(&'a self, process: &'a str) -> BoxFuture<'a, ()> {
        self.inner.kill(process)
    }

    fn resolve_path<'a>(&'a self, path: &'a str) -> BoxFuture<'a, ResolvedPath> {
        self.inner.resolve_path(path)
    }

    fn exec<'a>(
        &'a self,
        exec: Exec,
        observer: &'a dyn ExecObserver,
    ) -> SandboxFuture<'a, ExecOutput> {
        // Not the command itself, which may contain secrets.
        let span = info_span!("sandbox_exec", kind = %self.kind(), outcome = field::Empty);
        Box::pin(async move {
            let start = Instant::now();
            let result = self.inner.exec(exec, observer).await;
            let outcome = match &result {
                Ok(ExecOutput {
                    timed_out: true, ..
                }) => "timeout",
                Ok(ExecOutput {
                    exit_code: Some(0), ..
                }) => "success",
                Ok(_) => "failure",
                Err(_) => "error",
            };
            span.record("outcome", outcome);
            let labels = [("outcome", outcome)];
            self.metrics
                .observe(Metric::SandboxExec, &labels, start.elapsed());
            result
        })
    }
}
