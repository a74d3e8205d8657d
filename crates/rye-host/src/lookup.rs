//! Finds sessions, entries and gates by an id or a part of one, and shortens ids for display.

use std::path::Path;

use rye_engine::Engine;
use rye_engine::protocol::{
    Gate, GateId, Millis, Purpose, Session as SessionData, SessionId, matches_id, short_id,
};
use rye_engine::store::{SessionFilter, SessionStore as _};

use crate::context::Context;
use crate::engine::{database, runtime};
use crate::failure::Failure;
use crate::{SqliteStore, store};

/// How many sessions are listed at once.
const PAGE: usize = 100;

/// Minimum length of a partial id in a command that deletes.
const MIN_LENGTH_TO_REMOVE: usize = 4;

/// Returns the id that `part` identifies: the whole id, or a unique prefix or suffix of it.
/// `kind` names the object in the error message.
pub fn find_id<'a>(
    ids: impl Iterator<Item = &'a str>,
    part: &str,
    kind: &str,
    hint: &str,
) -> Result<&'a str, Failure> {
    let mut matches: Vec<_> = ids.filter(|id| matches_id(id, part)).collect();
    if let Some(exact) = matches.iter().position(|id| *id == part) {
        return Ok(matches.swap_remove(exact));
    }
    match matches.as_slice() {
        [one] => Ok(one),
        [] => Err(not_found(kind, part, hint)),
        several => {
            let message = format!("{kind} id {part} is ambiguous: {} match", several.len());
            let candidates = several.iter().map(|id| (*id).to_owned());
            Err(Failure::failed("ambiguous", message)
                .candidates(candidates)
                .hint(hint))
        }
    }
}

/// The failure to find an object.
pub fn not_found(kind: &str, part: &str, hint: &str) -> Failure {
    Failure::failed("not_found", format!("{kind} {part} not found")).hint(hint)
}

/// The short form of an id, extended as far as necessary to differ from all others.
pub fn unique_short_id<'a>(id: &'a str, all: impl Iterator<Item = &'a str>) -> &'a str {
    let mut short = short_id(id);
    for other in all.filter(|other| *other != id) {
        while matches_id(other, short) && short.len() < id.len() {
            short = id.get(id.len() - short.len() - 1..).unwrap_or(id);
        }
    }
    short
}

/// The session whose id `part` identifies, among those that match it.
fn session_by_id(mut matching: Vec<SessionData>, part: &str) -> Result<SessionData, Failure> {
    const LIST: &str = "rye session list";
    let ids = matching.iter().map(|session| session.id.as_str());
    let id = find_id(ids, part, "session", LIST)?;
    let position = matching.iter().position(|it| it.id.as_str() == id);
    let position = position.ok_or_else(|| not_found("session", part, LIST))?;
    Ok(matching.swap_remove(position))
}

fn matching(part: &str) -> SessionFilter {
    SessionFilter {
        id_part: Some(part.to_owned()),
        limit: usize::MAX,
        ..SessionFilter::default()
    }
}

/// Finds the id of a session.
pub async fn find_session(engine: &Engine, part: &str) -> Result<SessionId, Failure> {
    Ok(session_by_id(engine.sessions(matching(part)).await?, part)?.id)
}

/// Finds the id of a session to delete; rejects very short parts.
pub async fn find_session_to_remove(engine: &Engine, part: &str) -> Result<SessionId, Failure> {
    let id = find_session(engine, part).await?;
    if id.as_str() != part && part.chars().count() < MIN_LENGTH_TO_REMOVE {
        let message = format!(
            "session id {part} is too short: removing needs at least {MIN_LENGTH_TO_REMOVE} characters"
        );
        return Err(Failure::usage(message).hint(format!("rye session rm {}", id.short())));
    }
    Ok(id)
}

/// Finds a session, and the session at the top of its tree.
pub(crate) async fn find_session_and_root(
    store: &SqliteStore,
    part: &str,
) -> Result<(SessionId, SessionData), Failure> {
    let mut session = session_by_id(store.sessions(matching(part)).await?, part)?;
    let id = session.id.clone();
    while let Some(parent) = &session.parent
        && let Some(above) = store.session(&parent.session).await?
    {
        session = above;
    }
    Ok((id, session))
}

