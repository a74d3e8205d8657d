//! Records of background runs: a directory for each run, which outlives all processes.
//!
//! `request.json` is the request, `handle` the process, `log` its output, `cancel.json` marks a
//! cancelled run, and `result.json` is the result. Each file is written atomically. Parameters may
//! be secrets, so only the user can read the directory.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use lillux::durable::{self, IfExists};
use lillux::process::{Command, Handle, spawn};
use lillux::{PathContext as _, time};
use rye_executor::{Approval, Request};
use rye_host::lookup::{find_id, not_found};
use rye_items::ItemRef;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::StartedRun;
use crate::cli::commands::graph::is_graph;
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::printer::Outcome;

/// How long a run may be without a process before it counts as lost.
const STARTING: Duration = Duration::from_secs(10);

/// What to run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RunRequest {
    pub(super) item_id: String,
    pub(super) parameters: Value,
    pub(super) timeout_s: Option<f64>,
    pub(super) project: PathBuf,
    pub(super) started_at: String,
    requested_by: Requester,
    /// Set if this resumes a graph run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) resume: Option<Resume>,
    /// Whether the tool is a graph, which has its own record in the project.
    #[serde(default)]
    pub(super) is_graph: bool,
}

/// Who requested a run. Tools that need an approval run only for a person.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Requester {
    Person,
    Client,
}

/// How to resume a graph run.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Resume {
    /// Resume although the graph has changed.
    pub(super) accept_changed: bool,
}

impl RunRequest {
    pub(crate) fn new(request: &Request, context: &Context) -> Self {
        Self {
            item_id: request.tool.id.to_string(),
            parameters: request.parameters.clone(),
            timeout_s: request.timeout.map(|time| time.as_secs_f64()),
            project: context.settings.project().to_owned(),
            started_at: time::now().iso,
            requested_by: match request.approval {
                Approval::ByUser => Requester::Person,
                // An approval covers one call, not a run that starts later.
                Approval::None | Approval::ForChain(_) | Approval::ForCall { .. } => {
                    Requester::Client
                }
            },
            resume: None,
            is_graph: is_graph(&request.tool, context),
        }
    }

    /// Makes this the resumption of a graph run.
    pub(crate) fn set_resume(&mut self, accept_changed: bool) {
        self.resume = Some(Resume { accept_changed });
    }

    pub(super) fn into_executor_request(self) -> Result<Request, Failure> {
        let tool: ItemRef = self.item_id.parse()?;
        let timeout = self.timeout_s.map(Duration::try_from_secs_f64);
        let mut request = Request::new(tool).with_parameters(self.parameters);
        request.timeout = timeout.and_then(Result::ok);
        request.approval = match self.requested_by {
            Requester::Person => Approval::ByUser,
            Requester::Client => Approval::None,
        };
        Ok(request)
    }
}

/// State of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum State {
    Running,
    Success,
    Error,
    Cancelled,
    /// The process is gone and left no result.
    Lost,
}

impl State {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Success => "success",
            Self::Error => "error",
            Self::Cancelled => "cancelled",
            Self::Lost => "lost",
        }
    }
}

/// The background runs of a user.
pub(crate) struct Runs(PathBuf);

/// The record of a run.
pub(super) struct Run {
    pub(super) id: String,
    pub(super) request: RunRequest,
    dir: PathBuf,
}

impl Runs {
    pub(crate) fn new(context: &Context) -> Result<Self, Failure> {
        let state = context.settings.state_dir.as_ref().ok_or_else(|| {
            let message = "no state directory: HOME is not set";
            Failure::usage(message).hint("export RYE_STATE_DIR=/path/to/state")
        })?;
        Ok(Self(state.value.join("runs")))
    }

    /// Records a run and starts it.
    pub(crate) fn start(&self, request: &RunRequest) -> Outcome {
        durable::create_dir(&self.0, 0o700)?;
        let (id, dir) = self.new_dir()?;
        Self::spawn(id, &dir, request).inspect_err(|_| {
            // No process will ever execute it.
            let _ = fs::remove_dir_all(&dir);
        })
    }

    /// Starts a graph run again under the same id.
    pub(crate) fn restart(&self, id: &str, request: &RunRequest) -> Outcome {
        let dir = self.0.join(id);
        durable::create_dir(&dir, 0o700)?;
        // The graph's own record keeps the earlier outcome.
        for name in ["handle", "cancel.json", "result.json"] {
            let path = dir.join(name);
            match fs::remove_file(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                outcome => outcome.at("remove", &path)?,
            }
        }
        Self::spawn(id.to_owned(), &dir, request)
    }

    fn spawn(id: String, dir: &Path, request: &RunRequest) -> Outcome {
        let text = serde_json::to_vec(request).map_err(|error| Failure::failed("io", error))?;
        let path = dir.join("request.json");
        durable::write(&path, &text, 0o600, IfExists::Replace)?;
        let unable = |error: &dyn std::fmt::Display| {
            Failure::failed("spawn", format_args!("cannot start run {id}: {error}"))
        };
        let program = std::env::current_exe().map_err(|error| unable(&error))?;
        let command = Command::new(program)
            .arg("--project")
            .arg(&request.project)
            .args(["run", "carry-out", &id]);
        let handle = spawn(command, Some(&dir.join("log"))).map_err(|error| unable(&error))?;
        write_handle(dir, &handle)?;
        Ok(Box::new(StartedRun {
            id,
            item_id: request.item_id.clone(),
        }))
    }

