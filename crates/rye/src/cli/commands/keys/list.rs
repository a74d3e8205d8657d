//! `rye keys list`: lists all keys with their status.

use lillux::keys::Fingerprint;
use rye_items::trust::{DistrustReason, KeyStatus};
use serde_json::{Value, json};

use crate::cli::context::Context;
use crate::cli::page::{BAD, DIM, GOOD, Page, WARN};
use crate::cli::printer::{Outcome, Report};
use crate::cli::table::{Cell, Table};

pub(super) fn run(context: &Context) -> Outcome {
    let library = context.library()?;
    let own = context
        .own_keys()
        .ok()
        .and_then(|keys| keys.load_signing_key().ok());
    let own = own.map(|key| key.public().fingerprint());
    let trust = library.trust();
    let keys = trust.list().into_iter();
    let keys = keys.map(|(fingerprint, status)| row(fingerprint, &status, own));
    Ok(Box::new(Keys(keys.collect())))
}

struct Row {
    fingerprint: Fingerprint,
    state: &'static str,
    own: bool,
    owner: Option<String>,
    space: Option<&'static str>,
    path: String,
    /// Who vouches for the key, or why it does not count.
    reason: String,
}

fn row(fingerprint: Fingerprint, status: &KeyStatus, own: Option<Fingerprint>) -> Row {
    let own = own == Some(fingerprint);
    match status {
        Ok(key) => Row {
            fingerprint,
            state: "trusted",
            own,
            owner: key.owner.clone(),
            space: Some(key.space.as_str()),
            path: key.path.display().to_string(),
            reason: if key.vouched_by == fingerprint {
                "by itself".to_owned()
            } else {
                format!("by {}", key.vouched_by)
            },
        },
        Err(DistrustReason::Revoked(revocation)) => Row {
            fingerprint,
            state: "revoked",
            own,
            owner: None,
            space: None,
            path: revocation.path.display().to_string(),
            reason: revocation.to_string(),
        },
        Err(DistrustReason::Unknown { ignored }) => Row {
            fingerprint,
            state: "ignored",
            own,
            owner: None,
            space: None,
            path: ignored
                .first()
                .map(|file| file.path.display().to_string())
                .unwrap_or_default(),
            reason: ignored
                .first()
                .map(|file| file.reason.clone())
                .unwrap_or_default(),
        },
    }
}

struct Keys(Vec<Row>);

impl Report for Keys {
    fn json(&self) -> Value {
        let keys: Vec<_> = self
            .0
            .iter()
            .map(|row| {
                json!({
                    "fingerprint": row.fingerprint,
                    "state": row.state,
                    "own": row.own,
                    "owner": row.owner,
                    "space": row.space,
                    "path": row.path,
                    "reason": row.reason,
                })
            })
            .collect();
        json!({ "keys": keys })
    }

    fn show(&self, page: &mut Page) {
        let mut table = Table::new(["FINGERPRINT", "STATE", "SPACE", "OWNER", "REASON"]);
        for row in &self.0 {
            let style = match row.state {
                "trusted" => GOOD,
                "revoked" => BAD,
                _ => WARN,
            };
            let owner = row.owner.as_deref().unwrap_or("-");
            let owner = if row.own {
                format!("{owner} (you)")
            } else {
                owner.to_owned()
            };
            table.row([
                row.fingerprint.to_string().into(),
                Cell::styled(style, row.state),
                row.space.unwrap_or("-").into(),
                owner.into(),
                Cell::styled(DIM, &row.reason),
            ]);
        }
        page.table(&table);
    }
}
