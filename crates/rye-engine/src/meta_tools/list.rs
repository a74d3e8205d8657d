//! `list_tools`: what there is.

use std::fmt::Write as _;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Bridge, ToolSummary};
use crate::BoxFuture;
use crate::tool::{Effect, Tool, ToolContext, ToolDef, ToolError, ToolOutput};

/// How many are listed where nobody says.
const USUAL: usize = 20;
/// At most.
const MOST: usize = 200;

pub(super) struct ListTools {
    def: ToolDef,
    bridge: Arc<Bridge>,
}

#[derive(Deserialize)]
struct Args {
    service: Option<String>,
    query: Option<String>,
    limit: Option<usize>,
}

impl ListTools {
    pub(super) fn new(bridge: Arc<Bridge>) -> Self {
        let parameters = json!({
            "type": "object",
            "properties": {
                "service": { "type": "string", "description": "Only of this service." },
                "query": { "type": "string", "description": "Words that say what it should do." },
                "limit": { "type": "integer", "minimum": 1, "maximum": MOST }
            },
            "additionalProperties": false
        });
        let description = format!(
            "Finds further tools by what they do. There may be thousands, so say what you need. \
             Services: {}.",
            bridge.services()
        );
        let def = ToolDef::new("list_tools", description, parameters).effect(Effect::Pure);
        Self { def, bridge }
    }

    async fn list(&self, args: Args) -> Result<ToolOutput, ToolError> {
        let query = args.query.unwrap_or_default();
        let limit = args.limit.unwrap_or(USUAL).min(MOST);
        let (mut of_each, mut total, mut warnings) = (Vec::new(), 0, Vec::new());
        let named = args.service.as_deref();
        let mut known = false;
        for source in &self.bridge.sources {
            if named.is_some_and(|name| name != source.service()) {
                continue;
            }
            known = true;
            match source.list(&query, limit).await {
                Ok(listing) => {
                    total += listing.total;
                    warnings.extend(listing.warnings);
                    of_each.push((source.service(), listing.tools.into_iter()));
                }
                // One that cannot be reached does not hide the others.
                Err(error) => warnings.push(format!("{}: {error}", source.service())),
            }
        }
        if !known {
            let message = format!(
                "there is no such service; there are {}",
                self.bridge.services()
            );
            return Err(ToolError::failed(message));
        }
        let found = in_turn(of_each, limit);
        Ok(told(&found, total, &warnings))
    }
}

/// The best of each source, then the second best of each, and so on: what fits best in one
/// says nothing of what fits in another.
fn in_turn(
    mut of_each: Vec<(&str, impl Iterator<Item = ToolSummary>)>,
    limit: usize,
) -> Vec<(&str, ToolSummary)> {
    let mut found = Vec::new();
    while found.len() < limit {
        let before = found.len();
        for (service, actions) in &mut of_each {
            found.extend(actions.next().map(|it| (*service, it)));
        }
        if found.len() == before {
            break;
        }
    }
    found.truncate(limit);
    found
}

fn told(found: &[(&str, ToolSummary)], total: usize, warnings: &[String]) -> ToolOutput {
    let mut text = String::new();
    for (service, action) in found {
        let parameters = match action.parameters.as_slice() {
            [] => String::new(),
            names => format!(" ({})", names.join(", ")),
        };
        let risk = action
            .risk
            .map_or(String::new(), |risk| format!(" [{}]", risk.as_str()));
        let described = action.description.lines().next().unwrap_or_default();
        let _ = writeln!(
            text,
            "{service}:{}{parameters}{risk}: {described}",
            action.id
        );
    }
    if found.is_empty() {
        text += "nothing fits\n";
    } else if total > found.len() {
        let _ = writeln!(
            text,
            "… and {} more that fit less well",
            total - found.len()
        );
    }
    for warning in warnings {
        let _ = writeln!(text, "warning: {warning}");
    }
    let tools: Vec<_> = found
        .iter()
        .map(|(service, action)| {
            let mut tool = json!(action);
            tool["id"] = json!(format!("{service}:{}", action.id));
            tool
        })
        .collect();
    ToolOutput {
        text,
        data: json!({ "tools": tools, "total": total, "warnings": warnings }),
        attachments: Vec::new(),
    }
}

impl Tool for ListTools {
    fn def(&self) -> &ToolDef {
        &self.def
    }

    fn run(&self, args: Value, _: ToolContext) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let args = crate::builtin::parse(args)?;
            self.list(args).await
        })
    }
}
