//! Approvals for a project: tools that may run there without asking again.
//!
//! Each approval is a signed file in the project. It contains the chain hash of the tool and the
//! directory of the project. A repository can contain any file, so the directory is the only
//! property that identifies the project: an approval is not valid in another directory. Rules
//! that apply to all copies of a project belong in `approvals.yaml`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use lillux::keys::SigningKey;
use lillux::{Hash, durable, sanitize_line};
use rye_engine::audit::CHAIN_HASH;
use rye_engine::protocol::Gate;
use rye_engine::tool::TOOL_ID;
use rye_engine::tool_provider::{
    Component, ResolvedTool, StoredApproval, ToolProviderError, components_of,
};
use rye_items::CommentStyle;
use rye_items::signature::{self, APPROVAL, Binding};
use rye_items::trust::Trust;
use rye_items::verify::{self, SignatureFormat};
use serde::Deserialize;
use serde_json::json;

use crate::failure::Failure;
use crate::item_tools::{SERVICE, tool_failure};

/// Directory of the approvals, relative to the project's `.ai/`.
const DIR: &str = "config/agent/approved";

/// The content of an approval file.
#[derive(Deserialize)]
struct ApprovalFile {
    tool: String,
    chain_hash: String,
    /// Directory of the project.
    project: String,
    /// What ran, for a comparison with later versions.
    #[serde(default)]
    components: Vec<Component>,
}

/// The approvals of a project.
pub(crate) struct ProjectApprovals {
    dir: PathBuf,
    /// Directory of the project, without symbolic links.
    project: String,
    /// Signs new approvals.
    key: Option<Arc<SigningKey>>,
}

impl ProjectApprovals {
    pub(crate) fn new(project: &Path, key: Option<Arc<SigningKey>>) -> Self {
        let real = std::fs::canonicalize(project);
        let real = real.unwrap_or_else(|_| project.to_owned());
        Self {
            dir: project.join(".ai").join(DIR),
            project: real.to_string_lossy().into_owned(),
            key,
        }
    }

    pub(crate) fn project(&self) -> &str {
        &self.project
    }

    pub(crate) fn can_sign(&self) -> bool {
        self.key.is_some()
    }

    /// Finds the approval of a tool. Ignores files without a trusted signature.
    pub(crate) fn find(&self, tool: &ResolvedTool, trust: &Trust<'_>) -> StoredApproval {
        let mut elsewhere = None;
        for name in self.files(&tool.hash) {
            let Some((file, _)) = self.read(&name, &tool.id, trust) else {
                continue;
            };
            if file.chain_hash != tool.hash {
                continue;
            }
            match file.project {
                project if project == self.project => return StoredApproval::Granted,
                other => elsewhere = Some(other),
            }
        }
        match elsewhere {
            None => StoredApproval::NotGranted,
            Some(other) => StoredApproval::NotValidHere(self.describe_mismatch(&other)),
        }
    }

    /// The files of a tool at its newest approval in this project, if they have changed since.
    pub(crate) fn last_approved(
        &self,
        tool: &ResolvedTool,
        trust: &Trust<'_>,
    ) -> Option<Vec<Component>> {
        let files = self.files("");
        let read = |name: &String| self.read(name, &tool.id, trust);
        let own = files.iter().filter_map(read);
        let own = own.filter(|(file, _)| file.project == self.project);
        let (newest, _) = own.max_by(|(_, a), (_, b)| a.cmp(b))?;
        (newest.chain_hash != tool.hash).then_some(newest.components)
    }

    /// Reads the approval of a tool and when it was signed. `None` if the file is none, or has no
    /// trusted signature.
    fn read(&self, name: &str, tool: &str, trust: &Trust<'_>) -> Option<(ApprovalFile, String)> {
        let bytes = std::fs::read(self.dir.join(name)).ok()?;
        let file: ApprovalFile = serde_saphyr::from_slice(&bytes).ok()?;
        if file.tool != tool {
            return None;
        }
        let format = SignatureFormat::config(APPROVAL, &format!("{DIR}/{name}"));
        let signed = verify::check(&bytes, &format, trust).ok()?;
        signed
            .line
            .binding
            .is_some()
            .then_some((file, signed.line.time))
    }

    fn describe_mismatch(&self, other: &str) -> String {
        format!(
            "It was approved for the project in {}, but this project is in {}.",
            sanitize_line(other),
            sanitize_line(&self.project)
        )
    }

    /// Names of the files about chain hashes that start with `hash`. There is one per project directory, so that people
    /// who share a project do not overwrite each other's approvals.
    fn files(&self, hash: &str) -> Vec<String> {
        let entries = std::fs::read_dir(&self.dir).into_iter().flatten();
        let names = entries.flatten();
        let names = names.filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<_> = names.filter(|name| name.starts_with(hash)).collect();
        names.sort();
        names
    }

    /// Writes a signed approval of the chain with this hash.
    pub(crate) fn write(
        &self,
        tool: &str,
        hash: &str,
        components: &[Component],
        by: &str,
    ) -> Result<(), ToolProviderError> {
        let key = self.key.as_ref().ok_or_else(|| {
            tool_failure(&"there is no key to sign the approval\nhint: rye keys generate")
        })?;
        let time = lillux::time::now_rfc3339();
        // JSON strings are valid YAML.
        let text = format!(
            "# This tool may run without asking in this project directory, as long as its chain \
             hash is unchanged.\n\
             tool: {}\nchain_hash: {}\nproject: {}\nby: {}\ncomponents: {}\n",
            json!(tool),
            json!(hash),
            json!(self.project),
            json!(by),
            json!(components)
        );
        let dir_hash = Hash::digest(&self.project).to_hex();
        let name = format!("{hash}-{dir_hash:.16}.yaml");
        let binding = Binding::new(APPROVAL, format!("{DIR}/{name}"));
        let comment = CommentStyle::HASH;
        let signed = signature::sign(text.as_bytes(), &comment, &binding, key, &time, None);
        let signed = signed.map_err(|error| tool_failure(&error))?;
        let path = self.dir.join(name);
        let project = Path::new(&self.project);
        durable::create_dir_within(project, format!(".ai/{DIR}"), 0o755).map_err(|error| {
            let hint = error.hint().map(|hint| format!("\nhint: {hint}"));
            tool_failure(&format!("{error}{}", hint.unwrap_or_default()))
        })?;
        durable::write(&path, &signed, 0o644, durable::IfExists::Replace)
            .map_err(|error| tool_failure(&error))
    }
}

/// Stores the approval for the project that the answer to a gate contains, so that it counts before
/// the call runs.
pub fn store_project_approval(
    gate: &Gate,
    project: &Path,
    key: Option<Arc<SigningKey>>,
    by: &str,
) -> Result<(), Failure> {
    let text = |key: &str| gate.context.get(key).and_then(serde_json::Value::as_str);
    let tool = text(TOOL_ID).and_then(|tool| tool.split_once(':'));
    let tool = tool.filter(|(service, _)| *service == SERVICE);
    let (Some((_, tool)), Some(hash)) = (tool, text(CHAIN_HASH)) else {
        return Ok(());
    };
    let components = components_of(&gate.context);
    let written = ProjectApprovals::new(project, key).write(tool, hash, &components, by);
    written.map_err(|error| Failure::failed("approval_not_stored", error))
}
