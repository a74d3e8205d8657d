//! Source encodings other than UTF-8.

use super::{refused, tool};

#[test]
fn another_source_encoding_than_utf8_is_refused() {
    for (extension, text) in [
        (".py", "# coding: utf-7\n# +AAo-import os\n"),
        (".py", "# -*- coding: latin-1 -*-\n"),
        (".py", "\u{feff}# coding: utf-7\n"),
        (
            ".py",
            "#!/usr/bin/env python3\n# vim: set fileencoding=cp1252 :\n",
        ),
        (".py", "# a comment\r# coding=utf_16\n"),
        (".py", "\n \t# encoding: shift_jis\n"),
        (
            ".py",
            "# rye:signed:2026\n#!/usr/bin/python\n# coding: utf-7\n",
        ),
        (".py", "# CODING:UTF-7\n"),
        (".rb", "# encoding: Shift_JIS\n"),
        (
            ".rb",
            "#!/usr/bin/env ruby\n# -*- frozen_string_literal: true; coding : big5 -*-\n",
        ),
    ] {
        let said = refused(tool(extension, text));
        assert!(said.contains("source encoding"), "{text:?}: {said}");
    }
    insta::assert_snapshot!(refused(tool(".py", "# x\n# coding: utf-7\n__version__ = '1'\n")), @"
    2:11: the file declares the source encoding `utf-7`; only UTF-8 is read
      2 | # coding: utf-7
        |           ^
      hint: save the file as UTF-8 and remove the declaration
    ");
}

#[test]
fn utf8_and_what_declares_nothing_is_read() {
    for (extension, text) in [
        (".py", "# -*- coding: utf-8 -*-\n"),
        (".py", "\u{feff}# coding: UTF_8\n"),
        (".py", "# vim: set fileencoding=utf-8-unix :\n"),
        (".py", "# coding: us-ascii\n"),
        (".py", "x = 1\ny = 2\nz = 3\n# coding: utf-7\n"),
        (".py", "x = 'coding: utf-7'\n"),
        (".py", "# about coding\n"),
        (".rb", "# encoding: utf-8\n"),
        (".sh", "# decoding: base64\n"),
        (".js", "// coding: utf-7\n"),
    ] {
        assert!(tool(extension, text).is_ok(), "{text:?}");
    }
}

#[test]
fn utf16_and_utf32_are_rejected() {
    use crate::ItemKind;
    use crate::metadata::extract;
    let text = "__version__ = '1'\n";
    let wide = |big: bool, mark: bool| -> Vec<u8> {
        let units = mark
            .then_some(0xfeff)
            .into_iter()
            .chain(text.encode_utf16());
        let bytes = units.flat_map(|unit| {
            if big {
                unit.to_be_bytes()
            } else {
                unit.to_le_bytes()
            }
        });
        bytes.collect()
    };
    for bytes in [
        wide(true, true),
        wide(false, true),
        wide(true, false),
        wide(false, false),
    ] {
        for extension in [".py", ".rb", ".js", ".yaml"] {
            let read = extract(&bytes, extension, ItemKind::Tool, &super::SHIPPED);
            assert!(read.is_err(), "{bytes:?}");
        }
    }
}
