//! Runs in the background, written down: a folder for each, which outlives all processes.
//!
//! `request.json` is what was asked for, `handle` the process that sees to it, `log` what
//! was printed, `cancel.json` that somebody wanted it to end, and `result.json` how it
//! went. Each is there whole or not at all. Parameters may be secrets, so nobody else
//! may read any of it.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use lillux::durable::{self, Existing};
use lillux::process::{Command, Handle, spawn};
use lillux::{At as _, time};
use rye_executor::{Approval, Request};
use rye_items::ItemRef;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Started;
use crate::cli::commands::graph::is_graph;
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::printer::Outcome;

/// How long a run may be without a process before it counts as lost.
const STARTING: Duration = Duration::from_secs(10);

/// What was asked for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Asked {
    pub(super) item_id: String,
    pub(super) parameters: Value,
    pub(super) timeout_s: Option<f64>,
    pub(super) project: PathBuf,
    pub(super) started_at: String,
    by: By,
    /// That a run of a graph goes on under its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) resumes: Option<Resumes>,
    /// Whether it is one of a graph, which writes itself down in its project.
    #[serde(default)]
    pub(super) is_graph: bool,
}

/// Who wants a run: what needs an approval runs only for a person.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum By {
    Person,
    Client,
}

/// How a run of a graph goes on.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Resumes {
    /// Though the graph is not what it was.
    pub(super) accept_changed: bool,
}

impl Asked {
    pub(crate) fn of(request: &Request, context: &Context) -> Self {
        Self {
            item_id: request.tool.id.to_string(),
            parameters: request.parameters.clone(),
            timeout_s: request.timeout.map(|time| time.as_secs_f64()),
            project: context.settings.project().to_owned(),
            started_at: time::now().iso,
            by: match request.approval {
                Approval::ByUser => By::Person,
                // What somebody approved is a call, and not what runs on its own later.
                Approval::None | Approval::ForChain(_) | Approval::ForCall { .. } => By::Client,
            },
            resumes: None,
            is_graph: is_graph(&request.tool, context),
        }
    }

    /// Says that a run of a graph goes on.
    pub(crate) fn resumes(&mut self, accept_changed: bool) {
        self.resumes = Some(Resumes { accept_changed });
    }

    pub(super) fn request(self) -> Result<Request, Failure> {
        let tool: ItemRef = self.item_id.parse()?;
        let timeout = self.timeout_s.map(Duration::try_from_secs_f64);
        let mut request = Request::new(tool).parameters(self.parameters);
        request.timeout = timeout.and_then(Result::ok);
        request.approval = match self.by {
            By::Person => Approval::ByUser,
            By::Client => Approval::None,
        };
        Ok(request)
    }
}

/// How a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum State {
    Running,
    Success,
    Error,
    Cancelled,
    /// Its process is gone, and there is no result.
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

/// All runs of a person.
pub(crate) struct Runs(PathBuf);

/// One of them.
pub(super) struct Run {
    pub(super) id: String,
    pub(super) asked: Asked,
    folder: PathBuf,
}

impl Runs {
    pub(crate) fn of(context: &Context) -> Result<Self, Failure> {
        let folder = context.settings.state_dir.as_ref().ok_or_else(|| {
            let message = "there is no folder to write runs down in: HOME is not set";
            Failure::usage(message).hint("export RYE_STATE_DIR=/the/folder")
        })?;
        Ok(Self(folder.value.join("runs")))
    }

    /// Writes a run down and starts it.
    pub(crate) fn start(&self, asked: &Asked) -> Outcome {
        durable::create_folder(&self.0, 0o700)?;
        let (id, folder) = self.new_folder()?;
        Self::started(id, &folder, asked).inspect_err(|_| {
            // Nobody will ever see to it.
            let _ = fs::remove_dir_all(&folder);
        })
    }

    /// Starts a run of a graph again, under the name that it has.
    pub(crate) fn start_again(&self, id: &str, asked: &Asked) -> Outcome {
        let folder = self.0.join(id);
        durable::create_folder(&folder, 0o700)?;
        // How it went before is in its own record.
        for name in ["handle", "cancel.json", "result.json"] {
            let path = folder.join(name);
            match fs::remove_file(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                outcome => outcome.at("remove", &path)?,
            }
        }
        Self::started(id.to_owned(), &folder, asked)
    }

    fn started(id: String, folder: &Path, asked: &Asked) -> Outcome {
        let text = serde_json::to_vec(asked).map_err(|error| Failure::failed("io", error))?;
        let request = folder.join("request.json");
        durable::write(&request, &text, 0o600, Existing::Replace)?;
        let unable = |error: &dyn std::fmt::Display| {
            Failure::failed("spawn", format_args!("cannot start it: {error}"))
        };
        let program = std::env::current_exe().map_err(|error| unable(&error))?;
        let command = Command::new(program)
            .arg("--project")
            .arg(&asked.project)
            .args(["run", "carry-out", &id]);
        let handle = spawn(command, Some(&folder.join("log"))).map_err(|error| unable(&error))?;
        write_handle(folder, &handle)?;
        Ok(Box::new(Started {
            id,
            item_id: asked.item_id.clone(),
        }))
    }

