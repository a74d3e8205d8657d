//! What can be typed for keys, signatures and envelopes.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use lillux::Hash;
use lillux::keys::{Purpose, Signature};

#[derive(Debug, Args)]
#[command(
    after_help = "Makes D/private_key.pem (PKCS#8, mode 0600) and D/public_key.pem; D is made with mode 0700.\n\n\
                  Examples:\n  \
                  lillux keypair --dir keys/signing\n  \
                  lillux keypair --dir keys/sealing --kind sealing"
)]
pub(crate) struct KeypairArgs {
    /// The folder for the two files.
    #[arg(long, value_name = "D")]
    pub(crate) dir: PathBuf,
    /// What the pair is for: Ed25519 signatures, or X25519 envelopes.
    #[arg(long, value_enum, default_value = "signing")]
    pub(crate) kind: KeyKind,
    /// Replace a pair that is there. The old private key is gone for good.
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum KeyKind {
    Signing,
    Sealing,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Signs the 64 hex characters of the SHA-256 of the content.\n\n\
                        Examples:\n  \
                        lillux sign --key keys/signing/private_key.pem --file release.tar\n  \
                        lillux sign --key keys/signing/private_key.pem <release.tar"
)]
pub(crate) struct SignArgs {
    /// The private key, a PEM file that only its owner may read.
    #[arg(long, value_name = "F")]
    pub(crate) key: PathBuf,
    /// What the signature is for: it verifies with the same --purpose only.
    #[arg(long, value_name = "NAME")]
    pub(crate) purpose: Option<Purpose>,
    #[command(flatten)]
    pub(crate) content: Content,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Prints `\"valid\":true` and exits 0, or `\"valid\":false` and exits 3.\n\n\
                        Example:\n  \
                        lillux verify --public-key keys/signing/public_key.pem --signature S --file release.tar"
)]
pub(crate) struct VerifyArgs {
    /// The public key, a PEM file.
    #[arg(long, value_name = "F")]
    pub(crate) public_key: PathBuf,
    /// The signature: 86 characters of base64url, or 88 with padding.
    // One in 64 signatures begins with a hyphen.
    #[arg(long, value_name = "S", allow_hyphen_values = true)]
    pub(crate) signature: Signature,
    /// What the signature was made for.
    #[arg(long, value_name = "NAME")]
    pub(crate) purpose: Option<Purpose>,
    #[command(flatten)]
    pub(crate) content: Content,
}

/// What is signed: a hash, or the content it is taken of.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub(crate) struct Content {
    /// The SHA-256 of the content, 64 hex characters.
    #[arg(long, value_name = "H")]
    pub(crate) hash: Option<Hash>,
    /// The file with the content. Without it and --hash, standard input.
    #[arg(long, value_name = "F")]
    pub(crate) file: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
#[command(
    arg_required_else_help = false,
    after_help = "Example:\n  \
        printf %s \"$SECRET\" | lillux envelope seal --to alice.pem --out db.envelope\n\n\
        `lillux envelope COMMAND --help` shows more."
)]
pub(crate) enum EnvelopeCommand {
    /// Seal a secret to one or several public keys.
    #[command(
        after_help = "The secret comes from a file or standard input, never from the command line.\n\n\
                            Examples:\n  \
                            lillux envelope seal --to alice.pem --to bob.pem --label db/password --out db.envelope\n  \
                            printf %s \"$SECRET\" | lillux envelope seal --to alice.pem | jq -c .envelope >db.envelope"
    )]
    Seal(SealArgs),
    /// Get the secret out with the private key of a recipient.
    #[command(
        after_help = "Prints the secret as `data`, or as `data_base64` where it is not text; with --out it is\n\
                            written to a file of mode 0600 and not printed.\n\n\
                            Examples:\n  \
                            lillux envelope open --key keys/sealing/private_key.pem --in db.envelope --out password\n  \
                            lillux envelope open --key keys/sealing/private_key.pem --label db/password <db.envelope"
    )]
    Open(OpenArgs),
    /// Show all but the secret: ciphers, time, label, recipients, size. Needs no key.
    #[command(
        after_help = "What is shown is what the envelope claims; opening it is what proves it.\n\n\
                            Example:\n  \
                            lillux envelope inspect --in db.envelope"
    )]
    Inspect(InspectArgs),
}

#[derive(Debug, Args)]
pub(crate) struct SealArgs {
    /// A recipient's public key, a PEM file; several may be given.
    #[arg(long, value_name = "PUB", required = true, num_args = 1..)]
    pub(crate) to: Vec<PathBuf>,
    /// The file with the secret. Without it, standard input.
    #[arg(long = "in", value_name = "F")]
    pub(crate) input: Option<PathBuf>,
    /// Where to write the envelope. Without it, it is part of what is printed.
    #[arg(long, value_name = "F")]
    pub(crate) out: Option<PathBuf>,
    /// What to call it, for all to see.
    #[arg(long, value_name = "L", default_value = "")]
    pub(crate) label: String,
}

#[derive(Debug, Args)]
pub(crate) struct OpenArgs {
    /// The private key, a PEM file that only its owner may read.
    #[arg(long, value_name = "F")]
    pub(crate) key: PathBuf,
    /// The file with the envelope. Without it, standard input.
    #[arg(long = "in", value_name = "F")]
    pub(crate) input: Option<PathBuf>,
    /// Where to write the secret, with mode 0600. Without it, it is printed.
    #[arg(long, value_name = "F")]
    pub(crate) out: Option<PathBuf>,
    /// Refuse an envelope with another label.
    #[arg(long, value_name = "L")]
    pub(crate) label: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// The file with the envelope. Without it, standard input.
    #[arg(long = "in", value_name = "F")]
    pub(crate) input: Option<PathBuf>,
}
