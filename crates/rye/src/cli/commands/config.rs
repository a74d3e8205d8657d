//! `rye config`: shows settings and environment variables, accepts project configuration.

mod accept;
mod variables;

use std::path::Path;

use rye_host::settings::{Setting, Settings};
use serde_json::{Map, Value, json};

use crate::cli::args::ConfigCommand;
use crate::cli::context::Context;
use crate::cli::page::{DIM, Page, WARN, paint, sanitize};
use crate::cli::printer::{Outcome, Report};
use crate::cli::table::{Cell, Table};

pub(crate) fn run(command: &ConfigCommand, context: &Context) -> Outcome {
    Ok(match command {
        ConfigCommand::Show => Box::new(SettingsReport {
            rows: rows(&context.settings),
            ignored: ignored(&context.settings),
        }),
        ConfigCommand::Variables => Box::new(variables::list()?),
        ConfigCommand::Accept(args) => accept::run(args, context)?,
    })
}

struct Row {
    key: &'static str,
    value: Value,
    origin: String,
}

struct SettingsReport {
    rows: Vec<Row>,
    ignored: Vec<Value>,
}

fn rows(settings: &Settings) -> Vec<Row> {
    let dirs = &settings.dirs;
    let path = |path: &Path| Value::from(path.to_string_lossy());
    let list = dirs.system_space.value.iter().map(|p| path(p)).collect();
    vec![
        row("project", &dirs.project, path(&dirs.project.value)),
        optional("user_space", dirs.user_space.as_ref(), |p| path(p)),
        row("system_space", &dirs.system_space, Value::Array(list)),
        optional("cache_dir", settings.cache_dir.as_ref(), |p| path(p)),
        optional("state_dir", settings.state_dir.as_ref(), |p| path(p)),
        row(
            "color",
            &settings.color,
            settings.color.value.as_str().into(),
        ),
        row(
            "chat.theme",
            &settings.chat_theme,
            <&str>::from(settings.chat_theme.value).into(),
        ),
        row(
            "chat.notify",
            &settings.chat_notify,
            <&str>::from(settings.chat_notify.value).into(),
        ),
        row(
            "search.limit",
            &settings.search_limit,
            settings.search_limit.value.into(),
        ),
        row(
            "dev_mode",
            &settings.dev_mode,
            settings.dev_mode.value.into(),
        ),
        row("debug", &settings.debug, settings.debug.value.into()),
        row(
            "signatures",
            &settings.bound_signatures,
            if settings.bound_signatures.value {
                "bound".into()
            } else {
                "any".into()
            },
        ),
    ]
}

fn row<T>(key: &'static str, setting: &Setting<T>, value: Value) -> Row {
    Row {
        key,
        value,
        origin: setting.origin.to_string(),
    }
}

fn optional<T>(
    key: &'static str,
    setting: Option<&Setting<T>>,
    value: impl Fn(&T) -> Value,
) -> Row {
    match setting {
        Some(setting) => row(key, setting, value(&setting.value)),
        None => Row {
            key,
            value: Value::Null,
            origin: "HOME is not set".to_owned(),
        },
    }
}

fn ignored(settings: &Settings) -> Vec<Value> {
    let entries = settings.ignored.iter().map(|ignored| {
        json!({
            "path": ignored.path.to_string_lossy(),
            "space": ignored.space,
            "reason": ignored.reason,
            "hint": ignored.hint,
        })
    });
    entries.collect()
}

impl Report for SettingsReport {
    fn json(&self) -> Value {
        let settings: Map<_, _> = self
            .rows
            .iter()
            .map(|row| {
                let entry = json!({ "value": row.value, "origin": row.origin });
                (row.key.to_owned(), entry)
            })
            .collect();
        json!({ "settings": settings, "ignored": self.ignored })
    }

    fn show(&self, page: &mut Page) {
        let mut table = Table::new(["KEY", "VALUE", "ORIGIN"]);
        for row in &self.rows {
            let value = display(&row.value);
            table.row([row.key.into(), value.into(), Cell::styled(DIM, &row.origin)]);
        }
        page.table(&table);
        for ignored in &self.ignored {
            let (path, reason) = (display(&ignored["path"]), display(&ignored["reason"]));
            page.line(format_args!(
                "{} {}: {}",
                paint(WARN, "ignored"),
                sanitize(&path),
                sanitize(&reason)
            ));
        }
    }
}

fn display(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(list) if list.is_empty() => "-".to_owned(),
        Value::Array(list) => list.iter().map(display).collect::<Vec<_>>().join(":"),
        other => other.to_string(),
    }
}
