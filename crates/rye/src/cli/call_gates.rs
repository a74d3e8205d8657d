//! Calls of MCP clients through which nobody can be asked, written down until a person
//! decides about them from another terminal.
//!
//! A file for each, `ID.json`, and beside it `ID.answer.json` once somebody has decided.
//! Each is there whole or not at all. An answer is for one call: whoever takes its file
//! away runs it. Parameters may be secrets, so nobody else may read any of it.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lillux::durable::{self, Existing};
use lillux::{At as _, Hash, canonical, time, visible_line};
use rye_mcp::{Decided, Gated, Piece};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::context::Context;
use super::failure::Failure;

/// How long a call waits, and how long an answer waits for its call.
const HOLDS: Duration = Duration::from_hours(24);

/// How many may wait: a client that asks again and again must not fill the disk.
const MOST: usize = 256;

/// How the id of each begins.
pub(crate) const OF_CALLS: &str = "gate:call-";

/// What somebody may answer.
pub(crate) const ANSWERS: [&str; 2] = ["approve", "deny"];

/// All calls that wait.
pub(crate) struct CallGates(PathBuf);

/// One of them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct CallGate {
    pub(crate) id: String,
    /// Which call it is about, by its content.
    call: Hash,
    pub(crate) project: PathBuf,
    tool: String,
    parameters: Value,
    chain: Hash,
    pieces: Vec<Piece>,
    pub(crate) title: String,
    pub(crate) body: String,
    created_at: i64,
}

/// What somebody decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Answer {
    pub(crate) action: String,
    pub(crate) by: String,
    pub(crate) at: String,
}

/// What became of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Given {
    /// It is written down, or the same was before.
    Written,
    /// Somebody said something else before.
    Conflict(Answer),
    /// Nobody waits for it.
    Gone,
}

impl CallGates {
    pub(crate) fn of(context: &Context) -> Result<Self, Failure> {
        let folder = context.settings.state_dir.as_ref().ok_or_else(|| {
            let message = "there is no folder to write calls down in: HOME is not set";
            Failure::usage(message).hint("export RYE_STATE_DIR=/the/folder")
        })?;
        Ok(Self(folder.value.join("gates")))
    }

    /// What was decided about a call; one that is new is written down.
    pub(crate) fn decided(&self, project: &Path, call: &Gated) -> Result<Decided, Failure> {
        durable::create_folder(&self.0, 0o700)?;
        let known = self.all()?;
        let hash = hash(project, call);
        let id = format!("{OF_CALLS}{}", &hash.to_hex()[..16]);
        if let Some(gate) = known.iter().find(|gate| gate.call == hash) {
            return match self.take(gate)? {
                Some(answer) if answer.action == ANSWERS[0] => Ok(Decided::Approved),
                Some(_) => Ok(Decided::Denied),
                None => self.wait(gate),
            };
        }
        if known.len() >= MOST {
            let message = format!("{MOST} calls wait for a person's decision already");
            return Err(Failure::failed("too_many_gates", message).hint("rye gate list"));
        }
        let gate = CallGate {
            id,
            call: hash,
            project: project.to_owned(),
            tool: call.tool.clone(),
            parameters: call.parameters.clone(),
            chain: call.chain,
            pieces: call.pieces.clone(),
            title: call.title.clone(),
            body: self.body(&known, project, call)?,
            created_at: time::now().epoch_ms,
        };
        self.wait(&gate)
    }

    /// Writes a gate down, if it is not: another process may have written the same, or have
    /// taken it away with its answer.
    fn wait(&self, gate: &CallGate) -> Result<Decided, Failure> {
        let text = serde_json::to_vec(gate).map_err(|error| Failure::failed("io", error))?;
        let path = self.file(&gate.id);
        match durable::write(&path, &text, 0o600, Existing::Refuse) {
            Err(error) if !path.exists() => Err(error.into()),
            _ => Ok(Decided::Waits {
                gate: gate.id.clone(),
            }),
        }
    }

