//! Store of the runs of a project.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use lillux::PathContext as _;
use lillux::durable::{self, CreateDirError, IfExists, WriteError};
use lillux::process::Handle;
use rye_protocol::{Gate, matches_id};
use serde_json::{Map, Value};

use super::replay;
use super::{RecordError, Replay};
use crate::event::{JournalLine, NodeError, RunStatus};
use crate::gates::GateFile;

pub(super) const EVENTS: &str = "events.jsonl";
pub(super) const PROCESS: &str = "process";
pub(super) const SNAPSHOT: &str = "snapshot";
const STORE: &str = "store";
/// Directory of a run's gates.
const GATES: &str = "gates";
/// State directory of a project.
const STATE: &str = ".ai/state";

/// The runs of a project.
#[derive(Debug, Clone)]
pub struct RunStore {
    project: PathBuf,
    root: PathBuf,
}

/// Handle of a run whose journal is not loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunHandle {
    /// Id of the run.
    pub id: String,
    run_dir: PathBuf,
}

/// A run, loaded from its journal.
#[derive(Debug)]
pub struct RunRecord {
    handle: RunHandle,
    replay: Replay,
}

/// State of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunState {
    /// A process executes the run.
    Running,
    /// A process executes the run and waits for a gate.
    Waiting,
    /// The process died before the run ended.
    Lost,
    /// The run stopped.
    Ended(RunStatus),
}

impl RunState {
    /// The name, as used in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Lost => "lost",
            Self::Ended(status) => status.as_str(),
        }
    }

    /// Whether a process executes the run.
    pub fn is_live(self) -> bool {
        matches!(self, Self::Running | Self::Waiting)
    }
}

impl RunStore {
    /// Creates the store of a project.
    pub fn new(project: &Path) -> Self {
        Self {
            project: project.to_owned(),
            root: project.join(STATE).join("graphs"),
        }
    }

    /// Creates the directories of the store or a run. Symbolic links must not leave the project.
    pub(crate) fn create_dirs(&self, run: Option<&str>) -> Result<(), RecordError> {
        let create_inside = |path: &Path| {
            let relative = path.strip_prefix(&self.project).unwrap_or(path);
            durable::create_dir_within(&self.project, relative, 0o700)
        };
        create_inside(&self.root)?;
        // These are created later; check those that exist.
        let mut existing = vec![self.store(), self.cache()];
        if let Some(run) = run {
            let dir = self.run_dir(run);
            let files = [EVENTS, PROCESS, SNAPSHOT, "snapshot.new"];
            let mut files = files.into_iter().map(|name| dir.join(name));
            if let Some(link) = files.find(|path| path.is_symlink()) {
                let root = self.project.clone();
                return Err(CreateDirError::LinkLeavesRoot { link, root }.into());
            }
            existing.extend([dir.clone(), dir.join(GATES)]);
        }
        for dir in &existing {
            if dir.symlink_metadata().is_err() {
                continue;
            }
            match create_inside(dir) {
                // A file with this name is reported by the step that needs the directory.
                Err(CreateDirError::Path(error))
                    if error.source.kind() == io::ErrorKind::NotADirectory => {}
                checked => checked?,
            }
        }
        Ok(())
    }

    /// Directory of a run.
    pub fn run_dir(&self, id: &str) -> PathBuf {
        self.root.join(id)
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.root.join(STORE)
    }

    /// Directory of cached node results.
    pub(crate) fn cache(&self) -> PathBuf {
        self.root.join("cache")
    }

    /// Whether the journal of a run has events that may have had an effect.
    pub(crate) fn has_started(&self, id: &str, has_key: bool) -> bool {
        let record = fs::read(self.run_dir(id).join(EVENTS));
        record
            .is_ok_and(|bytes| bytes.contains(&b'\n') && (!has_key || replay::has_effects(&bytes)))
    }

    /// Excludes the state directory from version control.
    pub fn write_gitignore(&self) -> Result<(), RecordError> {
        durable::create_dir_within(&self.project, STATE, 0o700)?;
        let path = self.project.join(STATE).join(".gitignore");
        if path.symlink_metadata().is_ok() {
            return Ok(());
        }
        match durable::write(&path, b"*\n", 0o644, IfExists::Fail) {
            Ok(()) | Err(WriteError::Exists(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Creates the directory of a new run and returns its id. Ids are time stamps, so they sort
    /// by start time.
    pub fn new_id(&self) -> Result<String, RecordError> {
        self.write_gitignore()?;
        self.create_dirs(None)?;
        let mut id = lillux::time::sortable_stamp();
        loop {
            let dir = self.run_dir(&id);
            match DirBuilder::new().mode(0o700).create(&dir) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    id = lillux::time::sortable_stamp();
                }
                outcome => {
                    outcome.at("create the directory", &dir)?;
                    durable::sync_dir(&self.root)?;
                    return Ok(id);
                }
            }
        }
    }

    /// Lists all runs, newest first.
    pub fn all(&self) -> Result<Vec<RunHandle>, RecordError> {
        if self.root.symlink_metadata().is_ok() {
            self.create_dirs(None)?;
        }
        let entries = match fs::read_dir(&self.root) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.at("list", &self.root)?,
        };
        let mut all: Vec<_> = entries
            .filter_map(|entry| {
                let run_dir = entry.ok()?.path();
                let id = run_dir.file_name()?.to_str()?.to_owned();
                run_dir
                    .join(EVENTS)
                    .is_file()
                    .then_some(RunHandle { id, run_dir })
            })
            .collect();
        all.sort_by(|a, b| b.id.cmp(&a.id));
        Ok(all)
    }

    /// Finds a run by its id, or by a unique prefix or suffix of it.
    pub fn find(&self, id: &str) -> Result<RunHandle, RecordError> {
        let mut all = self.all()?;
        if let Some(exact) = all.iter().position(|run| run.id == id) {
            return Ok(all.swap_remove(exact));
        }
        // Nested runs need their full id.
        all.retain(|run| matches_id(&run.id, id) && !run.id.contains('.'));
        match all.len() {
            0 => Err(RecordError::NotFound(id.to_owned())),
            1 => Ok(all.remove(0)),
            many => Err(RecordError::Ambiguous(id.to_owned(), many)),
        }
    }
}

impl RunHandle {
    /// Directory of the run.
    pub fn run_dir(&self) -> &Path {
        &self.run_dir
    }

