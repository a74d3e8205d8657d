//! The runs of a project.

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
use super::{RecordError, Replayed};
use crate::event::{JournalLine, NodeError, RunStatus};
use crate::gates::GateFile;

pub(super) const EVENTS: &str = "events.jsonl";
pub(super) const PROCESS: &str = "process";
pub(super) const SNAPSHOT: &str = "snapshot";
const STORE: &str = "store";
/// The folder in a run with its questions.
const GATES: &str = "gates";
/// What a project keeps of its runs.
const STATE: &str = ".ai/state";

/// All runs of graphs in a project.
#[derive(Debug, Clone)]
pub struct RunStore {
    project: PathBuf,
    root: PathBuf,
}

/// A run that is there, unread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunHandle {
    /// Its id.
    pub id: String,
    folder: PathBuf,
}

/// A run as its record tells it.
#[derive(Debug)]
pub struct RunRecord {
    found: RunHandle,
    replayed: Replayed,
}

/// How a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunState {
    /// A process walks it.
    Running,
    /// A process walks it, and waits for a person.
    Waiting,
    /// Its process is gone, and it is not at its end.
    Lost,
    /// Nobody walks it.
    Ended(RunStatus),
}

impl RunState {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Lost => "lost",
            Self::Ended(status) => status.as_str(),
        }
    }

    /// Whether a process is at it.
    pub fn is_live(self) -> bool {
        matches!(self, Self::Running | Self::Waiting)
    }
}

impl RunStore {
    /// Those of a project.
    pub fn new(project: &Path) -> Self {
        Self {
            project: project.to_owned(),
            root: project.join(STATE).join("graphs"),
        }
    }

    /// Makes the folders that runs write to, by no link that leads out of the project.
    pub(crate) fn create(&self, run: Option<&str>) -> Result<(), RecordError> {
        let below = |path: &Path| {
            let relative = path.strip_prefix(&self.project).unwrap_or(path);
            durable::create_dir_within(&self.project, relative, 0o700)
        };
        below(&self.root)?;
        // What is made later, where it is there already.
        let mut later = vec![self.store(), self.cache()];
        if let Some(run) = run {
            let folder = self.folder(run);
            let files = [EVENTS, PROCESS, SNAPSHOT, "snapshot.new"];
            let mut files = files.into_iter().map(|name| folder.join(name));
            if let Some(link) = files.find(|path| path.is_symlink()) {
                let root = self.project.clone();
                return Err(CreateDirError::LinkLeavesRoot { link, root }.into());
            }
            later.extend([folder.clone(), folder.join(GATES)]);
        }
        for folder in &later {
            if folder.symlink_metadata().is_err() {
                continue;
            }
            match below(folder) {
                // A file in the way is reported by the step that needs the folder.
                Err(CreateDirError::Path(error))
                    if error.source.kind() == io::ErrorKind::NotADirectory => {}
                checked => checked?,
            }
        }
        Ok(())
    }

    /// Where a run is kept.
    pub fn folder(&self, id: &str) -> PathBuf {
        self.root.join(id)
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.root.join(STORE)
    }

    /// Where results of nodes are kept.
    pub(crate) fn cache(&self) -> PathBuf {
        self.root.join("cache")
    }

    /// Whether anything of a run is written down that was acted on.
    pub(crate) fn has_begun(&self, id: &str, has_key: bool) -> bool {
        let record = fs::read(self.folder(id).join(EVENTS));
        record
            .is_ok_and(|bytes| bytes.contains(&b'\n') && (!has_key || replay::was_acted_on(&bytes)))
    }

    /// Keeps what runs write down out of what a repository holds: it is this machine's.
    pub fn hide(&self) -> Result<(), RecordError> {
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

    /// A name that says when, and that nobody has: its folder is made. In the order of their
    /// names runs are in the order in which they began.
    pub fn new_id(&self) -> Result<String, RecordError> {
        self.hide()?;
        self.create(None)?;
        let mut id = lillux::time::sortable_stamp();
        loop {
            let folder = self.folder(&id);
            match DirBuilder::new().mode(0o700).create(&folder) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    id = lillux::time::sortable_stamp();
                }
                outcome => {
                    outcome.at("create the folder", &folder)?;
                    durable::sync_dir(&self.root)?;
                    return Ok(id);
                }
            }
        }
    }

    /// All runs, the newest first.
    pub fn all(&self) -> Result<Vec<RunHandle>, RecordError> {
        if self.root.symlink_metadata().is_ok() {
            self.create(None)?;
        }
        let entries = match fs::read_dir(&self.root) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.at("list", &self.root)?,
        };
        let mut all: Vec<_> = entries
            .filter_map(|entry| {
                let folder = entry.ok()?.path();
                let id = folder.file_name()?.to_str()?.to_owned();
                folder
                    .join(EVENTS)
                    .is_file()
                    .then_some(RunHandle { id, folder })
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
        // A part of a run is asked for by its whole name.
        all.retain(|run| matches_id(&run.id, id) && !run.id.contains('.'));
        match all.len() {
            0 => Err(RecordError::NotFound(id.to_owned())),
            1 => Ok(all.remove(0)),
            many => Err(RecordError::Ambiguous(id.to_owned(), many)),
        }
    }
}

