//! Images of a task: formats detected from their first bytes, and sizes from their headers. Images are never decoded.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Maximum number of attempts to fetch an image, or to list an issue's images, while the failure may be temporary.
pub const MOST_FETCHES: u32 = 3;

/// Number of bytes at the start of a file that suffice to detect every supported format.
pub const FORMAT_BYTES: usize = 64;

/// Format of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ImageFormat {
    Png,
    Jpeg,
    Gif,
    #[serde(rename = "webp")]
    WebP,
}

impl ImageFormat {
    /// Returns the display name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Png => "PNG",
            Self::Jpeg => "JPEG",
            Self::Gif => "GIF",
            Self::WebP => "WebP",
        }
    }

    /// Returns the media type.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
            Self::Gif => "image/gif",
            Self::WebP => "image/webp",
        }
    }

    /// Returns the extension of file names, without a dot.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Png => "png",
            Self::Jpeg => "jpg",
            Self::Gif => "gif",
            Self::WebP => "webp",
        }
    }
}

/// Format and size of an image according to its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageHeader {
    /// Format of the image.
    pub format: ImageFormat,
    /// Width, in pixels.
    pub width: u32,
    /// Height, in pixels.
    pub height: u32,
}

impl fmt::Display for ImageHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} x {} pixels", self.format.name(), self.width, self.height)
    }
}

/// Reason why a file cannot be used as an image. `Display` prints a sentence without its subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ImageFault {
    /// The file is an SVG image: a document that can contain scripts.
    #[error("SVG is not supported; use PNG, JPEG, GIF or WebP")]
    Svg,
    /// The file is a web page.
    #[error("the forge answered with a web page instead of an image")]
    Page,
    /// The file has no supported image format.
    #[error("its content is not a PNG, JPEG, GIF or WebP image")]
    Other,
    /// The header has no size.
    #[error("the header of the {} image has no valid size", .0.name())]
    NoSize(ImageFormat),
    /// The image is wider or higher than `max` pixels.
    #[error("it has {width} x {height} pixels, at most {max} x {max} are allowed")]
    TooManyPixels { width: u32, height: u32, max: u32 },
}

/// Returns a file's format, detected from its first bytes; `FORMAT_BYTES` are enough.
///
/// # Errors
/// The file's format is not supported.
pub fn format_of(start: &[u8]) -> Result<ImageFormat, ImageFault> {
    if start.starts_with(b"\x89PNG\r\n\x1a\n") {
        return Ok(ImageFormat::Png);
    }
    if start.starts_with(b"\xff\xd8\xff") {
        return Ok(ImageFormat::Jpeg);
    }
    if start.starts_with(b"GIF87a") || start.starts_with(b"GIF89a") {
        return Ok(ImageFormat::Gif);
    }
    if start.starts_with(b"RIFF") && start.get(8..12) == Some(b"WEBP") {
        return Ok(ImageFormat::WebP);
    }
    let text = String::from_utf8_lossy(&start[..start.len().min(FORMAT_BYTES)]).to_ascii_lowercase();
    let text = text.trim_start_matches('\u{feff}').trim_start();
    Err(match text {
        _ if text.starts_with("<!doctype html") || text.starts_with("<html") => ImageFault::Page,
        _ if ["<svg", "<?xml", "<!doctype svg", "<!--"].iter().any(|start| text.starts_with(start)) => ImageFault::Svg,
        _ => ImageFault::Other,
    })
}

/// Returns an image's format and size from its header. `max` is the maximum width and height, in pixels.
///
/// # Errors
/// The format is not supported, the header has no size, or the image exceeds `max`.
pub fn header_of(bytes: &[u8], max: u32) -> Result<ImageHeader, ImageFault> {
    let format = format_of(bytes)?;
    let size = match format {
        ImageFormat::Png => png_size(bytes),
        ImageFormat::Jpeg => jpeg_size(bytes),
        ImageFormat::Gif => Some((little(bytes, 6, 2), little(bytes, 8, 2))).and_then(both),
        ImageFormat::WebP => webp_size(bytes),
    };
    match size.filter(|(width, height)| *width > 0 && *height > 0) {
        None => Err(ImageFault::NoSize(format)),
        Some((width, height)) if width > max || height > max => Err(ImageFault::TooManyPixels { width, height, max }),
        Some((width, height)) => Ok(ImageHeader { format, width, height }),
    }
}

fn both((width, height): (Option<u32>, Option<u32>)) -> Option<(u32, u32)> {
    width.zip(height)
}

