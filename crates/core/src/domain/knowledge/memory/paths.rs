//! File paths in the output of a check.

use std::sync::LazyLock;

use regex::Regex;

/// Path with a folder, or file name with a line number.
static PATH: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?:[\w@+.-]*/)+[\w@+.-]*\w\.[A-Za-z]\w{0,4}\b|\b[\w@+-][\w@+.-]*\.[A-Za-z]\w{0,4}[:(]\d")
        .expect("constant pattern")
});

/// Returns the distinct files mentioned in a text, in order; at most `most`.
pub fn paths_in(text: &str, most: usize) -> Vec<&str> {
    let mut paths: Vec<&str> = Vec::new();
    for path in PATH.find_iter(text).map(|found| found.as_str()) {
        let path = path.find([':', '(']).map_or(path, |end| &path[..end]);
        if paths.len() < most && !paths.contains(&path) {
            paths.push(path);
        }
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_found_in_tool_output() {
        let output = "error[E0308]: mismatched types\n  --> src/ledger/sum.rs:12:5\nledger.py:3: in total\n\
                      File \"/w/tree/app/money.py\", line 4, in add\nFAIL ./ui/cart.test.tsx (2.1 s)\n\
                      self.assertEqual(1, 2) took 1.5s and/or e.g. v1.2.3; src/ledger/sum.rs again";
        let found = paths_in(output, 9);
        assert_eq!(found, ["src/ledger/sum.rs", "ledger.py", "/w/tree/app/money.py", "./ui/cart.test.tsx"]);
        assert_eq!(paths_in(output, 1), ["src/ledger/sum.rs"]);
    }
}
