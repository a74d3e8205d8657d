//! The file with all sessions.

use std::path::Path;
use std::time::Duration;

use lillux::shell_word;
use rye_engine::store::StoreError;
use rye_host::{Condition, Soundness, examine};

use super::Health;
use crate::cli::context::Context;

const SESSIONS: &str = "sessions";

/// How long it is looked at.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) fn check(context: &Context, health: &mut Health) {
    let Some(state) = &context.settings.state_dir else {
        let about = "no folder for them: HOME is not set";
        let fix = "export RYE_STATE_DIR=/some/folder".to_owned();
        return health.warn(SESSIONS, about, fix);
    };
    let path = state.value.join("sessions.db");
    match examine(&path, PATIENCE) {
        Ok(None) => health.good(SESSIONS, format!("none yet: {}", path.display())),
        Ok(Some(condition)) => tell(&path, &condition, health),
        Err(StoreError::Unreadable(why)) => health.fail(SESSIONS, why, set_aside(&path)),
        Err(error) => health.fail(SESSIONS, error.to_string(), None),
    }
}

fn tell(path: &Path, condition: &Condition, health: &mut Health) {
    let place = path.display();
    let Condition {
        version, newest, ..
    } = condition;
    let (unit, size) = match condition.size {
        bytes if bytes < 1_000_000 => ("kB", bytes.div_ceil(1_000)),
        bytes => ("MB", bytes.div_ceil(1_000_000)),
    };
    let about = format!("{place}, format {version}, {size} {unit}");
    if let Soundness::Damaged(faults) = &condition.soundness {
        let about = format!("{place} is damaged: {}", faults.join("; "));
        return health.fail(SESSIONS, about, set_aside(path));
    }
    // An empty file has no format yet.
    if *version != 0 && version != newest {
        let about = format!("{about} of another version of Rye; this one uses {newest}");
        let fix = "use the Rye that wrote it, or name another folder by RYE_STATE_DIR".to_owned();
        return health.fail(SESSIONS, about, fix);
    }
    if let Some(why) = &condition.read_only {
        let about = format!("{about}: it can be read, and nothing can be added: {why}");
        let fix = "export RYE_STATE_DIR=/a/folder/of/your/own".to_owned();
        return health.warn(SESSIONS, about, fix);
    }
    match condition.soundness {
        Soundness::SoundSoFar => {
            let about = format!("{about}, sound as far as it was looked at in ten seconds");
            health.good(SESSIONS, about);
        }
        _ => health.good(SESSIONS, about),
    }
}

/// What to do with a file that is damaged.
fn set_aside(path: &Path) -> String {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".damaged");
    format!(
        "`rye session export` those that can be read, then: mv {} {}, and so with the files \
         beside it",
        shell_word(path),
        shell_word(Path::new(&aside))
    )
}
