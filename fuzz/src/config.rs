//! Any text is a configuration or is refused with words; what is in force lies within its limits, is shown as
//! it is read, and comes from where it says.

#![forbid(unsafe_code)]

mod driver;

use polyduct_message::config::{parse_bytes, show_bytes, Config, Origin};
use polyduct_message::ConfigError;
use std::path::Path;

/// What all variables begin with; an input may leave it out.
const PREFIX: &str = "POLYDUCT_MESSAGE_";

fn check(config: &Config, given: &[(&str, &str)]) {
    let default = Config::default();
    for (setting, usual) in config.settings().zip(default.settings()) {
        assert_eq!((setting.name, setting.min, setting.max), (usual.name, usual.min, usual.max));
        assert!((setting.min..=setting.max).contains(&setting.bytes), "{setting:?}");
        assert_eq!(config.bytes(setting.name), setting.bytes);
        for value in [setting.bytes, setting.min, setting.max] {
            assert_eq!(setting.read(&setting.show(value)), Some(value), "{setting:?}");
        }
        let variable = format!("{PREFIX}{}", setting.name.to_uppercase());
        let told = given.iter().find(|(name, _)| *name == &variable[PREFIX.len()..]);
        match (&setting.origin, told) {
            (Origin::Variable(name), Some((_, words))) => {
                assert_eq!(*name, variable);
                assert_eq!(setting.read(words), Some(setting.bytes));
            }
            (Origin::File(_), None) => {}
            (Origin::Default, None) => assert_eq!(setting.bytes, usual.bytes),
            other => panic!("{setting:?}: {other:?}"),
        }
    }
    assert_eq!(config.settings().count(), default.settings().count());
}

/// What is shown of a configuration is one that says the same.
fn check_shown(config: &Config) {
    let lines: String = config.settings().map(|s| format!("{} = '{}'\n", s.name, s.show(s.bytes))).collect();
    let again = Config::from_sources(Some((Path::new("again"), &format!("[message]\n{lines}"))), |_| None);
    let again = again.expect("its own text");
    assert!(config.settings().zip(again.settings()).all(|(a, b)| a.bytes == b.bytes), "{lines}");
}

fn check_fit(config: &Config, partners: u64, obtainable: u64) {
    let mut fitted = config.clone();
    let fits = fitted.fit(partners, obtainable);
    for (now, was) in fitted.settings().zip(config.settings()) {
        assert!(now.bytes >= now.min && now.bytes <= was.bytes, "{now:?} was {was:?}");
        assert!(["ring", "express_ring", "rings"].contains(&now.name) || now == was);
    }
    let needed = fitted.needed(partners);
    match fits {
        Ok(()) => assert!(needed <= obtainable / 4),
        Err(ConfigError::TooBig { .. }) => assert!(needed > obtainable / 4),
        Err(other) => panic!("{other}"),
    }
}

/// The file, then variables as NAME=VALUE, each behind a zero byte.
fn target(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let mut parts = text.split('\0');
    let file = parts.next().unwrap_or_default();
    let given: Vec<_> = parts.filter_map(|part| part.split_once('=')).collect();
    let variable = |name: &str| {
        let name = name.strip_prefix(PREFIX).expect("a variable of this program");
        given.iter().find(|(n, _)| *n == name).map(|(_, words)| (*words).to_owned())
    };
    match Config::from_sources(Some((Path::new("file"), file)), variable) {
        Ok(config) => {
            check(&config, &given);
            check_shown(&config);
            for obtainable in [0, 1 << 20, 64 << 20, u64::MAX] {
                [0, 1, 63, 4095, u64::MAX].into_iter().for_each(|n| check_fit(&config, n, obtainable));
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    for words in text.split(['\0', '\n', '=']) {
        if let Some(bytes) = parse_bytes(words.trim_matches(['\'', '"', ' '])) {
            assert_eq!(parse_bytes(&show_bytes(bytes)), Some(bytes));
        }
    }
}

fn main() {
    let seeds: [&[u8]; 6] = [
        b"[message]\nring = '1 MiB'\nexpress_ring = 65536\nmessage = \"1TiB\"\n",
        b"[message]\nnear = 0\ninbox = 0x100000\nfirst_fragment = 256\nmax_fragment = '4MiB'\npull_from = \
            4096\n",
        b"[message]\nring = '16KiB'\0RING=2MiB\0NEAR=1\0PULL_FROM=281474976710656",
        b"\0EXPRESS_RING=4KiB\0MAX_FRAGMENT=256B\0INBOX= 1 GiB \0MESSAGE=1MiB\0FIRST_FRAGMENT=300",
        b"message.ring = 1_048_576 # more\n[other]\nx = [1, {y = 2}]\n",
        b"message = { ring = 20000, near = 1 }\n",
    ];
    let words: [&[u8]; 26] = [
        b"[message]\n",
        b"ring = ",
        b"near",
        b"inbox",
        b"pull_from",
        b"'",
        b"\"\"\"",
        b"\n",
        b"\0",
        b"\0RING=",
        b"\0NEAR=",
        b"=",
        b"B",
        b"KiB",
        b"MiB",
        b"GiB",
        b"TiB",
        b" ",
        b"65536",
        b"18446744073709551615",
        b"99999999999999999999",
        b"[[",
        b"{",
        b"1979-05-27T07:32:00Z",
        b"-1",
        b"1e3",
    ];
    driver::run(&seeds, &words, target);
}
