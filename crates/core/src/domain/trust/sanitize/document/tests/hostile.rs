//! Texts for which parsers with nested loops take long.

use crate::domain::trust::sanitize::document::{read, write};

/// Returns texts for which parsers with nested loops take long, each cut to `bytes`.
fn hostile(bytes: usize) -> Vec<(String, String)> {
    let parts = [
        "`",
        "[",
        "]",
        "[[a](b)",
        "![",
        "(",
        "*",
        "_",
        "**a _b ",
        "~",
        "$",
        "$$",
        "$`",
        "<",
        "<a ",
        "<a b=\"",
        "<!--",
        "<!-- ",
        "<!-- ralph:",
        "-->",
        "</b>",
        "<b>",
        "<i><b>",
        "<div>",
        "<div hidden>",
        "<p><b id=1></p>",
        "<table>",
        "<table><tr><td>",
        "<svg>",
        "<svg><desc>",
        "<select>",
        "<details><summary>",
        "<a href=x>",
        "> ",
        ">",
        "- ",
        "1. ",
        "* * ",
        "+ \n",
        "-\n",
        "- a\n  - b\n",
        "> a\n",
        "```\n",
        "~~~\n",
        "``a",
        "|",
        "| a ",
        "|-",
        "a|b\n-|-\n",
        "\\",
        "\\\n",
        "&",
        "&amp;",
        "&#5",
        "&#x0;",
        "[a]: b\n",
        "[a]: b 'c'\n",
        "[a]\n",
        "[^a]",
        "[^a]: b\n",
        "[^a][^b]",
        "\u{200b}",
        "\u{e0041}a",
        "\u{1b}[",
        "\n",
        " \n",
        "\r",
        "\t",
        "    ",
        "&nbsp;",
        "&nbsp;\n\n",
        "<br>",
        "a ",
        "a\n",
        "#\n",
        "# a\n",
        "===\n",
        "---\n",
        ":",
        "www.a.b ",
        "http://a.b ",
        "a@b.c",
        "@a@",
        "data:a,",
        "<x y=1 ",
        "<b x1=2>",
        "<template>",
        "<title>",
        "<script>",
        "</script>",
        "<?",
        "<![CDATA[",
        "<!X ",
        "<textarea>",
        "<pre>",
        "<font color=a>",
        "<sub>",
        "<input type=checkbox>",
        "<a><b></a>",
        "<frameset>",
        "{{",
        "\u{a0}",
        "é",
        "漢",
        "[x][y] ",
        "![a][b]",
        "[a](<b",
        "[a](b \"",
        "*a_b",
        "a**b",
        "<b></p>",
        "</p>",
        "</br>",
    ];
    let mut texts: Vec<(String, String)> =
        parts.iter().map(|part| (format!("{part:?} repeated"), part.repeat(bytes / part.len()))).collect();
    let half = bytes / 2;
    let counted = |make: &dyn Fn(usize) -> String| {
        let mut text = String::new();
        let mut n = 0;
        while text.len() < bytes {
            text.push_str(&make(n));
            n += 1;
        }
        text
    };
    texts.extend([
        (
            "deep list".to_owned(),
            (0..bytes)
                .map(|n| format!("{}- a\n", "  ".repeat(n)))
                .scan(0, |all, line| {
                    *all += line.len();
                    (*all < bytes).then_some(line)
                })
                .collect(),
        ),
        (
            "deep list, blank lines".to_owned(),
            format!(
                "{}{}",
                (0..300).map(|n| format!("{}- a\n", "  ".repeat(n))).collect::<String>(),
                "\n".repeat(half)
            ),
        ),
        (
            "list of 60 levels, lines".to_owned(),
            format!("{}a\n{}", "- ".repeat(60), format!("{}b\n", " ".repeat(120)).repeat(bytes / 122)),
        ),
        ("quote of 60 levels, lazy lines".to_owned(), format!("{}a\n{}", "> ".repeat(60), "b\n".repeat(half))),
        ("attributes".to_owned(), format!("<a {}>", counted(&|n| format!("a{n} ")))),
        ("attributes with values".to_owned(), format!("<div {}>", counted(&|n| format!("a{n}=''")))),
        (
            "tags with many attributes".to_owned(),
            counted(&|n| if n % 1000 == 0 { "><a ".into() } else { format!("a{n} ") }),
        ),
        ("formatting elements".to_owned(), counted(&|n| format!("<b id={n}>"))),
        ("formatting elements closed by paragraphs".to_owned(), counted(&|n| format!("<p><b id={n}></p>"))),
        ("cells of formatting elements".to_owned(), counted(&|n| format!("<table><td><b id={n}></b>"))),
        ("adoption".to_owned(), format!("{}{}", "<b><i><u>".repeat(bytes / 18), "</b></i></u>".repeat(bytes / 24))),
        ("definitions".to_owned(), counted(&|n| format!("[a{n}]: b{n}\n"))),
        ("references".to_owned(), format!("[a]: {}\n\n{}", "x".repeat(1000), "[a] ".repeat(bytes / 4))),
        ("footnotes".to_owned(), counted(&|n| format!("[^{n}] "))),
        ("footnote definitions".to_owned(), counted(&|n| format!("[^{n}]: a[^{}]\n\n", n + 1))),
        (
            "wide table".to_owned(),
            format!("{}\n{}\n{}", "|a".repeat(bytes / 12), "|-".repeat(bytes / 12), "|\n".repeat(half)),
        ),
        ("runs of ticks".to_owned(), counted(&|n| format!("{}a", "`".repeat(n % 300)))),
        ("dollars".to_owned(), counted(&|n| format!("$a{n} "))),
        ("open details".to_owned(), "<details>\n\n".repeat(bytes / 11)),
        ("foster parents".to_owned(), format!("<table>{}", "a<b>".repeat(bytes / 4))),
        ("nested links".to_owned(), format!("{}{}", "[".repeat(half), "](a)".repeat(bytes / 8))),
        ("quotes of any depth".to_owned(), counted(&|n| format!("{}a\n", ">".repeat(n % 60)))),
    ]);
    texts
}

/// Time and size of the output are proportional to the length of the text.
#[test]
fn hostile_texts_are_read() {
    for (name, text) in hostile(16 * 1024) {
        let document = read(&text);
        assert!(write(&document).len() <= 10 * text.len() + 1000, "{name}");
    }
}
