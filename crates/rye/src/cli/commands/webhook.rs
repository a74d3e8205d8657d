//! `rye webhook` and `rye hook`: sends events to URLs, and starts work when requests arrive.

use rye_automation::{
    Delivery, DeliveryStatus, Hook, NewHook, NewWebhook, Owner, Webhook, Webhooks,
};
use rye_host::automation::{with_hooks, with_webhooks};
use rye_host::lookup::{find_id, unique_short_id};
use serde_json::{Value, json};

use super::schedule::{action, describe, time};
use crate::cli::args::{
    AddHookArgs, AddWebhookArgs, DeliveriesArgs, HookCommand, ReplayDeliveryArgs, WebhookCommand,
};
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::page::{BAD, DIM, GOOD, Page, WARN};
use crate::cli::printer::{Outcome, Report};
use crate::cli::table::{Cell, Table};

const LIST: &str = "rye webhook list";

/// Number of deliveries among which an id is looked up.
const SEARCHED: usize = 10_000;

pub(crate) fn run(command: WebhookCommand, context: &Context) -> Outcome {
    match command {
        WebhookCommand::Add(args) => add(args, context),
        WebhookCommand::List => {
            let all = with_webhooks(context, async |webhooks| Ok(webhooks.list().await?))?;
            Ok(Box::new(List(all)))
        }
        WebhookCommand::Rm(args) => {
            let removed = with_webhooks(context, async |webhooks| {
                let webhook = find(webhooks, &args.id).await?;
                Ok(webhooks.remove(webhook.id.as_str()).await?)
            })?;
            Ok(Box::new(Removed("webhook", removed.id.to_string())))
        }
        WebhookCommand::Deliveries(args) => deliveries(&args, context),
        WebhookCommand::Replay(args) => replay(&args, context),
    }
}

pub(crate) fn run_hook(command: HookCommand, context: &Context) -> Outcome {
    match command {
        HookCommand::Add(args) => add_hook(*args, context),
        HookCommand::List => {
            let all = with_hooks(context, async |hooks| Ok(hooks.list().await?))?;
            Ok(Box::new(HookList(all)))
        }
        HookCommand::Rm(args) => {
            let removed = with_hooks(context, async |hooks| {
                let all = hooks.list().await?;
                let ids = all.iter().map(|it| it.id.as_str());
                let id = find_id(ids, &args.id, "hook", "rye hook list")?;
                Ok(hooks.remove(id).await?)
            })?;
            Ok(Box::new(Removed("hook", removed.id.to_string())))
        }
    }
}

fn owner(user: Option<String>, org: Option<String>, context: &Context) -> Result<Owner, Failure> {
    Ok(Owner {
        user,
        org,
        project: context.settings.project().display().to_string(),
        created_by: context.user_name()?,
    })
}

fn add(args: AddWebhookArgs, context: &Context) -> Outcome {
    let new = NewWebhook {
        owner: owner(args.user, args.org, context)?,
        name: args.name,
        url: args.url,
        events: args.events,
        allow_private: args.allow_private,
    };
    let (webhook, secret) = with_webhooks(context, async |webhooks| Ok(webhooks.add(new).await?))?;
    Ok(Box::new(Added {
        kind: "webhook",
        id: webhook.id.to_string(),
        value: json!(webhook),
        secret: secret.to_string(),
    }))
}

fn add_hook(args: AddHookArgs, context: &Context) -> Outcome {
    let new = NewHook {
        owner: owner(args.user, args.org, context)?,
        name: args.name,
        action: action(args.action, context)?,
    };
    let (hook, secret) = with_hooks(context, async |hooks| Ok(hooks.add(new).await?))?;
    Ok(Box::new(Added {
        kind: "hook",
        id: hook.id.to_string(),
        value: json!(hook),
        secret: secret.to_string(),
    }))
}

/// The webhook with an id or a part of it.
async fn find(webhooks: &Webhooks, part: &str) -> Result<Webhook, Failure> {
    let all = webhooks.list().await?;
    let ids = all.iter().map(|it| it.id.as_str());
    let id = find_id(ids, part, "webhook", LIST)?.to_owned();
    let found = all.into_iter().find(|it| it.id.as_str() == id);
    found.ok_or_else(|| rye_host::lookup::not_found("webhook", part, LIST))
}

fn deliveries(args: &DeliveriesArgs, context: &Context) -> Outcome {
    let found = with_webhooks(context, async |webhooks| {
        let webhook = find(webhooks, &args.webhook.id).await?;
        let limit = usize::from(args.limit);
        Ok(webhooks.deliveries(&webhook.id, None, limit).await?)
    })?;
    Ok(Box::new(Deliveries(found)))
}

