//! The hidden line by which one of our texts is found again after a crash, signed so that nobody else can write it.

use data_encoding::HEXLOWER;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::domain::ids::{LoopId, Number, RepoId};

/// Room that a marker and the empty line before it take at most.
pub(super) const MAX_BYTES: usize = 256;

const BEGIN: &str = "<!-- ralph:1 ";
const END: &str = " -->";
/// Hexadecimal digits of the code: 128 bits.
const CODE_DIGITS: usize = 32;

/// What a marker is signed with: the service's secret, and the place it is for.
#[derive(Clone)]
pub struct MarkerKey {
    code: Hmac<Sha256>,
}

impl std::fmt::Debug for MarkerKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MarkerKey")
    }
}

impl MarkerKey {
    /// A key for the texts on one issue or pull request. `secret` is the service's, of any length, kept over restarts.
    pub fn new(secret: &[u8], repo: RepoId, issue: Number) -> Self {
        let mut code = Hmac::<Sha256>::new_from_slice(secret).unwrap_or_else(|_| Hmac::new(&Default::default()));
        code.update(format!("ralph marker 1\n{repo}\n{issue}\n").as_bytes());
        Self { code }
    }

    fn code(&self, fields: &str) -> Hmac<Sha256> {
        let mut code = self.code.clone();
        code.update(fields.as_bytes());
        code
    }
}

/// Which text of ours it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marker {
    /// The loop.
    pub loop_id: LoopId,
    /// The iteration, for texts of one.
    pub iteration: Option<u32>,
    /// What sort of text: `[a-z0-9_-]`, at most 64 characters; `View::kind`, or that with a suffix.
    pub kind: String,
}

impl Marker {
    /// The hidden line.
    pub fn text(&self, key: &MarkerKey) -> String {
        let fields = self.fields();
        let code = HEXLOWER.encode(&key.code(&fields).finalize().into_bytes());
        format!("{BEGIN}{fields} {}{END}", code.get(..CODE_DIGITS).unwrap_or(&code))
    }

    fn fields(&self) -> String {
        let iteration = self.iteration.map_or_else(|| "-".to_owned(), |n| n.to_string());
        format!("{} {iteration} {}", word(self.loop_id.as_str()), word(&self.kind))
    }
}

/// A field: no white space, nothing that ends a comment, not too long.
fn word(text: &str) -> String {
    let plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let word: String = text.chars().filter(plain).take(64).collect();
    word.replace("--", "-")
}

/// The marker at the end of a text, if it is ours for this place. Anything before the last line is somebody's quotation.
pub fn find_marker(body: &str, key: &MarkerKey) -> Option<Marker> {
    let line = body.trim_end().lines().next_back()?.trim_end();
    let (fields, code) = line.strip_prefix(BEGIN)?.strip_suffix(END)?.rsplit_once(' ')?;
    let code = HEXLOWER.decode(code.as_bytes()).ok().filter(|code| code.len() * 2 == CODE_DIGITS)?;
    key.code(fields).verify_truncated_left(&code).ok()?;
    let mut words = fields.split(' ');
    let (loop_id, iteration, kind) = (words.next()?, words.next()?, words.next()?);
    let iteration = match iteration {
        "-" => None,
        number => Some(number.parse().ok()?),
    };
    Some(Marker { loop_id: LoopId::new(loop_id), iteration, kind: kind.to_owned() })
}
