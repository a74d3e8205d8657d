//! Configuration files of the spaces, and whether they apply.

use rye_items::signature::ITEM;
use rye_items::trust::{IgnoredFile, Trust};
use rye_items::verify::{self, SignatureFormat};
use rye_items::{Acceptance, Space, SpaceError, Spaces};
use rye_model::ConfigFile;

/// The files with one name in all spaces, most specific first.
pub(crate) struct ConfigFiles {
    /// Files that apply.
    pub(crate) accepted: Vec<(Space, ConfigFile)>,
    /// The project's file, if its signature is trusted but the user has not accepted it for this
    /// directory.
    pub(crate) unaccepted: Option<(ConfigFile, IgnoredFile)>,
    /// Files that do not apply at all.
    pub(crate) ignored: Vec<IgnoredFile>,
}

impl ConfigFiles {
    /// The files that apply, and all others.
    pub(crate) fn into_accepted(mut self) -> (Vec<(Space, ConfigFile)>, Vec<IgnoredFile>) {
        self.ignored
            .extend(self.unaccepted.map(|(_, notice)| notice));
        (self.accepted, self.ignored)
    }
}

/// Loads the files with one name. The user's file always applies, the system's if its signature
/// is valid, and the project's if the user has accepted it as well.
pub(crate) fn load(spaces: &Spaces, name: &str) -> Result<ConfigFiles, SpaceError> {
    let format = SignatureFormat::config(ITEM, name);
    let trust = Trust::new(spaces);
    let mut files = ConfigFiles {
        accepted: Vec::new(),
        unaccepted: None,
        ignored: Vec::new(),
    };
    for root in spaces.roots() {
        let (space, path) = (root.space(), root.path_to(name));
        let raw = match (space, root.read(name)) {
            (_, Ok(None)) => continue,
            (_, Ok(Some(raw))) => raw,
            (Space::User, Err(error)) => return Err(error),
            // An unreadable file of a project must not block the user.
            (_, Err(error)) => {
                files
                    .ignored
                    .push(IgnoredFile::new(path, error.to_string()));
                continue;
            }
        };
        let text = String::from_utf8_lossy(&raw.bytes).into_owned();
        let file = ConfigFile {
            path: path.clone(),
            text,
        };
        if space == Space::User {
            files.accepted.push((space, file));
            continue;
        }
        let signed = match verify::check(&raw.bytes, &format, &trust) {
            Ok(signed) => signed,
            Err(problem) => {
                files
                    .ignored
                    .push(IgnoredFile::new(path, problem.to_string()));
                continue;
            }
        };
        let is_accepted = || {
            let acceptance = Acceptance::new(root, name, signed.line.hash);
            acceptance.is_some_and(|acceptance| acceptance.is_recorded(spaces, &trust))
        };
        if !Acceptance::is_needed(root, name) || is_accepted() {
            files.accepted.push((space, file));
            continue;
        }
        let owner = signed.key.owner.as_deref().unwrap_or("unknown");
        let fingerprint = signed.line.fingerprint;
        let reason = format!(
            "signed by {fingerprint} ({owner}), but you have not accepted it for this project"
        );
        let hint = Some("rye config accept".to_owned());
        files.unaccepted = Some((file, IgnoredFile { path, reason, hint }));
    }
    Ok(files)
}
