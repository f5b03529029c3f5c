//! Client for the REST API of Gitea and Forgejo, with addresses, authentication, bodies and pagination.

use ::http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use ::http::{HeaderValue, Method, Request, Response};
use bytes::Bytes;
use ralph_types::failure::Failure;
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use serde::de::DeserializeOwned;
use url::Url;

use crate::domain::model::ids::RepoRef;
use crate::forge::ForgeErrorKind::{Bug, NotFound};
use crate::forge::ForgeResult;
use crate::forge::http::{ReadOnly, RequestLayer, RequestPriority, error, json, next_page};

/// Requested number of entries per page. Servers may return fewer; their default maximum is 50.
const PAGE_SIZE: usize = 50;
/// Maximum number of pages of a list.
const MAX_PAGES: usize = 2_000;
/// Number of consecutive empty pages that end a list whose pages can be empty in the middle.
const ENDS_AFTER: usize = 2;

/// API client of a server.
pub(super) struct GiteaClient {
    base: Url,
    authorization: HeaderValue,
    layer: RequestLayer,
}

impl GiteaClient {
    /// Creates a client. `base` is the server's web address, which can include a path.
    pub(super) fn new(base: &Url, token: &SecretString, layer: RequestLayer) -> ForgeResult<Self> {
        let what = "read the forge's settings";
        if !matches!(base.scheme(), "http" | "https") || base.cannot_be_a_base() || base.host().is_none() {
            return Err(error(Bug, what, format!("the url {base} is not an http or https address")));
        }
        let mut authorization = HeaderValue::from_str(&format!("token {}", token.expose_secret()))
            .map_err(|_| error(Bug, what, "the token contains invalid characters, such as a line break"))?;
        authorization.set_sensitive(true);
        let mut base = base.clone();
        base.set_query(None);
        base.set_fragment(None);
        // A password in the address would appear in error messages.
        let _ = base.set_username("");
        let _ = base.set_password(None);
        Ok(Self { base, authorization, layer })
    }

    /// Returns the value of the header `Authorization`.
    pub(super) fn authorization(&self) -> &HeaderValue {
        &self.authorization
    }

