//! `rye schedule`: starts prompts and graphs at times.

use rye_automation::{Action, Firing, FiringOutcome, NewSchedule, Owner, Schedule, Schedules};
use rye_engine::protocol::{Millis, SessionId};
use rye_host::automation::with_schedules;
use rye_host::engine::{EngineOptions, with_engine};
use rye_host::graph_file::GraphFile;
use rye_host::lookup::{find_id, find_session, unique_short_id};
use serde_json::{Map, Value, json};

use crate::cli::args::{ActionArgs, AddScheduleArgs, ScheduleArgs, ScheduleCommand};
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::page::{BAD, DIM, Page, WARN};
use crate::cli::printer::{Outcome, Report};
use crate::cli::table::{Cell, Table};

const LIST: &str = "rye schedule list";

pub(crate) fn run(command: ScheduleCommand, context: &Context) -> Outcome {
    match command {
        ScheduleCommand::Add(args) => add(*args, context),
        ScheduleCommand::List => {
            let all = with_schedules(context, async |schedules| Ok(schedules.list().await?))?;
            Ok(Box::new(List(all)))
        }
        ScheduleCommand::Rm(args) => change(&args, context, "deleted", async |schedules, id| {
            Ok(schedules.remove(id).await?)
        }),
        ScheduleCommand::Pause(args) => change(&args, context, "paused", async |schedules, id| {
            Ok(schedules.set_paused(id, true).await?)
        }),
        ScheduleCommand::Resume(args) => {
            change(&args, context, "resumed", async |schedules, id| {
                Ok(schedules.set_paused(id, false).await?)
            })
        }
        ScheduleCommand::Run(args) => change(&args, context, "due now:", async |schedules, id| {
            Ok(schedules.run_now(id).await?)
        }),
    }
}

fn add(args: AddScheduleArgs, context: &Context) -> Outcome {
    let new = NewSchedule {
        name: args.name,
        cron: args.cron,
        time_zone: args.time_zone,
        missed: args.missed.into(),
        action: action(args.action, context)?,
        owner: Owner {
            user: args.user,
            org: args.org,
            project: context.settings.project().display().to_string(),
            created_by: context.user_name()?,
        },
    };
    let schedule = with_schedules(context, async |schedules| Ok(schedules.add(new).await?))?;
    Ok(Box::new(Changed {
        what: "added",
        schedule,
    }))
}

/// What the arguments say to start. Fails if it does not exist.
pub(super) fn action(args: ActionArgs, context: &Context) -> Result<Action, Failure> {
    if let Some(graph) = args.graph {
        let reference: rye_items::ItemRef = graph.parse()?;
        GraphFile::load(&reference.to_string(), context)?;
        let inputs = args.inputs.as_deref().map_or(Ok(Map::new()), inputs)?;
        return Ok(Action::Graph { graph, inputs });
    }
    let session = match args.session {
        Some(part) => Some(session(&part, context)?),
        None => None,
    };
    Ok(Action::Prompt {
        text: args.prompt.unwrap_or_default(),
        session,
        thread: args.thread,
        model: args.model,
        role: args.role,
    })
}

fn inputs(text: &str) -> Result<Map<String, Value>, Failure> {
    match rye_engine::protocol::json::parse(text) {
        Ok(Value::Object(inputs)) => Ok(inputs),
        Ok(_) => Err(Failure::usage("--inputs must be a JSON object")),
        Err(error) => Err(Failure::usage(format!("invalid JSON: {error}"))),
    }
}

fn session(part: &str, context: &Context) -> Result<SessionId, Failure> {
    with_engine(context, EngineOptions::default(), async |engine| {
        find_session(engine, part).await
    })
}

/// Finds a schedule by a part of its id and changes it.
fn change(
    args: &ScheduleArgs,
    context: &Context,
    what: &'static str,
    change: impl AsyncFnOnce(&Schedules, &str) -> Result<Schedule, Failure>,
) -> Outcome {
    let schedule = with_schedules(context, async |schedules| {
        let all = schedules.list().await?;
        let ids = all.iter().map(|it| it.id.as_str());
        let id = find_id(ids, &args.id, "schedule", LIST)?;
        change(schedules, id).await
    })?;
    Ok(Box::new(Changed { what, schedule }))
}

pub(super) fn time(at: Millis) -> String {
    lillux::time::format_rfc3339((at.0 / 1000).cast_signed())
}

/// A schedule that was changed.
struct Changed {
    what: &'static str,
    schedule: Schedule,
}

impl Report for Changed {
    fn json(&self) -> Value {
        json!({ "schedule": self.schedule })
    }

    fn show(&self, page: &mut Page) {
        let Self { what, schedule } = self;
        let next = match schedule.next {
            Some(next) if *what != "deleted" => format!(", next {}", time(next)),
            _ => String::new(),
        };
        page.line(format_args!(
            "{what} schedule {}{next}",
            schedule.id.short()
        ));
    }

    fn next_command(&self) -> Option<String> {
        (self.what == "added").then(|| "rye serve # fires it".to_owned())
    }
}

struct List(Vec<Schedule>);

/// What became of the last firing.
fn last(firing: Option<&Firing>) -> Cell {
    match firing {
        None => Cell::styled(DIM, "-"),
        Some(Firing { at, outcome, .. }) => match outcome {
            FiringOutcome::Started(_) => Cell::new(time(*at)),
            FiringOutcome::Missed => Cell::styled(WARN, "missed"),
            FiringOutcome::Failed { message, .. } => {
                Cell::styled(BAD, format!("failed: {message}"))
            }
        },
    }
}

/// A name or, without one, what is started.
pub(super) fn describe(name: Option<&String>, action: &Action) -> String {
    match (name, action) {
        (Some(name), _) => name.clone(),
        (None, Action::Prompt { text, .. }) => text.clone(),
        (None, Action::Graph { graph, .. }) => graph.clone(),
    }
}

impl Report for List {
    fn json(&self) -> Value {
        json!({ "schedules": self.0 })
    }

    fn show(&self, page: &mut Page) {
        if self.0.is_empty() {
            page.line("no schedules");
            return;
        }
        let header = ["ID", "CRON", "ZONE", "NEXT", "LAST", "STARTS"];
        let mut table = Table::new(header).shorten(4);
        for schedule in &self.0 {
            let ids = self.0.iter().map(|it| it.id.as_str());
            let next = match schedule.next {
                Some(next) => Cell::new(time(next)),
                None => Cell::styled(DIM, "paused"),
            };
            table.row([
                Cell::styled(DIM, unique_short_id(schedule.id.as_str(), ids)),
                Cell::new(&schedule.cron),
                Cell::new(&schedule.time_zone),
                next,
                last(schedule.last.as_ref()),
                Cell::new(describe(schedule.name.as_ref(), &schedule.action)),
            ]);
        }
        page.table(&table);
    }
}
