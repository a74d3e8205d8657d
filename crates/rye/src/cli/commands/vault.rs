//! `rye vault`: stores, prints, lists and removes secrets.

mod credentials;
mod login;

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;

use base64ct::{Base64, Encoding as _};
use lillux::envelope::Secret;
use rye_engine::credential::Owner;
use rye_items::Space;
use rye_items::vault::{OpenedSecret, SecretInfo, SecretName, Vault, VaultError};
use serde::Serialize;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::cli::args::{GetArgs, ListArgs, RmArgs, SetArgs, VaultCommand};
use crate::cli::context::Context;
use crate::cli::failure::{Exit, Failure};
use crate::cli::page::{BAD, BOLD, DIM, Page, paint, sanitize};
use crate::cli::printer::{AlreadyPrinted, Outcome, Printer, Report};
use crate::cli::secret_input;
use crate::cli::table::{Cell, Table};

pub(crate) fn run(command: VaultCommand, context: &Context) -> Outcome {
    let settings = &context.settings;
    let vault = Vault::new(settings.user_space()?, Some(settings.project()));
    match command {
        VaultCommand::Set(args) if args.owner.is_set() || args.oauth => {
            credentials::set(&args, vault, context)
        }
        VaultCommand::Set(args) => set(&args, &vault),
        VaultCommand::Login(args) => login::run(&args, vault, context),
        VaultCommand::Get(args) => get(&args, &vault, context.printer),
        VaultCommand::List(args) => list(&args, &vault, context),
        VaultCommand::Rm(args) if args.owner.is_set() || args.oauth => {
            credentials::rm(&args, vault, context)
        }
        VaultCommand::Rm(args) => rm(&args, &vault),
    }
}

fn set(args: &SetArgs, vault: &Vault) -> Outcome {
    set_in(args.space.into(), &args.name, vault)
}

/// Asks for a secret and stores it in the user space.
pub(super) fn set_user_secret(name: &SecretName, context: &Context) -> Outcome {
    let settings = &context.settings;
    let vault = Vault::new(settings.user_space()?, Some(settings.project()));
    set_in(Space::User, name, &vault)
}

fn set_in(space: Space, name: &SecretName, vault: &Vault) -> Outcome {
    let secret = read_value(name)?;
    let sealed = vault.set(space, name, &secret)?;
    Ok(Box::new(StoredSecret(sealed)))
}

/// Reads the value from a pipe or the terminal.
fn read_value(name: &SecretName) -> Result<Secret, Failure> {
    let prompt = format!("Value of {name} (not shown): ");
    secret_input::read(&prompt).map_err(|error| match error.kind() {
        io::ErrorKind::Interrupted => Failure::failed("cancelled", "cancelled; nothing was stored"),
        io::ErrorKind::FileTooLarge => VaultError::TooLarge(name.clone()).into(),
        _ => Failure::failed("io", format_args!("cannot read the value: {error}")),
    })
}

struct StoredSecret(SecretInfo);

impl Report for StoredSecret {
    fn json(&self) -> Value {
        secret_json(&self.0)
    }

    fn show(&self, page: &mut Page) {
        let SecretInfo { name, space, .. } = &self.0;
        page.line(format_args!(
            "stored {} in the {space} space",
            paint(BOLD, name)
        ));
    }
}

fn get(args: &GetArgs, vault: &Vault, printer: Printer) -> Outcome {
    // Check first, so that the secret is not decrypted needlessly.
    if !args.show && io::stdout().is_terminal() {
        let message = "rye prints a secret on a terminal only with --show";
        return Err(Failure::new(Exit::Permission, "permission", message)
            .hint(format!("rye vault get {} --show", args.name)));
    }
    let opened = vault.get(args.space.map(Into::into), &args.name)?;
    let written = if printer.json {
        Printer::raw(document(&opened)?.as_bytes())
    } else {
        Printer::raw(opened.secret.expose())
    };
    written.map_err(|error| {
        Failure::failed(
            "io",
            format_args!("cannot write to standard output: {error}"),
        )
    })?;
    Ok(Box::new(AlreadyPrinted))
}

