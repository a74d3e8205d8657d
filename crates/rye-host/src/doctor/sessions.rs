//! Checks the session database.

use std::path::Path;
use std::time::Duration;

use crate::{FileReport, Integrity, diagnose};
use lillux::shell_word;
use rye_engine::store::StoreError;

use super::Checks;
use crate::context::Context;

const SESSIONS: &str = "sessions";

/// Time limit for the integrity check.
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) fn check(context: &Context, report: &mut Checks) {
    let Some(state) = &context.settings.state_dir else {
        let detail = "no state directory: HOME is not set";
        let fix = "export RYE_STATE_DIR=/path/to/state".to_owned();
        return report.warn(SESSIONS, detail, fix);
    };
    let path = state.value.join("sessions.db");
    match diagnose(&path, CHECK_TIMEOUT) {
        Ok(None) => report.ok(SESSIONS, format!("none yet: {}", path.display())),
        Ok(Some(condition)) => add(&path, &condition, report),
        Err(StoreError::Damaged(why)) => {
            report.fail(SESSIONS, with_rescue(why, &path), move_away(&path));
        }
        Err(error) => report.fail(SESSIONS, error.to_string(), None),
    }
}

fn add(path: &Path, condition: &FileReport, report: &mut Checks) {
    let file = path.display();
    let FileReport {
        version, newest, ..
    } = condition;
    let (unit, size) = match condition.size {
        bytes if bytes < 1_000_000 => ("kB", bytes.div_ceil(1_000)),
        bytes => ("MB", bytes.div_ceil(1_000_000)),
    };
    let detail = format!("{file}, format {version}, {size} {unit}");
    if let Integrity::Damaged(faults) = &condition.integrity {
        let detail = format!("{file} is damaged: {}", faults.join("; "));
        return report.fail(SESSIONS, with_rescue(detail, path), move_away(path));
    }
    // An empty file has no format yet.
    if *version != 0 && version != newest {
        let detail = format!("{detail}, but this version of rye uses format {newest}");
        let fix = "export RYE_STATE_DIR=/path/to/new/state".to_owned();
        return report.fail(SESSIONS, detail, fix);
    }
    if let Some(why) = &condition.read_only {
        let detail = format!("{detail}, read-only: {why}");
        let fix = "export RYE_STATE_DIR=/path/to/writable/directory".to_owned();
        return report.warn(SESSIONS, detail, fix);
    }
    match condition.integrity {
        Integrity::Unfinished => {
            let detail = format!("{detail}, checked in part (10 s limit)");
            report.ok(SESSIONS, detail);
        }
        _ => report.ok(SESSIONS, detail),
    }
}

/// Adds how to rescue the sessions of a damaged database before it is moved away.
fn with_rescue(mut detail: String, path: &Path) -> String {
    if path.metadata().is_ok_and(|file| file.len() > 0) {
        detail += ". First save each readable session: rye session export SESSION --output FILE";
    }
    detail
}

/// The command that moves a damaged database and its companion files away.
fn move_away(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let dir = shell_word(path.parent().unwrap_or(path));
    format!("mkdir {dir}/damaged && mv {dir}/{name}* {dir}/damaged/")
}
