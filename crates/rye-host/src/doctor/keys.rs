//! Checks the user space and its keys.

use lillux::envelope::OpeningKey;
use lillux::keys::{KeyError, KeyPairFiles};
use lillux::shell_word;
use rye_items::Library;
use rye_items::trust::DistrustReason;

use super::Checks;
use crate::context::Context;

pub(super) fn check(context: &Context, library: Option<&Library>, report: &mut Checks) {
    let user = match context.settings.user_space() {
        Ok(user) => user,
        Err(error) => return report.fail_with("user space", error.into()),
    };
    if user.join(".ai").is_dir() {
        report.ok("user space", user.display().to_string());
    } else {
        let detail = format!("{} has no .ai/ yet", user.display());
        report.warn("user space", detail, "rye init".to_owned());
    }
    signing_key(context, library, report);
    let dir = user.join(".ai/config/keys/vault");
    match OpeningKey::read(&KeyPairFiles::in_dir(&dir).private) {
        Ok(key) => report.ok("vault key", key.public().fingerprint().to_string()),
        // Created with the first secret.
        Err(KeyError::Missing(_)) => {}
        Err(error) => report.fail_with("vault key", error.into()),
    }
    if let Some(library) = library {
        trust_files(library, report);
    }
}

fn signing_key(context: &Context, library: Option<&Library>, report: &mut Checks) {
    let key = context
        .own_keys()
        .and_then(|keys| Ok(keys.load_signing_key()?));
    let key = match key {
        Ok(key) => key,
        Err(failure) => return report.fail_with("signing key", failure),
    };
    let fingerprint = key.public().fingerprint();
    report.ok("signing key", fingerprint.to_string());
    let Some(library) = library else {
        return;
    };
    match library.trust().key_status(fingerprint) {
        Ok(trusted) => report.ok("own trust", trusted.path.display().to_string()),
        Err(DistrustReason::Revoked(revocation)) => {
            let fix = "rye keys generate --force".to_owned();
            report.fail("own trust", revocation.to_string(), fix);
        }
        Err(DistrustReason::Unknown { .. }) => {
            let detail = format!("{fingerprint} is not trusted, so items you sign do not run");
            report.fail("own trust", detail, "rye init".to_owned());
        }
    }
}

fn trust_files(library: &Library, report: &mut Checks) {
    let trust = library.trust();
    let (mut trusted, mut revoked) = (0, 0);
    let mut ignored = Vec::new();
    for (_, status) in trust.list() {
        match status {
            Ok(_) => trusted += 1,
            Err(DistrustReason::Revoked(_)) => revoked += 1,
            Err(DistrustReason::Unknown { ignored: files }) => ignored.extend(files),
        }
    }
    let keys = format!("trusted keys: {trusted}, revoked: {revoked}");
    report.ok("trust files", keys);
    for file in ignored {
        let fix = format!("rye keys trust {}", shell_word(&file.path));
        let detail = format!("{} is ignored: {}", file.path.display(), file.reason);
        report.warn("trust files", detail, fix);
    }
}