/// The JSON document of a secret, in memory that is zeroed.
fn document(opened: &OpenedSecret) -> Result<Zeroizing<String>, Failure> {
    #[derive(Serialize)]
    struct Document<'a> {
        status: &'static str,
        name: &'a str,
        space: Space,
        #[serde(skip_serializing_if = "Option::is_none")]
        value: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        value_base64: Option<&'a str>,
    }
    let bytes = opened.secret.expose();
    let text = std::str::from_utf8(bytes).ok();
    let base64 = Zeroizing::new(match text {
        Some(_) => String::new(),
        None => Base64::encode_string(bytes),
    });
    let document = Document {
        status: "success",
        name: opened.info.name.as_str(),
        space: opened.info.space,
        value: text,
        value_base64: text.is_none().then_some(&base64),
    };
    // An escape takes at most six bytes per byte, so the buffer never grows and leaves no copies.
    let mut buffer = Zeroizing::new(Vec::with_capacity(6 * bytes.len() + 1024));
    serde_json::to_writer(&mut *buffer, &document)
        .map_err(|error| Failure::failed("bug", error))?;
    buffer.push(b'\n');
    let text = String::from_utf8(std::mem::take(&mut *buffer));
    text.map(Zeroizing::new)
        .map_err(|error| Failure::failed("bug", error.utf8_error()))
}

fn list(args: &ListArgs, vault: &Vault, context: &Context) -> Outcome {
    let mut list = List {
        credentials: match args.space {
            None => credentials::all(vault, context)?,
            Some(_) => Vec::new(),
        },
        ..List::default()
    };
    for one in vault.list(args.space.map(Into::into))? {
        match one {
            Ok(sealed) => list.sealed.push(sealed),
            Err(error) => list.faulty.push(error.into()),
        }
    }
    Ok(Box::new(list))
}

#[derive(Default)]
struct List {
    sealed: Vec<SecretInfo>,
    /// Credentials for agents' tools, with their owners.
    credentials: Vec<(Owner, String)>,
    faulty: Vec<Failure>,
}

impl Report for List {
    fn json(&self) -> Value {
        let secrets: Vec<_> = self.sealed.iter().map(secret_json).collect();
        let faulty: Vec<_> = self.faulty.iter().map(Failure::json).collect();
        let credentials = self.credentials.iter();
        let credentials: Vec<_> = credentials
            .map(|(owner, name)| json!({ "name": name, "owner": owner.to_string() }))
            .collect();
        json!({ "secrets": secrets, "credentials": credentials, "faulty": faulty })
    }

    fn show(&self, page: &mut Page) {
        if self.sealed.is_empty() && self.faulty.is_empty() && self.credentials.is_empty() {
            page.line("no secrets");
            return;
        }
        if !self.sealed.is_empty() {
            let mut table = Table::new(["NAME", "SPACE", "STORED", "KEY"]);
            for sealed in &self.sealed {
                let keys: Vec<_> = sealed.recipients.iter().map(ToString::to_string).collect();
                table.row([
                    sealed.name.as_str().into(),
                    sealed.space.as_str().into(),
                    Cell::styled(DIM, &sealed.created),
                    Cell::styled(DIM, keys.join(" ")),
                ]);
            }
            page.table(&table);
        }
        for (owner, name) in &self.credentials {
            let owner = owner.to_string();
            let owner = owner.trim_end_matches(':');
            page.line(format_args!(
                "{name} (for agents, owner: {})",
                sanitize(owner)
            ));
        }
        for fault in &self.faulty {
            let message = sanitize(&fault.message);
            page.line(format_args!("{} {message}", paint(BAD, "!")));
        }
    }

    fn failure(&self) -> Option<Failure> {
        let worst = self.faulty.iter().max_by_key(|fault| fault.kind as u8)?;
        let message = match self.faulty.len() {
            1 => "1 invalid file in the vault".to_owned(),
            n => format!("{n} invalid files in the vault"),
        };
        Some(Failure::new(worst.kind, worst.code, message).maybe_hint(worst.hint.clone()))
    }
}

fn rm(args: &RmArgs, vault: &Vault) -> Outcome {
    let path = vault.remove(args.space.map(Into::into), &args.name)?;
    let name = args.name.clone();
    Ok(Box::new(RemovedSecret { name, path }))
}

struct RemovedSecret {
    name: SecretName,
    path: PathBuf,
}

impl Report for RemovedSecret {
    fn json(&self) -> Value {
        json!({ "name": self.name.as_str(), "path": self.path.to_string_lossy() })
    }

    fn show(&self, page: &mut Page) {
        page.line(format_args!("removed {}", paint(BOLD, &self.name)));
    }
}

fn secret_json(sealed: &SecretInfo) -> Value {
    json!({
        "name": sealed.name.as_str(),
        "space": sealed.space,
        "path": sealed.path.to_string_lossy(),
        "stored_at": sealed.created,
        "keys": sealed.recipients,
    })
}