    /// What a person must know; first of all what is not as they approved it.
    fn body(&self, known: &[CallGate], project: &Path, call: &Gated) -> Result<String, Failure> {
        let mut body = String::new();
        let alike = known
            .iter()
            .filter(|gate| gate.tool == call.tool && gate.project == project);
        for before in alike {
            let answer = self.answer(&before.id)?;
            if answer.is_some_and(|answer| answer.action == ANSWERS[0]) {
                let mut changes = changed_pieces(&before.pieces, &call.pieces);
                changes.extend(changed_parameters(&before.parameters, &call.parameters));
                let changes = changes.join("\n");
                body = format!("It was approved, and has changed since:\n{changes}\n\n");
            }
            // Those bytes are gone; a call with other parameters may still be made.
            if before.chain != call.chain {
                self.take(before)?;
                remove(&self.file(&before.id))?;
            }
        }
        Ok(body + &call.question)
    }

    /// Those about which nobody has decided, the oldest first.
    pub(crate) fn pending(&self) -> Result<Vec<CallGate>, Failure> {
        let all = self.with_answers()?.into_iter();
        let pending = all.filter(|(_, answer)| answer.is_none());
        Ok(pending.map(|(gate, _)| gate).collect())
    }

    /// All of them, with what somebody has decided.
    pub(crate) fn with_answers(&self) -> Result<Vec<(CallGate, Option<Answer>)>, Failure> {
        let with_answer = |gate: CallGate| {
            let answer = self.answer(&gate.id)?;
            Ok((gate, answer))
        };
        self.all()?.into_iter().map(with_answer).collect()
    }

    /// Writes an answer down; the first counts.
    pub(crate) fn give(&self, id: &str, answer: &Answer) -> Result<Given, Failure> {
        if !self.all()?.iter().any(|gate| gate.id == id) {
            return Ok(Given::Gone);
        }
        let text = serde_json::to_vec(answer).map_err(|error| Failure::failed("io", error))?;
        let path = self.answer_file(id);
        match durable::write(&path, &text, 0o600, Existing::Refuse) {
            Ok(()) => Ok(Given::Written),
            Err(error) => match self.answer(id)? {
                Some(first) if first.action == answer.action => Ok(Given::Written),
                Some(first) => Ok(Given::Conflict(first)),
                None => Err(error.into()),
            },
        }
    }

    /// All that are not too old; the rest are forgotten.
    fn all(&self) -> Result<Vec<CallGate>, Failure> {
        let entries = match fs::read_dir(&self.0) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => {
                return Err(error)
                    .at("read the folder", &self.0)
                    .map_err(Into::into);
            }
        };
        let now = time::now().epoch_ms;
        let mut all = Vec::new();
        for entry in entries {
            let path = entry.at("read the folder", &self.0)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if !name.ends_with(".json") || name.ends_with(".answer.json") {
                continue;
            }
            // Another process may just have taken it away.
            let Some(gate) = read::<CallGate>(&path)? else {
                continue;
            };
            let age = u128::try_from(now - gate.created_at).unwrap_or_default();
            if age <= HOLDS.as_millis() {
                all.push(gate);
            } else {
                remove(&self.answer_file(&gate.id))?;
                remove(&path)?;
            }
        }
        all.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
        Ok(all)
    }

    /// The answer to a gate, for whoever is first to take it away, and with it the gate.
    fn take(&self, gate: &CallGate) -> Result<Option<Answer>, Failure> {
        let Some(answer) = self.answer(&gate.id)? else {
            return Ok(None);
        };
        // The gate goes first: whoever is too late for the answer can then write it anew.
        remove(&self.file(&gate.id))?;
        let is_first = remove(&self.answer_file(&gate.id))?;
        durable::sync_folder(&self.0)?;
        Ok(is_first.then_some(answer))
    }

    fn answer(&self, id: &str) -> Result<Option<Answer>, Failure> {
        read(&self.answer_file(id))
    }

    fn file(&self, id: &str) -> PathBuf {
        self.0.join(format!("{}.json", word(id)))
    }

    fn answer_file(&self, id: &str) -> PathBuf {
        self.0.join(format!("{}.answer.json", word(id)))
    }
}