    /// Returns the server's web address followed by path segments, each percent-encoded.
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
        request.body(body).map_err(|failure| error(Bug, "build a request", Failure::of(failure)))
    }

    /// Sends a GET request and parses the response.
    pub(super) async fn get<T: DeserializeOwned>(
        &self,
        what: &str,
        parts: &[&str],
        query: &[(&str, &str)],
    ) -> ForgeResult<T> {
        let request = self.request(Method::GET, parts, query, Bytes::new())?;
        json(what, &self.layer.call(what, request).await?)
    }

    /// Sends a GET request; `None` if the object does not exist. Also accepts a response without a body.
    pub(super) async fn find(&self, what: &str, parts: &[&str]) -> ForgeResult<Option<Response<Bytes>>> {
        let request = self.request(Method::GET, parts, &[], Bytes::new())?;
        match self.layer.call(what, request).await {
            Err(failure) if failure.kind == NotFound => Ok(None),
            other => other.map(Some),
        }
    }

    /// Sends a GET request and returns the body unparsed.
    pub(super) async fn bytes(&self, what: &str, parts: &[&str]) -> ForgeResult<Bytes> {
        let request = self.request(Method::GET, parts, &[], Bytes::new())?;
        Ok(self.layer.call(what, request).await?.into_body())
    }

    /// Sends a GET request to a path outside `/api/v1`.
    pub(super) async fn get_at<T: DeserializeOwned>(&self, what: &str, parts: &[&str]) -> ForgeResult<T> {
        let mut request = self.request(Method::GET, &[], &[], Bytes::new())?;
        *request.uri_mut() = self
            .address(parts)
            .as_str()
            .parse()
            .map_err(|failure: ::http::uri::InvalidUri| error(Bug, what, Failure::of(failure)))?;
        json(what, &self.layer.call(what, request).await?)
    }

    /// Reads the pages of a list until `enough` returns `true` for a page or the list ends.
    pub(super) async fn list<T: DeserializeOwned>(
        &self,
        what: &str,
        parts: &[&str],
        query: &[(&str, &str)],
        enough: impl FnMut(&[T]) -> bool,
    ) -> ForgeResult<Vec<T>> {
        self.pages(what, parts, query, RequestPriority::Normal, plain, enough).await
    }

    /// Reads all pages of a list for polling; fails if the request quota is nearly used up.
    pub(super) async fn poll<T: DeserializeOwned>(
        &self,
        what: &str,
        parts: &[&str],
        query: &[(&str, &str)],
    ) -> ForgeResult<Vec<T>> {
        self.pages(what, parts, query, RequestPriority::Background, plain, |_| false).await
    }

    /// Reads pages of any shape. `items` extracts the entries of a page. Totals in bodies are ignored, because servers
    /// sometimes count something else.
    pub(super) async fn pages<P: DeserializeOwned, T>(
        &self,
        what: &str,
        parts: &[&str],
        query: &[(&str, &str)],
        priority: RequestPriority,
        items: impl Fn(P) -> Vec<T>,
        mut enough: impl FnMut(&[T]) -> bool,
    ) -> ForgeResult<Vec<T>> {
        let mut all: Vec<T> = Vec::new();
        let mut previous = Bytes::new();
        for page in 1..=MAX_PAGES {
            let answer = self.page(what, parts, query, page, priority).await?;
            if *answer.body() == previous {
                // A server without pages sends the same response again.
                return Ok(all);
            }
            let found = items(json(what, &answer)?);
            let done = found.is_empty() || enough(&found);
            all.extend(found);
            if done || is_last(&answer, all.len()) {
                return Ok(all);
            }
            previous = answer.into_body();
        }
        Err(error(Bug, what, format!("the list has more than {MAX_PAGES} pages")))
    }

    /// Reads the pages of a list from which the server removes entries after pagination. A page can be short, or empty
    /// in the middle, and its header counts only the remaining entries. Stops after two consecutive empty pages.
    pub(super) async fn filtered<T: DeserializeOwned>(
        &self,
        what: &str,
        parts: &[&str],
        query: &[(&str, &str)],
    ) -> ForgeResult<Vec<T>> {
        let mut all: Vec<T> = Vec::new();
        let (mut previous, mut empty) = (Bytes::new(), 0);
        for page in 1..=MAX_PAGES {
            let answer = self.page(what, parts, query, page, RequestPriority::Normal).await?;
            let found: Vec<T> = plain(json(what, &answer)?);
            empty = if found.is_empty() { empty + 1 } else { 0 };
            // A server without pages sends the same response again.
            if empty == ENDS_AFTER || *answer.body() == previous {
                return Ok(all);
            }
            all.extend(found);
            previous = answer.into_body();
        }
        Err(error(Bug, what, format!("the list has more than {MAX_PAGES} pages")))
    }

    async fn page(
        &self,
        what: &str,
        parts: &[&str],
        query: &[(&str, &str)],
        page: usize,
        priority: RequestPriority,
    ) -> ForgeResult<Response<Bytes>> {
        let (size, number) = (PAGE_SIZE.to_string(), page.to_string());
        let mut paged = query.to_vec();
        paged.extend([("limit", size.as_str()), ("page", number.as_str())]);
        let mut request = self.request(Method::GET, parts, &paged, Bytes::new())?;
        request.extensions_mut().insert(priority);
        self.layer.call(what, request).await
    }

    /// Sends a POST request with a JSON body that changes nothing, and returns the body of the response as text.
    pub(super) async fn text(&self, what: &str, parts: &[&str], body: &impl Serialize) -> ForgeResult<String> {
        let body = serde_json::to_vec(body).map_err(|failure| error(Bug, what, Failure::of(failure)))?;
        let mut request = self.request(Method::POST, parts, &[], Bytes::from(body))?;
        request.extensions_mut().insert(ReadOnly);
        Ok(String::from_utf8_lossy(self.layer.call(what, request).await?.body()).into_owned())
    }

    /// Sends a mutating request with a JSON body.
    pub(super) async fn send(
        &self,
        what: &str,
        method: Method,
        parts: &[&str],
        body: &impl Serialize,
    ) -> ForgeResult<Response<Bytes>> {
        self.send_with(RequestPriority::Normal, what, method, parts, body).await
    }

    /// Sends a mutating request with a JSON body and a priority.
    pub(super) async fn send_with(
        &self,
        priority: RequestPriority,
        what: &str,
        method: Method,
        parts: &[&str],
        body: &impl Serialize,
    ) -> ForgeResult<Response<Bytes>> {
        let body = serde_json::to_vec(body).map_err(|failure| error(Bug, what, Failure::of(failure)))?;
        let mut request = self.request(method, parts, &[], Bytes::from(body))?;
        request.extensions_mut().insert(priority);
        self.layer.call(what, request).await
    }

    /// Sends a mutating request without a body.
    pub(super) async fn send_empty(&self, what: &str, method: Method, parts: &[&str]) -> ForgeResult<()> {
        self.layer.call(what, self.request(method, parts, &[], Bytes::new())?).await.map(drop)
    }
}

/// Extracts the entries of a page that is a plain list.
fn plain<T>(page: Option<Vec<T>>) -> Vec<T> {
    page.unwrap_or_default()
}

/// Whether a page is the last one. Returns `false` if the response does not state this; the next page is then empty.
fn is_last(answer: &Response<Bytes>, so_far: usize) -> bool {
    let headers = answer.headers();
    let counted = headers.get("x-total-count").and_then(|v| v.to_str().ok()).and_then(|v| v.trim().parse().ok());
    match counted {
        Some(total) => so_far >= total,
        None => headers.contains_key("link") && next_page(headers).is_none(),
    }
}

/// Returns the path segments of an object in a repository.
///
/// # Errors
/// `NotFound` for an invalid name, which would lead to another path.
pub(super) fn under<'a>(repo: &'a RepoRef, rest: &[&'a str]) -> ForgeResult<Vec<&'a str>> {
    if [&repo.owner, &repo.name].iter().any(|part| matches!(part.as_str(), "" | "." | "..")) {
        return Err(error(NotFound, &format!("find {repo}"), "the name is not valid for a repository"));
    }
    let mut parts = vec!["repos", repo.owner.as_str(), repo.name.as_str()];
    parts.extend(rest);
    Ok(parts)
}
