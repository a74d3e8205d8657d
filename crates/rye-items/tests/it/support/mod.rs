//! Test fixture: a project, a user and their keys in temporary directories.

use std::fs;
use std::path::{Path, PathBuf};

use lillux::durable::IfExists;
use lillux::keys::SigningKey;
use rye_items::{ItemError, Library, Options, SYSTEM, UserKeys};
use tempfile::TempDir;

pub(crate) struct Home {
    dir: TempDir,
    pub(crate) key: SigningKey,
}

impl Home {
    /// A user with a trusted key, and an empty project.
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for space in ["project", "user"] {
            fs::create_dir_all(dir.path().join(space).join(".ai")).unwrap();
        }
        let keys = UserKeys::new(&dir.path().join("user"));
        let key = keys.generate("Ada", IfExists::Fail).unwrap();
        Self { dir, key }
    }

    pub(crate) fn project(&self) -> PathBuf {
        self.dir.path().join("project")
    }

    pub(crate) fn user(&self) -> PathBuf {
        self.dir.path().join("user")
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The path of a file in the project space.
    pub(crate) fn at(&self, relative: &str) -> PathBuf {
        self.project().join(".ai").join(relative)
    }

    /// The path of a file in the user space.
    pub(crate) fn at_user(&self, relative: &str) -> PathBuf {
        self.user().join(".ai").join(relative)
    }

    pub(crate) fn open(&self) -> Library {
        self.try_open(false).unwrap()
    }

    pub(crate) fn try_open(&self, dev_mode: bool) -> Result<Library, ItemError> {
        Library::open(&Options {
            project: Some(&self.project()),
            user: Some(&self.user()),
            bundles: &[],
            embedded: &SYSTEM,
            cache: Some(&self.path().join("cache")),
            process_cache: None,
            dev_mode,
        })
    }

    /// Writes and signs a file of the project.
    pub(crate) fn signed(&self, relative: &str, text: &str) {
        write(&self.at(relative), text.as_bytes());
        self.sign(relative);
    }

    /// Signs an existing file of the project.
    pub(crate) fn sign(&self, relative: &str) {
        let library = self.open();
        let (items, errors) = library.items_at_path(&self.at(relative)).unwrap();
        assert!(errors.is_empty(), "{errors:?}");
        let rye_items::PathItem::Items(items) = items else {
            panic!("{relative} is not an item");
        };
        for found in items {
            library.sign(&found, &self.key, None).unwrap();
        }
    }

    /// Loads an item. Returns its content or the error message.
    pub(crate) fn load(&self, reference: &str) -> Result<String, String> {
        let reference = reference.parse().map_err(|e| format!("{e}"))?;
        match self.open().load(&reference) {
            Ok(item) => Ok(String::from_utf8_lossy(item.content()).into_owned()),
            Err(error) => Err(error.to_string()),
        }
    }
}

pub(crate) fn write(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

pub(crate) const TOOL: &str = "\"\"\"Says hello.\"\"\"
__version__ = \"1.0.0\"
__tool_type__ = \"python\"
__executor_id__ = \"rye/core/runtimes/python/function\"

def execute(params, project_path):
    return {\"hello\": params.get(\"name\", \"world\")}
";

/// Drops the capabilities with which root bypasses file permissions, in this thread.
pub(crate) fn drop_permission_bypass() {
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    let mut sets = capabilities(None).unwrap();
    sets.effective
        .remove(CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH);
    set_capabilities(None, sets).unwrap();
}
