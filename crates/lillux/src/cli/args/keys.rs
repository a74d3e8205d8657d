//! Arguments of the key, signature and envelope commands.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use lillux::Hash;
use lillux::keys::{Purpose, Signature};

#[derive(Debug, Args)]
#[command(
    after_help = "Creates D/private_key.pem (PKCS#8, mode 0600) and D/public_key.pem; D is created with mode 0700.\n\n\
                  Examples:\n  \
                  lillux keypair --dir keys/signing\n  \
                  lillux keypair --dir keys/sealing --kind sealing"
)]
pub(crate) struct KeypairArgs {
    /// Directory for the two files
    #[arg(long, value_name = "D")]
    pub(crate) dir: PathBuf,
    /// Purpose of the pair: Ed25519 signatures or X25519 envelopes
    #[arg(long, value_enum, default_value = "signing")]
    pub(crate) kind: KeyKind,
    /// Replace an existing pair; the old private key is lost
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
    /// Private key, a PEM file that only its owner may read
    #[arg(long, value_name = "F")]
    pub(crate) key: PathBuf,
    /// Purpose of the signature; `verify` needs the same --purpose
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
    /// Public key, a PEM file
    #[arg(long, value_name = "F")]
    pub(crate) public_key: PathBuf,
    /// Signature: 86 characters of base64url, or 88 with padding
    // One in 64 signatures begins with a hyphen.
    #[arg(long, value_name = "S", allow_hyphen_values = true)]
    pub(crate) signature: Signature,
    /// Purpose of the signature
    #[arg(long, value_name = "NAME")]
    pub(crate) purpose: Option<Purpose>,
    #[command(flatten)]
    pub(crate) content: Content,
}

/// The signed content: a hash, a file or standard input.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub(crate) struct Content {
    /// SHA-256 of the content, 64 hex characters
    #[arg(long, value_name = "H")]
    pub(crate) hash: Option<Hash>,
    /// File with the content [default: standard input]
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
    /// Seal a secret to one or several public keys
    #[command(
        after_help = "The secret is read from a file or standard input, never from the command line.\n\n\
                            Examples:\n  \
                            lillux envelope seal --to alice.pem --to bob.pem --label db/password --out db.envelope\n  \
                            printf %s \"$SECRET\" | lillux envelope seal --to alice.pem | jq -c .envelope >db.envelope"
    )]
    Seal(SealArgs),
    /// Decrypt the secret with the private key of a recipient
    #[command(
        after_help = "Prints the secret as `data`, or as `data_base64` if it is not text; with --out it is\n\
                            written to a file of mode 0600 and not printed.\n\n\
                            Examples:\n  \
                            lillux envelope open --key keys/sealing/private_key.pem --in db.envelope --out password\n  \
                            lillux envelope open --key keys/sealing/private_key.pem --label db/password <db.envelope"
    )]
    Open(OpenArgs),
    /// Show the ciphers, time, label, recipients and size, without a key
    #[command(
        after_help = "The metadata is not authenticated until the envelope is opened.\n\n\
                            Example:\n  \
                            lillux envelope inspect --in db.envelope"
    )]
    Inspect(InspectArgs),
}

#[derive(Debug, Args)]
pub(crate) struct SealArgs {
    /// Public key of a recipient, a PEM file; repeatable
    #[arg(long, value_name = "PUB", required = true, num_args = 1..)]
    pub(crate) to: Vec<PathBuf>,
    /// File with the secret [default: standard input]
    #[arg(long = "in", value_name = "F")]
    pub(crate) input: Option<PathBuf>,
    /// Write the envelope to this file [default: print it]
    #[arg(long, value_name = "F")]
    pub(crate) out: Option<PathBuf>,
    /// Public label of the envelope
    #[arg(long, value_name = "L", default_value = "")]
    pub(crate) label: String,
}

#[derive(Debug, Args)]
pub(crate) struct OpenArgs {
    /// Private key, a PEM file that only its owner may read
    #[arg(long, value_name = "F")]
    pub(crate) key: PathBuf,
    /// File with the envelope [default: standard input]
    #[arg(long = "in", value_name = "F")]
    pub(crate) input: Option<PathBuf>,
    /// Write the secret to this file with mode 0600 [default: print it]
    #[arg(long, value_name = "F")]
    pub(crate) out: Option<PathBuf>,
    /// Fail if the envelope has another label
    #[arg(long, value_name = "L")]
    pub(crate) label: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// File with the envelope [default: standard input]
    #[arg(long = "in", value_name = "F")]
    pub(crate) input: Option<PathBuf>,
}
