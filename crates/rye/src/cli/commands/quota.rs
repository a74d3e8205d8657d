//! `rye quota`: limits what users and organisations may use.

use rye_engine::quotas::{Quota, QuotaState, Subject, SubjectKind};
use rye_host::automation::with_quotas;
use serde_json::{Value, json};

use super::schedule::time;
use crate::cli::args::{QuotaCommand, QuotaOwnerArgs, SetQuotaArgs};
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::page::{DIM, Page};
use crate::cli::printer::{Outcome, Report};
use crate::cli::table::{Cell, Table};

pub(crate) fn run(command: QuotaCommand, context: &Context) -> Outcome {
    match command {
        QuotaCommand::List => {
            let all = with_quotas(context, async |quotas| Ok(quotas.list().await?))?;
            Ok(Box::new(List(all)))
        }
        QuotaCommand::Set(args) => set(args, context),
        QuotaCommand::Rm(owner) => {
            let subject = subject(owner)?;
            let existed = with_quotas(context, async |quotas| Ok(quotas.remove(&subject).await?))?;
            if !existed {
                let message = format!("the {subject} has no quota");
                return Err(Failure::failed("quota_not_found", message).hint("rye quota list"));
            }
            Ok(Box::new(Changed {
                what: "removed",
                subject,
            }))
        }
    }
}

fn set(args: SetQuotaArgs, context: &Context) -> Outcome {
    let subject = subject(args.owner)?;
    let quota = Quota {
        tokens: args.tokens,
        micro_dollars: args.spend,
        period: args.per.into(),
        turns: args.turns,
        requests_per_minute: args.requests,
    };
    with_quotas(context, async |quotas| {
        Ok(quotas.set(&subject, &quota).await?)
    })?;
    Ok(Box::new(Changed {
        what: "set",
        subject,
    }))
}

fn subject(owner: QuotaOwnerArgs) -> Result<Subject, Failure> {
    let (kind, name) = match (owner.user, owner.org) {
        (Some(user), _) => (SubjectKind::User, user),
        (None, org) => (SubjectKind::Org, org.unwrap_or_default()),
    };
    if name.trim().is_empty() {
        return Err(Failure::usage("the name is empty").hint("rye quota set --help"));
    }
    Ok(Subject { kind, name })
}

/// A quota that was changed.
struct Changed {
    what: &'static str,
    subject: Subject,
}

impl Report for Changed {
    fn json(&self) -> Value {
        json!({ "quota": self.what, "owner": self.subject })
    }

    fn show(&self, page: &mut Page) {
        let Self { what, subject } = self;
        page.line(format_args!("{what} the quota of the {subject}"));
    }
}

struct List(Vec<QuotaState>);

fn dollars(micro: u64) -> String {
    format!("${}.{:02}", micro / 1_000_000, micro % 1_000_000 / 10_000)
}

/// What is used of a limit.
fn of(used: &str, limit: Option<String>) -> Cell {
    limit.map_or_else(
        || Cell::styled(DIM, "-"),
        |limit| Cell::new(format!("{used} of {limit}")),
    )
}

impl Report for List {
    fn json(&self) -> Value {
        json!({ "quotas": self.0 })
    }

    fn show(&self, page: &mut Page) {
        if self.0.is_empty() {
            page.line("no quotas");
            return;
        }
        let header = ["OWNER", "TOKENS", "SPEND", "RENEWS", "TURNS", "REQUESTS"];
        let mut table = Table::new(header);
        for state in &self.0 {
            let QuotaState { quota, used, .. } = state;
            let requests = quota.requests_per_minute;
            let requests = requests.map(|requests| format!("{requests} per minute"));
            table.row([
                Cell::new(state.subject.to_string()),
                of(
                    &used.tokens().to_string(),
                    quota.tokens.map(|limit| limit.to_string()),
                ),
                of(
                    &dollars(used.micro_dollars),
                    quota.micro_dollars.map(dollars),
                ),
                Cell::new(time(state.renews_at)),
                of(
                    &state.running_turns.to_string(),
                    quota.turns.map(|limit| limit.to_string()),
                ),
                requests.map_or_else(|| Cell::styled(DIM, "-"), Cell::new),
            ]);
        }
        page.table(&table);
    }
}