    /// Creates a directory for a run. Its name is a timestamp, so that runs sort by time.
    fn new_dir(&self) -> Result<(String, PathBuf), Failure> {
        loop {
            let id = time::sortable_stamp();
            let dir = self.0.join(&id);
            match DirBuilder::new().mode(0o700).create(&dir) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                outcome => {
                    outcome.at("create the directory", &dir)?;
                    return Ok((id, dir));
                }
            }
        }
    }

    /// All runs, newest first.
    pub(super) fn all(&self) -> Result<Vec<Run>, Failure> {
        let entries = match fs::read_dir(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.at("list", &self.0)?,
        };
        let mut runs: Vec<_> = entries
            .filter_map(|entry| Run::read(entry.ok()?.path()))
            .collect();
        runs.sort_by(|a, b| b.id.cmp(&a.id));
        Ok(runs)
    }

    /// Finds a run by its id, or a unique prefix or suffix.
    pub(super) fn find(&self, part: &str) -> Result<Run, Failure> {
        const LIST: &str = "rye run list";
        let all = self.all()?;
        let ids = all.iter().map(|run| run.id.as_str());
        let id = find_id(ids, part, "run", LIST)?.to_owned();
        let mut all = all.into_iter();
        all.find(|run| run.id == id)
            .ok_or_else(|| not_found("run", part, LIST))
    }
}

impl Run {
    fn read(dir: PathBuf) -> Option<Self> {
        let id = dir.file_name()?.to_str()?.to_owned();
        let request = read_json(&dir.join("request.json"))?;
        Some(Self { id, request, dir })
    }

    pub(super) fn log(&self) -> PathBuf {
        self.dir.join("log")
    }

    /// The process that executes the run, if one was started.
    pub(super) fn handle(&self) -> Option<Handle> {
        let text = fs::read_to_string(self.dir.join("handle")).ok()?;
        text.trim().parse().ok()
    }

    /// The result, if the run has ended.
    pub(super) fn result(&self) -> Option<Value> {
        read_json(&self.dir.join("result.json"))
    }

    pub(super) fn state(&self) -> State {
        // A process writes the result before it exits. Checking the process first therefore never
        // reports a run that just ended as lost.
        let is_running = match self.handle() {
            Some(handle) => handle.is_alive().unwrap_or(false),
            None => self.is_starting(),
        };
        let status = self
            .result()
            .map(|result| result["result"]["status"] == "success");
        match status {
            Some(true) => State::Success,
            Some(false) if self.is_cancelled() => State::Cancelled,
            Some(false) => State::Error,
            None if is_running => State::Running,
            None if self.is_cancelled() => State::Cancelled,
            None => State::Lost,
        }
    }

    /// Whether the run was cancelled before it ended.
    pub(super) fn is_cancelled(&self) -> bool {
        self.dir.join("cancel.json").exists()
    }

    fn is_starting(&self) -> bool {
        let written = fs::metadata(self.dir.join("request.json")).and_then(|m| m.modified());
        let age = written
            .ok()
            .and_then(|at| SystemTime::now().duration_since(at).ok());
        age.is_none_or(|age| age < STARTING)
    }

    /// Records this process as the one that executes the run.
    pub(super) fn record_process(&self) -> Result<(), Failure> {
        let me = rustix::process::getpid().as_raw_nonzero().get();
        let handle = Handle::from_pid(me).map_err(|error| Failure::failed("proc", error))?;
        write_handle(&self.dir, &handle)
    }

    /// Records that the run was cancelled.
    pub(super) fn record_cancel(&self) -> Result<(), Failure> {
        self.write("cancel.json", &json!({ "at": time::now().iso }))
    }

    /// Records the result.
    pub(super) fn finish(&self, result: &Value) -> Result<(), Failure> {
        let record = json!({ "ended_at": time::now().iso, "result": result });
        self.write("result.json", &record)
    }

    /// Deletes the record.
    pub(super) fn remove(&self) -> Result<(), Failure> {
        Ok(fs::remove_dir_all(&self.dir).at("remove", &self.dir)?)
    }

    fn write(&self, name: &str, value: &Value) -> Result<(), Failure> {
        let text = value.to_string();
        let path = self.dir.join(name);
        Ok(durable::write(
            &path,
            text.as_bytes(),
            0o600,
            IfExists::Replace,
        )?)
    }
}

fn write_handle(dir: &Path, handle: &Handle) -> Result<(), Failure> {
    let text = format!("{handle}\n");
    let path = dir.join("handle");
    Ok(durable::write(
        &path,
        text.as_bytes(),
        0o600,
        IfExists::Replace,
    )?)
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}
