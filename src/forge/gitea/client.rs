//! Calls to the REST interface of Gitea and Forgejo: addresses, the token, bodies, pages.

use ::http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use ::http::{HeaderValue, Method, Request, Response};
use bytes::Bytes;
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use serde::de::DeserializeOwned;
use url::Url;

use crate::domain::model::ids::RepoRef;
use crate::forge::ForgeErrorKind::{Bug, NotFound};
use crate::forge::ForgeResult;
use crate::forge::http::{Caller, Priority, error, json, next_page};

/// Items asked for at once; servers may give fewer (50 is their usual maximum).
const PAGE_SIZE: usize = 50;
/// Pages read at most, against servers whose pages never end.
const MAX_PAGES: usize = 2_000;

/// The interface of one server.
pub(super) struct Client {
    base: Url,
    authorization: HeaderValue,
    caller: Caller,
}

impl Client {
    /// `base` is the server's address for people, perhaps with a path.
    pub(super) fn new(base: &Url, token: &SecretString, caller: Caller) -> ForgeResult<Self> {
        let what = "read the forge's settings";
        if !matches!(base.scheme(), "http" | "https") || base.cannot_be_a_base() || base.host().is_none() {
            return Err(error(Bug, what, format!("the url {base} is no http or https address")));
        }
        let mut authorization = HeaderValue::from_str(&format!("token {}", token.expose_secret()))
            .map_err(|_| error(Bug, what, "the token holds characters that no token has (a line break?)"))?;
        authorization.set_sensitive(true);
        let mut base = base.clone();
        base.set_query(None);
        base.set_fragment(None);
        // A password in the address would end up in messages.
        let _ = base.set_username("");
        let _ = base.set_password(None);
        Ok(Self { base, authorization, caller })
    }

    /// The server's address for people followed by parts of a path, each percent-encoded.
    pub(super) fn address(&self, parts: &[&str]) -> Url {
        let mut address = self.base.clone();
        if let Ok(mut path) = address.path_segments_mut() {
            path.pop_if_empty().extend(parts);
        }
        address
    }

    fn request(
        &self,
        method: Method,
        parts: &[&str],
        query: &[(&str, &str)],
        body: Bytes,
    ) -> ForgeResult<Request<Bytes>> {
        let mut address = self.address(&["api", "v1"]);
        if let Ok(mut path) = address.path_segments_mut() {
            path.extend(parts);
        }
        if !query.is_empty() {
            address.query_pairs_mut().extend_pairs(query);
        }
        let mut request = Request::builder()
            .method(method)
            .uri(address.as_str())
            .header(AUTHORIZATION, self.authorization.clone())
            .header(ACCEPT, "application/json");
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        request.body(body).map_err(|failure| error(Bug, "build a request", failure.to_string()))
    }

    /// Reads one thing.
    pub(super) async fn get<T: DeserializeOwned>(
        &self,
        what: &str,
        parts: &[&str],
        query: &[(&str, &str)],
    ) -> ForgeResult<T> {
        let request = self.request(Method::GET, parts, query, Bytes::new())?;
        json(what, &self.caller.call(what, request).await?)
    }

    /// Reads from outside `/api/v1`.
    pub(super) async fn get_at<T: DeserializeOwned>(&self, what: &str, parts: &[&str]) -> ForgeResult<T> {
        let mut request = self.request(Method::GET, &[], &[], Bytes::new())?;
        *request.uri_mut() = self
            .address(parts)
            .as_str()
            .parse()
            .map_err(|failure: ::http::uri::InvalidUri| error(Bug, what, failure.to_string()))?;
        json(what, &self.caller.call(what, request).await?)
    }

    /// Reads all pages of a list, or as many as `enough` wants.
    pub(super) async fn list<T: DeserializeOwned>(
        &self,
        what: &str,
        parts: &[&str],
        query: &[(&str, &str)],
        enough: impl FnMut(&[T]) -> bool,
    ) -> ForgeResult<Vec<T>> {
        self.pages(what, parts, query, Priority::Normal, plain, enough).await
    }

