//! Tests of learnings' vectors: computed once, recomputed after a change of words or model, and used by searches.

use super::*;
use crate::domain::knowledge::memory::Embedding;
use crate::store::memory::vectors::{MissingVector, keep, missing};

/// Embeds a text with a model that has one dimension per known word.
fn embed(model: &str, text: &str) -> Embedding {
    let sorts: [&[&str]; 3] = [&["marmot", "groundhog"], &["parser", "grammar"], &["socket", "connection"]];
    let knows = |words: &&[&str]| f32::from(u8::from(words.iter().any(|word| text.to_lowercase().contains(word))));
    let vector: Vec<f32> = sorts.iter().map(knows).collect();
    let length = vector.iter().map(|number| number * number).sum::<f32>().sqrt();
    let vector = if length > 0.0 { vector.iter().map(|number| number / length).collect() } else { Vec::new() };
    Embedding { model: model.to_owned(), vector }
}

/// Computes missing vectors; returns their texts.
async fn fill(store: &Store, model: &'static str) -> Vec<String> {
    let found = store.read(move |c| missing(c, model, 100)).await.expect("read");
    let texts = found.iter().map(|one| one.text.clone()).collect();
    let made: Vec<(MissingVector, Embedding)> =
        found.into_iter().map(|one| (one.clone(), embed(model, &one.text))).collect();
    store.write(move |c| keep(c, &made)).await.expect("kept");
    texts
}

fn by_meaning(model: &str, text: &str) -> LearningQuery {
    LearningQuery { embedding: Some(embed(model, text)), ..query(1, text) }
}

async fn gists(store: &Store, query: LearningQuery) -> Vec<String> {
    told(store, query, MemorySettings::default()).await
}

#[tokio::test]
async fn learning_without_common_words_is_found_by_vector() {
    let store = Store::in_memory().expect("opened");
    for text in ["Feed the marmot", "Rewrite the parser", "Something unheard of"] {
        keep_all(&store, text).await;
    }
    assert!(gists(&store, query(1, "groundhog")).await.is_empty());
    assert_eq!(fill(&store, "one").await.len(), 3);
    assert_eq!(gists(&store, by_meaning("one", "groundhog")).await, ["Feed the marmot"]);
    // A common word plus the meaning ranks above the meaning alone.
    keep_all(&store, "Count each groundhog").await;
    fill(&store, "one").await;
    assert_eq!(gists(&store, by_meaning("one", "groundhog")).await, ["Count each groundhog", "Feed the marmot"]);
    assert!(gists(&store, query(1, "beaver")).await.is_empty());
    assert!(gists(&store, by_meaning("one", "beaver")).await.is_empty(), "the model knows none of the words");
    assert!(
        gists(&store, LearningQuery { repository: repository(2), ..by_meaning("one", "groundhog") }).await.is_empty()
    );
}

#[tokio::test]
async fn vectors_are_updated_after_changes_only() {
    let store = Store::in_memory().expect("opened");
    keep_all(&store, "Feed the marmot").await;
    keep_all(&store, "Something unheard of").await;
    assert_eq!(fill(&store, "one").await.len(), 2);
    assert!(fill(&store, "one").await.is_empty(), "also what has no known word is done");
    let marmot = active(1, strategy("Feed the marmot"));
    let used = Learning { uses: 3, ..marmot.clone() };
    store.write(move |c| save(c, &used)).await.expect("saved");
    assert!(fill(&store, "one").await.is_empty(), "its words are the same");
    let reworded = marmot.clone().about("grammar");
    let text = reworded.search_text();
    store.write(move |c| save(c, &reworded)).await.expect("saved");
    assert_eq!(fill(&store, "one").await, [text]);
    assert_eq!(gists(&store, by_meaning("one", "parser")).await.len(), 1);
    // Switch to another model and back.
    assert!(gists(&store, by_meaning("two", "groundhog")).await.is_empty());
    assert_eq!((fill(&store, "two").await.len(), fill(&store, "one").await.len()), (2, 2));
    // A deleted learning is in no result, and another learning may reuse its row.
    let id = marmot.id;
    store.write(move |c| forget(c, &[id])).await.expect("forgotten");
    assert!(gists(&store, by_meaning("one", "groundhog")).await.is_empty());
    keep_all(&store, "Open the socket").await;
    assert_eq!(fill(&store, "one").await.len(), 1);
}

#[tokio::test]
async fn learning_changed_during_embedding_is_embedded_again() {
    let store = Store::in_memory().expect("opened");
    keep_all(&store, "Feed the marmot").await;
    let found = store.read(|c| missing(c, "one", 100)).await.expect("read");
    let reworded = active(1, strategy("Feed the marmot")).about("grammar");
    let text = reworded.search_text();
    store.write(move |c| save(c, &reworded)).await.expect("saved");
    keep_all(&store, "Open the socket").await;
    fill(&store, "one").await;
    let late: Vec<_> = found.into_iter().map(|one| (one.clone(), embed("one", &one.text))).collect();
    store.write(move |c| keep(c, &late)).await.expect("kept");
    assert_eq!(fill(&store, "one").await, [text]);
}

async fn keep_all(store: &Store, text: &str) {
    super::keep(store, active(1, strategy(text))).await;
}
