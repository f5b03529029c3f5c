//! Reads the coverage in the output of known tools. It reveals a loss of coverage even if no check of kind `coverage`
//! is configured.

use std::sync::LazyLock;

use regex::Regex;

/// Names of tools, each with the pattern of the line that states the covered share of lines or statements. The last
/// group is the percentage.
const TOOLS: [(&str, &str); 12] = [
    // coverage.py, pytest-cov: a table that ends with statements, missed ones, branches, and the percentage.
    ("coverage.py", r"^TOTAL(?:\s+\d+){2,4}\s+(\d+(?:\.\d+)?)%$"),
    // gcovr has no sign between the counts.
    ("gcovr", r"^TOTAL\s+\d+\s+\d+\s+(\d+(?:\.\d+)?)%$"),
    // cargo llvm-cov: regions, functions, lines.
    ("cargo-llvm-cov", r"^TOTAL(?:\s+\d+\s+\d+\s+\d+\.\d+%){2}\s+\d+\s+\d+\s+(\d+\.\d+)%"),
    ("cargo-tarpaulin", r"^(\d+(?:\.\d+)?)% coverage, \d+/\d+ lines covered"),
    // Jest, Vitest, nyc, c8, Deno: a table with a row for all files.
    ("Istanbul", r"^All files\s*\|\s*(\d+(?:\.\d+)?)\s*\|"),
    ("Istanbul summary", r"^Statements\s*:\s*(\d+(?:\.\d+)?)%"),
    ("go tool cover", r"^total:\s+\(statements\)\s+(\d+(?:\.\d+)?)%$"),
    ("PHPUnit", r"^\s*Lines:\s+(\d+(?:\.\d+)?)%\s+\(\s*\d+/\d+\)"),
    ("SimpleCov", r"^(?:Line Coverage: |Coverage report generated .*\()(\d+(?:\.\d+)?)%"),
    ("coverlet", r"^\|\s*Total\s*\|\s*(\d+(?:\.\d+)?)%\s*\|"),
    ("lcov", r"^\s*lines\.*:\s+(\d+(?:\.\d+)?)%\s+\(\d+ of \d+ lines?\)"),
    ("mix", r"^\s*(\d+(?:\.\d+)?)%\s+\|\s+Total\s*$"),
];

/// Compiled patterns of the tools.
static LINES: LazyLock<Vec<Regex>> =
    LazyLock::new(|| TOOLS.iter().filter_map(|(_, line)| Regex::new(line).ok()).collect());
/// Pattern of the coverage of one Go package.
static GO_PACKAGE: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^(?:ok|---)?.*\bcoverage: (\d+(?:\.\d+)?)% of statements").ok());

/// Returns the coverage in percent, 0 to 100, in an output without escape sequences. It is the last total that a tool
/// printed, otherwise the mean of the packages of `go test -cover`. `None` if there is none.
pub fn read(output: &str) -> Option<f64> {
    let percent = |pattern: &Regex, line: &str| {
        let found = pattern.captures(line.trim_end())?.get(1)?.as_str().parse().ok()?;
        (0.0..=100.0).contains(&found).then_some(found)
    };
    let total = output.lines().rev().find_map(|line| LINES.iter().find_map(|pattern| percent(pattern, line)));
    total.or_else(|| {
        let package = GO_PACKAGE.as_ref()?;
        let packages: Vec<f64> = output.lines().filter_map(|line| percent(package, line)).collect();
        (!packages.is_empty()).then(|| packages.iter().sum::<f64>() / packages.len() as f64)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_valid() {
        assert_eq!(LINES.len(), TOOLS.len());
        assert!(GO_PACKAGE.is_some());
    }

    #[test]
    fn totals_of_known_tools_are_read() {
        let table = [
            (
                "Name      Stmts   Miss  Cover\n-----------------------------\na.py         12      3    75%\nTOTAL        40      6    85%\n",
                85.0,
            ),
            ("TOTAL          40      6     10      2  83.25%\n\n=== 3 passed in 0.1s ===\n", 83.25),
            ("TOTAL                                       100        12    88%\n", 88.0),
            ("TOTAL  300  30  90.00%  20  2  90.00%  200  25  87.50%  0  0  -\n", 87.5),
            ("|| src/lib.rs: 6/7\n85.71% coverage, 6/7 lines covered, +0.00% change in coverage\n", 85.71),
            (
                "----------|---------|\nFile      | % Stmts | % Branch |\nAll files |   91.66 |      50 |     100 |\n a.js     |  100 |\n",
                91.66,
            ),
            ("=== Coverage summary ===\nStatements   : 85.71% ( 12/14 )\nBranches     : 50% ( 1/2 )\n", 85.71),
            ("m/a.go:3:\tA\t100.0%\ntotal:\t(statements)\t66.7%\n", 66.7),
            ("Summary:\n  Classes: 50.00% (1/2)\n  Lines:   85.71% (12/14)\n", 85.71),
            ("Line Coverage: 85.71% (12 / 14)\nBranch Coverage: 50.0% (1 / 2)\n", 85.71),
            (
                "|         | Line   | Branch | Method |\n| Total   | 85.71% | 50%    | 100%   |\n| Average | 85.71% | 50% | 100% |\n",
                85.71,
            ),
            (
                "Overall coverage rate:\n  lines......: 85.7% (12 of 14 lines)\n  functions..: 50.0% (1 of 2 functions)\n",
                85.7,
            ),
            ("|   100.00% | A |\n    85.71% | Total\n", 85.71),
            (
                "ok  \tm/a\t0.2s\tcoverage: 80.0% of statements\nok  \tm/b\t0.1s\tcoverage: 60.0% of statements\n?   \tm/c\t[no test files]\n",
                70.0,
            ),
        ];
        for (output, expected) in table {
            assert_eq!(read(output), Some(expected), "{output}");
        }
    }

    #[test]
    fn sentences_and_single_files_are_not_totals() {
        for output in [
            "",
            "we want a coverage of 85%\n",
            "a.py         12      3    75%\n",
            "TOTAL 40\n",
            "All files are fine | 85 |\n",
            "Lines: 85%\n",
            "TOTAL        40      6    850%\n",
            "x TOTAL        40      6    85%\n",
        ] {
            assert_eq!(read(output), None, "{output}");
        }
    }

    #[test]
    fn last_total_in_the_output_counts() {
        assert_eq!(read("TOTAL        40      6    85%\nagain\nTOTAL        40      9    77%\n"), Some(77.0));
    }
}