/// The newest session of a project that takes prompts.
pub(crate) async fn find_newest_session(
    store: &SqliteStore,
    project: &Path,
) -> Result<SessionData, Failure> {
    let project = project.display().to_string();
    let mut before = None;
    loop {
        let page = store.sessions(SessionFilter {
            before: before.take(),
            limit: PAGE,
            ..SessionFilter::default()
        });
        let page = page.await?;
        before = page.last().map(|last| last.id.clone());
        let is_own = |it: &SessionData| {
            it.purpose == Purpose::Interactive && it.project.as_ref() == Some(&project)
        };
        if let Some(newest) = page.into_iter().find(is_own) {
            return Ok(newest);
        }
        if before.is_none() {
            let message = format!("the project {project} has no session to continue");
            return Err(Failure::failed("not_found", message).hint("rye session list"));
        }
    }
}

/// Finds the id of a session without an engine.
pub fn find_session_in_store(context: &Context, part: &str) -> Result<SessionId, Failure> {
    let store = SqliteStore::open(database(context)?)?;
    let matching = runtime()?.block_on(store.sessions(matching(part)))?;
    Ok(session_by_id(matching, part)?.id)
}

/// Whether a user who types `part` may mean this gate: it is a part of the id, or the beginning
/// of its short form.
pub fn matches_gate(gate: &GateId, part: &str) -> bool {
    !part.is_empty() && (gate.as_str().contains(part) || gate.short().starts_with(part))
}

/// The gates of agents and MCP calls that `part` may mean, open or closed.
pub fn matching_gates(context: &Context, part: &str) -> Result<Vec<Gate>, Failure> {
    let store = store(&database(context)?)?;
    let matches = async {
        let mut gates = Vec::new();
        for id in store.gate_ids().await? {
            if matches_gate(&id, part) {
                gates.extend(store.gate(&id).await?);
            }
        }
        Ok(gates)
    };
    runtime()?.block_on(matches)
}

/// Whether a gate has expired, although that is not stored yet.
pub fn is_expired(gate: &Gate) -> bool {
    let now = Millis(u64::try_from(lillux::time::now().epoch_ms).unwrap_or_default());
    gate.status.is_pending() && gate.expires_at.is_some_and(|until| until <= now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_found_by_unique_prefix_or_suffix() {
        let ids = ["01a1-aaaa", "01a2-bbbb", "01a2-cccc"];
        let find = |part: &str| find_id(ids.into_iter(), part, "session", "rye session list");
        assert_eq!(find("01a1").unwrap(), "01a1-aaaa");
        assert_eq!(find("bbbb").unwrap(), "01a2-bbbb");
        assert_eq!(find("01a2-cccc").unwrap(), "01a2-cccc");
        assert_eq!(find("01a2").unwrap_err().code, "ambiguous");
        assert_eq!(find("a1").unwrap_err().code, "not_found");
        assert_eq!(find("").unwrap_err().code, "not_found");
    }

    #[test]
    fn whole_id_wins_over_longer_ids() {
        let ids = ["run-1", "run-10"];
        let found = find_id(ids.into_iter(), "run-1", "run", "rye run list");
        assert_eq!(found.unwrap(), "run-1");
    }

    #[test]
    fn short_ids_grow_until_they_are_unique() {
        let ids = ["x-12345678", "y-12345678", "z-87654321"];
        let short = |id| unique_short_id(id, ids.into_iter());
        assert_eq!(short("z-87654321"), "87654321");
        assert_eq!(short("x-12345678"), "x-12345678");
    }

    #[test]
    fn gates_are_found_by_their_short_id() {
        let gate = GateId::from("gate:s:t:i:k".to_owned());
        assert!(matches_gate(&gate, &gate.short()));
        assert!(matches_gate(&gate, "gate:s:t"));
        assert!(!matches_gate(&gate, ""));
    }
}
