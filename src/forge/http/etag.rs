//! Answers kept by their ETag, so that unchanged things cost no budget: least recently used goes first.

use std::collections::HashMap;

use ::http::Response;
use bytes::Bytes;

/// Answers kept at most.
const MAX_ENTRIES: usize = 512;
/// Bytes of bodies kept at most.
const MAX_BYTES: usize = 16 * 1024 * 1024;
/// Larger bodies are not kept.
const MAX_ENTRY_BYTES: usize = 1024 * 1024;

/// Bounded by number and by bytes.
#[derive(Default)]
pub(super) struct EtagCache {
    entries: HashMap<String, Entry>,
    bytes: usize,
    tick: u64,
}

struct Entry {
    response: Response<Bytes>,
    used: u64,
}

impl EtagCache {
    /// The answer kept for a request.
    pub(super) fn get(&mut self, key: &str) -> Option<Response<Bytes>> {
        self.tick += 1;
        let entry = self.entries.get_mut(key)?;
        entry.used = self.tick;
        Some(entry.response.clone())
    }

    /// Keeps an answer in place of an older one.
    pub(super) fn insert(&mut self, key: String, response: &Response<Bytes>) {
        self.remove(&key);
        if response.body().len() > MAX_ENTRY_BYTES {
            return;
        }
        self.tick += 1;
        self.bytes += response.body().len();
        self.entries.insert(key, Entry { response: response.clone(), used: self.tick });
        while self.entries.len() > MAX_ENTRIES || self.bytes > MAX_BYTES {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.used).map(|(key, _)| key.clone());
            let Some(oldest) = oldest else { return };
            self.remove(&oldest);
        }
    }

    fn remove(&mut self, key: &str) {
        if let Some(entry) = self.entries.remove(key) {
            self.bytes -= entry.response.body().len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(bytes: usize) -> Response<Bytes> {
        Response::new(Bytes::from(vec![b'x'; bytes]))
    }

    #[test]
    fn the_least_recently_used_goes_first_by_number() {
        let mut cache = EtagCache::default();
        for i in 0..MAX_ENTRIES {
            cache.insert(format!("{i}"), &answer(1));
        }
        assert!(cache.get("0").is_some());
        cache.insert("new".into(), &answer(1));
        assert!(cache.get("0").is_some() && cache.get("new").is_some());
        assert!(cache.get("1").is_none(), "the oldest unused one is gone");
        assert_eq!((cache.entries.len(), cache.bytes), (MAX_ENTRIES, MAX_ENTRIES));
    }

    #[test]
    fn bytes_are_bounded_and_counted_back() {
        let mut cache = EtagCache::default();
        for i in 0..40 {
            cache.insert(format!("{i}"), &answer(MAX_ENTRY_BYTES));
            assert!(cache.bytes <= MAX_BYTES);
        }
        assert_eq!(cache.entries.len(), MAX_BYTES / MAX_ENTRY_BYTES);
        cache.insert("39".into(), &answer(5));
        assert_eq!(cache.bytes, (MAX_BYTES / MAX_ENTRY_BYTES - 1) * MAX_ENTRY_BYTES + 5);
        cache.insert("39".into(), &answer(MAX_ENTRY_BYTES + 1));
        assert!(cache.get("39").is_none(), "a body too large takes the place of the old one with nothing");
    }
}
