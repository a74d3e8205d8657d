//! Signs the system space and embeds it in the binary.
//!
//! The files of `system/.ai` are unsigned in the repository. This script signs each with the
//! release key, if `RYE_RELEASE_KEY` is the path of its file, otherwise with a key that is
//! generated for this build and discarded. Only the public key goes into the binary, as the
//! bundle's trust file.

#![expect(clippy::expect_used, reason = "a build that cannot sign must fail")]

/// The modules of the library that verify signatures, so that signing cannot differ from them.
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
        .expect("the directory system/.ai exists");
    emit(&format!("rerun-if-changed={}", space.display()));
    emit("rerun-if-changed=build.rs");
    emit("rerun-if-env-changed=RYE_RELEASE_KEY");
    emit("rerun-if-env-changed=SOURCE_DATE_EPOCH");

    let (key, owner) = signing_key();
    let mut files = BTreeMap::new();
    collect(&space, &space, &mut files);
    let trust = TrustFile {
        key: key.public().clone(),
        owner: Some(owner.to_owned()),
        attestation: None,
        decisions_only: false,
    };
    let path = format!("config/keys/trusted/{}.toml", key.public().fingerprint());
    files.insert(path, trust.to_text().into_bytes());

    let time = time();
    let out_dir = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("system");
    if out_dir.exists() {
        fs::remove_dir_all(&out_dir).expect("the output of an earlier build can be removed");
    }
    let mut list = String::new();
    let mut all = String::new();
    let mut signatures = Vec::new();
    for (path, bytes) in files {
        let comment = comment_style(&path);
        let binding = signature::Binding::for_path(path.as_str());
        let signed = signature::sign(&bytes, &comment, &binding, &key, &time, None)
            .expect("signing without provenance succeeds");
        signatures.push(verify(&signed, &comment, &key));
        let target = out_dir.join(&path);
        fs::create_dir_all(target.parent().expect("the path has a parent"))
            .expect("a directory can be created");
        fs::write(&target, &signed).expect("a signed file can be written");
        let hash = Hash::digest(&signed);
        let _ = writeln!(all, "{hash} {path}");
        let _ = writeln!(
            list,
            "    EmbeddedFile {{ path: {path:?}, bytes: include_bytes!({:?}) }},",
            target.display().to_string()
        );
    }
    let hash = Hash::digest(all);
    signatures.sort_unstable();
    let code = format!(
        "/// The system space, signed at build time.\n\
         pub static SYSTEM: EmbeddedBundle = EmbeddedBundle {{ name: \"rye\", hash: \"{hash}\", files: &[\n{list}] }};\n\
         /// The cache keys of its signatures, which were verified at build time.\n\
         pub(crate) static SIGNATURES: [[u8; 32]; {}] = {signatures:?};\n",
        signatures.len()
    );
    fs::write(out_dir.with_extension("rs"), code).expect("the list of files can be written");
}

/// Verifies a signed file and returns the cache key of its signature.
fn verify(signed: &[u8], comment: &CommentStyle, key: &SigningKey) -> [u8; 32] {
    let split = signature::split(signed, comment).expect("the file was just signed");
    assert_eq!(split.hash(), split.line.hash, "the file was just signed");
    split
        .line
        .verify(key.public())
        .expect("the signature is valid");
    *signature::cache_key(key.public(), &split.line).as_bytes()
}

/// Prints an instruction for Cargo.
fn emit(instruction: &str) {
    println!("cargo::{instruction}");
}

fn signing_key() -> (SigningKey, &'static str) {
    let release = env::var_os("RYE_RELEASE_KEY").filter(|path| !path.is_empty());
    let Some(path) = release.map(PathBuf::from) else {
        let key = SigningKey::generate().expect("the operating system provides randomness");
        return (key, "rye (this build)");
    };
    emit(&format!("rerun-if-changed={}", path.display()));
    let key = SigningKey::read(&path).expect("RYE_RELEASE_KEY is the path of a private key");
    (key, "rye release")
}

/// The time in the signature lines: now, or `SOURCE_DATE_EPOCH` for a reproducible build.
fn time() -> String {
    let epoch = env::var("SOURCE_DATE_EPOCH")
        .ok()
        .and_then(|text| text.parse().ok());
    epoch.map_or_else(lillux::time::now_rfc3339, lillux::time::format_rfc3339)
}

fn collect(space: &Path, dir: &Path, files: &mut BTreeMap<String, Vec<u8>>) {
    for entry in fs::read_dir(dir).expect("a directory of the system space can be read") {
        let path = entry
            .expect("a directory of the system space can be read")
            .path();
        if path.is_dir() {
            collect(space, &path, files);
        } else {
            let relative = path
                .strip_prefix(space)
                .expect("the file is inside the space");
            let relative = relative.to_str().expect("the name is UTF-8").to_owned();
            files.insert(
                relative,
                fs::read(&path).expect("a file of the system space can be read"),
            );
        }
    }
}

fn comment_style(path: &str) -> CommentStyle {
    match path.rsplit('.').next() {
        Some("yaml" | "yml" | "toml" | "py" | "sh" | "rb") => CommentStyle::HASH,
        Some("js" | "mjs" | "cjs" | "ts") => CommentStyle::SLASHES,
        Some("md") => CommentStyle::MARKUP,
        _ => panic!("no comment style is known for system/.ai/{path}"),
    }
}