/// Reads a little-endian number of `length` bytes (at most four) at the offset `at`; `None` beyond the end.
fn little(bytes: &[u8], at: usize, length: usize) -> Option<u32> {
    let part = bytes.get(at..at.checked_add(length)?)?;
    Some(part.iter().rev().fold(0, |sum, byte| sum << 8 | u32::from(*byte)))
}

/// Reads a big-endian number of `length` bytes (at most four) at the offset `at`; `None` beyond the end.
fn big(bytes: &[u8], at: usize, length: usize) -> Option<u32> {
    let part = bytes.get(at..at.checked_add(length)?)?;
    Some(part.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte)))
}

fn png_size(bytes: &[u8]) -> Option<(u32, u32)> {
    let is_header = bytes.get(12..16) == Some(b"IHDR");
    both((big(bytes, 16, 4), big(bytes, 20, 4))).filter(|_| is_header)
}

/// Returns the width and height of a JPEG image from its frame header, which follows other segments.
fn jpeg_size(bytes: &[u8]) -> Option<(u32, u32)> {
    let mut at = 2;
    loop {
        if *bytes.get(at)? != 0xff {
            return None;
        }
        while *bytes.get(at)? == 0xff {
            at += 1;
        }
        let marker = bytes[at];
        at += 1;
        match marker {
            // Frame headers; the three omitted values are tables and an extension.
            0xc0..=0xcf if !matches!(marker, 0xc4 | 0xc8 | 0xcc) => {
                return both((big(bytes, at + 5, 2), big(bytes, at + 3, 2)));
            }
            // Markers without content.
            0x01 | 0xd0..=0xd7 => {}
            // The end, or image data without a frame header.
            0x00 | 0xd8..=0xda => return None,
            _ => at += usize::try_from(big(bytes, at, 2)?).ok().filter(|length| *length >= 2)?,
        }
    }
}

fn webp_size(bytes: &[u8]) -> Option<(u32, u32)> {
    match bytes.get(12..16)? {
        b"VP8 " if bytes.get(23..26) == Some(b"\x9d\x01\x2a") => {
            both((little(bytes, 26, 2), little(bytes, 28, 2))).map(|(width, height)| (width & 0x3fff, height & 0x3fff))
        }
        b"VP8L" if bytes.get(20) == Some(&0x2f) => {
            little(bytes, 21, 4).map(|bits| ((bits & 0x3fff) + 1, (bits >> 14 & 0x3fff) + 1))
        }
        b"VP8X" => both((little(bytes, 24, 3), little(bytes, 27, 3))).map(|(width, height)| (width + 1, height + 1)),
        _ => None,
    }
}

/// Image referenced by a task, with the outcome of fetching it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskImage {
    /// 1-based number among the images of its loop.
    pub number: u32,
    /// Id of the attachment on the forge, or the image's address in the text if it is not an attachment.
    pub attachment: String,
    /// Alternative text, without invisible characters; may be empty.
    pub description: String,
    /// Author's login of the comment with the image; empty if the body contains it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub commenter: String,
    /// Outcome of fetching the image.
    pub outcome: ImageOutcome,
}

/// Outcome of fetching an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum ImageOutcome {
    /// The image was fetched and is stored with the loop.
    Kept {
        /// Format and size.
        header: ImageHeader,
        /// Length of the file, in bytes.
        bytes: u64,
    },
    /// The image is not used.
    NotUsed {
        /// Reason, as the last part of a sentence.
        why: String,
        /// Number of failed attempts; 0 for a permanent failure, which makes another attempt useless.
        #[serde(default, skip_serializing_if = "is_zero")]
        tries: u32,
    },
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl ImageOutcome {
    /// Creates the outcome for an image that cannot be used because of a permanent failure.
    pub fn not_used(why: impl Into<String>) -> Self {
        Self::NotUsed { why: why.into(), tries: 0 }
    }
}

impl TaskImage {
    /// Returns the number of failed attempts if the image should be fetched again; otherwise `None`.
    pub fn failed_tries(&self) -> Option<u32> {
        match self.outcome {
            ImageOutcome::NotUsed { tries, .. } if (1..MOST_FETCHES).contains(&tries) => Some(tries),
            _ => None,
        }
    }

    /// Whether this is the image with this identifier in this commenter's texts (empty for the body).
    fn is_same(&self, attachment: &str, commenter: &str) -> bool {
        self.attachment == attachment && self.commenter == commenter
    }

