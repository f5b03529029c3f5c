//! Embeddings of texts with a static model from a folder configured by the operator.
//!
//! The model is a table with one vector per token. A text's vector is the mean of its tokens' vectors, which takes
//! microseconds to compute. Without the feature `embeddings`, [`StaticModel::load`] returns an error.

#[cfg(feature = "embeddings")]
mod model;
#[cfg(feature = "embeddings")]
pub use model::StaticModel;

#[cfg(not(feature = "embeddings"))]
pub use absent::StaticModel;

#[cfg(not(feature = "embeddings"))]
mod absent {
    use std::path::Path;

    use ralph_types::failure::Failure;

    use crate::domain::knowledge::memory::{Embedding, NO_EMBEDDINGS};

    /// Placeholder for builds without the feature `embeddings`.
    #[derive(Debug)]
    pub enum StaticModel {}

    impl StaticModel {
        /// Returns an error.
        ///
        /// # Errors
        /// Always; the message names the required build.
        pub fn load(_: &Path) -> Result<Self, Failure> {
            Err(Failure::new(NO_EMBEDDINGS))
        }

        /// Returns the name for stored vectors.
        pub fn name(&self) -> &str {
            match *self {}
        }

        /// Returns the vector of a text.
        pub fn embed(&self, _: &str) -> Embedding {
            match *self {}
        }
    }
}
