//! Files with credentials in folders that a sandbox shows.

use std::fs;
use std::path::{Path, PathBuf};

/// Names of files that only contain credentials. They are hidden directly in a shown folder.
const LOGINS: [&str; 10] = [
    "credentials",
    "credentials.toml",
    "credentials.json",
    ".credentials.json",
    "auth.json",
    "auth.toml",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".git-credentials",
];
/// Paths of package managers' settings below a shown folder. They are hidden only if they contain credentials, because
/// they also name mirrors.
const SETTINGS: [&str; 14] = [
    "etc/npmrc",
    "npmrc",
    "lib/node_modules/npm/npmrc",
    ".cargo/config.toml",
    ".cargo/config",
    ".cargo/credentials.toml",
    "config.toml",
    "etc/pip.conf",
    "pip.conf",
    ".config/pip/pip.conf",
    ".m2/settings.xml",
    "conf/settings.xml",
    "settings.xml",
    "settings-security.xml",
];
/// Words that indicate credentials in such settings, in lower case.
const WORDS: [&str; 7] = ["token", "_auth", "password", "passwd", "passphrase", "secret", "username"];
/// Maximum size of a file that is searched, in bytes; a larger file is hidden.
const MOST_BYTES: u64 = 1 << 20;

/// Returns the files with credentials in a folder.
pub(super) fn logins_in(folder: &Path) -> Vec<PathBuf> {
    // Cargo's own folder; other programs have a file of this name, too.
    let is_cargo = folder.file_name().is_some_and(|name| name == ".cargo" || name == "cargo");
    let is_meant = |name: &str| name != "config.toml" || is_cargo;
    let files = |names: &[&str]| -> Vec<PathBuf> {
        let meant = names.iter().filter(|name| is_meant(name));
        meant.map(|name| folder.join(name)).filter(|file| file.is_file()).collect()
    };
    let mut found = files(&LOGINS);
    found.extend(files(&SETTINGS).into_iter().filter(|file| is_login(file)));
    found
}

/// Whether a settings file of a package manager contains credentials or cannot be read.
pub(super) fn is_login(file: &Path) -> bool {
    let is_settings = SETTINGS.iter().any(|name| Path::new(name).file_name() == file.file_name());
    let is_small = || fs::metadata(file).is_ok_and(|found| found.len() <= MOST_BYTES);
    is_settings && !(is_small() && fs::read(file).is_ok_and(|text| !has_login(&String::from_utf8_lossy(&text))))
}

fn has_login(text: &str) -> bool {
    let text = without_comments(text).to_ascii_lowercase();
    let has_user =
        |address: &str| address.split(['/', '"', '\'', '<', ' ', '\n']).next().is_some_and(|host| host.contains('@'));
    WORDS.iter().any(|word| text.contains(word)) || text.split("://").skip(1).any(has_user)
}

/// Returns settings without XML comments and comment lines, because default files explain credentials in comments.
fn without_comments(text: &str) -> String {
    let mut left = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("<!--") {
        left.push_str(before);
        rest = after.split_once("-->").map_or("", |(_, rest)| rest);
    }
    left.push_str(rest);
    let is_comment = |line: &&str| line.trim_start().starts_with(['#', ';']);
    left.lines().filter(|line| !is_comment(line)).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_hidden_only_with_a_login() {
        let folder = tempfile::tempdir().unwrap();
        for (name, text, is_hidden) in [
            ("etc/npmrc", "//registry.npmjs.org/:_authToken=npm_abc\n", true),
            ("npmrc", "registry=https://mirror.example.org\n", false),
            (".cargo/config.toml", "[registry]\ntoken = \"abc\"\n", true),
            (".cargo/config", "[source.crates-io]\nreplace-with = \"mirror\"\n# token = \"abc\"\n", false),
            ("etc/pip.conf", "[global]\nindex-url = https://me:abc@pypi.example.org/simple\n", true),
            ("pip.conf", "[global]\nindex-url = https://pypi.example.org/simple\n", false),
            ("conf/settings.xml", "<settings><!-- <password>x</password> --><mirrors/></settings>", false),
            (".m2/settings.xml", "<server><username>me</username><password>x</password></server>", true),
            ("other.toml", "token = \"abc\"", false),
            (".npmrc", "", true),
        ] {
            let file = folder.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, text).unwrap();
            assert_eq!(logins_in(folder.path()).contains(&file), is_hidden, "{name}");
        }
    }
}