impl CallGate {
    /// As the gates of sessions are shown to programs.
    pub(crate) fn json(&self) -> Value {
        let label = |word: &str| match word {
            "approve" => "Approve",
            _ => "Deny",
        };
        json!({
            "id": self.id,
            "kind": "approval",
            "title": self.title,
            "body": self.body,
            "actions": ANSWERS.map(|id| json!({ "id": id, "label": label(id) })),
            "status": { "type": "pending" },
            "origin": { "mcp": true, "project": self.project, "tool": self.tool },
            "expires_at": self.created_at + i64::try_from(HOLDS.as_millis()).unwrap_or(i64::MAX),
            "context": { "chain_hash": self.chain, "pieces": self.pieces, "params": self.parameters },
            "created_at": self.created_at,
        })
    }
}

/// Removes a file, and says whether it was there.
fn remove(path: &Path) -> Result<bool, Failure> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).at("remove", path).map_err(Into::into),
    }
}

/// A gate's id without what all have in common.
fn word(id: &str) -> &str {
    id.strip_prefix("gate:").unwrap_or(id)
}

/// What a file says, if it is there.
fn read<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<Option<T>, Failure> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).at("read", path).map_err(Into::into),
    };
    let said = serde_json::from_slice(&bytes);
    said.map(Some).map_err(|error| {
        let message = format!("{} is no gate: {error}", path.display());
        Failure::failed("io", message).hint(format!("rm {}", path.display()))
    })
}

/// A call by its content: where, what, with what, and the bytes that would run.
fn hash(project: &Path, call: &Gated) -> Hash {
    let content = json!([project, call.tool, call.parameters, call.chain]);
    // In which order a client writes its parameters is nothing to ask about. What has no
    // such form, a number that is too large, counts as it is written.
    let content = canonical::to_vec(&content).unwrap_or_else(|_| content.to_string().into_bytes());
    Hash::of(content)
}

fn changed_pieces(before: &[Piece], now: &[Piece]) -> Vec<String> {
    let short = |hash: &str| hash.get(..16).unwrap_or(hash).to_owned();
    let of = |all: &[Piece], name: &str| {
        let piece = all.iter().find(|piece| piece.name == name);
        piece.map(|piece| short(&piece.hash))
    };
    let changed = now.iter().filter_map(|piece| {
        let (name, is) = (&piece.name, short(&piece.hash));
        match of(before, name) {
            None => Some(format!("- {name} was not part of it")),
            Some(was) if was != is => Some(format!("- {name} was {was} and is {is}")),
            Some(_) => None,
        }
    });
    let gone = before.iter().filter(|piece| of(now, &piece.name).is_none());
    let gone = gone.map(|piece| format!("- {} is no longer part of it", piece.name));
    changed.chain(gone).collect()
}

fn changed_parameters(before: &Value, now: &Value) -> Vec<String> {
    let (Value::Object(before), Value::Object(now)) = (before, now) else {
        return Vec::new();
    };
    let show = |value: Option<&Value>| match value {
        None => "not given".to_owned(),
        Some(value) => {
            let text = value.to_string();
            match text.char_indices().nth(200) {
                None => visible_line(&text).into_owned(),
                Some((at, _)) => format!("{}…", visible_line(&text[..at])),
            }
        }
    };
    let names = now
        .keys()
        .chain(before.keys().filter(|it| !now.contains_key(*it)));
    let changed = names.filter(|name| before.get(*name) != now.get(*name));
    let changed = changed.map(|name| {
        let [was, is] = [before, now].map(|all| show(all.get(name)));
        format!("- parameter `{}` was {was} and is {is}", visible_line(name))
    });
    changed.collect()
}

#[cfg(test)]
mod tests;
