//! Search page for the texts of all loops: results grouped by loop, each linked to its line.

use std::sync::Arc;

use axum::extract::Query;
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};

use super::home;
use super::layout::{self, PageDef, PageError, PageFrame, PageNav, PageRights, opened, page_template, segment};
use crate::domain::loops::LoopState;
use crate::domain::model::ids::RepoRef;
use crate::domain::trust::viewer::ViewRight;
use crate::store::listing::RepoScope;
use crate::store::session::{FoundTexts, SearchedText, TextHit, TextKind, TextPosition, TextQuery, search_texts};
use crate::web::markup::with_status;
use crate::web::{Viewer, WebState};

/// Row of the page.
pub(super) static PAGE: PageDef = PageDef {
    route: "/search",
    template: page_template!("search.html"),
    title: "Search",
    nav: PageNav::Hidden,
    rights: PageRights::Viewer,
    show: |page| opened(page, show),
};

/// Maximum number of results on a page.
const HITS_SHOWN: usize = 20;
/// Maximum length of the search text, in characters.
const MAX_WORDS: usize = 500;

/// Query of the page.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct SearchPageQuery {
    /// Search text.
    q: String,
    /// Name of a forge.
    forge: String,
    /// `forge:owner/name`.
    repository: String,
    /// Name of a state.
    state: String,
    /// Kind of texts.
    kind: String,
    /// Position after the previous page.
    after: String,
}

/// Reason why a query cannot be searched, as a sentence with advice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum SearchProblem {
    #[error("The words are longer than {MAX_WORDS} characters; search for fewer.")]
    TooLong,
    #[error("There is no word to search for; quotes, operators and other signs have no meaning.")]
    NoWord,
    #[error("There is no such state; choose one of the list.")]
    State,
    #[error("There is no such kind of text; choose one of the list.")]
    Kind,
    #[error("The position is not valid; search again from the beginning.")]
    Position,
}

impl SearchPageQuery {
    /// Returns the address of the results after a position.
    fn address(&self, after: &str) -> String {
        let values = [
            ("q", &*self.q),
            ("forge", &self.forge),
            ("repository", &self.repository),
            ("state", &self.state),
            ("kind", &self.kind),
            ("after", after),
        ];
        let given = values.iter().filter(|(_, value)| !value.is_empty());
        let query: Vec<String> = given.map(|(name, value)| format!("{name}={}", segment(value))).collect();
        format!("/search?{}", query.join("&"))
    }

    /// Returns the search for this query, not yet limited to repositories.
    fn parsed(&self) -> Result<TextQuery, SearchProblem> {
        if self.q.chars().count() > MAX_WORDS {
            return Err(SearchProblem::TooLong);
        }
        if !self.q.chars().any(char::is_alphanumeric) {
            return Err(SearchProblem::NoWord);
        }
        let of_name = |name: &str| LoopState::ALL.into_iter().find(|known| known.as_str() == name);
        let states = match self.state.as_str() {
            "" => Vec::new(),
            name => vec![of_name(name).ok_or(SearchProblem::State)?],
        };
        let kind = match self.kind.as_str() {
            "" => None,
            name => {
                let known = TextKind::ALL.into_iter().find(|known| known.as_str() == name);
                Some(known.ok_or(SearchProblem::Kind)?)
            }
        };
        let before = match self.after.as_str() {
            "" => TextPosition::default(),
            text => TextPosition::parse(text).ok_or(SearchProblem::Position)?,
        };
        let none = RepoScope::Only(Vec::new());
        Ok(TextQuery { states, kind, before, ..TextQuery::of(self.q.clone(), none.clone(), none, HITS_SHOWN) })
    }

    fn selects(&self, repo: &RepoRef) -> bool {
        (self.forge.is_empty() || repo.forge.as_str() == self.forge)
            && (self.repository.is_empty() || repo.to_string() == self.repository)
    }
}

