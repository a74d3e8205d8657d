//! Which session is meant by a part of its id, and which gates might be.

use rye_engine::Engine;
use rye_engine::protocol::{Gate, Millis, Session as SessionData, SessionId};
use rye_engine::store::{SessionFilter, SessionStore as _};
use rye_host::Sqlite;

use super::{database, runtime};
use crate::cli::context::Context;
use crate::cli::failure::Failure;

/// How many sessions are looked through for an id.
const MOST: usize = 10_000;

/// How much of an id must be named where what it names is gone afterwards.
const ENOUGH: usize = 4;

fn every() -> SessionFilter {
    SessionFilter {
        limit: MOST,
        ..SessionFilter::default()
    }
}

/// The id of the one session that is meant.
pub(crate) async fn find(engine: &Engine, meant: &str) -> Result<SessionId, Failure> {
    let all = engine.sessions(every()).await?;
    one_session(&all, meant).map(|session| session.id.clone())
}

/// The same for what is gone afterwards: a letter or two are not enough.
pub(crate) async fn find_to_remove(engine: &Engine, meant: &str) -> Result<SessionId, Failure> {
    let id = find(engine, meant).await?;
    if id.as_str() != meant && meant.chars().count() < ENOUGH {
        let message = format!("{meant} is too little of an id to remove what it names");
        return Err(Failure::usage(message).hint(format!("rye session rm {id}")));
    }
    Ok(id)
}

/// The id of the session that is meant, and the one at the top that it goes on with.
pub(in crate::cli) async fn meant_root(
    store: &Sqlite,
    meant: &str,
) -> Result<(SessionId, SessionData), Failure> {
    // Who names it whole need not have all of them read.
    if let Ok(id) = meant.parse()
        && let Some(record) = store.snapshot(&id).await?
        && record.session.parent.is_none()
    {
        return Ok((id, record.session));
    }
    let all = store.sessions(every()).await?;
    let meant = one_session(&all, meant)?;
    Ok((meant.id.clone(), root(&all, meant).clone()))
}

/// The id of the one session that is meant, where no engine is needed.
pub(crate) fn session_id(context: &Context, meant: &str) -> Result<SessionId, Failure> {
    let store = Sqlite::open(database(context)?)?;
    let all = runtime()?.block_on(store.sessions(every()))?;
    one_session(&all, meant).map(|session| session.id.clone())
}

fn one_session<'a>(all: &'a [SessionData], meant: &str) -> Result<&'a SessionData, Failure> {
    let ids = all.iter().map(|session| session.id.as_str());
    let id = one_of(ids, meant, "session", "rye session list")?;
    let found = all.iter().find(|session| session.id.as_str() == id);
    found.ok_or_else(|| Failure::failed("not_found", format!("there is no session {id}")))
}

/// The session at the top: a child goes on where its parent does.
fn root<'a>(all: &'a [SessionData], session: &'a SessionData) -> &'a SessionData {
    let above = |session: &&SessionData| {
        let parent = session.parent.as_ref()?;
        all.iter().find(|other| other.id == parent.session)
    };
    std::iter::successors(Some(session), above)
        .last()
        .unwrap_or(session)
}

/// The one of several that its id means, or the beginning or the end of it.
pub(crate) fn one_of<'a>(
    ids: impl Iterator<Item = &'a str>,
    meant: &str,
    what: &str,
    hint: &str,
) -> Result<&'a str, Failure> {
    // Nothing begins every id, and means none.
    let is_meant = |id: &&str| !meant.is_empty() && (id.starts_with(meant) || id.ends_with(meant));
    let mut fitting: Vec<_> = ids.filter(is_meant).collect();
    if let Some(exact) = fitting.iter().position(|id| *id == meant) {
        return Ok(fitting.swap_remove(exact));
    }
    match fitting.as_slice() {
        [one] => Ok(one),
        [] => Err(Failure::failed("not_found", format!("there is no {what} {meant}")).hint(hint)),
        many => {
            let message = format!("the ids of {} begin or end with {meant}", many.len());
            Err(Failure::failed("ambiguous", message).hint(hint))
        }
    }
}

/// Gates of agents whose id has a part in it, ended or not.
pub(crate) fn gates_with(context: &Context, part: &str) -> Result<Vec<Gate>, Failure> {
    let store = rye_host::store(&database(context)?)?;
    Ok(runtime()?.block_on(store.gates_with(part))?)
}

/// Whether nobody decided at a gate in its time, though that is not written down yet.
pub(crate) fn is_late(gate: &Gate) -> bool {
    let now = Millis(u64::try_from(lillux::time::now().epoch_ms).unwrap_or_default());
    gate.status.is_pending() && gate.expires_at.is_some_and(|until| until <= now)
}
