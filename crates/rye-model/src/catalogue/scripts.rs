//! Registered scripts and script files.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rye_engine::model::Model;

use crate::script::Script;
use crate::script::ScriptError;
use crate::scripted_model::ScriptedModel;

pub(super) const SCRIPTED: &str = "scripted:";
/// Maximum size of a script file, in bytes.
const MAX_FILE_LEN: u64 = 4 * 1024 * 1024;

/// Scripts by name, and a cache of script files.
#[derive(Debug)]
pub(super) struct Scripts {
    dir: PathBuf,
    registered: BTreeMap<String, Arc<ScriptedModel>>,
    cache: Mutex<HashMap<PathBuf, (String, Arc<ScriptedModel>)>>,
}

/// Why a script could not be loaded.
pub(super) enum ScriptLoadError {
    Unreadable(String),
    Invalid(PathBuf, ScriptError),
}

impl ScriptLoadError {
    /// The error message; suggests other names if the file cannot be read.
    pub(super) fn message(self, name: &str, hint: impl FnOnce() -> String) -> String {
        match self {
            Self::Unreadable(why) => format!("cannot read model `{name}`: {why}{}", hint()),
            Self::Invalid(path, error) => format!("{}: {error}", path.display()),
        }
    }
}

impl Scripts {
    pub(super) fn new(dir: PathBuf) -> Self {
        Self {
            dir,
            registered: BTreeMap::new(),
            cache: Mutex::default(),
        }
    }

    pub(super) fn register(&mut self, name: String, script: Script) {
        self.registered.insert(name, Arc::new(script.into()));
    }

    pub(super) fn registered(&self, name: &str) -> Option<Arc<dyn Model>> {
        let model = self.registered.get(name)?;
        Some(Arc::clone(model) as Arc<dyn Model>)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.registered.keys().map(String::as_str)
    }

    pub(super) fn load(&self, path: &str) -> Result<Arc<dyn Model>, ScriptLoadError> {
        let path = self.dir.join(path);
        let text = read_file(&path).map_err(ScriptLoadError::Unreadable)?;
        let mut cache = self.cache.lock();
        if let Some((cached_text, model)) = cache.get(&path)
            && *cached_text == text
        {
            return Ok(Arc::clone(model) as Arc<dyn Model>);
        }
        let script = text.parse::<Script>();
        let script = script.map_err(|error| ScriptLoadError::Invalid(path.clone(), error))?;
        let model = Arc::new(ScriptedModel::from(script));
        cache.insert(path, (text, Arc::clone(&model)));
        Ok(model)
    }

    /// The script files in the directory of a name.
    pub(super) fn siblings(&self, name: &str) -> Vec<String> {
        let path = Path::new(name.strip_prefix(SCRIPTED).unwrap_or(name));
        let parent = path.parent().unwrap_or(Path::new(""));
        let Ok(files) = self.dir.join(parent).read_dir() else {
            return Vec::new();
        };
        let names = files.take(1000).filter_map(|file| {
            let file = PathBuf::from(file.ok()?.file_name());
            let extension = file.extension()?;
            let is_script = extension == "yaml" || extension == "yml";
            is_script.then(|| format!("{SCRIPTED}{}", parent.join(&file).display()))
        });
        names.collect()
    }
}

fn read_file(path: &Path) -> Result<String, String> {
    // Checked first, because opening a pipe would block.
    let metadata = std::fs::metadata(path).map_err(|error| error.to_string())?;
    if !metadata.is_file() {
        return Err("not a regular file".to_owned());
    }
    let file = File::open(path).map_err(|error| error.to_string())?;
    let mut text = String::new();
    let read = file.take(MAX_FILE_LEN + 1).read_to_string(&mut text);
    match read {
        Ok(length) if length as u64 > MAX_FILE_LEN => {
            Err(format!("larger than {MAX_FILE_LEN} bytes"))
        }
        Ok(_) => Ok(text),
        Err(error) => Err(error.to_string()),
    }
}
