//! `rye load`: shows an item, or copies it to another space.

use std::path::PathBuf;
use std::sync::Arc;

use lillux::durable::{self, IfExists, WriteError};
use lillux::{Hash, quote_block, shell_word};
use rye_items::metadata::Metadata;
use rye_items::{Coverage, Item, ItemKind, ItemRef, Library, Space, SpaceError, Spaces, Verified};
use serde_json::{Map, Value, json};

use super::keys::confirm;
use crate::cli::args::LoadArgs;
use crate::cli::context::Context;
use crate::cli::failure::{Exit, Failure};
use crate::cli::page::{BOLD, DIM, GOOD, Page, WARN, paint, sanitize};
use crate::cli::printer::{AlreadyPrinted, Outcome, Printer, Report};

pub(crate) fn run(args: &LoadArgs, context: &Context) -> Outcome {
    let reference: ItemRef = args.item.parse()?;
    let library = context.library()?;
    let found = library.find(&reference)?;
    let item = library.verify(&found, &library.trust())?;
    if let Some(waived) = &item.waived {
        let text = format!("unverified item accepted because of RYE_DEV_MODE: {waived}");
        context.printer.warn(&text, Some(&waived.hint()));
    }
    if args.content && !context.printer.json {
        Printer::raw(item.content()).map_err(|error| {
            Failure::failed(
                "io",
                format_args!("cannot write to standard output: {error}"),
            )
        })?;
        return Ok(Box::new(AlreadyPrinted));
    }
    if let Some(space) = args.to {
        let copy = NewCopy::new(item, &found.relative, space.into(), context)?;
        if copy.item.reference.kind == ItemKind::Config && !args.yes {
            let question = copy.question();
            let hint = format!("rye load {} --to {} --yes", copy.item.reference, copy.space);
            confirm(context, &question, "copying configuration", &hint)?;
        }
        return copy.write(library, context);
    }
    let metadata = library.metadata(&item)?;
    let shadowed = library.shadowed(&found);
    let shadowed = shadowed.iter().map(rye_items::ItemFile::path).collect();
    Ok(Box::new(LoadReport {
        item,
        metadata,
        shadowed,
    }))
}

struct LoadReport {
    item: Verified<Item>,
    metadata: Arc<Metadata>,
    shadowed: Vec<PathBuf>,
}

impl Report for LoadReport {
    fn json(&self) -> Value {
        let Self {
            item,
            metadata,
            shadowed,
        } = self;
        let fields: Map<_, _> = metadata
            .fields
            .iter()
            .map(|(name, field)| (name.clone(), field.value.clone()))
            .collect();
        let shadowed: Vec<_> = shadowed.iter().map(|path| path.to_string_lossy()).collect();
        json!({
            "item": item.reference,
            "type": item.reference.kind,
            "space": item.space,
            "bundle": item.bundle,
            "path": item.path.to_string_lossy(),
            "content": String::from_utf8_lossy(item.content()),
            "metadata": fields,
            "schema": metadata.config_schema(),
            "verification": verification(item),
            "shadowed": shadowed,
        })
    }

    fn show(&self, page: &mut Page) {
        let Self { item, metadata, .. } = self;
        page.line(paint(BOLD, &item.reference));
        let mut field = |name: &str, value: &str| {
            if !value.is_empty() {
                let name = paint(DIM, format!("{name:<12}"));
                page.line(format_args!("  {name} {}", sanitize(value)));
            }
        };
        field("description", metadata.description().unwrap_or_default());
        field("version", metadata.version().unwrap_or_default());
        field("runtime", metadata.executor_id().unwrap_or_default());
        field("parameters", &metadata.parameter_names().join(", "));
        field("space", item.space.as_str());
        field("file", &item.path.display().to_string());
        for path in &self.shadowed {
            field("shadows", &path.display().to_string());
        }
        page.line(format_args!(
            "  {} {}",
            paint(DIM, format_args!("{:<12}", "signature")),
            describe_signature(item)
        ));
        page.line("");
        let content = String::from_utf8_lossy(item.content());
        page.line(sanitize(content.trim_end()));
    }
}

fn describe_signature(item: &Item) -> String {
    let Some(signer) = &item.signer else {
        return paint(WARN, "none (RYE_DEV_MODE)").to_string();
    };
    let fingerprint = signer.key.fingerprint();
    let owner = signer.owner.as_deref().unwrap_or_default();
    let line = item.signature.as_ref();
    let time = line.map_or("", |line| &line.time);
    let provenance = line.and_then(|line| line.provenance.as_deref());
    let provenance = provenance.map_or_else(String::new, |from| format!(", claims to be {from}"));
    let coverage = match item.coverage {
        Coverage::Whole => "",
        Coverage::Partial => ", covers only its <directive> element",
    };
    let signed = paint(GOOD, "signed");
    let owner = sanitize(owner);
    format!("{signed} by {fingerprint} {owner} on {time}{provenance}{coverage}")
}

