//! Tolerant parser of unified git diffs.

/// Role of a line in a hunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineChange {
    Context,
    Added,
    Removed,
}

/// Line of a hunk, without its prefix and its line break.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DiffLine {
    pub change: LineChange,
    /// 1-based number in the file after the change. A removed line has the number of the line that now follows it. In a deleted
    /// file, the number before the change.
    pub number: u32,
    pub text: String,
}

/// Hunk of a diff.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Hunk {
    /// Text after the second `@@`: the enclosing function or section.
    pub heading: String,
    pub lines: Vec<DiffLine>,
}

/// Change of one file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct FileDiff {
    /// Path before the change; `None` for a new file.
    pub old: Option<String>,
    /// Path after the change; `None` for a deleted file.
    pub new: Option<String>,
    pub hunks: Vec<Hunk>,
}

impl FileDiff {
    /// Returns the path after the change; for a deleted file, the path before.
    pub fn path(&self) -> &str {
        self.new.as_deref().or(self.old.as_deref()).unwrap_or_default()
    }

    /// Returns both paths, which are usually the same.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.old.as_deref().into_iter().chain(self.new.as_deref())
    }

    /// Returns the texts of all lines with this role.
    pub fn lines(&self, change: LineChange) -> impl Iterator<Item = &str> {
        self.numbered(change).map(|line| line.text.as_str())
    }

    /// Returns all lines with this role.
    pub fn numbered(&self, change: LineChange) -> impl Iterator<Item = &DiffLine> {
        self.hunks.iter().flat_map(|hunk| &hunk.lines).filter(move |line| line.change == change)
    }

    pub fn is_new(&self) -> bool {
        self.old.is_none()
    }

    pub fn is_deleted(&self) -> bool {
        self.new.is_none()
    }
}

/// Parses a diff as printed by `git diff`, with or without `diff --git` headers. Other text is ignored. The line counts of hunks
/// distinguish their lines from headers, so that a removed line `-- x` is not read as a header.
pub(super) fn parse(diff: &str) -> Vec<FileDiff> {
    let mut reader = DiffReader::default();
    for line in diff.split('\n') {
        reader.take(line.strip_suffix('\r').unwrap_or(line));
    }
    reader.end_file();
    reader.files
}

#[derive(Default)]
struct DiffReader {
    files: Vec<FileDiff>,
    file: Option<FileDiff>,
    /// Number of lines that remain in the current hunk, before and after the change.
    left: (usize, usize),
    /// Number of the next line, before and after the change.
    next: (u32, u32),
}

impl DiffReader {
    fn take(&mut self, line: &str) {
        if self.left != (0, 0) && self.take_hunk_line(line) {
            return;
        }
        self.left = (0, 0);
        if let Some(names) = line.strip_prefix("diff --git ") {
            self.end_file();
            let (old, new) = header_paths(names);
            self.file = Some(FileDiff { old, new, hunks: Vec::new() });
        } else if let Some(name) = line.strip_prefix("--- ") {
            // Without a `diff --git` line, this is where a file starts.
            if self.file.as_ref().is_none_or(|file| !file.hunks.is_empty()) {
                self.end_file();
                self.file = Some(FileDiff::default());
            }
            self.with_file(|file| file.old = side_path(name));
        } else if let Some(name) = line.strip_prefix("+++ ") {
            self.with_file(|file| file.new = side_path(name));
        } else if let Some(name) = line.strip_prefix("rename from ").or_else(|| line.strip_prefix("copy from ")) {
            let copied = line.starts_with("copy");
            self.with_file(|file| file.old = if copied { None } else { Some(unquote(name)) });
        } else if let Some(name) = line.strip_prefix("rename to ").or_else(|| line.strip_prefix("copy to ")) {
            self.with_file(|file| file.new = Some(unquote(name)));
        } else if line.starts_with("new file mode ") {
            self.with_file(|file| file.old = None);
        } else if line.starts_with("deleted file mode ") {
            self.with_file(|file| file.new = None);
        } else if let Some((left, next, heading)) = hunk_header(line) {
            (self.left, self.next) = (left, next);
            self.with_file(|file| file.hunks.push(Hunk { heading, lines: Vec::new() }));
        }
    }

