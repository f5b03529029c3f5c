//! Cache of responses by ETag, so that unchanged resources do not count against the request quota. Evicts the least
//! recently used response.

use std::collections::HashMap;

use ::http::Response;
use bytes::Bytes;

/// Maximum number of cached responses.
const MAX_ENTRIES: usize = 2048;
/// Maximum total size of cached bodies, in bytes.
const MAX_BYTES: usize = 32 * 1024 * 1024;
/// Maximum size of a cached body, in bytes.
const MAX_ENTRY_BYTES: usize = 1024 * 1024;

/// Cache of responses, bounded by number and size.
#[derive(Default)]
pub(super) struct EtagCache {
    entries: HashMap<String, CachedResponse>,
    bytes: usize,
    tick: u64,
}

struct CachedResponse {
    response: Response<Bytes>,
    used: u64,
}

impl EtagCache {
    /// Returns the cached response of a request.
    pub(super) fn get(&mut self, key: &str) -> Option<Response<Bytes>> {
        self.tick += 1;
        let entry = self.entries.get_mut(key)?;
        entry.used = self.tick;
        Some(entry.response.clone())
    }

    /// Caches a response and removes an older one of the same request.
    pub(super) fn insert(&mut self, key: String, response: &Response<Bytes>) {
        self.remove(&key);
        if response.body().len() > MAX_ENTRY_BYTES {
            return;
        }
        self.tick += 1;
        self.bytes += response.body().len();
        self.entries.insert(key, CachedResponse { response: response.clone(), used: self.tick });
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
    fn least_recently_used_response_is_evicted_first() {
        let mut cache = EtagCache::default();
        for i in 0..MAX_ENTRIES {
            cache.insert(format!("{i}"), &answer(1));
        }
        assert!(cache.get("0").is_some());
        cache.insert("new".into(), &answer(1));
        assert!(cache.get("0").is_some() && cache.get("new").is_some());
        assert!(cache.get("1").is_none(), "the least recently used one is evicted");
        assert_eq!((cache.entries.len(), cache.bytes), (MAX_ENTRIES, MAX_ENTRIES));
    }

    #[test]
    fn total_size_is_bounded_and_reduced_on_removal() {
        let mut cache = EtagCache::default();
        for i in 0..40 {
            cache.insert(format!("{i}"), &answer(MAX_ENTRY_BYTES));
            assert!(cache.bytes <= MAX_BYTES);
        }
        assert_eq!(cache.entries.len(), MAX_BYTES / MAX_ENTRY_BYTES);
        cache.insert("39".into(), &answer(5));
        assert_eq!(cache.bytes, (MAX_BYTES / MAX_ENTRY_BYTES - 1) * MAX_ENTRY_BYTES + 5);
        cache.insert("39".into(), &answer(MAX_ENTRY_BYTES + 1));
        assert!(cache.get("39").is_none(), "an oversized body removes the old response");
    }
}
