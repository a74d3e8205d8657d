//! What a command works with: the settings, the spaces, their items and the user's keys, each
//! opened once.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use lillux::keys::SigningKey;
use lillux::path_policy::ProtectedPaths;
use lillux::shell_word;
use rye_executor::Roots;
use rye_graph::StateGraph;
use rye_items::signature::ITEM;
use rye_items::trust::{IgnoredFile, Trust};
use rye_items::vault::Vault;
use rye_items::verify::{self, SignatureFormat};
use rye_items::{IntegrityError, Library, SYSTEM, Space, Spaces, UserKeyError, UserKeys};

use tracing::debug;

use crate::DATABASE;
use crate::credentials::redactor;
use crate::failure::Failure;
use crate::log::is_logging;
use crate::meta_tools;
use crate::settings::{self, ConfigVerdict, Directories, Options, Settings, SettingsError};
use crate::trusted_keys::TrustedKeys;

/// Receives notices for the user.
pub trait Reporter: Send + Sync {
    /// Something may be wrong; the hint is a command that helps.
    fn warn(&self, text: &str, hint: Option<&str>);

    /// Something that is good to know.
    fn info(&self, text: &str);

    /// Shows the progress of an operation until the value is dropped. `total` is the number of
    /// steps, if it is known.
    fn progress(&self, _label: &'static str, _total: Option<usize>) -> Box<dyn Progress> {
        Box::new(())
    }
}

/// The progress of an operation.
pub trait Progress: Sync {
    /// Sets the number of completed steps.
    fn set(&self, done: usize);
}

impl Progress for () {
    fn set(&self, _: usize) {}
}

/// A reporter without output.
struct Silent;

impl Reporter for Silent {
    fn warn(&self, _: &str, _: Option<&str>) {}

    fn info(&self, _: &str) {}
}

/// What a command works with.
pub struct Context {
    /// The settings of the command.
    pub settings: Settings,
    reporter: Arc<dyn Reporter>,
    spaces: Arc<Spaces>,
    library: OnceLock<Library>,
    signing_key: OnceLock<Option<Arc<SigningKey>>>,
}

impl Context {
    /// Loads the settings. Nothing is reported until there is a [reporter](Self::set_reporter).
    pub fn open(options: &Options) -> Result<Self, Failure> {
        let dirs = settings::current_dirs(options)?;
        let spaces = open_spaces(&dirs)?;
        let context = Self {
            settings: load_settings(options, dirs, &spaces)?,
            reporter: Arc::new(Silent),
            spaces: Arc::new(spaces),
            library: OnceLock::new(),
            signing_key: OnceLock::new(),
        };
        if is_logging() {
            redactor(context.vault().as_ref(), context.settings.project());
            debug!(project = %context.settings.project().display(), "opened the spaces");
        }
        Ok(context)
    }

    /// Sends notices to a reporter from now on.
    pub fn set_reporter(&mut self, reporter: Arc<dyn Reporter>) {
        self.reporter = reporter;
    }

    /// The reporter of notices.
    pub fn reporter(&self) -> &dyn Reporter {
        &*self.reporter
    }

    /// The context for another project.
    pub fn in_project(&self, project: &Path) -> Result<Self, Failure> {
        let mut context = self.in_project_silently(project)?;
        context.set_reporter(Arc::clone(&self.reporter));
        context.warn_ignored_settings();
        Ok(context)
    }

    /// The context for another project, without a reporter.
    pub(crate) fn in_project_silently(&self, project: &Path) -> Result<Self, Failure> {
        Self::open(&Options {
            project: Some(project.to_owned()),
            color: Some(self.settings.color.value),
        })
    }

    /// The reporter, for another context.
    pub(crate) fn shared_reporter(&self) -> Arc<dyn Reporter> {
        Arc::clone(&self.reporter)
    }

    /// Fails if the project directory that was named does not exist.
    pub fn require_project(&self) -> Result<(), Failure> {
        let project = &self.settings.dirs.project;
        if project.value.is_dir() {
            return Ok(());
        }
        let dir = project.value.display();
        let message = format!(
            "project directory {dir} does not exist ({})",
            project.origin
        );
        Err(Failure::usage(message)
            .hint(format!("rye init --project {}", shell_word(&project.value))))
    }