    /// Returns the name of the image's file; `None` if the image is not used.
    pub fn file(&self) -> Option<String> {
        match &self.outcome {
            ImageOutcome::Kept { header, .. } => Some(format!("image-{}.{}", self.number, header.format.extension())),
            ImageOutcome::NotUsed { .. } => None,
        }
    }

    /// Describes the text that contains the image, such as "in a comment by alice".
    pub fn source(&self) -> String {
        match self.commenter.as_str() {
            "" => "in the issue".to_owned(),
            login => format!("in a comment by {login}"),
        }
    }

    /// Describes the outcome in one sentence, without a full stop.
    pub fn words(&self) -> String {
        let (number, source) = (self.number, self.source());
        match &self.outcome {
            ImageOutcome::Kept { header, bytes } => {
                format!("image {number} {source} is used ({header}, {} KiB)", bytes.div_ceil(1024))
            }
            ImageOutcome::NotUsed { why, .. } if self.failed_tries().is_some() => {
                format!("image {number} {source} was not used yet: {why}; it is fetched again before the next run")
            }
            ImageOutcome::NotUsed { why, .. } => format!("image {number} {source} was not used: {why}"),
        }
    }
}

/// Images of a task, in order of discovery.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskImages {
    /// Images.
    pub images: Vec<TaskImage>,
    /// Sentences about unlisted images, without a full stop.
    pub notes: Vec<String>,
    /// Number of consecutive failures to list the images.
    #[serde(skip_serializing_if = "is_zero")]
    pub unlisted: u32,
    /// Whether the forge listed the images after earlier failures.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub listed_again: bool,
}

impl TaskImages {
    /// Whether there are no images, notes or failures.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether an image, or the list of images, should be fetched again after a temporary failure.
    pub fn lacks_some(&self) -> bool {
        (1..MOST_FETCHES).contains(&self.unlisted) || self.images.iter().any(|image| image.failed_tries().is_some())
    }

    /// Returns the stored images, each with its file name.
    pub fn kept(&self) -> impl Iterator<Item = (&TaskImage, String)> {
        self.images.iter().filter_map(|image| Some((image, image.file()?)))
    }

    /// Returns the total size of the stored files, in bytes.
    pub fn bytes(&self) -> u64 {
        let length = |image: &TaskImage| match &image.outcome {
            ImageOutcome::Kept { bytes, .. } => *bytes,
            ImageOutcome::NotUsed { .. } => 0,
        };
        self.images.iter().map(length).fold(0, u64::saturating_add)
    }

    /// Describes all images and notes, one sentence each, without full stops.
    pub fn words(&self) -> Vec<String> {
        self.images.iter().map(TaskImage::words).chain(self.notes.iter().cloned()).collect()
    }

    /// Whether an attachment needs no further attempt: it is stored, or it failed permanently for this commenter (empty for the
    /// issue's body).
    pub fn knows(&self, attachment: &str, commenter: &str) -> bool {
        let same = |image: &&TaskImage| image.attachment == attachment;
        let settled = |image: &TaskImage| image.commenter == commenter && image.failed_tries().is_none();
        self.images.iter().filter(same).any(|image| image.file().is_some() || settled(image))
    }

    /// Returns a commenter's image that failed temporarily and should be fetched again.
    pub fn failed(&self, attachment: &str, commenter: &str) -> Option<&TaskImage> {
        self.images.iter().find(|image| image.is_same(attachment, commenter) && image.failed_tries().is_some())
    }

    /// Returns the next image's number.
    pub fn next_number(&self) -> u32 {
        self.images.iter().map(|image| image.number).max().unwrap_or(0).saturating_add(1)
    }

