//! `rye config variables`

use rye_executor::environment::{WITHHELD_PATTERNS, WITHHELD_VARIABLES};
use rye_items::metadata::Metadata;
use rye_items::{ItemKind, Library, SYSTEM};
use serde::Serialize;
use serde_json::{Value, json};

use crate::cli::failure::Failure;
use crate::cli::page::{BOLD, DIM, Page, paint};
use crate::cli::printer::Report;
use crate::cli::table::{Cell, Table};
use crate::settings::{Read, VARIABLES};

/// What the path of a runtime begins with.
const RUNTIMES: &str = "rye/core/runtimes/";

/// A variable that a runtime gives to the tools it runs.
#[derive(Debug, Serialize)]
struct Given {
    name: String,
    /// The runtimes, without what all their ids begin with.
    runtimes: Vec<String>,
    /// What it holds, as the runtime writes it.
    holds: String,
}

pub(super) struct Variables(Vec<Given>);

/// What is read, and what the runtimes inside this program give.
pub(super) fn list() -> Result<Variables, Failure> {
    let library = Library::open(&rye_items::Options::new(&SYSTEM))?;
    let mut given = Vec::new();
    for listed in library.list(ItemKind::Tool) {
        let (_, found) = listed?;
        let id = found.reference.id.to_string();
        if let Some(runtime) = id.strip_prefix(RUNTIMES) {
            let item = library.verify(&found, &library.trust())?;
            given.extend(given_by(runtime, &*library.metadata(&item)?));
        }
    }
    given.sort_by(|a: &Given, b| (&a.name, &a.holds).cmp(&(&b.name, &b.holds)));
    given.dedup_by(|next, one| {
        let same = (&next.name, &next.holds) == (&one.name, &one.holds);
        if same {
            one.runtimes.append(&mut next.runtimes);
        }
        same
    });
    Ok(Variables(given))
}

fn given_by(runtime: &str, metadata: &Metadata) -> Vec<Given> {
    let given = |name: &str, holds: String| Given {
        name: name.to_owned(),
        runtimes: vec![runtime.to_owned()],
        holds,
    };
    let mut all = Vec::new();
    let config = metadata.value("env_config");
    let parts = config.and_then(Value::as_object).into_iter().flatten();
    // Every part that names a variable finds an interpreter.
    for (_, part) in parts {
        if let Some(name) = part.get("var").and_then(Value::as_str) {
            all.push(given(name, "the program that was found".to_owned()));
        }
    }
    let env = config.and_then(|config| config.get("env")?.as_object());
    for (name, value) in env.into_iter().flatten() {
        all.push(given(name, words(value)));
    }
    let paths = metadata.value("anchor");
    let paths = paths.and_then(|anchor| anchor.get("env_paths")?.as_object());
    for (name, changes) in paths.into_iter().flatten() {
        for (how, folders) in changes.as_object().into_iter().flatten() {
            all.push(given(name, format!("{how} {}", words(folders))));
        }
    }
    all
}

fn words(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(words).collect::<Vec<_>>().join(":"),
        other => other.to_string(),
    }
}

impl Report for Variables {
    fn json(&self) -> Value {
        json!({ "read": VARIABLES, "given": self.0, "withheld": WITHHELD_VARIABLES, "withheld_patterns": WITHHELD_PATTERNS })
    }

    fn show(&self, page: &mut Page) {
        page.line(paint(BOLD, "read"));
        let mut table = Table::new(["NAME", "SAYS"]);
        for variable in VARIABLES {
            let when = match variable.read {
                Read::Call => "",
                Read::Build => "when rye is built: ",
            };
            let says = format!("{when}{}", variable.says.replace('`', ""));
            table.row([variable.name.into(), says.into()]);
        }
        page.table(&table);
        page.line("");
        page.line(paint(BOLD, "given to tools"));
        let mut table = Table::new(["NAME", "RUNTIMES", "HOLDS"]);
        for given in &self.0 {
            let runtime = Cell::styled(DIM, given.runtimes.join(", "));
            table.row([
                given.name.as_str().into(),
                runtime,
                given.holds.as_str().into(),
            ]);
        }
        page.table(&table);
        page.line("");
        page.line(paint(BOLD, "never given to tools"));
        page.line(WITHHELD_VARIABLES.join(" "));
        page.line(WITHHELD_PATTERNS);
    }
}
