//! The user space and its keys.

use lillux::envelope::OpeningKey;
use lillux::keys::{KeyError, PairFiles};
use lillux::shell_word;
use rye_items::Library;
use rye_items::trust::DistrustReason;

use super::Health;
use crate::cli::context::Context;

pub(super) fn check(context: &Context, library: Option<&Library>, health: &mut Health) {
    let user = match context.settings.user_space() {
        Ok(user) => user,
        Err(error) => return health.broken("user space", error.into()),
    };
    if user.join(".ai").is_dir() {
        health.good("user space", user.display().to_string());
    } else {
        let about = format!("{} has no .ai/ yet", user.display());
        health.warn("user space", about, "rye init".to_owned());
    }
    signing_key(context, library, health);
    let folder = user.join(".ai/config/keys/vault");
    match OpeningKey::read(&PairFiles::inside(&folder).private) {
        Ok(key) => health.good("vault key", key.public().fingerprint().to_string()),
        // Made with the first secret.
        Err(KeyError::Missing(_)) => {}
        Err(error) => health.broken("vault key", error.into()),
    }
    if let Some(library) = library {
        trust_files(library, health);
    }
}

fn signing_key(context: &Context, library: Option<&Library>, health: &mut Health) {
    let key = context
        .own_keys()
        .and_then(|keys| Ok(keys.load_signing_key()?));
    let key = match key {
        Ok(key) => key,
        Err(failure) => return health.broken("signing key", failure),
    };
    let fingerprint = key.public().fingerprint();
    health.good("signing key", format!("{fingerprint}, for its owner alone"));
    let Some(library) = library else {
        return;
    };
    match library.trust().key_status(fingerprint) {
        Ok(trusted) => health.good("own trust", format!("by {}", trusted.path.display())),
        Err(DistrustReason::Revoked(revocation)) => {
            let fix = "rye keys generate --force".to_owned();
            health.fail("own trust", revocation.to_string(), fix);
        }
        Err(DistrustReason::Unknown { .. }) => {
            let about = format!("{fingerprint} is not trusted, so what you sign does not run");
            health.fail("own trust", about, "rye init".to_owned());
        }
    }
}

fn trust_files(library: &Library, health: &mut Health) {
    let trust = library.trust();
    let (mut counted, mut revoked) = (0, 0);
    let mut ignored = Vec::new();
    for (_, standing) in trust.list() {
        match standing {
            Ok(_) => counted += 1,
            Err(DistrustReason::Revoked(_)) => revoked += 1,
            Err(DistrustReason::Unknown { ignored: files }) => ignored.extend(files),
        }
    }
    let keys = format!("trusted keys: {counted}, revoked: {revoked}");
    health.good("trust files", keys);
    for file in ignored {
        let fix = format!("rye keys trust {}", shell_word(&file.path));
        let about = format!("{} is ignored: {}", file.path.display(), file.reason);
        health.warn("trust files", about, fix);
    }
}
