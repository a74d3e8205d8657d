//! The PEM frame: one block of base64 between a BEGIN and an END line.
//!
//! Reading is as lenient as RFC 7468 asks: text around the block is ignored
//! (`openssl … -text` writes some), lines end in LF or CRLF, the last one with or
//! without, and may be of any length. Writing has one form: lines of 64
//! characters, LF, also after the last line.
//!
//! The base64 of a secret is coded by `base64ct`, in constant time for a given length.

use base64ct::{Base64, Encoding};
use zeroize::Zeroizing;

use super::error::KeyTextError;

const BEGIN: &[u8] = b"-----BEGIN ";
const END: &[u8] = b"-----END ";
const DASHES: &[u8] = b"-----";

/// What the frame says is inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Label {
    /// PKCS#8.
    Private,
    /// `SubjectPublicKeyInfo`.
    Public,
    /// PKCS#8 behind a passphrase.
    Encrypted,
    /// A key of another algorithm, in that algorithm's own older form.
    Algorithm(&'static str),
    /// No key, or one in a form that is not read here.
    Other(&'static str),
}

impl Label {
    /// Labels are told by names written here and not echoed: in a garbled file
    /// the key itself may stand on the BEGIN line.
    fn read(text: &[u8]) -> Self {
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

/// One block, found but not decoded: what to say of a wrong label does not
/// depend on what is inside.
pub(super) struct Block<'a> {
    pub(super) label: Label,
    lines: Vec<&'a [u8]>,
}

impl<'a> Block<'a> {
    /// Finds the one block of a text.
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
                        label: Label::read(label),
                        lines: body,
                    }),
                    _ => Err(KeyTextError::NoEnd),
                };
            }
            body.push(line);
        }
        Err(KeyTextError::NoEnd)
    }

    /// The bytes inside.
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

/// Whether a text is a public key by its frame.
pub(super) fn is_public(text: &[u8]) -> bool {
    Block::find(text).is_ok_and(|block| block.label == Label::Public)
}

fn unframe<'a>(line: &'a [u8], head: &[u8]) -> Option<&'a [u8]> {
    line.strip_prefix(head)?.strip_suffix(DASHES)
}

/// Writes a block around DER that fits one line, as that of these keys does.
pub(super) fn write(label: &str, der: &[u8]) -> Zeroizing<String> {
    let base64 = Zeroizing::new(Base64::encode_string(der));
    debug_assert!(base64.len() <= 64, "one line");
    // Sized beforehand: growing would leave an unzeroed copy behind.
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
