//! Loads items, and copies them to other spaces.

use std::path::PathBuf;
use std::sync::Arc;

use lillux::durable::{self, IfExists, WriteError};
use lillux::{Hash, quote_block, shell_word};
use rye_items::metadata::Metadata;
use rye_items::{Coverage, Item, ItemFile, ItemRef, Space, SpaceError, Spaces, Verified};
use serde_json::{Map, Value, json};

use crate::context::Context;
use crate::failure::{Failure, FailureKind};

/// Finds and verifies an item.
pub fn verified_item<'c>(
    reference: &ItemRef,
    context: &'c Context,
) -> Result<(ItemFile<'c>, Verified<Item>), Failure> {
    let library = context.library()?;
    let found = library.find(reference)?;
    let item = library.verify(&found, &library.trust())?;
    if let Some(waived) = &item.waived {
        let text = format!("unverified item accepted because of RYE_DEV_MODE: {waived}");
        context.reporter().warn(&text, Some(&waived.hint()));
    }
    Ok((found, item))
}

/// Loads an item with its metadata.
pub fn load(reference: &ItemRef, context: &Context) -> Result<LoadedItem, Failure> {
    let (found, item) = verified_item(reference, context)?;
    let library = context.library()?;
    let metadata = library.metadata(&item)?;
    let shadowed = library.shadowed(&found);
    let shadowed = shadowed.iter().map(ItemFile::path).collect();
    Ok(LoadedItem {
        item,
        metadata,
        shadowed,
    })
}

/// A verified item.
pub struct LoadedItem {
    /// The item.
    pub item: Verified<Item>,
    /// Its metadata.
    pub metadata: Arc<Metadata>,
    /// Files with the same id in spaces of lower precedence.
    pub shadowed: Vec<PathBuf>,
}

impl LoadedItem {
    /// The item as JSON.
    pub fn json(&self) -> Value {
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
pub fn new_copy(reference: &ItemRef, space: Space, context: &Context) -> Result<NewCopy, Failure> {
    let (found, item) = verified_item(reference, context)?;
    NewCopy::new(item, &found.relative, space, context)
}

/// A copy of an item and its signature, not written yet.
pub struct NewCopy {
    /// The item.
    pub item: Verified<Item>,
    /// Path of the copy.
    pub to: PathBuf,
    /// Space of the copy.
    pub space: Space,
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
            return Err(Failure::new(FailureKind::Permission, "about_keys", message).hint(hint));
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
    pub fn hash(&self) -> Hash {
        Hash::digest(self.item.bytes())
    }

    /// The text of the copy.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(self.item.bytes()).into_owned()
    }

    /// The question whether to make the copy.
    pub fn question(&self) -> String {
        let (item, space) = (&self.item.reference, self.space);
        let (from, to) = (self.item.path.display(), self.to.display());
        let (hash, text) = (self.hash(), quote_block(&self.text()));
        format!("{text}\nfrom: {from}\nto: {to}\nhash: {hash}\nCopy {item} to the {space} space?")
    }

    /// Writes the verified bytes, including the signature.
    pub fn write(self, context: &Context) -> Result<CopiedItem, Failure> {
        let (space, relative) = (self.space, self.relative.as_str());
        if context.spaces().roots_in(space).next().is_none() {
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
        Ok(CopiedItem { item, space, path })
    }
}

/// A copy that was written.
pub struct CopiedItem {
    /// The item.
    pub item: ItemRef,
    /// Space of the copy.
    pub space: Space,
    /// Path of the copy.
    pub path: PathBuf,
}

impl CopiedItem {
    /// The copy as JSON.
    pub fn json(&self) -> Value {
        json!({ "item": self.item, "space": self.space, "path": self.path.to_string_lossy() })
    }
}