    /// All pages of a list that is read at intervals, unless what is left of the server's budget is for commands.
    pub(super) async fn poll<T: DeserializeOwned>(
        &self,
        what: &str,
        parts: &[&str],
        query: &[(&str, &str)],
    ) -> ForgeResult<Vec<T>> {
        self.pages(what, parts, query, Priority::Background, plain, |_| false).await
    }

    /// The same for pages that hold their items in some shape: `items` takes them out, with their number in all where
    /// the page says.
    pub(super) async fn pages<P: DeserializeOwned, T>(
        &self,
        what: &str,
        parts: &[&str],
        query: &[(&str, &str)],
        priority: Priority,
        items: impl Fn(P) -> (Vec<T>, Option<usize>),
        mut enough: impl FnMut(&[T]) -> bool,
    ) -> ForgeResult<Vec<T>> {
        let size = PAGE_SIZE.to_string();
        let mut all: Vec<T> = Vec::new();
        let mut previous = Bytes::new();
        for page in 1..=MAX_PAGES {
            let number = page.to_string();
            let mut paged = query.to_vec();
            paged.extend([("limit", size.as_str()), ("page", number.as_str())]);
            let mut request = self.request(Method::GET, parts, &paged, Bytes::new())?;
            request.extensions_mut().insert(priority);
            let answer = self.caller.call(what, request).await?;
            if *answer.body() == previous {
                // A server that does not page sends the same again.
                return Ok(all);
            }
            let (found, total) = items(json(what, &answer)?);
            let done = found.is_empty() || enough(&found);
            all.extend(found);
            if done || is_last(&answer, total, all.len()) {
                return Ok(all);
            }
            previous = answer.into_body();
        }
        Err(error(Bug, what, format!("the list has more than {MAX_PAGES} pages")))
    }

    /// Sends a change and returns whatever came back.
    pub(super) async fn send(
        &self,
        what: &str,
        method: Method,
        parts: &[&str],
        body: &impl Serialize,
    ) -> ForgeResult<Response<Bytes>> {
        self.send_with(Priority::Normal, what, method, parts, body).await
    }

    /// The same, as urgent as it is said to be.
    pub(super) async fn send_with(
        &self,
        priority: Priority,
        what: &str,
        method: Method,
        parts: &[&str],
        body: &impl Serialize,
    ) -> ForgeResult<Response<Bytes>> {
        let body = serde_json::to_vec(body).map_err(|failure| error(Bug, what, failure.to_string()))?;
        let mut request = self.request(method, parts, &[], Bytes::from(body))?;
        request.extensions_mut().insert(priority);
        self.caller.call(what, request).await
    }

    /// Sends a change without a body.
    pub(super) async fn send_empty(&self, what: &str, method: Method, parts: &[&str]) -> ForgeResult<()> {
        self.caller.call(what, self.request(method, parts, &[], Bytes::new())?).await.map(drop)
    }
}

/// The items of a page that is a list, whose number in all it does not say.
fn plain<T>(page: Option<Vec<T>>) -> (Vec<T>, Option<usize>) {
    (page.unwrap_or_default(), None)
}

/// Whether nothing follows; when the server does not say, the next page is asked for and comes back empty.
fn is_last(answer: &Response<Bytes>, total: Option<usize>, so_far: usize) -> bool {
    let headers = answer.headers();
    let counted = headers.get("x-total-count").and_then(|v| v.to_str().ok()).and_then(|v| v.trim().parse().ok());
    match total.or(counted) {
        Some(total) => so_far >= total,
        None => headers.contains_key("link") && next_page(headers).is_none(),
    }
}

/// Parts of the path of a repository's things.
///
/// # Errors
/// `NotFound` for names that no repository has and that would lead elsewhere.
pub(super) fn under<'a>(repo: &'a RepoRef, rest: &[&'a str]) -> ForgeResult<Vec<&'a str>> {
    if [&repo.owner, &repo.name].iter().any(|part| matches!(part.as_str(), "" | "." | "..")) {
        return Err(error(NotFound, &format!("find {repo}"), "no repository has such a name"));
    }
    let mut parts = vec!["repos", repo.owner.as_str(), repo.name.as_str()];
    parts.extend(rest);
    Ok(parts)
}
