//! Signs the system space and embeds it.
//!
//! The files of `system/.ai` are unsigned in the repository. Here each gets its
//! signature line: of the release key, where `RYE_RELEASE_KEY` names its file,
//! otherwise of a key that is made now and forgotten at the end of this program.
//! Only the public half goes into the binary, as the bundle's trust file.

#![expect(
    clippy::expect_used,
    reason = "a build that cannot sign must not go on"
)]

/// What the library verifies with, so that signing cannot differ from it.
#[path = "src"]
#[allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    reason = "shared with the library, which uses all of it"
)]
mod library {
    pub mod comment;
    pub mod excerpt;
    pub mod signature;
    pub mod trust {
        pub mod file;
    }
}

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use library::comment::{self, CommentStyle};
use library::excerpt;
use library::signature;
use library::trust::file::TrustFile;
use lillux::Hash;
use lillux::keys::SigningKey;

fn main() {
    let space = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../system/.ai");
    let space = space
        .canonicalize()
        .expect("the folder system/.ai is there");
    tell(&format!("rerun-if-changed={}", space.display()));
    tell("rerun-if-changed=build.rs");
    tell("rerun-if-env-changed=RYE_RELEASE_KEY");
    tell("rerun-if-env-changed=SOURCE_DATE_EPOCH");

    let (key, owner) = signing_key();
    let mut files = BTreeMap::new();
    collect(&space, &space, &mut files);
    let trust = TrustFile {
        key: key.public().clone(),
        owner: Some(owner.to_owned()),
        attestation: None,
    };
    let path = format!("config/keys/trusted/{}.toml", key.public().fingerprint());
    files.insert(path, trust.to_text().into_bytes());

    let time = time();
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("system");
    if folder.exists() {
        fs::remove_dir_all(&folder).expect("what an earlier build left can be removed");
    }
    let mut list = String::new();
    let mut all = String::new();
    let mut signatures = Vec::new();
    for (path, bytes) in files {
        let comment = comment_of(&path);
        let binding = signature::Binding::for_path(path.as_str());
        let signed = signature::sign(&bytes, &comment, &binding, &key, &time, None)
            .expect("it has no provenance");
        signatures.push(checked(&signed, &comment, &key));
        let place = folder.join(&path);
        fs::create_dir_all(place.parent().expect("it is in a folder"))
            .expect("a folder can be made");
        fs::write(&place, &signed).expect("a signed file can be written");
        let hash = Hash::digest(&signed);
        let _ = writeln!(all, "{hash} {path}");
        let _ = writeln!(
            list,
            "    EmbeddedFile {{ path: {path:?}, bytes: include_bytes!({:?}) }},",
            place.display().to_string()
        );
    }
    let hash = Hash::digest(all);
    signatures.sort_unstable();
    let code = format!(
        "/// The system space, signed when this was built.\n\
         pub static SYSTEM: EmbeddedBundle = EmbeddedBundle {{ name: \"rye\", hash: \"{hash}\", files: &[\n{list}] }};\n\
         /// The names of its signatures, each of which was checked when this was built.\n\
         pub(crate) static SIGNATURES: [[u8; 32]; {}] = {signatures:?};\n",
        signatures.len()
    );
    fs::write(folder.with_extension("rs"), code).expect("the list of files can be written");
}

/// The name of a file's signature, which holds.
fn checked(signed: &[u8], comment: &CommentStyle, key: &SigningKey) -> [u8; 32] {
    let split = signature::split(signed, comment).expect("it was signed a moment ago");
    assert_eq!(split.hash(), split.line.hash, "it was signed a moment ago");
    split
        .line
        .verify(key.public())
        .expect("its signature is that of the key");
    *signature::cache_key(key.public(), &split.line).as_bytes()
}

/// What Cargo is told goes to standard output.
fn tell(instruction: &str) {
    println!("cargo::{instruction}");
}

fn signing_key() -> (SigningKey, &'static str) {
    let release = env::var_os("RYE_RELEASE_KEY").filter(|path| !path.is_empty());
    let Some(path) = release.map(PathBuf::from) else {
        let key = SigningKey::generate().expect("the operating system has randomness");
        return (key, "rye build (temporary key)");
    };
    tell(&format!("rerun-if-changed={}", path.display()));
    let key = SigningKey::read(&path).expect("RYE_RELEASE_KEY names a private key");
    (key, "rye release")
}

/// The time in the signature lines: now, or what a reproducible build asks for.
fn time() -> String {
    let epoch = env::var("SOURCE_DATE_EPOCH")
        .ok()
        .and_then(|text| text.parse().ok());
    epoch.map_or_else(lillux::time::now_rfc3339, lillux::time::format_rfc3339)
}

fn collect(space: &Path, folder: &Path, files: &mut BTreeMap<String, Vec<u8>>) {
    for entry in fs::read_dir(folder).expect("a folder of the system space can be read") {
        let path = entry
            .expect("a folder of the system space can be read")
            .path();
        if path.is_dir() {
            collect(space, &path, files);
        } else {
            let relative = path.strip_prefix(space).expect("it is below it");
            let relative = relative.to_str().expect("its name is UTF-8").to_owned();
            files.insert(
                relative,
                fs::read(&path).expect("a file of the system space can be read"),
            );
        }
    }
}

fn comment_of(path: &str) -> CommentStyle {
    match path.rsplit('.').next() {
        Some("yaml" | "yml" | "toml" | "py" | "sh" | "rb") => CommentStyle::HASH,
        Some("js" | "mjs" | "cjs" | "ts") => CommentStyle::SLASHES,
        Some("md") => CommentStyle::MARKUP,
        _ => panic!("no comment style is known for system/.ai/{path}"),
    }
}