impl RunHandle {
    /// Where it is kept.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The project that it is of.
    pub fn project(&self) -> &Path {
        let mut above = self.folder.ancestors();
        above.nth(4).unwrap_or(&self.folder)
    }

    /// Whether a line of it is written down.
    pub fn has_begun(&self) -> bool {
        let record = fs::read(self.events());
        record.is_ok_and(|bytes| bytes.contains(&b'\n'))
    }

    /// Whether the process that walks it lives.
    pub fn is_walked(&self) -> bool {
        let process = self.process();
        process.is_some_and(|it| it.is_alive().unwrap_or(false))
    }

    /// The file of its record.
    pub fn events(&self) -> PathBuf {
        self.folder.join(EVENTS)
    }

    /// The process that walks it, or did.
    pub fn process(&self) -> Option<Handle> {
        let text = fs::read_to_string(self.folder.join(PROCESS)).ok()?;
        text.trim().parse().ok()
    }

    /// Reads its record.
    pub fn read(self) -> Result<RunRecord, RecordError> {
        let path = self.events();
        let bytes = fs::read(&path).at("read", &path)?;
        let replayed = Replayed::read(&self.id, &path, &bytes)?;
        Ok(RunRecord {
            found: self,
            replayed,
        })
    }

    /// Removes all that was written down, also of the graphs that it called.
    pub fn remove(&self) -> Result<(), RecordError> {
        let parts = format!("{}.", self.id);
        let root = self.folder.parent().map(fs::read_dir);
        for entry in root.into_iter().flatten().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(&parts) {
                let path = entry.path();
                fs::remove_dir_all(&path).at("remove", &path)?;
            }
        }
        Ok(fs::remove_dir_all(&self.folder).at("remove", &self.folder)?)
    }
}

impl RunRecord {
    /// Its id.
    pub fn id(&self) -> &str {
        &self.found.id
    }

    /// Where it is kept.
    pub fn found(&self) -> &RunHandle {
        &self.found
    }

    pub(crate) fn replayed(&self) -> &Replayed {
        &self.replayed
    }

    /// The graph's id.
    pub fn graph(&self) -> &str {
        &self.replayed.started.graph
    }

    /// The graph's text, as it is walked.
    pub fn text(&self) -> &str {
        &self.replayed.started.text
    }

    /// What it was given.
    pub fn inputs(&self) -> &Value {
        &self.replayed.started.inputs
    }

    /// When it began, in milliseconds since 1970.
    pub fn started_at(&self) -> i64 {
        self.replayed.lines.first().map_or(0, |line| line.at)
    }

    /// The state as it is.
    pub fn graph_state(&self) -> &Map<String, Value> {
        &self.replayed.state
    }

    /// What it gave.
    pub fn output(&self) -> Option<&Value> {
        self.replayed.output.as_ref()
    }

    /// Why it did not come to its end.
    pub fn error(&self) -> Option<&NodeError> {
        self.replayed.end.as_ref()?.1.as_ref()
    }

    /// The node where it is, or goes on.
    pub fn node(&self) -> Option<&str> {
        self.replayed.node()
    }

    /// How many steps it has begun.
    pub fn steps(&self) -> u64 {
        self.replayed.steps
    }

    /// What it waits for.
    pub fn gates(&self) -> &[Gate] {
        &self.replayed.gates
    }

    /// The same, to see how they stand.
    pub fn gate_files(&self) -> impl Iterator<Item = GateFile> {
        let gates = self.replayed.gates.iter().cloned();
        gates.map(|gate| GateFile::of(&self.found.folder, gate))
    }

    /// All that was written down.
    pub fn lines(&self) -> &[JournalLine] {
        &self.replayed.lines
    }

    /// How it stands.
    pub fn state(&self) -> RunState {
        if let Some((status, _)) = &self.replayed.end {
            return RunState::Ended(*status);
        }
        match (self.found.is_walked(), self.replayed.gates.first()) {
            (false, _) => RunState::Lost,
            (true, Some(_)) => RunState::Waiting,
            (true, None) => RunState::Running,
        }
    }
}
