//! Vectors of texts, by a static embedding model in a folder that the operator names.
//!
//! Such a model is a table: each token has its vector, and a text's vector is the mean of its tokens'. There is no network
//! to run, so that a text takes microseconds. Without the feature `embeddings` there are no models, and
//! [`StaticModel::load`] says so.

#[cfg(feature = "embeddings")]
mod model;
#[cfg(feature = "embeddings")]
pub use model::StaticModel;

#[cfg(not(feature = "embeddings"))]
pub use absent::StaticModel;

#[cfg(not(feature = "embeddings"))]
mod absent {
    use std::path::Path;

    use crate::domain::knowledge::memory::{Embedding, NO_EMBEDDINGS};

    /// A model, of which this build knows none.
    #[derive(Debug)]
    pub enum StaticModel {}

    impl StaticModel {
        /// Refuses.
        ///
        /// # Errors
        /// Always: says which build is needed.
        pub fn load(_: &Path) -> Result<Self, String> {
            Err(NO_EMBEDDINGS.to_owned())
        }

        /// What its vectors are known by.
        pub fn name(&self) -> &str {
            match *self {}
        }

        /// The vector of a text.
        pub fn embed(&self, _: &str) -> Embedding {
            match *self {}
        }
    }
}
