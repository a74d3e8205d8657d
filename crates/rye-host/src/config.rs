//! Configuration of the spaces: what counts, and what does not.

use rye_items::signature::ITEM;
use rye_items::trust::{IgnoredFile, Trust};
use rye_items::verify::{self, SignatureFormat};
use rye_items::{Acceptance, Space, SpaceError, Spaces};
use rye_model::ConfigFile;

/// The files of one name in all spaces, the most specific first.
pub(crate) struct Files {
    /// Those that count.
    pub(crate) counting: Vec<(Space, ConfigFile)>,
    /// The project's file that somebody trusted has signed and that the user has not
    /// accepted for this directory.
    pub(crate) unaccepted: Option<(ConfigFile, IgnoredFile)>,
    /// Those that do not count at all.
    pub(crate) ignored: Vec<IgnoredFile>,
}

impl Files {
    /// The files that count, and all those that do not.
    pub(crate) fn accepted(mut self) -> (Vec<(Space, ConfigFile)>, Vec<IgnoredFile>) {
        self.ignored.extend(self.unaccepted.map(|(_, why)| why));
        (self.counting, self.ignored)
    }
}

/// Reads the files of one name. The user's own counts as it is; the system's counts if it
/// verifies, and the project's if the user has accepted it, too.
pub(crate) fn files(spaces: &Spaces, name: &str) -> Result<Files, SpaceError> {
    let form = SignatureFormat::config(ITEM, name);
    let trust = Trust::new(spaces);
    let mut files = Files {
        counting: Vec::new(),
        unaccepted: None,
        ignored: Vec::new(),
    };
    for root in spaces.roots() {
        let (space, path) = (root.space(), root.path_to(name));
        let raw = match (space, root.read(name)) {
            (_, Ok(None)) => continue,
            (_, Ok(Some(raw))) => raw,
            (Space::User, Err(error)) => return Err(error),
            // What somebody else's folder holds must not keep a person from their work.
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
            files.counting.push((space, file));
            continue;
        }
        let signed = match verify::check(&raw.bytes, &form, &trust) {
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
            acceptance.is_some_and(|it| it.is_recorded(spaces, &trust))
        };
        if !Acceptance::is_needed(root, name) || is_accepted() {
            files.counting.push((space, file));
            continue;
        }
        let owner = signed.key.owner.as_deref().unwrap_or("unknown");
        let fingerprint = signed.line.fingerprint;
        let why = format!(
            "it is signed by {fingerprint} ({owner}), and you have not accepted it for this \
             project"
        );
        let hint = Some("rye config accept".to_owned());
        files.unaccepted = Some((
            file,
            IgnoredFile {
                path,
                reason: why,
                hint,
            },
        ));
    }
    Ok(files)
}