    /// The items in all spaces.
    pub fn library(&self) -> Result<&Library, Failure> {
        if let Some(library) = self.library.get() {
            return Ok(library);
        }
        let library = self.library_of(Arc::clone(&self.spaces))?;
        Ok(self.library.get_or_init(|| library))
    }

    /// Opens the items in all spaces again, for a command that created a space.
    pub fn reopen_library(&self) -> Result<Library, Failure> {
        self.library_of(Arc::new(open_spaces(&self.settings.dirs)?))
    }

    fn library_of(&self, spaces: Arc<Spaces>) -> Result<Library, Failure> {
        let dev_mode = self.settings.dev_mode.value;
        let library = Library::in_spaces(spaces, self.cache(), Arc::default(), dev_mode)?;
        for ignored in library.ignored() {
            self.reporter.warn(&is_ignored(ignored), None);
        }
        Ok(library)
    }

    /// The spaces.
    pub fn spaces(&self) -> &Arc<Spaces> {
        &self.spaces
    }

    /// Warns about settings files without effect.
    pub fn warn_ignored_settings(&self) {
        for ignored in &self.settings.ignored {
            let text = format!("{} is ignored: {}", ignored.path.display(), ignored.reason);
            self.reporter.warn(&text, ignored.hint.as_deref());
        }
    }

    /// Warns about ignored files.
    pub fn warn_ignored(&self, ignored: &[IgnoredFile]) {
        for ignored in ignored {
            self.reporter
                .warn(&is_ignored(ignored), Some(&accept_hint(ignored)));
        }
    }

    /// The directory of the user space, if there is one.
    pub fn user(&self) -> Option<&Path> {
        let user = self.settings.dirs.user_space.as_ref()?;
        Some(&user.value)
    }

    /// The user's vault, if there is a user space.
    pub fn vault(&self) -> Option<Vault> {
        let project = self.settings.project();
        self.user().map(|user| Vault::new(user, Some(project)))
    }

    /// The user's own keys.
    pub fn own_keys(&self) -> Result<UserKeys, Failure> {
        Ok(UserKeys::new(self.settings.user_space()?))
    }

    /// The user's key, which signs items, histories and decisions; `None` if there is none.
    pub fn signing_key(&self) -> Result<Option<&Arc<SigningKey>>, Failure> {
        if let Some(key) = self.signing_key.get() {
            return Ok(key.as_ref());
        }
        let key = match self.user() {
            None => None,
            Some(user) => match UserKeys::new(user).load_signing_key() {
                Err(UserKeyError::Missing(_)) => None,
                loaded => {
                    debug!("loaded the signing key");
                    Some(Arc::new(loaded?))
                }
            },
        };
        Ok(self.signing_key.get_or_init(|| key).as_ref())
    }

    /// The keys that the spaces trust.
    pub fn trusted_keys(&self) -> TrustedKeys {
        let dirs = &self.settings.dirs;
        TrustedKeys {
            project: dirs.project.value.clone(),
            user: self.user().map(Into::into),
            bundles: dirs.system_space.value.clone(),
            embedded: &SYSTEM,
        }
    }

    /// Name of the user, for the record of decisions: the owner of the user's key, or else the login
    /// name.
    pub fn user_name(&self) -> Result<String, Failure> {
        let owner = self.signing_key()?.and_then(|key| {
            let key = key.public().fingerprint();
            self.trusted_keys().owner(&key.to_string())
        });
        let login = || settings::variable("USER").filter(|name| !name.is_empty());
        let login = || login().map(|name| name.to_string_lossy().into_owned());
        Ok(owner.or_else(login).unwrap_or_else(|| "unknown".to_owned()))
    }

    /// The user's key, or the failure that there is none.
    pub fn require_signing_key(&self) -> Result<&SigningKey, Failure> {
        match self.signing_key()? {
            Some(key) => Ok(key),
            // Loads it again for the error, which names the file.
            None => Err(match self.own_keys()?.load_signing_key() {
                Err(error) => error.into(),
                Ok(_) => Failure::failed("key", "the signing key has just been created"),
            }),
        }
    }

    /// The cache directory, if there is one.
    pub fn cache(&self) -> Option<&Path> {
        let dir = self.settings.cache_dir.as_ref()?;
        Some(&dir.value)
    }

