//! Scripts by name.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rye_engine::model::{Model, Models};

use crate::script::Script;
use crate::scripted::Scripted;

const SCRIPTED: &str = "scripted:";
/// The longest script that is read.
const LONGEST: u64 = 4 * 1024 * 1024;
/// How many names are told to whoever mistook one.
const NEAREST: usize = 3;

/// Models by name: `scripted:PATH` for a file, and those that were given.
///
/// A file is read each time that its model is asked for, and followed from the next
/// answer on if it has changed.
#[derive(Debug, Default)]
pub struct Catalogue {
    folder: PathBuf,
    default: Option<String>,
    given: BTreeMap<String, Arc<Scripted>>,
    read: Mutex<HashMap<PathBuf, (String, Arc<Scripted>)>>,
}

impl Catalogue {
    /// One whose paths are relative to a folder.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            ..Self::default()
        }
    }

    /// With a script under a name. The first one is the default unless another is named.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, script: Script) -> Self {
        let name = name.into();
        self.default.get_or_insert_with(|| name.clone());
        self.given.insert(name, Arc::new(script.into()));
        self
    }

    /// Which model answers where nobody names one.
    #[must_use]
    pub fn default_model(mut self, name: impl Into<String>) -> Self {
        self.default = Some(name.into());
        self
    }

    fn load(&self, name: &str, path: &str) -> Result<Arc<Scripted>, String> {
        let path = self.folder.join(path);
        let text = match read(&path) {
            Ok(text) => text,
            Err(why) => {
                return Err(format!(
                    "cannot read the model `{name}`: {why}{}",
                    self.hint(name)
                ));
            }
        };
        let known = self.read.lock();
        let mut known = known.unwrap_or_else(PoisonError::into_inner);
        if let Some((before, model)) = known.get(&path)
            && *before == text
        {
            return Ok(Arc::clone(model));
        }
        let script: Script = text
            .parse()
            .map_err(|error| format!("{}: {error}", path.display()))?;
        let model = Arc::new(Scripted::from(script));
        known.insert(path, (text, Arc::clone(&model)));
        Ok(model)
    }

    /// Which names may have been meant, as the end of a message.
    fn hint(&self, name: &str) -> String {
        let near = nearest(name, self.given.keys().cloned().chain(self.beside(name)));
        match near.as_slice() {
            [] => String::new(),
            [one] => format!("; did you mean {one}?"),
            many => format!("; did you mean one of {}?", many.join(", ")),
        }
    }

    /// The scripts that lie where a name points to.
    fn beside(&self, name: &str) -> Vec<String> {
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

impl Models for Catalogue {
    fn get(&self, name: &str) -> Result<Arc<dyn Model>, String> {
        if let Some(model) = self.given.get(name) {
            return Ok(Arc::clone(model) as Arc<dyn Model>);
        }
        match name.strip_prefix(SCRIPTED) {
            Some(path) if !path.is_empty() => Ok(self.load(name, path)?),
            _ if name.is_empty() => Err("no model is named, and there is no default".to_owned()),
            _ => Err(format!("there is no model `{name}`{}", self.hint(name))),
        }
    }

    fn default_name(&self) -> String {
        self.default.clone().unwrap_or_default()
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

/// The names that are most like one, if they are like it at all, in quotes.
fn nearest(name: &str, all: impl Iterator<Item = String>) -> Vec<String> {
    let own = name.strip_prefix(SCRIPTED).unwrap_or(name);
    let far = own.chars().count() / 3 + 1;
    let mut near: Vec<_> = all
        .map(|other| (strsim::osa_distance(name, &other), other))
        .filter(|(distance, _)| *distance <= far)
        .collect();
    near.sort();
    near.dedup();
    near.truncate(NEAREST);
    near.into_iter()
        .map(|(_, name)| format!("`{name}`"))
        .collect()
}
