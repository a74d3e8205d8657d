//! `rye keys`: generates, lists, trusts and revokes signing keys.

mod list;

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;

use lillux::keys::{Fingerprint, IfExists, PublicKey};
use lillux::shell_word;
use rye_host::init::key_owner;
use rye_items::read_key_file;
use rye_items::trust::DistrustReason;
use serde_json::{Value, json};

use crate::cli::args::{GenerateArgs, KeysCommand, RevokeArgs, TrustArgs};
use crate::cli::context::Context;
use crate::cli::failure::{Exit, Failure};
use crate::cli::page::{BOLD, DIM, Page, WARN, paint, sanitize};
use crate::cli::printer::{Outcome, Report};

pub(crate) fn run(command: &KeysCommand, context: &Context) -> Outcome {
    match command {
        KeysCommand::Generate(args) => generate(args, context),
        KeysCommand::List => list::run(context),
        KeysCommand::Trust(args) => trust(args, context),
        KeysCommand::Revoke(args) => revoke(args, context),
        KeysCommand::Show => show(context),
    }
}

fn generate(args: &GenerateArgs, context: &Context) -> Outcome {
    let existing = if args.force {
        IfExists::Replace
    } else {
        IfExists::Fail
    };
    let keys = context.own_keys()?;
    let owner = key_owner(args.owner.as_deref());
    let key = keys.generate(&owner, existing)?;
    Ok(Box::new(OwnKey {
        key: key.public().clone(),
        private: keys.pair_files().private,
        trusted: true,
        is_new: true,
    }))
}

fn show(context: &Context) -> Outcome {
    let keys = context.own_keys()?;
    let key = keys.load_signing_key()?.public().clone();
    let library = context.library()?;
    let trusted = library.trust().key_status(key.fingerprint()).is_ok();
    Ok(Box::new(OwnKey {
        key,
        private: keys.pair_files().private,
        trusted,
        is_new: false,
    }))
}

/// The user's own key.
struct OwnKey {
    key: PublicKey,
    private: PathBuf,
    trusted: bool,
    is_new: bool,
}

impl Report for OwnKey {
    fn json(&self) -> Value {
        json!({
            "fingerprint": self.key.fingerprint(),
            "public_key": self.key.to_pem(),
            "private_key_path": self.private.to_string_lossy(),
            "trusted": self.trusted,
        })
    }

    fn show(&self, page: &mut Page) {
        let word = if self.is_new { "generated key" } else { "key" };
        let fingerprint = paint(BOLD, self.key.fingerprint());
        page.line(format_args!("{word} {fingerprint}"));
        let path = format!("private key: {}", self.private.display());
        page.line(paint(DIM, path));
        if !self.trusted {
            page.line(paint(WARN, "not trusted; to trust it: rye init"));
        }
        page.text(&self.key.to_pem());
    }
}

fn trust(args: &TrustArgs, context: &Context) -> Outcome {
    let mut file = read_key_file(&args.file)?;
    if let Some(owner) = &args.owner {
        file.owner = Some(owner.clone());
    }
    let keys = context.own_keys()?;
    let signer = keys.load_signing_key()?;
    let fingerprint = file.key.fingerprint();
    let library = context.library()?;
    if let Err(DistrustReason::Revoked(revocation)) = library.trust().key_status(fingerprint) {
        let message = format!("cannot trust key {fingerprint}: {revocation}");
        let hint = format!("rm {}", shell_word(&revocation.path));
        return Err(Failure::new(Exit::Permission, "revoked_key", message).hint(hint));
    }
    let owner = file.owner.as_deref().unwrap_or("unknown").to_owned();
    if !args.yes {
        let scope = if file.decisions_only {
            "Trust this key for decisions only?"
        } else {
            "Trust this key?"
        };
        let question = format!("fingerprint {fingerprint}\nowner       {owner}\n{scope}");
        let hint = format!("rye keys trust {} --yes", shell_word(&args.file));
        confirm(context, &question, "trusting a key", &hint)?;
    }
    // The user's decision replaces the provenance in the file.
    let path = keys.trust(&file, &signer)?;
    Ok(Box::new(KeyDecision {
        word: "trusted",
        fingerprint,
        owner: Some(owner),
        path,
    }))
}

fn revoke(args: &RevokeArgs, context: &Context) -> Outcome {
    let keys = context.own_keys()?;
    let signer = keys.load_signing_key()?;
    let fingerprint = args.fingerprint;
    let own = signer.public().fingerprint() == fingerprint;
    if own && !args.yes {
        let question =
            format!("{fingerprint} is your own key; nothing you signed will run.\nRevoke it?");
        let hint = format!("rye keys revoke {fingerprint} --yes");
        confirm(context, &question, "revoking your own key", &hint)?;
    }
    let library = context.library()?;
    let status = library.trust().key_status(fingerprint);
    if let Err(DistrustReason::Revoked(revocation)) = &status
        && revocation.path.starts_with(context.settings.user_space()?)
    {
        let message = format!("already revoked: {revocation}");
        let hint = format!("rm {}", shell_word(&revocation.path));
        return Err(Failure::failed("revoked_key", message).hint(hint));
    }
    let status = status.ok();
    let key = status.as_ref().map(|trusted| &trusted.key);
    let key = if own { Some(signer.public()) } else { key };
    let path = keys.revoke(fingerprint, args.reason.as_deref(), key, &signer)?;
    Ok(Box::new(KeyDecision {
        word: "revoked",
        fingerprint,
        owner: status.and_then(|trusted| trusted.owner.clone()),
        path,
    }))
}

/// Asks for confirmation. Fails without a terminal, with `hint` as the non-interactive command.
pub(super) fn confirm(
    context: &Context,
    question: &str,
    action: &str,
    hint: &str,
) -> Result<(), Failure> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        let message = format!("{action} needs confirmation, but there is no terminal");
        return Err(Failure::new(Exit::Permission, "needs_yes", message).hint(hint));
    }
    match context.printer.confirm(question) {
        Ok(Some(true)) => Ok(()),
        Ok(Some(false) | None) => Err(Failure::new(
            Exit::Permission,
            "declined",
            "declined; nothing was changed",
        )),
        Err(error) => Err(Failure::failed(
            "io",
            format_args!("cannot read the answer: {error}"),
        )),
    }
}

struct KeyDecision {
    word: &'static str,
    fingerprint: Fingerprint,
    owner: Option<String>,
    path: PathBuf,
}

impl Report for KeyDecision {
    fn json(&self) -> Value {
        json!({
            "state": self.word,
            "fingerprint": self.fingerprint,
            "owner": self.owner,
            "path": self.path.to_string_lossy(),
        })
    }

    fn show(&self, page: &mut Page) {
        let owner = self.owner.as_deref().unwrap_or_default();
        let fingerprint = paint(BOLD, self.fingerprint);
        let line = format!("{} {fingerprint} {}", self.word, sanitize(owner));
        page.line(line.trim_end());
        let undo = format!("to undo: rm {}", shell_word(&self.path));
        page.line(paint(DIM, undo));
    }
}