    /// Reads a line of the current hunk. Returns false if the line does not belong to the hunk, which is then incomplete.
    fn take_hunk_line(&mut self, line: &str) -> bool {
        let (change, text) = match line.as_bytes().first() {
            Some(b'+') => (LineChange::Added, &line[1..]),
            Some(b'-') => (LineChange::Removed, &line[1..]),
            Some(b' ') => (LineChange::Context, &line[1..]),
            Some(b'\\') => return true,
            // Mail programs strip the blank of an empty line.
            None => (LineChange::Context, ""),
            Some(_) => return false,
        };
        let (before, after) = self.next;
        if change != LineChange::Added {
            self.left.0 = self.left.0.saturating_sub(1);
            self.next.0 = before.saturating_add(1);
        }
        if change != LineChange::Removed {
            self.left.1 = self.left.1.saturating_sub(1);
            self.next.1 = after.saturating_add(1);
        }
        let Some(file) = &mut self.file else { return true };
        let number = if file.is_deleted() { before } else { after };
        if let Some(hunk) = file.hunks.last_mut() {
            hunk.lines.push(DiffLine { change, number, text: text.to_owned() });
        }
        true
    }

    fn with_file(&mut self, edit: impl FnOnce(&mut FileDiff)) {
        if let Some(file) = &mut self.file {
            edit(file);
        }
    }

    fn end_file(&mut self) {
        self.left = (0, 0);
        self.files.extend(self.file.take().filter(|file| file.paths().next().is_some()));
    }
}

/// Parses `@@ -1,3 +1,4 @@ heading`. Returns the numbers of lines, the numbers of the first lines, and the heading; each pair is
/// before and after the change.
fn hunk_header(line: &str) -> Option<((usize, usize), (u32, u32), String)> {
    let (ranges, heading) = line.strip_prefix("@@ -")?.split_once(" @@")?;
    let (old, new) = ranges.split_once(" +")?;
    let range = |range: &str| {
        let (start, count) = range.split_once(',').unwrap_or((range, "1"));
        Some((start.parse::<u32>().ok()?, count.parse::<usize>().ok()?))
    };
    let ((old_start, old_count), (new_start, new_count)) = (range(old)?, range(new)?);
    let heading = heading.strip_prefix(' ').unwrap_or(heading).trim_end().to_owned();
    Some(((old_count, new_count), (old_start, new_start), heading))
}

/// Returns the path in a `---` or `+++` line; `None` for `/dev/null`.
fn side_path(name: &str) -> Option<String> {
    // A tab ends a name that holds blanks.
    let name = if name.starts_with('"') { name } else { name.split('\t').next().unwrap_or(name) };
    let path = unquote(name);
    (path != "/dev/null").then(|| without_prefix(&path))
}

/// Returns both paths in a `diff --git` line. Unquoted paths can only be separated if they are equal. They are equal whenever no
/// other header line states them.
fn header_paths(names: &str) -> (Option<String>, Option<String>) {
    let both = |old: String, new: String| (Some(without_prefix(&old)), Some(without_prefix(&new)));
    if let Some(rest) = names.strip_prefix('"') {
        let end = closing_quote(rest).unwrap_or(rest.len());
        let old = unquote(&names[..(end + 2).min(names.len())]);
        return both(old, unquote(rest.get(end + 1..).unwrap_or_default().trim_start()));
    }
    if let Some((old, new)) = names.split_once(" \"") {
        return both(old.to_owned(), unquote(&format!("\"{new}")));
    }
    let middle = names.len() / 2;
    if let (Some(old), Some(new)) = (names.get(..middle), names.get(middle + 1..))
        && without_prefix(old) == without_prefix(new)
    {
        return both(old.to_owned(), new.to_owned());
    }
    match names.split_once(" b/") {
        Some((old, new)) => both(old.to_owned(), new.to_owned()),
        None => (None, None),
    }
}

fn without_prefix(path: &str) -> String {
    let stripped = ["a/", "b/", "i/", "w/", "c/", "o/"].iter().find_map(|prefix| path.strip_prefix(prefix));
    stripped.unwrap_or(path).to_owned()
}

fn closing_quote(text: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Some(at),
            _ => {}
        }
    }
    None
}

/// Decodes git's quoting of unusual paths: `"a/t\303\244st"`.
fn unquote(name: &str) -> String {
    let Some(inner) = name.strip_prefix('"') else { return name.to_owned() };
    let inner = &inner[..closing_quote(inner).unwrap_or(inner.len())];
    let mut bytes = Vec::with_capacity(inner.len());
    let mut rest = inner.bytes().peekable();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        match rest.next() {
            Some(b'n') => bytes.push(b'\n'),
            Some(b't') => bytes.push(b'\t'),
            Some(b'r') => bytes.push(b'\r'),
            Some(first @ b'0'..=b'3') => {
                let mut value = first - b'0';
                for _ in 0..2 {
                    if let Some(digit) = rest.next_if(|digit| (b'0'..=b'7').contains(digit)) {
                        value = value.wrapping_mul(8).wrapping_add(digit - b'0');
                    }
                }
                bytes.push(value);
            }
            Some(other) => bytes.push(other),
            None => {}
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
