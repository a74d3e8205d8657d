//! Tests that need private fields: raw messages and raw secrets.

use super::*;
use zeroize::ZeroizeOnDrop;

fn bytes<const N: usize>(hex: &str) -> [u8; N] {
    assert_eq!(hex.len(), 2 * N);
    std::array::from_fn(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap())
}

/// RFC 8032, section 7.1, tests 1 to 3. `SigningKey` signs only hashes, so the test uses the
/// inner key.
#[test]
fn rfc_8032_vectors_pass_strict_verification() {
    for (secret, public, message, signature) in [
        (
            "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
            "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
            &[][..],
            "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
        ),
        (
            "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
            "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
            &[0x72],
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
        ),
        (
            "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
            "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
            &[0xaf, 0x82],
            "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a",
        ),
    ] {
        let key = SigningKey::from_secret(&bytes(secret));
        assert_eq!(key.public.key.to_bytes(), bytes(public));
        let made = key.key.sign(message);
        assert_eq!(made.to_bytes(), bytes(signature));
        key.public.key.verify_strict(message, &made).unwrap();
    }
}

#[test]
fn keys_are_zeroed_when_dropped() {
    fn zeroed<T: ZeroizeOnDrop>(_: &T) {}
    let key = SigningKey::generate().unwrap();
    zeroed(&*key.key);
    zeroed(&key.to_pem());
}

#[test]
fn debug_does_not_show_the_secret() {
    let key = SigningKey::generate().unwrap();
    let shown = format!("{key:?} {:#?} {:?}", key, key.public());
    let list = format!("{:?}", key.key.as_bytes());
    assert!(!shown.contains(&list[1..12]), "{shown}");
    assert_eq!(
        format!("{key:?}"),
        format!("SigningKey({})", key.public().fingerprint())
    );
}

/// Encodings around the field prime and small values: `is_canonical` agrees with encoding the
/// point again.
#[test]
fn is_canonical_agrees_with_re_encoding() {
    let near_the_field = (0xd0..=0xff_u8).map(|lowest| {
        let mut point = [0xff; 32];
        (point[0], point[31]) = (lowest, 0x7f);
        point
    });
    let small = (0..=0xff_u8).map(|lowest| {
        let mut point = [0; 32];
        point[0] = lowest;
        point
    });
    let mut seen = [0; 2];
    for point in near_the_field.chain(small) {
        for sign in [0, 0x80] {
            let mut point = point;
            point[31] |= sign;
            let Ok(key) = ed25519_dalek::VerifyingKey::from_bytes(&point) else {
                continue;
            };
            let written = key.to_edwards().compress().to_bytes() == point;
            if !key.is_weak() {
                assert_eq!(is_canonical(&point), written, "{point:x?}");
                seen[usize::from(written)] += 1;
            }
        }
    }
    assert!(seen.iter().all(|count| *count > 5), "{seen:?}");
}

#[test]
fn signature_for_one_purpose_does_not_verify_for_another() {
    let key = SigningKey::generate().unwrap();
    let hash = Hash::digest(b"a decision");
    let (decision, export) = (Purpose::new("decision"), Purpose::new("export"));
    let signature = key.sign_for(decision, &hash);
    let public = key.public();
    assert!(public.verify_for(decision, &hash, &signature).is_ok());
    assert!(public.verify_for(export, &hash, &signature).is_err());
    assert!(public.verify(&hash, &signature).is_err());
    assert!(
        public
            .verify_for(decision, &hash, &key.sign(&hash))
            .is_err()
    );
}
