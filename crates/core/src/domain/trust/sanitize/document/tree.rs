//! HTML tree, built by html5ever within limits of size and nesting.
//!
//! The tree is a vector of linked nodes, so that building, walking and dropping it does not recurse. Tokens are counted before they
//! reach the tree builder, and building stops once a limit is reached.

use std::borrow::Cow;
use std::cell::{Cell, Ref, RefCell};

use html5ever::buffer_queue::BufferQueue;
use html5ever::interface::{ElementFlags, NodeOrText, QuirksMode, TreeSink};
use html5ever::tendril::StrTendril;
use html5ever::tokenizer::{Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts};
use html5ever::tree_builder::{TreeBuilder, TreeBuilderOpts};
use html5ever::{Attribute, QualName, local_name, ns};

use crate::domain::trust::bounds::TEXT_NODES;

/// Maximum nesting of elements. Browsers stop at 512.
const DEEPEST: usize = 256;
/// Maximum number of tokens.
const TOKENS: usize = 100_000;
/// Number of bytes of HTML that are passed to the tokenizer at a time.
const CHUNK: usize = 1024;
/// Maximum number of characters in one tag or comment that can separate attributes. The tokenizer compares each attribute with
/// all others of its tag.
const SEPARATORS: usize = 4096;

/// Content of a node.
pub(super) enum HtmlContent {
    /// Document, comment or processing instruction.
    Other,
    /// Element with its attributes.
    Element(QualName, Vec<Attribute>),
    /// Text.
    Text(String),
}

/// Node of a tree, linked to its neighbors by index.
pub(super) struct HtmlNode {
    pub content: HtmlContent,
    pub parent: Option<usize>,
    pub first: Option<usize>,
    pub next: Option<usize>,
    last: Option<usize>,
    previous: Option<usize>,
    depth: usize,
}

/// Index of the root node.
pub(super) const ROOT: usize = 0;

/// Parses HTML as the content of a block of a page. The root of the tree has the index `ROOT`. The second value is the number of
/// bytes that were parsed before a limit was reached.
pub(super) fn parse(html: &str) -> (Vec<HtmlNode>, usize) {
    let sink = HtmlTree::new(TEXT_NODES);
    let context =
        sink.create_element(QualName::new(None, ns!(html), local_name!("div")), Vec::new(), ElementFlags::default());
    let builder = TreeBuilder::new_for_fragment(sink, context, None, TreeBuilderOpts::default());
    let limit = TokenLimit { builder, heard: Cell::new(false), full: Cell::new(false), tokens: Cell::new(0) };
    let tokenizer = Tokenizer::new(limit, TokenizerOpts::default());
    let input = BufferQueue::default();
    let (mut at, mut separators) = (0, 0);
    while at < html.len() {
        let end = html.ceil_char_boundary((at + CHUNK).min(html.len()));
        let chunk = &html[at..end];
        tokenizer.sink.heard.set(false);
        input.push_back(StrTendril::from(chunk));
        // Scripts are ended, not run.
        while !matches!(tokenizer.feed(&input), html5ever::TokenizerResult::Done) {}
        if tokenizer.sink.heard.get() {
            separators = 0;
        }
        separators += chunk.bytes().filter(|byte| byte.is_ascii_whitespace() || b"/\"'".contains(byte)).count();
        if tokenizer.sink.full.get() || separators > SEPARATORS + CHUNK && !tokenizer.sink.heard.get() {
            return (tokenizer.sink.builder.sink.nodes.take(), at);
        }
        at = end;
    }
    tokenizer.end();
    (tokenizer.sink.builder.sink.nodes.take(), at)
}

/// Counts tokens and passes them on to the tree builder.
struct TokenLimit {
    builder: TreeBuilder<usize, HtmlTree>,
    /// Whether a token arrived since the flag was last reset.
    heard: Cell<bool>,
    /// Whether a limit was reached, after which the tree does not grow.
    full: Cell<bool>,
    tokens: Cell<usize>,
}

impl TokenSink for TokenLimit {
    type Handle = usize;

    fn process_token(&self, token: Token, line_number: u64) -> TokenSinkResult<usize> {
        if !matches!(token, Token::ParseError(_)) {
            self.heard.set(true);
        }
        if self.full.get() {
            return TokenSinkResult::Continue;
        }
        let result = self.builder.process_token(token, line_number);
        self.tokens.set(self.tokens.get() + 1);
        self.full.set(self.builder.sink.full.get() || self.tokens.get() > TOKENS);
        result
    }

    fn end(&self) {
        self.builder.end();
    }

    fn adjusted_current_node_present_but_not_in_html_namespace(&self) -> bool {
        self.builder.adjusted_current_node_present_but_not_in_html_namespace()
    }
}

/// Tree under construction.
struct HtmlTree {
    nodes: RefCell<Vec<HtmlNode>>,
    most: usize,
    full: Cell<bool>,
}

impl HtmlTree {
    fn new(most: usize) -> Self {
        let tree = Self { nodes: RefCell::default(), most, full: Cell::new(false) };
        tree.create(HtmlContent::Other);
        tree
    }