fn verification(item: &Item) -> Value {
    match (&item.signer, &item.waived) {
        (Some(signer), _) => json!({
            "state": match item.coverage {
                Coverage::Whole => "verified",
                Coverage::Partial => "partial",
            },
            "hash": item.hash.to_string(),
            "signer": signer.key.fingerprint(),
            "owner": signer.owner,
            "time": item.signature.as_ref().map(|line| &line.time),
            "provenance": item.signature.as_ref().and_then(|line| line.provenance.as_ref()),
        }),
        (None, waived) => json!({
            "state": "waived",
            "hash": item.hash.to_string(),
            "error": waived.clone().map(|error| Failure::from(error).json()),
        }),
    }
}

/// Prepares the copy of an item to another space.
pub(crate) fn new_copy(
    reference: &ItemRef,
    space: Space,
    context: &Context,
) -> Result<NewCopy, Failure> {
    let library = context.library()?;
    let found = library.find(reference)?;
    let item = library.verify(&found, &library.trust())?;
    NewCopy::new(item, &found.relative, space, context)
}

/// A copy of an item and its signature, not written yet.
pub(crate) struct NewCopy {
    pub(crate) item: Verified<Item>,
    /// Path of the copy.
    pub(crate) to: PathBuf,
    space: Space,
    relative: String,
}

impl NewCopy {
    fn new(
        item: Verified<Item>,
        relative: &str,
        space: Space,
        context: &Context,
    ) -> Result<Self, Failure> {
        if item.coverage == Coverage::Partial {
            let message = format!(
                "cannot copy {}: only a part of it is signed",
                item.reference
            );
            return Err(Failure::failed("partial", message).at(&item.path));
        }
        // RYE_DEV_MODE is for running drafts in place.
        if let Some(waived) = &item.waived {
            return Err(waived.clone().into());
        }
        if item.reference.is_key_file() {
            let message = format!("cannot copy {}: it is a trust file", item.reference);
            let hint = format!("rye keys trust {}", shell_word(&item.path));
            return Err(Failure::new(Exit::Permission, "about_keys", message).hint(hint));
        }
        let dir = match space {
            Space::User => context.settings.user_space()?,
            _ => context.settings.project(),
        };
        let to = dir.join(".ai").join(relative);
        if to.symlink_metadata().is_ok() {
            return Err(WriteError::Exists(to).into());
        }
        Ok(Self {
            item,
            to,
            space,
            relative: relative.to_owned(),
        })
    }

    /// The hash of all bytes of the copy.
    pub(crate) fn hash(&self) -> Hash {
        Hash::digest(self.item.bytes())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(self.item.bytes()).into_owned()
    }

    fn question(&self) -> String {
        let (item, space) = (&self.item.reference, self.space);
        let (from, to) = (self.item.path.display(), self.to.display());
        let (hash, text) = (self.hash(), quote_block(&self.text()));
        format!("{text}\nfrom: {from}\nto: {to}\nhash: {hash}\nCopy {item} to the {space} space?")
    }

    /// Writes the verified bytes, including the signature.
    pub(crate) fn write(self, library: &Library, context: &Context) -> Outcome {
        let (space, relative) = (self.space, self.relative.as_str());
        if library.spaces().roots_in(space).next().is_none() {
            let dir = match space {
                Space::User => context.settings.user_space()?,
                _ => context.settings.project(),
            };
            durable::create_dir(&dir.join(".ai"), 0o755)?;
        }
        let spaces = Spaces::open(
            Some(context.settings.project()),
            context.user(),
            &[],
            &rye_items::EmbeddedBundle::EMPTY,
        )?;
        let root = spaces.roots_in(space).next();
        let root = root.ok_or_else(|| {
            let message = "no project space: the project directory is the user space";
            let hint = format!("rye load {} --to user", self.item.reference);
            Failure::failed("not_found", message).hint(hint)
        })?;
        let (parent, name) = relative.rsplit_once('/').unwrap_or(("", relative));
        if root.real_path(parent)?.is_none() {
            durable::create_dir(&root.path_to(parent), 0o755)?;
        }
        // Fails if a link leads out of the space.
        let real = root.real_path(parent)?;
        let real = real.ok_or_else(|| SpaceError::NotADirectory(root.path_to(parent)))?;
        let path = real.join(name);
        durable::write(&path, self.item.bytes(), 0o644, IfExists::Fail)?;
        let item = self.item.reference.clone();
        Ok(Box::new(CopyReport { item, space, path }))
    }
}

struct CopyReport {
    item: ItemRef,
    space: Space,
    path: PathBuf,
}

impl Report for CopyReport {
    fn json(&self) -> Value {
        json!({ "item": self.item, "space": self.space, "path": self.path.to_string_lossy() })
    }

    fn show(&self, page: &mut Page) {
        let path = self.path.display();
        page.line(format_args!("copied {} to {path}", self.item));
    }
}
