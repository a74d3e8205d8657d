//! A sandbox whose programs are timed.

use std::sync::Arc;
use std::time::Instant;

use tracing::{field, info_span};

use super::{
    Done, Exec, Executed, FileInfo, LeadsTo, Sandbox, SandboxError, Walk, Walked, Watcher,
};
use crate::metrics::{Metric, Metrics};
use crate::store::Later;

/// Another sandbox, timed.
pub(crate) struct Measured {
    pub(crate) inner: Arc<dyn Sandbox>,
    pub(crate) metrics: Arc<Metrics>,
}

impl Sandbox for Measured {
    fn kind(&self) -> &'static str {
        self.inner.kind()
    }

    fn folder(&self) -> Option<String> {
        self.inner.folder()
    }

    fn read<'a>(&'a self, path: &'a str) -> Done<'a, Vec<u8>> {
        self.inner.read(path)
    }

    fn write<'a>(&'a self, path: &'a str, bytes: &'a [u8]) -> Done<'a, ()> {
        self.inner.write(path, bytes)
    }

    fn write_to<'a>(
        &'a self,
        path: &'a str,
        permitted: &'a LeadsTo,
        bytes: &'a [u8],
    ) -> Done<'a, ()> {
        self.inner.write_to(path, permitted, bytes)
    }

    fn list<'a>(&'a self, path: &'a str) -> Done<'a, Vec<FileInfo>> {
        self.inner.list(path)
    }

    fn read_many<'a>(
        &'a self,
        paths: &'a [String],
        longest: u64,
    ) -> Later<'a, Vec<Result<Vec<u8>, SandboxError>>> {
        self.inner.read_many(paths, longest)
    }

    fn walk<'a>(&'a self, walk: &'a Walk) -> Done<'a, Walked> {
        self.inner.walk(walk)
    }

    fn stat<'a>(&'a self, path: &'a str) -> Done<'a, FileInfo> {
        self.inner.stat(path)
    }

    fn mkdir<'a>(&'a self, path: &'a str) -> Done<'a, ()> {
        self.inner.mkdir(path)
    }

    fn rm<'a>(&'a self, path: &'a str) -> Done<'a, ()> {
        self.inner.rm(path)
    }

    fn end<'a>(&'a self, process: &'a str) -> Later<'a, ()> {
        self.inner.end(process)
    }

    fn leads_to<'a>(&'a self, path: &'a str) -> Later<'a, LeadsTo> {
        self.inner.leads_to(path)
    }

    fn exec<'a>(&'a self, exec: Exec, watcher: &'a dyn Watcher) -> Done<'a, Executed> {
        // Not the command: there may be secrets in it.
        let span = info_span!("sandbox_exec", kind = self.kind(), outcome = field::Empty);
        Box::pin(async move {
            let start = Instant::now();
            let done = self.inner.exec(exec, watcher).await;
            let outcome = match &done {
                Ok(Executed {
                    timed_out: true, ..
                }) => "timeout",
                Ok(Executed {
                    exit_code: Some(0), ..
                }) => "success",
                Ok(_) => "failure",
                Err(_) => "error",
            };
            span.record("outcome", outcome);
            let labels = [("outcome", outcome)];
            self.metrics
                .observe(Metric::SandboxExec, &labels, start.elapsed());
            done
        })
    }
}