/// Data of the page.
#[derive(Debug, Serialize)]
struct SearchView<'a> {
    q: &'a str,
    query: SearchChoice<'a>,
    /// Whether earlier pages exist.
    is_later: bool,
    /// Address of the first page.
    first: String,
    /// Reason why the query cannot be searched; empty if it was.
    problem: String,
    /// Whether the query was searched.
    asked: bool,
    /// Whether the viewer has write access somewhere, so that the search covers all texts there.
    writes: bool,
    groups: Vec<LoopHits<'a>>,
    count: usize,
    early: bool,
    /// Address of the next page; empty on the last page.
    next: String,
    forges: Vec<&'a str>,
    repositories: Vec<String>,
    states: [&'static str; LoopState::ALL.len()],
    kinds: [&'static str; TextKind::ALL.len()],
}

/// Selected filters; empty values select everything.
#[derive(Debug, Serialize)]
struct SearchChoice<'a> {
    forge: &'a str,
    repository: &'a str,
    state: &'a str,
    kind: &'a str,
}

/// Results in one loop.
#[derive(Debug, Serialize)]
struct LoopHits<'a> {
    id: &'a str,
    title: &'a str,
    state: &'static str,
    repository: String,
    issue: u64,
    hits: Vec<HitLine<'a>>,
}

/// Result in a text.
#[derive(Debug, Serialize)]
struct HitLine<'a> {
    kind: String,
    iteration: Option<u32>,
    /// 1-based line; 0 if the text is not shown by lines.
    line: u32,
    at: i64,
    address: String,
    snippet: Vec<SnippetPiece<'a>>,
}

/// Piece of the text around a match.
#[derive(Debug, Serialize)]
struct SnippetPiece<'a> {
    text: &'a str,
    marked: bool,
}

/// Returns the page.
async fn show(
    state: Arc<WebState>,
    viewer: Viewer,
    Query(query): Query<SearchPageQuery>,
) -> Result<Response, PageError> {
    let visible = home::visible(&state, &viewer).await?;
    let (found, problem) = match query.parsed() {
        // Without words, the page explains the search.
        _ if query.q.is_empty() => (FoundTexts::default(), String::new()),
        Err(problem) => (FoundTexts::default(), problem.to_string()),
        Ok(asked) => (search(&state, &viewer, &query, &visible, asked).await?, String::new()),
    };
    let status = if problem.is_empty() { StatusCode::OK } else { StatusCode::UNPROCESSABLE_ENTITY };
    let title = if query.q.trim().is_empty() { PAGE.title.to_owned() } else { format!("{} · Search", query.q) };
    let view = SearchView {
        q: &query.q,
        query: SearchChoice {
            forge: &query.forge,
            repository: &query.repository,
            state: &query.state,
            kind: &query.kind,
        },
        is_later: !query.after.is_empty(),
        first: query.address(""),
        asked: problem.is_empty() && !query.q.is_empty(),
        problem,
        writes: visible.iter().any(|(_, right)| *right >= ViewRight::Write),
        groups: groups(&found.hits),
        count: found.hits.len(),
        early: found.early,
        next: found.next.map(|next| query.address(&next.to_string())).unwrap_or_default(),
        forges: home::forges(&visible),
        repositories: visible.iter().map(|(repo, _)| repo.to_string()).collect(),
        states: LoopState::ALL.map(LoopState::as_str),
        kinds: TextKind::ALL.map(TextKind::as_str),
    };
    let response = layout::page_in(&state, &viewer, &PAGE, &PageFrame::still(title), &view, Vec::new());
    Ok(with_status(response, status))
}

