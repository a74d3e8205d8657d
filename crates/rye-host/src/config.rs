//! Configuration of the spaces: what counts, and what does not.

use rye_items::signature::ITEM;
use rye_items::trust::{Ignored, Trust};
use rye_items::verify::{self, Form};
use rye_items::{Space, SpaceError, Spaces};
use rye_model::ConfigFile;

/// Files that count, with their spaces.
pub(crate) type Counting = Vec<(Space, ConfigFile)>;

/// The files that count, the most specific first, and those that do not. The user's own
/// counts as it is.
pub(crate) fn files(spaces: &Spaces, name: &str) -> Result<(Counting, Vec<Ignored>), SpaceError> {
    let form = Form::config(ITEM, name);
    let trust = Trust::new(spaces);
    let (mut files, mut ignored) = (Vec::new(), Vec::new());
    for root in spaces.roots() {
        let path = root.path_of(name);
        let raw = match (root.space(), root.read(name)) {
            (_, Ok(None)) => continue,
            (_, Ok(Some(raw))) => raw,
            (Space::User, Err(error)) => return Err(error),
            // What somebody else's folder holds must not keep a person from their work.
            (_, Err(error)) => {
                let why = error.to_string();
                ignored.push(Ignored { path, why });
                continue;
            }
        };
        let judged = match root.space() {
            Space::User => Ok(()),
            _ => verify::check(&raw.bytes, &form, &trust).map(drop),
        };
        match judged {
            Ok(()) => {
                let text = String::from_utf8_lossy(&raw.bytes).into_owned();
                files.push((root.space(), ConfigFile { path, text }));
            }
            Err(problem) => {
                let why = problem.to_string();
                ignored.push(Ignored { path, why });
            }
        }
    }
    Ok((files, ignored))
}