    /// Adds new images and notes, and updates images that were fetched again. Returns one sentence per change.
    pub fn add(&mut self, more: Self) -> Vec<String> {
        let mut added = Vec::new();
        self.unlisted = if more.listed_again { 0 } else { self.unlisted.saturating_add(more.unlisted) };
        for image in more.images {
            if self.knows(&image.attachment, &image.commenter) {
                continue;
            }
            match self.images.iter_mut().find(|known| known.is_same(&image.attachment, &image.commenter)) {
                Some(known) => {
                    if known.words() != image.words() {
                        added.push(image.words());
                    }
                    known.outcome = image.outcome;
                }
                None => {
                    added.push(image.words());
                    self.images.push(image);
                }
            }
        }
        for note in more.notes {
            if !self.notes.contains(&note) {
                added.push(note.clone());
                self.notes.push(note);
            }
        }
        added
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a PNG image with this size and no pixels.
    fn png(width: u32, height: u32) -> Vec<u8> {
        let size = [width.to_be_bytes(), height.to_be_bytes()].concat();
        [&b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"[..], &size, b"\x08\x06\0\0\0"].concat()
    }

    fn jpeg(segments: &[&[u8]]) -> Vec<u8> {
        [&b"\xff\xd8"[..], &segments.concat()].concat()
    }

    fn webp(chunk: &[u8], content: &[u8]) -> Vec<u8> {
        [b"RIFF\0\0\0\0WEBP", chunk, b"\0\0\0\0", content].concat()
    }

    fn size(bytes: &[u8]) -> Result<(&'static str, u32, u32), ImageFault> {
        header_of(bytes, 8_000).map(|header| (header.format.name(), header.width, header.height))
    }

    #[test]
    fn sizes_are_read_from_headers() {
        assert_eq!(size(&png(800, 600)), Ok(("PNG", 800, 600)));
        assert_eq!(size(b"GIF89a\x20\x03\x58\x02\0\0\0"), Ok(("GIF", 800, 600)));
        let frame = b"\xff\xc2\x00\x11\x08\x02\x58\x03\x20\x03";
        let metadata = b"\xff\xe1\x00\x08Exif\0\0";
        assert_eq!(size(&jpeg(&[metadata, b"\xff\xff\xdb\x00\x03x", frame])), Ok(("JPEG", 800, 600)));
        assert_eq!(size(&webp(b"VP8 ", b"\0\0\0\x9d\x01\x2a\x20\x03\x58\x02")), Ok(("WebP", 800, 600)));
        let bits: u32 = 799 | 599 << 14;
        assert_eq!(size(&webp(b"VP8L", &[&[0x2f][..], &bits.to_le_bytes()].concat())), Ok(("WebP", 800, 600)));
        assert_eq!(size(&webp(b"VP8X", b"\0\0\0\0\x1f\x03\0\x57\x02\0")), Ok(("WebP", 800, 600)));
    }

    #[test]
    fn other_formats_are_refused_by_name() {
        for svg in ["<svg xmlns=\"x\">", "\u{feff}\n <SVG>", "<?xml version=\"1.0\"?><svg/>", "<!-- x --><svg/>"] {
            assert_eq!(size(svg.as_bytes()), Err(ImageFault::Svg), "{svg}");
        }
        assert_eq!(size(b"<!DOCTYPE html><title>Sign in</title>"), Err(ImageFault::Page));
        for other in [&b""[..], b"BM", b"%PDF-1.7", b"II*\0", b"\0\0\0\x20ftypavif", b"RIFF\0\0\0\0WAVE", b"\x89PNG\n"]
        {
            assert_eq!(size(other), Err(ImageFault::Other), "{other:?}");
        }
    }

    #[test]
    fn images_with_too_many_pixels_are_refused_without_decoding() {
        assert_eq!(size(&png(8_000, 8_000)), Ok(("PNG", 8_000, 8_000)));
        for (width, height) in [(8_001, 1), (1, 8_001), (u32::MAX, u32::MAX)] {
            let fault = ImageFault::TooManyPixels { width, height, max: 8_000 };
            assert_eq!(size(&png(width, height)), Err(fault));
        }
        assert_eq!(
            size(&png(30_000, 30_000)).map_err(|fault| fault.to_string()),
            Err("it has 30000 x 30000 pixels, at most 8000 x 8000 are allowed".to_owned())
        );
    }

    #[test]
    fn broken_headers_have_no_size() {
        let images = [
            png(800, 600),
            jpeg(&[b"\xff\xe0\x00\x04ab", b"\xff\xc0\x00\x11\x08\x02\x58\x03\x20"]),
            webp(b"VP8X", b"\0\0\0\0\x1f\x03\0\x57\x02\0"),
            b"GIF87a\x20\x03\x58\x02".to_vec(),
        ];
        for bytes in &images {
            let needed = (0..=bytes.len()).find(|length| size(&bytes[..*length]).is_ok()).expect("the whole is valid");
            for length in 0..needed {
                assert!(size(&bytes[..length]).is_err(), "{length} of {bytes:?}");
            }
        }
        assert_eq!(size(&png(0, 600)), Err(ImageFault::NoSize(ImageFormat::Png)));
        let no_size = Err(ImageFault::NoSize(ImageFormat::Jpeg));
        // A segment without a length, image data before the frame header, and an unterminated segment.
        for segments in [&b"\xff\xe0\x00\x00"[..], b"\xff\xda\x00\x08", b"\xff\xff\xff", b"\xff\xe0\xff\xff"] {
            assert_eq!(size(&jpeg(&[segments])), no_size, "{segments:?}");
        }
    }

    #[test]
    fn images_are_added_once() {
        let not_used = |number: u32, attachment: &str| TaskImage {
            number,
            attachment: attachment.into(),
            description: String::new(),
            commenter: String::new(),
            outcome: ImageOutcome::not_used("SVG is not supported"),
        };
        let found = TaskImages {
            images: vec![not_used(1, "a"), not_used(2, "b")],
            notes: vec!["more".into()],
            ..TaskImages::default()
        };
        let mut all = TaskImages::default();
        assert_eq!(all.add(found.clone()), all.words());
        assert_eq!(all.add(found.clone()), [] as [String; 0]);
        assert_eq!(all, found);
        assert_eq!(all.words()[1], "image 2 in the issue was not used: SVG is not supported");
        // A maintainer references another person's image.
        let header = ImageHeader { format: ImageFormat::Png, width: 800, height: 600 };
        let outcome = ImageOutcome::Kept { header, bytes: 2_000 };
        let shown = TaskImage { commenter: "mira".into(), outcome, ..not_used(all.next_number(), "a") };
        let words = all.add(TaskImages { images: vec![shown], ..TaskImages::default() });
        assert_eq!(words, ["image 3 in a comment by mira is used (PNG, 800 x 600 pixels, 2 KiB)"]);
        assert_eq!(all.kept().map(|(_, file)| file).collect::<Vec<_>>(), ["image-3.png"]);
        assert!(all.knows("a", "otto") && !all.knows("b", "otto"));
    }

    #[test]
    fn failed_image_is_fetched_again_a_limited_number_of_times() {
        let header = ImageHeader { format: ImageFormat::Png, width: 800, height: 600 };
        let tried = |tries| TaskImage {
            number: 1,
            attachment: "a".into(),
            description: String::new(),
            commenter: String::new(),
            outcome: ImageOutcome::NotUsed { why: "the forge answered 503".into(), tries },
        };
        let of = |image: TaskImage| TaskImages { images: vec![image], ..TaskImages::default() };
        let again =
            "image 1 in the issue was not used yet: the forge answered 503; it is fetched again before the next run";
        let mut all = TaskImages::default();
        assert_eq!(all.add(of(tried(1))), [again]);
        assert!(all.lacks_some() && !all.knows("a", "") && all.failed("a", "").is_some());
        // A repeated failure is reported only once, and the last one as final.
        assert_eq!(all.add(of(tried(2))), [""; 0]);
        assert_eq!(all.images.len(), 1);
        let mut fetched = all.clone();
        assert_eq!(all.add(of(tried(3))), ["image 1 in the issue was not used: the forge answered 503"]);
        assert!(!all.lacks_some() && all.knows("a", ""));
        let used = TaskImage { outcome: ImageOutcome::Kept { header, bytes: 2_000 }, ..tried(0) };
        assert_eq!(fetched.add(of(used)), ["image 1 in the issue is used (PNG, 800 x 600 pixels, 2 KiB)"]);
        assert!(!fetched.lacks_some() && fetched.kept().count() == 1);
        let stored = serde_json::to_value(&all).expect("JSON");
        assert_eq!(serde_json::from_value::<TaskImages>(stored).expect("read"), all);
        let old = serde_json::json!({"outcome": "not_used", "why": "it is too large"});
        assert_eq!(
            serde_json::from_value::<ImageOutcome>(old).expect("read"),
            ImageOutcome::not_used("it is too large")
        );
    }

    #[test]
    fn images_are_looked_up_again_a_limited_number_of_times() {
        let failed = TaskImages { unlisted: 1, notes: vec!["not listed".into()], ..TaskImages::default() };
        let mut all = TaskImages::default();
        assert_eq!(all.add(failed.clone()), ["not listed"]);
        assert!(all.lacks_some() && all.add(failed.clone()).is_empty() && all.lacks_some());
        let mut listed = all.clone();
        let again = TaskImages { listed_again: true, ..TaskImages::default() };
        assert!(!again.is_empty(), "it is part of the input");
        listed.add(again);
        assert_eq!((listed.lacks_some(), listed.listed_again), (false, false));
        all.add(failed);
        assert!(!all.lacks_some());
    }
}