/// Searches the selected repositories: titles with read access, all texts with write access.
async fn search(
    state: &WebState,
    viewer: &Viewer,
    query: &SearchPageQuery,
    visible: &[(RepoRef, ViewRight)],
    asked: TextQuery,
) -> Result<FoundTexts, PageError> {
    let whole = viewer.operator && query.forge.is_empty() && query.repository.is_empty();
    let with = |least: ViewRight| {
        if whole {
            return RepoScope::All;
        }
        let chosen = visible.iter().filter(|(repo, right)| *right >= least && query.selects(repo));
        RepoScope::Only(chosen.map(|(repo, _)| (repo.forge.clone(), repo.id)).collect())
    };
    let asked = TextQuery { titles: with(ViewRight::Read), texts: with(ViewRight::Write), ..asked };
    let outbound = state.engine.outbound.clone();
    Ok(state.engine.store.read(move |c| search_texts(c, &asked, &|text| outbound.masked(text))).await?)
}

/// Returns the results grouped by loop, in the order of each loop's first result.
fn groups(hits: &[TextHit]) -> Vec<LoopHits<'_>> {
    let mut groups: Vec<LoopHits<'_>> = Vec::new();
    for hit in hits {
        let of = &hit.of;
        match groups.iter_mut().find(|known| known.id == of.id.as_str()) {
            Some(known) => known.hits.push(line(hit)),
            None => groups.push(LoopHits {
                id: of.id.as_str(),
                title: &of.title,
                state: of.state.as_str(),
                repository: of.repo.to_string(),
                issue: of.issue.0,
                hits: vec![line(hit)],
            }),
        }
    }
    groups
}

fn line(hit: &TextHit) -> HitLine<'_> {
    let pieces = hit.snippet.iter().map(|part| SnippetPiece { text: &part.text, marked: part.marked });
    HitLine {
        kind: place_words(hit.place),
        iteration: hit.iteration,
        line: if hit.row.is_some() { hit.line } else { 0 },
        at: hit.at.0,
        address: address_of(hit),
        snippet: pieces.collect(),
    }
}

/// Returns the name of a kind of text for people.
fn place_words(place: SearchedText) -> String {
    match place {
        SearchedText::Response => "answer".to_owned(),
        place => place.as_str().replace('_', " "),
    }
}

/// Returns the address of a result. For a text, the link resolves the text's line only when a person follows it.
fn address_of(hit: &TextHit) -> String {
    let of_loop = format!("/loops/{}", segment(hit.of.id.as_str()));
    match (hit.iteration.filter(|iteration| *iteration > 0), hit.row) {
        (Some(iteration), Some(row)) => format!("{of_loop}/iterations/{iteration}?text={row}&line={}", hit.line),
        (Some(iteration), None) => format!("{of_loop}/iterations/{iteration}"),
        (None, _) => of_loop,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(q: &str) -> SearchPageQuery {
        SearchPageQuery { q: q.into(), ..SearchPageQuery::default() }
    }

    #[test]
    fn unsearchable_query_returns_advice() {
        let table = [
            (query(&"x".repeat(501)), "search for fewer"),
            (query("\"(*"), "no word to search for"),
            (SearchPageQuery { state: "<b>".into(), ..query("zebra") }, "choose one of the list"),
            (SearchPageQuery { kind: "songs".into(), ..query("zebra") }, "choose one of the list"),
            (SearchPageQuery { after: "1.2".into(), ..query("zebra") }, "search again from the beginning"),
            (SearchPageQuery { after: "-1.1.1.1".into(), ..query("zebra") }, "search again from the beginning"),
        ];
        for (query, expected) in table {
            let problem = query.parsed().expect_err(expected).to_string();
            assert!(problem.contains(expected), "{problem}");
        }
        let narrow =
            SearchPageQuery { state: "paused".into(), kind: "output".into(), after: "9.8.7.6".into(), ..query("a") };
        let parsed = narrow.parsed().expect("valid");
        assert_eq!((parsed.states, parsed.kind), (vec![LoopState::Paused], Some(TextKind::Output)));
        assert_eq!(narrow.address("9.8.7.6"), "/search?q=a&state=paused&kind=output&after=9.8.7.6");
        assert_eq!(query("a&b=\"c\"").address(""), "/search?q=a%26b%3D%22c%22");
    }
}
