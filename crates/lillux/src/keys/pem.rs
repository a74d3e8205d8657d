//! Reads and writes PEM: one block of base64 between a BEGIN and an END line.
//!
//! Reading is lenient as in RFC 7468: text around the block is ignored (`openssl … -text` writes
//! some), lines end in LF or CRLF and may have any length, and the last line ending is optional.
//! Written text has one form: one line of base64, LF line endings, also after the last line.
//!
//! `base64ct` encodes and decodes secrets in constant time for a given length.

use base64ct::{Base64, Encoding};
use zeroize::Zeroizing;

use super::error::KeyTextError;

const BEGIN: &[u8] = b"-----BEGIN ";
const END: &[u8] = b"-----END ";
const DASHES: &[u8] = b"-----";

/// The label of a PEM block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Label {
    /// A PKCS#8 private key.
    Private,
    /// A `SubjectPublicKeyInfo` public key.
    Public,
    /// A PKCS#8 private key that is encrypted with a passphrase.
    Encrypted,
    /// A key of another algorithm in a format that only this algorithm uses.
    Algorithm(&'static str),
    /// Not a key, or a key in an unsupported format.
    Other(&'static str),
}

impl Label {
    /// Maps a label to a fixed name for messages. The label itself is never shown, because in a
    /// malformed file the BEGIN line may contain the key.
    fn parse(text: &[u8]) -> Self {
        match text {
            b"PRIVATE KEY" => Self::Private,
            b"PUBLIC KEY" => Self::Public,
            b"ENCRYPTED PRIVATE KEY" => Self::Encrypted,
            b"RSA PRIVATE KEY" | b"RSA PUBLIC KEY" => Self::Algorithm("RSA"),
            b"EC PRIVATE KEY" => Self::Algorithm("EC"),
            b"DSA PRIVATE KEY" => Self::Algorithm("DSA"),
            b"OPENSSH PRIVATE KEY" => Self::Other("an OpenSSH private key"),
            b"CERTIFICATE" | b"TRUSTED CERTIFICATE" => Self::Other("a certificate"),
            b"CERTIFICATE REQUEST" | b"NEW CERTIFICATE REQUEST" => {
                Self::Other("a certificate request")
            }
            _ => Self::Other("another kind of PEM block"),
        }
    }
}

/// A PEM block that is not decoded yet, so that a wrong label is reported first.
pub(super) struct Block<'a> {
    pub(super) label: Label,
    lines: Vec<&'a [u8]>,
}

impl<'a> Block<'a> {
    /// Finds the only PEM block of a text.
    pub(super) fn find(text: &'a [u8]) -> Result<Self, KeyTextError> {
        let text = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text);
        let lines = || text.split(|&b| b == b'\n').map(<[u8]>::trim_ascii);
        match lines().filter(|line| line.starts_with(BEGIN)).count() {
            0 => return Err(KeyTextError::NotPem),
            1 => {}
            several => return Err(KeyTextError::SeveralBlocks(several)),
        }
        let mut lines = lines().skip_while(|line| !line.starts_with(BEGIN));
        let begin = lines.next().unwrap_or_default();
        let label = unframe(begin, BEGIN).ok_or(KeyTextError::NoEnd)?;
        let mut body = Vec::new();
        for line in lines {
            if line.starts_with(DASHES) {
                return match unframe(line, END) {
                    Some(end) if end == label => Ok(Self {
                        label: Label::parse(label),
                        lines: body,
                    }),
                    _ => Err(KeyTextError::NoEnd),
                };
            }
            body.push(line);
        }
        Err(KeyTextError::NoEnd)
    }

    /// Decodes the base64 body.
    pub(super) fn decode(&self) -> Result<Zeroizing<Vec<u8>>, KeyTextError> {
        let length = self.lines.iter().map(|line| line.len()).sum();
        let mut text = Zeroizing::new(Vec::with_capacity(length));
        for line in &self.lines {
            text.extend_from_slice(line);
        }
        let mut bytes = Zeroizing::new(vec![0; length / 4 * 3]);
        let decoded =
            Base64::decode(text.as_slice(), &mut bytes).map_err(|_| KeyTextError::Base64)?;
        let length = decoded.len();
        bytes.truncate(length);
        Ok(bytes)
    }
}

/// Whether a text contains a PEM block with the label of a public key.
pub(super) fn is_public(text: &[u8]) -> bool {
    Block::find(text).is_ok_and(|block| block.label == Label::Public)
}

fn unframe<'a>(line: &'a [u8], head: &[u8]) -> Option<&'a [u8]> {
    line.strip_prefix(head)?.strip_suffix(DASHES)
}

/// Writes a PEM block. The base64 of `der` must fit in one line of 64 characters.
pub(super) fn write(label: &str, der: &[u8]) -> Zeroizing<String> {
    let base64 = Zeroizing::new(Base64::encode_string(der));
    debug_assert!(base64.len() <= 64, "one line");
    // With sufficient capacity, because growing would leave an unzeroed copy.
    let mut text = Zeroizing::new(String::with_capacity(2 * label.len() + base64.len() + 40));
    for part in [
        "-----BEGIN ",
        label,
        "-----\n",
        &base64,
        "\n-----END ",
        label,
        "-----\n",
    ] {
        text.push_str(part);
    }
    text
}
