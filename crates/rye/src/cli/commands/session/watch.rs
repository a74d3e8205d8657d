//! `rye session watch`: prints the events of a session, whichever process holds it.

use rye_engine::EventStream;
use rye_engine::protocol::{EventKind, SessionId};
use rye_engine::store::StoreError;
use rye_engine::{Engine, Notice};
use rye_host::engine::{EngineOptions, answer_command, with_engine};
use rye_host::event_json;
use rye_host::lookup::find_session;

use crate::cli::args::WatchArgs;
use crate::cli::context::Context;
use crate::cli::entry_line::line;
use crate::cli::failure::Failure;
use crate::cli::page::{DIM, WARN, one_line, paint};
use crate::cli::printer::{AlreadyPrinted, Outcome, Printer, Report};

pub(super) fn run(args: &WatchArgs, context: &Context) -> Outcome {
    with_engine(context, EngineOptions::default(), async |engine| {
        let session = find_session(engine, &args.session.id).await?;
        let after = match args.after {
            Some(after) => after,
            None => engine.last_event(&session).await?,
        };
        let mut events = engine.follow(&session, after).await?;
        while let Some(notice) = next(engine, &session, &mut events, args.until_idle).await? {
            print(engine, notice, context.printer).await?;
        }
        Ok(Box::new(AlreadyPrinted) as Box<dyn Report>)
    })
}

/// The next event; `None` once the session is deleted, or idle if the caller stops there.
async fn next(
    engine: &Engine,
    session: &SessionId,
    events: &mut EventStream,
    until_idle: bool,
) -> Result<Option<Notice>, StoreError> {
    if !until_idle {
        return events.next().await;
    }
    let mut commits = engine.store().subscribe_commits();
    loop {
        // In this order: what a turn committed before it ended is counted below.
        let is_quiescent = engine.is_quiescent(session).await?;
        if is_quiescent && events.last() >= engine.last_event(session).await? {
            return Ok(None);
        }
        tokio::select! {
            notice = events.next() => return notice,
            Ok(()) = commits.changed() => {}
        }
    }
}

async fn print(engine: &Engine, notice: Notice, printer: Printer) -> Result<(), Failure> {
    let Notice { event, entry } = notice;
    let entry = match (&event.kind, entry) {
        (EventKind::MessageEnd { entry }, None) => {
            engine.store().entry(&event.session, entry).await?
        }
        (_, entry) => entry.map(|entry| (*entry).clone()),
    };
    let failed = |error| Failure::failed("io", error);
    if printer.json {
        let json = event_json(&event, entry.as_ref()).map_err(failed)?;
        let written = Printer::raw(format!("{json}\n").as_bytes());
        return written.map_err(|error| Failure::failed("io", error));
    }
    let text = match (event.kind, entry) {
        (_, Some(entry)) => one_line(&line(&entry)),
        (EventKind::DecisionGate { gate }, None) => {
            let title = format!("gate       {}", one_line(&gate.title));
            let answer = answer_command(&gate);
            format!("{}\n{}", paint(WARN, title), paint(DIM, answer))
        }
        (EventKind::TurnEnd { reason, .. }, None) => {
            let reason = serde_json::json!(reason);
            let reason = reason.as_str().unwrap_or_default();
            paint(DIM, format_args!("turn end   {reason}")).to_string()
        }
        (EventKind::Error { error }, None) => paint(
            WARN,
            format_args!("error      {}", one_line(&error.message)),
        )
        .to_string(),
        _ => return Ok(()),
    };
    let written = printer.print_stdout(&format!("{text}\n"));
    written.map_err(|error| Failure::failed("io", error))
}