    /// Project of the run.
    pub fn project(&self) -> &Path {
        let mut ancestors = self.run_dir.ancestors();
        ancestors.nth(4).unwrap_or(&self.run_dir)
    }

    /// Whether the journal has at least one line.
    pub fn has_started(&self) -> bool {
        let record = fs::read(self.events());
        record.is_ok_and(|bytes| bytes.contains(&b'\n'))
    }

    /// Whether the process that executes the run is alive.
    pub fn is_running(&self) -> bool {
        let process = self.process();
        process.is_some_and(|it| it.is_alive().unwrap_or(false))
    }

    /// Path of the journal.
    pub fn events(&self) -> PathBuf {
        self.run_dir.join(EVENTS)
    }

    /// The process that executes or executed the run.
    pub fn process(&self) -> Option<Handle> {
        let text = fs::read_to_string(self.run_dir.join(PROCESS)).ok()?;
        text.trim().parse().ok()
    }

    /// Loads the journal.
    pub fn load(self) -> Result<RunRecord, RecordError> {
        let path = self.events();
        let bytes = fs::read(&path).at("read", &path)?;
        let replay = Replay::from_bytes(&self.id, &path, &bytes)?;
        Ok(RunRecord {
            handle: self,
            replay,
        })
    }

    /// Removes the run and its nested runs.
    pub fn remove(&self) -> Result<(), RecordError> {
        let nested_prefix = format!("{}.", self.id);
        let root = self.run_dir.parent().map(fs::read_dir);
        for entry in root.into_iter().flatten().flatten().flatten() {
            if entry
                .file_name()
                .to_string_lossy()
                .starts_with(&nested_prefix)
            {
                let path = entry.path();
                fs::remove_dir_all(&path).at("remove", &path)?;
            }
        }
        Ok(fs::remove_dir_all(&self.run_dir).at("remove", &self.run_dir)?)
    }
}

impl RunRecord {
    /// Id of the run.
    pub fn id(&self) -> &str {
        &self.handle.id
    }

    /// Handle of the run.
    pub fn handle(&self) -> &RunHandle {
        &self.handle
    }

    pub(crate) fn replay(&self) -> &Replay {
        &self.replay
    }

    /// Id of the graph.
    pub fn graph(&self) -> &str {
        &self.replay.started.graph
    }

    /// Source text of the graph that the run uses.
    pub fn text(&self) -> &str {
        &self.replay.started.text
    }

    /// Inputs of the run.
    pub fn inputs(&self) -> &Value {
        &self.replay.started.inputs
    }

    /// Start time in milliseconds since the Unix epoch.
    pub fn started_at(&self) -> i64 {
        self.replay.lines.first().map_or(0, |line| line.at)
    }

    /// Current state of the graph.
    pub fn graph_state(&self) -> &Map<String, Value> {
        &self.replay.state
    }

    /// Output of the graph.
    pub fn output(&self) -> Option<&Value> {
        self.replay.output.as_ref()
    }

    /// The error with which the run stopped.
    pub fn error(&self) -> Option<&NodeError> {
        self.replay.end.as_ref()?.1.as_ref()
    }

    /// The current node, or the node to continue with.
    pub fn node(&self) -> Option<&str> {
        self.replay.node()
    }

    /// Number of started steps.
    pub fn steps(&self) -> u64 {
        self.replay.steps
    }

    /// Open gates.
    pub fn gates(&self) -> &[Gate] {
        &self.replay.gates
    }

    /// Open gates with their files, to read their status.
    pub fn gate_files(&self) -> impl Iterator<Item = GateFile> {
        let gates = self.replay.gates.iter().cloned();
        gates.map(|gate| GateFile::from_journal(&self.handle.run_dir, gate))
    }

    /// All journal lines.
    pub fn lines(&self) -> &[JournalLine] {
        &self.replay.lines
    }

    /// State of the run.
    pub fn state(&self) -> RunState {
        if let Some((status, _)) = &self.replay.end {
            return RunState::Ended(*status);
        }
        match (self.handle.is_running(), self.replay.gates.first()) {
            (false, _) => RunState::Lost,
            (true, Some(_)) => RunState::Waiting,
            (true, None) => RunState::Running,
        }
    }
}
