//! `rye models`: lists and tests models.

use std::time::Duration;

use rye_engine::model::Models as _;
use rye_host::ModelSummary;
use rye_host::catalogue::{catalogue, list_reachable};
use rye_host::model_test::{TestedModel, test};
use serde_json::{Value, json};

use crate::cli::args::{ModelsCommand, TestArgs};
use crate::cli::context::Context;
use crate::cli::page::{BOLD, DIM, Page, paint, sanitize};
use crate::cli::printer::{Outcome, Report};
use crate::cli::table::{Cell, Table};

pub(crate) fn run(command: &ModelsCommand, context: &Context) -> Outcome {
    let models = catalogue(context, context.settings.project())?;
    match command {
        ModelsCommand::List => Ok(Box::new(List {
            default: models.default_name(),
            models: list_reachable(&models)?,
        })),
        ModelsCommand::Test(TestArgs { name }) => Ok(Box::new(test(&models, name.clone())?)),
    }
}

struct List {
    default: String,
    models: Vec<ModelSummary>,
}

impl Report for List {
    fn json(&self) -> Value {
        let models: Vec<_> = self.models.iter().map(model_json).collect();
        json!({ "default": self.default, "models": models })
    }

    fn show(&self, page: &mut Page) {
        let mut table = Table::new(["MODEL", "WINDOW", "OUTPUT", "$/M IN", "$/M OUT", "READY"]);
        for model in &self.models {
            // `rye models test` tells how to set a missing key.
            let ready = match (&model.usable, &model.missing_key) {
                (Ok(()), _) => Cell::new("yes"),
                (Err(_), Some(key)) => Cell::styled(DIM, format!("needs {key}")),
                (Err(why), None) => Cell::styled(DIM, why),
            };
            let name = if model.name == self.default {
                Cell::styled(BOLD, format!("{} (default)", model.name))
            } else {
                Cell::new(&model.name)
            };
            table.row([
                name,
                thousands(model.info.context_window).into(),
                thousands(model.info.max_output).into(),
                model.price.input.to_string().into(),
                model.price.output.to_string().into(),
                ready,
            ]);
        }
        page.table(&table);
    }

    fn next_command(&self) -> Option<String> {
        Some("rye models test".to_owned())
    }
}

fn model_json(model: &ModelSummary) -> Value {
    json!({
        "name": model.name,
        "api": model.api,
        "context_window": model.info.context_window,
        "max_output": model.info.max_output,
        "images": model.info.images,
        "supports_thinking": model.supports_thinking,
        "price": {
            "input": model.price.input,
            "output": model.price.output,
            "cache_read": model.price.cache_read,
            "cache_write": model.price.cache_write,
        },
        "usable": model.usable.is_ok(),
        "why_not": model.usable.as_ref().err(),
    })
}

fn thousands(tokens: u64) -> String {
    format!("{}k", tokens / 1000)
}

impl Report for TestedModel {
    fn json(&self) -> Value {
        json!({
            "name": self.name,
            "first_ms": self.first.as_millis(),
            "took_ms": self.took.as_millis(),
            "answer": self.text(),
            "stop_reason": self.answer.stop_reason,
            "usage": self.answer.usage,
        })
    }

    fn show(&self, page: &mut Page) {
        let usage = &self.answer.usage;
        page.line(format_args!(
            "{} answered: {}",
            paint(BOLD, sanitize(&self.name)),
            sanitize(self.text().trim())
        ));
        let cost = Duration::from_micros(usage.micro_dollars).as_secs_f64();
        page.line(format_args!(
            "first token after {} ms, complete after {} ms; {} input tokens, {} output tokens, ${cost:.6}",
            self.first.as_millis(),
            self.took.as_millis(),
            usage.input_tokens,
            usage.output_tokens,
        ));
    }
}