    /// The directories that an executor works with.
    pub fn roots(&self) -> Result<Roots, Failure> {
        let cache = self.cache().ok_or_else(|| {
            let message = "no cache directory: HOME is not set";
            Failure::usage(message).hint("export RYE_CACHE_DIR=/path/to/cache")
        })?;
        let dirs = &self.settings.dirs;
        Ok(Roots {
            project: dirs.project.value.clone(),
            user: self.user().map(Into::into),
            bundles: dirs.system_space.value.clone(),
            embedded: &SYSTEM,
            cache: cache.to_owned(),
            dev_mode: self.settings.dev_mode.value,
            protected: self.protected(),
        })
    }

    /// The graph primitive, which records runs in the session database.
    pub fn graphs(&self, roots: &Roots) -> StateGraph {
        // Without a state directory, only graphs fail.
        let state = self.settings.state_dir.as_ref();
        let database = state.map(|it| it.value.join(DATABASE)).unwrap_or_default();
        // An unreadable key is reported by commands that need one.
        let key = self.signing_key().ok().flatten().cloned();
        meta_tools::graphs(roots, database, key)
    }

    /// The user's private directories, which no tool, client or agent may use, and the home
    /// directories.
    pub fn protected(&self) -> ProtectedPaths {
        let settings = &self.settings;
        let home = settings::variable("HOME").map(PathBuf::from);
        let home = home.filter(|home| home.is_absolute());
        let user = self.user().map(Path::to_owned);
        let homes: Vec<_> = home.into_iter().chain(user).collect();
        let configured = [&settings.state_dir, &settings.cache_dir];
        let configured = configured.into_iter().flatten().map(|it| it.value.clone());
        // The defaults stay protected even if a variable names other directories.
        let keys = homes
            .iter()
            .flat_map(|it| rye_items::private_directories(it));
        let defaults = homes.iter().flat_map(|it| settings::default_dirs(it));
        let private = keys.chain(configured).chain(defaults).collect();
        ProtectedPaths { private, homes }
    }
}

/// Says that a file has no effect.
fn is_ignored(ignored: &IgnoredFile) -> String {
    format!("{} is ignored: {}", ignored.path.display(), ignored.reason)
}

/// The command that makes an ignored file effective.
pub fn accept_hint(ignored: &IgnoredFile) -> String {
    let sign = || format!("rye sign {}", shell_word(&ignored.path));
    ignored.hint.clone().unwrap_or_else(sign)
}

fn open_spaces(dirs: &Directories) -> Result<Spaces, SettingsError> {
    let user = dirs.user_space.as_ref().map(|user| user.value.as_path());
    let (project, bundles) = (&dirs.project.value, &dirs.system_space.value);
    Ok(Spaces::open(Some(project), user, bundles, &SYSTEM)?)
}

fn load_settings(
    options: &Options,
    dirs: Directories,
    spaces: &Spaces,
) -> Result<Settings, SettingsError> {
    // Before the first file is verified.
    let own: Vec<_> = settings::user_config_file(spaces)?.into_iter().collect();
    if settings::bound_signatures(&settings::variable, &own)?.value {
        verify::require_bound_signatures();
    }
    let trust = Trust::new(spaces);
    let (files, ignored) = settings::config_files(spaces, |space, path, bytes| {
        verify_config(space, path, bytes, &trust)
    })?;
    Settings::resolve(options, &settings::variable, dirs, &files, ignored)
}

/// Verifies a configuration file: it changes behaviour, so it needs a trusted signature.
fn verify_config(space: Space, path: &Path, bytes: Vec<u8>, trust: &Trust<'_>) -> ConfigVerdict {
    let form = SignatureFormat::config(ITEM, settings::CONFIG);
    match verify::check(&bytes, &form, trust) {
        Ok(_) => ConfigVerdict::Effective(bytes),
        Err(problem) => {
            let item = "config:rye".to_owned();
            let error =
                IntegrityError::new(item, path.to_owned(), Some(space), problem, Some(&bytes));
            ConfigVerdict::Ignored {
                reason: error.problem.to_string(),
                hint: Some(error.hint()),
            }
        }
    }
}
