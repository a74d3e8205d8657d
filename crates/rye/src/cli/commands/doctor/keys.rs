//! The user space and its keys.

use lillux::envelope::OpeningKey;
use lillux::keys::{KeyError, PairFiles};
use rye_items::trust::Distrust;

use super::Health;
use crate::cli::context::Context;

pub(super) fn check(context: &Context, health: &mut Health) {
    let user = match context.settings.user_space() {
        Ok(user) => user,
        Err(error) => return health.failure("user space", error.into()),
    };
    if user.join(".ai").is_dir() {
        health.good("user space", user.display().to_string());
    } else {
        let about = format!("{} has no .ai/ yet", user.display());
        health.warn("user space", about, "rye init".to_owned());
    }
    signing_key(context, health);
    let folder = user.join(".ai/config/keys/vault");
    match OpeningKey::read(&PairFiles::inside(&folder).private) {
        Ok(key) => health.good("vault key", key.public().fingerprint().to_string()),
        // Made with the first secret.
        Err(KeyError::Missing(_)) => {}
        Err(error) => health.failure("vault key", error.into()),
    }
    trust_files(context, health);
}

fn signing_key(context: &Context, health: &mut Health) {
    let key = context.own_keys().and_then(|keys| Ok(keys.signing()?));
    let key = match key {
        Ok(key) => key,
        Err(failure) => return health.failure("signing key", failure),
    };
    let fingerprint = key.public().fingerprint();
    health.good("signing key", format!("{fingerprint}, for its owner alone"));
    let Ok(library) = context.library() else {
        return;
    };
    match library.trust().standing(fingerprint) {
        Ok(trusted) => health.good("own trust", format!("by {}", trusted.path.display())),
        Err(Distrust::Revoked(revocation)) => {
            let fix = "rye keys generate --force".to_owned();
            health.fail("own trust", revocation.to_string(), fix);
        }
        Err(Distrust::Unknown { .. }) => {
            let about = format!("{fingerprint} is not trusted, so what you sign does not run");
            health.fail("own trust", about, "rye init".to_owned());
        }
    }
}

fn trust_files(context: &Context, health: &mut Health) {
    let library = match context.library() {
        Ok(library) => library,
        Err(failure) => return health.failure("trust files", failure),
    };
    let trust = library.trust();
    let (mut counted, mut revoked) = (0, 0);
    let mut ignored = Vec::new();
    for (_, standing) in trust.list() {
        match standing {
            Ok(_) => counted += 1,
            Err(Distrust::Revoked(_)) => revoked += 1,
            Err(Distrust::Unknown { ignored: files }) => ignored.extend(files),
        }
    }
    let keys = format!("trusted keys: {counted}, revoked: {revoked}");
    health.good("trust files", keys);
    for file in ignored {
        let fix = format!("rye keys trust {}", file.path.display());
        let about = format!("{} is ignored: {}", file.path.display(), file.why);
        health.warn("trust files", about, fix);
    }
}
