//! `rye config variables`: lists the environment variables that rye reads and passes to tools.

use rye_executor::environment::{WITHHELD_PATTERNS, WITHHELD_VARIABLES};
use rye_host::settings::{ReadTime, VARIABLES};
use rye_items::metadata::Metadata;
use rye_items::{ItemKind, Library, SYSTEM};
use serde::Serialize;
use serde_json::{Value, json};

use crate::cli::failure::Failure;
use crate::cli::page::{BOLD, DIM, Page, paint};
use crate::cli::printer::Report;
use crate::cli::table::{Cell, Table};

/// Id prefix of the built-in runtimes.
const RUNTIMES: &str = "rye/core/runtimes/";

/// A variable that runtimes pass to their tools.
#[derive(Debug, Serialize)]
struct PassedVariable {
    name: String,
    /// Ids of the runtimes, without the common prefix.
    runtimes: Vec<String>,
    /// The value, as written in the runtime.
    value: String,
}

pub(super) struct Variables {
    passed: Vec<PassedVariable>,
    withheld: Vec<String>,
}

/// Lists the variables that the built-in runtimes pass, and those that are withheld.
pub(super) fn list() -> Result<Variables, Failure> {
    let library = Library::open(&rye_items::Options::new(&SYSTEM))?;
    let mut passed = Vec::new();
    for listed in library.list(ItemKind::Tool) {
        let found = listed?;
        let id = found.reference.id.to_string();
        if let Some(runtime) = id.strip_prefix(RUNTIMES) {
            let item = library.verify(&found, &library.trust())?;
            passed.extend(passed_by(runtime, &*library.metadata(&item)?));
        }
    }
    passed.sort_by(|a: &PassedVariable, b| (&a.name, &a.value).cmp(&(&b.name, &b.value)));
    passed.dedup_by(|next, one| {
        let same = (&next.name, &next.value) == (&one.name, &one.value);
        if same {
            one.runtimes.append(&mut next.runtimes);
        }
        same
    });
    let mut withheld = rye_executor::find_api_key_names(&library, &library.trust());
    withheld.extend(WITHHELD_VARIABLES.map(str::to_owned));
    Ok(Variables { passed, withheld })
}

fn passed_by(runtime: &str, metadata: &Metadata) -> Vec<PassedVariable> {
    let passed = |name: &str, value: String| PassedVariable {
        name: name.to_owned(),
        runtimes: vec![runtime.to_owned()],
        value,
    };
    let mut all = Vec::new();
    let config = metadata.value("env_config");
    let parts = config.and_then(Value::as_object).into_iter().flatten();
    // A part that names a variable finds an interpreter.
    for (_, part) in parts {
        if let Some(name) = part.get("var").and_then(Value::as_str) {
            all.push(passed(name, "path of the interpreter".to_owned()));
        }
    }
    let env = config.and_then(|config| config.get("env")?.as_object());
    for (name, value) in env.into_iter().flatten() {
        all.push(passed(name, display(value)));
    }
    let paths = metadata.value("anchor");
    let paths = paths.and_then(|anchor| anchor.get("env_paths")?.as_object());
    for (name, changes) in paths.into_iter().flatten() {
        for (how, dirs) in changes.as_object().into_iter().flatten() {
            all.push(passed(name, format!("{how} {}", display(dirs))));
        }
    }
    all
}

fn display(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(display).collect::<Vec<_>>().join(":"),
        other => other.to_string(),
    }
}

impl Report for Variables {
    fn json(&self) -> Value {
        json!({ "read": VARIABLES, "passed": self.passed, "withheld": self.withheld, "withheld_patterns": WITHHELD_PATTERNS })
    }

    fn show(&self, page: &mut Page) {
        page.line(paint(BOLD, "read by rye"));
        let mut table = Table::new(["NAME", "DESCRIPTION"]);
        for variable in VARIABLES {
            let when = match variable.read {
                ReadTime::Call => "",
                ReadTime::Build => "at build time: ",
            };
            let description = format!("{when}{}", variable.description.replace('`', ""));
            table.row([variable.name.into(), description.into()]);
        }
        page.table(&table);
        page.line("");
        page.line(paint(BOLD, "passed to tools"));
        let mut table = Table::new(["NAME", "RUNTIMES", "VALUE"]);
        for passed in &self.passed {
            let runtime = Cell::styled(DIM, passed.runtimes.join(", "));
            table.row([
                passed.name.as_str().into(),
                runtime,
                passed.value.as_str().into(),
            ]);
        }
        page.table(&table);
        page.line("");
        page.line(paint(BOLD, "never passed to tools"));
        page.line(self.withheld.join(" "));
        page.line(WITHHELD_PATTERNS);
    }
}
