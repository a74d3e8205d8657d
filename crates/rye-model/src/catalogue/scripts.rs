//! Scripts by name, given or read from files.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rye_engine::model::Model;

use crate::read::ScriptError;
use crate::script::Script;
use crate::scripted::Scripted;

pub(super) const SCRIPTED: &str = "scripted:";
/// The longest script that is read.
const LONGEST: u64 = 4 * 1024 * 1024;

#[derive(Debug)]
pub(super) struct Scripts {
    folder: PathBuf,
    given: BTreeMap<String, Arc<Scripted>>,
    read: Mutex<HashMap<PathBuf, (String, Arc<Scripted>)>>,
}

/// Why there is no script.
pub(super) enum NoScript {
    Unreadable(String),
    Wrong(PathBuf, ScriptError),
}

impl NoScript {
    /// In words; one that cannot be read may be another.
    pub(super) fn words(self, name: &str, hint: impl FnOnce() -> String) -> String {
        match self {
            Self::Unreadable(why) => format!("cannot read the model `{name}`: {why}{}", hint()),
            Self::Wrong(path, error) => format!("{}: {error}", path.display()),
        }
    }
}

impl Scripts {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            given: BTreeMap::new(),
            read: Mutex::default(),
        }
    }

    pub(super) fn give(&mut self, name: String, script: Script) {
        self.given.insert(name, Arc::new(script.into()));
    }

    pub(super) fn given(&self, name: &str) -> Option<Arc<dyn Model>> {
        let model = self.given.get(name)?;
        Some(Arc::clone(model) as Arc<dyn Model>)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.given.keys().map(String::as_str)
    }

    pub(super) fn load(&self, path: &str) -> Result<Arc<dyn Model>, NoScript> {
        let path = self.folder.join(path);
        let text = read(&path).map_err(NoScript::Unreadable)?;
        let known = self.read.lock();
        let mut known = known.unwrap_or_else(PoisonError::into_inner);
        if let Some((before, model)) = known.get(&path)
            && *before == text
        {
            return Ok(Arc::clone(model) as Arc<dyn Model>);
        }
        let script = text.parse::<Script>();
        let script = script.map_err(|error| NoScript::Wrong(path.clone(), error))?;
        let model = Arc::new(Scripted::from(script));
        known.insert(path, (text, Arc::clone(&model)));
        Ok(model)
    }

    /// The scripts that lie where a name points to.
    pub(super) fn beside(&self, name: &str) -> Vec<String> {
        let path = Path::new(name.strip_prefix(SCRIPTED).unwrap_or(name));
        let above = path.parent().unwrap_or(Path::new(""));
        let Ok(files) = self.folder.join(above).read_dir() else {
            return Vec::new();
        };
        let names = files.take(1000).filter_map(|file| {
            let file = PathBuf::from(file.ok()?.file_name());
            let extension = file.extension()?;
            let is_script = extension == "yaml" || extension == "yml";
            is_script.then(|| format!("{SCRIPTED}{}", above.join(&file).display()))
        });
        names.collect()
    }
}

fn read(path: &Path) -> Result<String, String> {
    // Asked first: to open a pipe is to wait for somebody to write to it.
    let about = std::fs::metadata(path).map_err(|error| error.to_string())?;
    if !about.is_file() {
        return Err("it is not a file".to_owned());
    }
    let file = File::open(path).map_err(|error| error.to_string())?;
    let mut text = String::new();
    let read = file.take(LONGEST + 1).read_to_string(&mut text);
    match read {
        Ok(length) if length as u64 > LONGEST => Err(format!("it is longer than {LONGEST} bytes")),
        Ok(_) => Ok(text),
        Err(error) => Err(error.to_string()),
    }
}