fn replay(args: &ReplayDeliveryArgs, context: &Context) -> Outcome {
    let replayed = with_webhooks(context, async |webhooks| {
        let webhook = find(webhooks, &args.webhook.id).await?;
        let all = webhooks.deliveries(&webhook.id, None, SEARCHED).await?;
        let selected: Vec<&str> = if let Some(part) = &args.delivery {
            let ids = all.iter().map(|it| it.id.as_str());
            let hint = format!("rye webhook deliveries {}", webhook.id.short());
            vec![find_id(ids, part, "delivery", &hint)?]
        } else {
            let failed = all.iter().filter(|it| it.status == DeliveryStatus::Failed);
            failed.map(|it| it.id.as_str()).collect()
        };
        let mut replayed = Vec::new();
        for id in selected {
            replayed.push(webhooks.replay(&webhook.id, id).await?);
        }
        Ok(replayed)
    })?;
    Ok(Box::new(Deliveries(replayed)))
}

/// A webhook or hook that was created.
struct Added {
    kind: &'static str,
    id: String,
    value: Value,
    secret: String,
}

impl Report for Added {
    fn json(&self) -> Value {
        json!({ self.kind: self.value, "secret": self.secret })
    }

    fn show(&self, page: &mut Page) {
        if self.kind == "hook" {
            page.line(format_args!("/api/hooks/{}", self.id));
        }
        page.line(&self.secret);
    }

    fn next_command(&self) -> Option<String> {
        Some(format!(
            "rye {} rm {} # when it is no longer needed",
            self.kind, self.id
        ))
    }
}

struct Removed(&'static str, String);

impl Report for Removed {
    fn json(&self) -> Value {
        json!({ "removed": self.1 })
    }

    fn show(&self, page: &mut Page) {
        page.line(format_args!("deleted {} {}", self.0, self.1));
    }
}

struct List(Vec<Webhook>);

impl Report for List {
    fn json(&self) -> Value {
        json!({ "webhooks": self.0 })
    }

    fn show(&self, page: &mut Page) {
        if self.0.is_empty() {
            page.line("no webhooks");
            return;
        }
        let mut table = Table::new(["ID", "STATE", "EVENTS", "URL"]);
        for webhook in &self.0 {
            let ids = self.0.iter().map(|it| it.id.as_str());
            let events = match webhook.events.as_slice() {
                [] => "all".to_owned(),
                events => events.join(","),
            };
            table.row([
                Cell::styled(DIM, unique_short_id(webhook.id.as_str(), ids)),
                match &webhook.disabled {
                    None => Cell::styled(GOOD, "active"),
                    Some(why) => Cell::styled(BAD, format!("disabled: {why}")),
                },
                Cell::new(events),
                Cell::new(&webhook.url),
            ]);
        }
        page.table(&table);
    }
}

struct HookList(Vec<Hook>);

impl Report for HookList {
    fn json(&self) -> Value {
        json!({ "hooks": self.0 })
    }

    fn show(&self, page: &mut Page) {
        if self.0.is_empty() {
            page.line("no hooks");
            return;
        }
        let mut table = Table::new(["ID", "STARTS"]);
        for hook in &self.0 {
            table.row([
                Cell::styled(DIM, hook.id.as_str()),
                Cell::new(describe(hook.name.as_ref(), &hook.action)),
            ]);
        }
        page.table(&table);
    }
}

struct Deliveries(Vec<Delivery>);

impl Report for Deliveries {
    fn json(&self) -> Value {
        json!({ "deliveries": self.0 })
    }

    fn show(&self, page: &mut Page) {
        if self.0.is_empty() {
            page.line("no deliveries");
            return;
        }
        let header = ["ID", "STATE", "EVENT", "TIME", "ATTEMPTS", "ERROR"];
        let mut table = Table::new(header);
        for delivery in &self.0 {
            let style = match delivery.status {
                DeliveryStatus::Delivered => GOOD,
                DeliveryStatus::Pending => WARN,
                DeliveryStatus::Failed => BAD,
            };
            table.row([
                Cell::styled(DIM, delivery.id.as_str()),
                Cell::styled(style, delivery.status.to_string()),
                Cell::new(&delivery.event),
                Cell::new(time(delivery.created_at)),
                Cell::new(delivery.attempts.to_string()),
                Cell::new(delivery.last_error.as_deref().unwrap_or_default()),
            ]);
        }
        page.table(&table);
    }
}