    /// A folder with a name that says when, and that nobody had before. In the order of
    /// their names runs are in the order in which they began.
    fn new_folder(&self) -> Result<(String, PathBuf), Failure> {
        loop {
            let id = time::stamp();
            let folder = self.0.join(&id);
            match DirBuilder::new().mode(0o700).create(&folder) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                outcome => {
                    outcome.at("create the folder", &folder)?;
                    return Ok((id, folder));
                }
            }
        }
    }

    /// All runs, the newest first.
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

    /// The one run whose id begins so.
    pub(super) fn find(&self, id: &str) -> Result<Run, Failure> {
        let mut runs = self.all()?;
        if let Some(exact) = runs.iter().position(|run| run.id == id) {
            return Ok(runs.swap_remove(exact));
        }
        runs.retain(|run| !id.is_empty() && run.id.starts_with(id));
        match (runs.pop(), runs.len()) {
            (Some(run), 0) => Ok(run),
            (None, _) => {
                let message = format!("there is no run {id}");
                Err(Failure::failed("not_found", message).hint("rye run list"))
            }
            (Some(_), others) => {
                let message = format!("{} runs have ids that begin with {id}", others + 1);
                Err(Failure::failed("ambiguous", message).hint("rye run list"))
            }
        }
    }
}

impl Run {
    fn read(folder: PathBuf) -> Option<Self> {
        let id = folder.file_name()?.to_str()?.to_owned();
        let asked = read_json(&folder.join("request.json"))?;
        Some(Self { id, asked, folder })
    }

    pub(super) fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    /// Who sees to it, if anybody ever did.
    pub(super) fn handle(&self) -> Option<Handle> {
        let text = fs::read_to_string(self.folder.join("handle")).ok()?;
        text.trim().parse().ok()
    }

    /// What came of it.
    pub(super) fn result(&self) -> Option<Value> {
        read_json(&self.folder.join("result.json"))
    }

    pub(super) fn state(&self) -> State {
        // Whoever writes the result ends only afterwards: asked in this order, a run
        // that ends just now is not lost.
        let runs = match self.handle() {
            Some(handle) => handle.is_alive().unwrap_or(false),
            None => self.is_young(),
        };
        let status = self
            .result()
            .map(|result| result["envelope"]["status"] == "success");
        match status {
            Some(true) => State::Success,
            Some(false) if self.is_cancelled() => State::Cancelled,
            Some(false) => State::Error,
            None if runs => State::Running,
            None if self.is_cancelled() => State::Cancelled,
            None => State::Lost,
        }
    }

    /// Whether somebody wanted it to end before it did.
    pub(super) fn is_cancelled(&self) -> bool {
        self.folder.join("cancel.json").exists()
    }

    fn is_young(&self) -> bool {
        let written = fs::metadata(self.folder.join("request.json")).and_then(|m| m.modified());
        let age = written
            .ok()
            .and_then(|at| SystemTime::now().duration_since(at).ok());
        age.is_none_or(|age| age < STARTING)
    }

    /// This process sees to it from now on.
    pub(super) fn take(&self) -> Result<(), Failure> {
        let me = rustix::process::getpid().as_raw_nonzero().get();
        let handle = Handle::of_running(me).map_err(|error| Failure::failed("proc", error))?;
        write_handle(&self.folder, &handle)
    }

    /// Writes down that somebody wants it to end.
    pub(super) fn note_cancel(&self) -> Result<(), Failure> {
        self.write("cancel.json", &json!({ "at": time::now().iso }))
    }

    /// Writes down what came of it.
    pub(super) fn finish(&self, envelope: &Value) -> Result<(), Failure> {
        let result = json!({ "ended_at": time::now().iso, "envelope": envelope });
        self.write("result.json", &result)
    }

    /// Removes all that was written down.
    pub(super) fn remove(&self) -> Result<(), Failure> {
        Ok(fs::remove_dir_all(&self.folder).at("remove", &self.folder)?)
    }

    fn write(&self, name: &str, value: &Value) -> Result<(), Failure> {
        let text = value.to_string();
        let path = self.folder.join(name);
        Ok(durable::write(
            &path,
            text.as_bytes(),
            0o600,
            Existing::Replace,
        )?)
    }
}

fn write_handle(folder: &Path, handle: &Handle) -> Result<(), Failure> {
    let text = format!("{handle}\n");
    let path = folder.join("handle");
    Ok(durable::write(
        &path,
        text.as_bytes(),
        0o600,
        Existing::Replace,
    )?)
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}