    fn create(&self, content: HtmlContent) -> usize {
        let mut nodes = self.nodes.borrow_mut();
        nodes.push(HtmlNode { content, parent: None, first: None, next: None, last: None, previous: None, depth: 0 });
        if nodes.len() > self.most {
            self.full.set(true);
        }
        nodes.len() - 1
    }

    /// Inserts a node without a parent before `next`, or as the last child if `next` is `None`.
    fn insert(&self, parent: usize, child: usize, next: Option<usize>) {
        let mut nodes = self.nodes.borrow_mut();
        let previous = match next {
            Some(next) => nodes[next].previous.replace(child),
            None => nodes[parent].last.replace(child),
        };
        match previous {
            Some(previous) => nodes[previous].next = Some(child),
            None => nodes[parent].first = Some(child),
        }
        let depth = nodes[parent].depth + 1;
        let node = &mut nodes[child];
        (node.parent, node.previous, node.next, node.depth) = (Some(parent), previous, next, depth);
        if depth > DEEPEST {
            self.full.set(true);
        }
    }

    fn detach(&self, child: usize) {
        let mut nodes = self.nodes.borrow_mut();
        let node = &mut nodes[child];
        let (parent, previous, next) = (node.parent.take(), node.previous.take(), node.next.take());
        let Some(parent) = parent else { return };
        match previous {
            Some(previous) => nodes[previous].next = next,
            None => nodes[parent].first = next,
        }
        match next {
            Some(next) => nodes[next].previous = previous,
            None => nodes[parent].last = previous,
        }
    }

    /// Appends text to the text node before the insertion point, or inserts a new node.
    fn add(&self, parent: usize, child: NodeOrText<usize>, next: Option<usize>) {
        match child {
            NodeOrText::AppendNode(child) => {
                self.detach(child);
                self.insert(parent, child, next);
            }
            NodeOrText::AppendText(added) => {
                let mut nodes = self.nodes.borrow_mut();
                let before = match next {
                    Some(next) => nodes[next].previous,
                    None => nodes[parent].last,
                };
                if let Some(HtmlContent::Text(text)) = before.map(|before| &mut nodes[before].content) {
                    text.push_str(&added);
                    return;
                }
                drop(nodes);
                let child = self.create(HtmlContent::Text(added.to_string()));
                self.insert(parent, child, next);
            }
        }
    }
}

impl TreeSink for HtmlTree {
    type Handle = usize;
    type Output = ();
    type ElemName<'a> = Ref<'a, QualName>;

    fn finish(self) {}

    fn parse_error(&self, _: Cow<'static, str>) {}

    fn get_document(&self) -> usize {
        ROOT
    }

    fn elem_name<'a>(&'a self, target: &'a usize) -> Ref<'a, QualName> {
        Ref::map(self.nodes.borrow(), |nodes| match &nodes[*target].content {
            HtmlContent::Element(name, _) => name,
            _ => unreachable!("the tree builder asks for names of elements only"),
        })
    }

    fn create_element(&self, name: QualName, attributes: Vec<Attribute>, _: ElementFlags) -> usize {
        self.create(HtmlContent::Element(name, attributes))
    }

    fn create_comment(&self, _: StrTendril) -> usize {
        self.create(HtmlContent::Other)
    }

    fn create_pi(&self, _: StrTendril, _: StrTendril) -> usize {
        self.create(HtmlContent::Other)
    }

    fn append(&self, parent: &usize, child: NodeOrText<usize>) {
        self.add(*parent, child, None);
    }

    fn append_based_on_parent_node(&self, element: &usize, previous: &usize, child: NodeOrText<usize>) {
        let has_parent = self.nodes.borrow()[*element].parent.is_some();
        if has_parent {
            self.append_before_sibling(element, child);
        } else {
            self.append(previous, child);
        }
    }

    fn append_doctype_to_document(&self, _: StrTendril, _: StrTendril, _: StrTendril) {}

    /// Returns the `template` element itself, because its content is hidden in any case.
    fn get_template_contents(&self, target: &usize) -> usize {
        *target
    }

    fn same_node(&self, x: &usize, y: &usize) -> bool {
        x == y
    }

    fn set_quirks_mode(&self, _: QuirksMode) {}

    fn append_before_sibling(&self, sibling: &usize, child: NodeOrText<usize>) {
        let parent = self.nodes.borrow()[*sibling].parent;
        if let Some(parent) = parent {
            self.add(parent, child, Some(*sibling));
        }
    }

    fn add_attrs_if_missing(&self, _: &usize, _: Vec<Attribute>) {}

    fn remove_from_parent(&self, target: &usize) {
        self.detach(*target);
    }

    fn reparent_children(&self, node: &usize, new_parent: &usize) {
        loop {
            let first = self.nodes.borrow()[*node].first;
            let Some(child) = first else { return };
            self.detach(child);
            self.insert(*new_parent, child, None);
        }
    }
}
