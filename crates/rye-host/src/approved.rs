//! Answers that hold for a project: what a person let run there without asking again.
//!
//! Each is a signed file in the project that names what may run by its hash, and the folder
//! in which it may. A project has no other name that nobody can copy: whatever lies in its
//! folder, a stranger's repository can bring along. So an answer that somebody gave in one
//! folder is asked for again in another, and what a team lets run everywhere is for its
//! `approvals.yaml` to say.

use std::path::{Path, PathBuf};

use lillux::keys::SigningKey;
use lillux::{Hash, durable, sanitize_line};
use rye_engine::meta_tools::{ResolvedTool, StoredApproval, ToolProviderError};
use rye_items::CommentStyle;
use rye_items::signature::{self, APPROVAL, Binding};
use rye_items::trust::Trust;
use rye_items::verify::{self, SignatureFormat};
use serde::Deserialize;
use serde_json::json;

use crate::items::unusable;

/// Where the files are, relative to the project's `.ai/`.
const FOLDER: &str = "config/agent/approved";

/// What a file says, beside who let it.
#[derive(Deserialize)]
struct Said {
    tool: String,
    chain_hash: String,
    /// The folder of the project.
    project: String,
}

/// The answers of a project.
pub(crate) struct Approved {
    folder: PathBuf,
    /// The project's own folder, without links.
    project: String,
    /// Who signs them.
    key: Option<SigningKey>,
}

impl Approved {
    pub(crate) fn of(project: &Path, key: Option<SigningKey>) -> Self {
        let real = std::fs::canonicalize(project);
        let real = real.unwrap_or_else(|_| project.to_owned());
        Self {
            folder: project.join(".ai").join(FOLDER),
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

    /// Whether somebody who is trusted has written down that it may run here. What nobody
    /// trusted has signed says nothing.
    pub(crate) fn look(&self, prepared: &ResolvedTool, trust: &Trust<'_>) -> StoredApproval {
        let mut elsewhere = None;
        for name in self.files(&prepared.hash) {
            let Ok(bytes) = std::fs::read(self.folder.join(&name)) else {
                continue;
            };
            let said: Result<Said, _> = serde_saphyr::from_slice(&bytes);
            let Ok(said) = said else { continue };
            let is_it = said.tool == prepared.id && said.chain_hash == prepared.hash;
            if !is_it || !is_signed(&name, &bytes, trust) {
                continue;
            }
            match said.project {
                project if project == self.project => return StoredApproval::Granted,
                other => elsewhere = Some(other),
            }
        }
        match elsewhere {
            None => StoredApproval::NotGranted,
            Some(other) => StoredApproval::NotValidHere(self.why(&other)),
        }
    }

    fn why(&self, other: &str) -> String {
        format!(
            "It was approved for the project in {}, and this one is in {}.",
            sanitize_line(other),
            sanitize_line(&self.project)
        )
    }

    /// The files that may speak of a hash: each place has one of its own, so that those who
    /// share a project do not write over each other's.
    fn files(&self, hash: &str) -> Vec<String> {
        let entries = std::fs::read_dir(&self.folder).into_iter().flatten();
        let names = entries.flatten();
        let names = names.filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<_> = names.filter(|name| name.starts_with(hash)).collect();
        names.sort();
        names
    }

    /// Writes down that it may run here.
    pub(crate) fn write(&self, prepared: &ResolvedTool, by: &str) -> Result<(), ToolProviderError> {
        let key = self.key.as_ref().ok_or_else(|| {
            unusable(&"there is no key to sign the approval with: rye keys generate")
        })?;
        let time = lillux::time::now_rfc3339();
        // Each a JSON text, which is YAML too.
        let text = format!(
            "# This may run without asking in the project of this folder, as long as it is \
             what it was.\n\
             tool: {}\nchain_hash: {}\nproject: {}\nby: {}\n",
            json!(prepared.id),
            json!(prepared.hash),
            json!(self.project),
            json!(by)
        );
        let place = Hash::digest(&self.project).to_hex();
        let name = format!("{}-{place:.16}.yaml", prepared.hash);
        let binding = Binding::new(APPROVAL, format!("{FOLDER}/{name}"));
        let comment = CommentStyle::HASH;
        let signed = signature::sign(text.as_bytes(), &comment, &binding, key, &time, None);
        let signed = signed.map_err(|error| unusable(&error))?;
        let path = self.folder.join(name);
        let project = Path::new(&self.project);
        durable::create_dir_within(project, format!(".ai/{FOLDER}"), 0o755).map_err(|error| {
            let hint = error.hint().map(|hint| format!("\nhint: {hint}"));
            unusable(&format!("{error}{}", hint.unwrap_or_default()))
        })?;
        durable::write(&path, &signed, 0o644, durable::IfExists::Replace)
            .map_err(|error| unusable(&error))
    }
}

/// Whether a file is an approval that somebody who is trusted signed as such.
fn is_signed(name: &str, bytes: &[u8], trust: &Trust<'_>) -> bool {
    let form = SignatureFormat::config(APPROVAL, &format!("{FOLDER}/{name}"));
    verify::check(bytes, &form, trust).is_ok_and(|signed| signed.line.binding.is_some())
}
