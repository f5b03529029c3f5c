//! Types of an expression. The library finds out while it evaluates; a configuration has to be right before.
//!
//! Whole numbers and decimals mix freely here, which they do in CEL only where they are compared: a whole number beside
//! a decimal is made one, in the tree itself.

mod words;

use cel::common::ast::{CallExpr, Expr, IdedExpr, LiteralValue, SourceInfo, operators};

use super::DIVIDE;
use super::facts::{Kind, lookup};
use words::{impossible, number, refused_call, sign, unknown};

/// Deepest tree, in nodes: what is typed is evaluated by recursion too.
const DEPTH_MAX: usize = 32;

/// What is wrong, and the byte of the text where.
#[derive(Debug)]
pub(super) struct Finding {
    pub(super) offset: Option<usize>,
    pub(super) message: String,
}

impl Finding {
    pub(super) fn whole(message: impl Into<String>) -> Self {
        Self { offset: None, message: message.into() }
    }

    pub(super) fn at(offset: usize, message: impl Into<String>) -> Self {
        Self { offset: Some(offset), message: message.into() }
    }
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Self::Truth => "true or false",
            Self::Whole => "a whole number",
            Self::Decimal => "a decimal",
            Self::Text => "a text",
        }
    }

    fn is_number(self) -> bool {
        matches!(self, Self::Whole | Self::Decimal)
    }
}

/// Types one expression.
pub(super) struct Typing<'a> {
    source: &'a SourceInfo,
    names: Vec<&'static str>,
    depth: usize,
}

impl<'a> Typing<'a> {
    /// `source` knows the places of the nodes.
    pub(super) fn new(source: &'a SourceInfo) -> Self {
        Self { source, names: Vec::new(), depth: 0 }
    }

    /// Types an expression that has to be true or false; the names that it uses.
    pub(super) fn condition(mut self, expr: &mut IdedExpr) -> Result<Vec<&'static str>, Finding> {
        self.expect(expr, Kind::Truth, "a condition")?;
        Ok(self.names)
    }

    fn wrong(&self, expr: &IdedExpr, message: impl Into<String>) -> Finding {
        let offset = self.source.offset_for(expr.id).map(|(start, _)| start as usize);
        Finding { offset, message: message.into() }
    }

    fn expect(&mut self, expr: &mut IdedExpr, kind: Kind, what: &str) -> Result<(), Finding> {
        let found = self.kind(expr)?;
        if found == kind {
            return Ok(());
        }
        Err(self.wrong(expr, format!("{what} is {}, not {}", kind.word(), found.word())))
    }

    fn kind(&mut self, expr: &mut IdedExpr) -> Result<Kind, Finding> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.wrong(expr, "is too long a chain; write it in fewer parts"));
        }
        let kind = self.kind_of_node(expr);
        self.depth -= 1;
        kind
    }

    fn kind_of_node(&mut self, expr: &mut IdedExpr) -> Result<Kind, Finding> {
        let refused = match &mut expr.expr {
            Expr::Literal(literal) => match literal {
                LiteralValue::Boolean(_) => return Ok(Kind::Truth),
                LiteralValue::Int(_) => return Ok(Kind::Whole),
                LiteralValue::Double(number) if number.inner().is_finite() => return Ok(Kind::Decimal),
                LiteralValue::String(_) => return Ok(Kind::Text),
                LiteralValue::UInt(_) => "numbers are written without `u`",
                LiteralValue::Double(_) => "the number is too large",
                LiteralValue::Bytes(_) => "bytes are not used here; write a text",
                LiteralValue::Null => "there is no null here; every name has a value",
            },
            Expr::Ident(_) => return self.variable(expr),
            Expr::Call(_) => return self.call(expr),
            Expr::List(_) => "a list stands only behind `in`",
            Expr::Select(select) if select.test => "`has()` is not needed; every name has a value",
            Expr::Select(_) => "names have no parts; there is no `.` but before a function",
            Expr::Comprehension(_) => "`all`, `exists`, `map` and the like are not used here",
            Expr::Map(_) | Expr::Struct(_) => "there are no maps and no messages here",
            Expr::Unspecified => "is not an expression",
        };
        Err(self.wrong(expr, refused))
    }

    /// Replaces another name by the variable's own.
    fn variable(&mut self, expr: &mut IdedExpr) -> Result<Kind, Finding> {
        let Expr::Ident(name) = &mut expr.expr else { return Err(self.wrong(expr, "is not a name")) };
        if let Some(variable) = lookup(name) {
            variable.name.clone_into(name);
            if !self.names.contains(&variable.name) {
                self.names.push(variable.name);
            }
            return Ok(variable.kind);
        }
        let message = unknown(name);
        Err(self.wrong(expr, message))
    }

    fn call(&mut self, expr: &mut IdedExpr) -> Result<Kind, Finding> {
        let (id, mut call) = match std::mem::take(&mut expr.expr) {
            Expr::Call(call) => (expr.id, call),
            _ => return Err(self.wrong(expr, "is not a call")),
        };
        let kind = self.call_of(&IdedExpr { id, expr: Expr::Unspecified }, &mut call);
        expr.expr = Expr::Call(call);
        kind
    }

    /// Types a call; `node` is where it stands.
    fn call_of(&mut self, node: &IdedExpr, call: &mut CallExpr) -> Result<Kind, Finding> {
        let name = call.func_name.clone();
        match (name.as_str(), call.target.as_deref_mut(), call.args.as_mut_slice()) {
            (operators::LOGICAL_AND | operators::LOGICAL_OR, None, [left, right]) => {
                let what = format!("each side of `{}`", sign(&name));
                self.expect(left, Kind::Truth, &what)?;
                self.expect(right, Kind::Truth, &what)?;
                Ok(Kind::Truth)
            }
            (operators::LOGICAL_NOT, None, [operand]) => {
                self.expect(operand, Kind::Truth, "what stands behind `!`")?;
                Ok(Kind::Truth)
            }
            (operators::NEGATE, None, [operand]) => {
                let kind = self.kind(operand)?;
                if kind.is_number() { Ok(kind) } else { Err(self.mixed(node, &name, kind, kind)) }
            }
            (operators::CONDITIONAL, None, [condition, left, right]) => {
                self.expect(condition, Kind::Truth, "what stands before `?`")?;
                let kinds = (self.kind(left)?, self.kind(right)?);
                self.level(left, right, kinds).ok_or_else(|| self.mixed(node, &name, kinds.0, kinds.1))
            }
            (
                operators::EQUALS
                | operators::NOT_EQUALS
                | operators::LESS
                | operators::LESS_EQUALS
                | operators::GREATER
                | operators::GREATER_EQUALS,
                None,
                [left, right],
            ) => self.comparison(node, &name, left, right),
            (operators::IN, None, [element, list]) => self.membership(node, element, list),
            (
                operators::ADD | operators::SUBSTRACT | operators::MULTIPLY | operators::DIVIDE | operators::MODULO,
                None,
                [left, right],
            ) => {
                let kind = self.arithmetic(node, &name, left, right)?;
                if name == operators::DIVIDE && kind == Kind::Decimal {
                    DIVIDE.clone_into(&mut call.func_name);
                }
                Ok(kind)
            }
            ("size", None, [text]) | ("size", Some(text), []) => {
                self.expect(text, Kind::Text, "what `size` measures")?;
                Ok(Kind::Whole)
            }
            ("startsWith" | "endsWith" | "contains", Some(text), [part]) => {
                self.expect(text, Kind::Text, &format!("what stands before `.{name}`"))?;
                self.expect(part, Kind::Text, &format!("what `{name}` looks for"))?;
                Ok(Kind::Truth)
            }
            ("int" | "double", None, [number]) => {
                let kind = self.kind(number)?;
                if !kind.is_number() {
                    return Err(self.wrong(node, format!("`{name}` takes a number, not {}", kind.word())));
                }
                Ok(if name == "int" { Kind::Whole } else { Kind::Decimal })
            }
            _ => Err(self.wrong(node, refused_call(&name))),
        }
    }

    fn comparison(
        &mut self,
        node: &IdedExpr,
        name: &str,
        left: &mut IdedExpr,
        right: &mut IdedExpr,
    ) -> Result<Kind, Finding> {
        let kinds = (self.kind(left)?, self.kind(right)?);
        let numbers = kinds.0.is_number() && kinds.1.is_number();
        let has_order = !matches!(name, operators::EQUALS | operators::NOT_EQUALS);
        if has_order && kinds == (Kind::Text, Kind::Text) {
            let message = format!("texts have no order for `{}`; name them: `x in [\"a\", \"b\"]`", sign(name));
            return Err(self.wrong(node, message));
        }
        if !numbers && (has_order || kinds.0 != kinds.1) {
            return Err(self.mixed(node, name, kinds.0, kinds.1));
        }
        self.possible(left, right)?;
        Ok(Kind::Truth)
    }

    fn arithmetic(
        &mut self,
        node: &IdedExpr,
        name: &str,
        left: &mut IdedExpr,
        right: &mut IdedExpr,
    ) -> Result<Kind, Finding> {
        let kinds = (self.kind(left)?, self.kind(right)?);
        let takes = |kind: Kind| if name == operators::MODULO { kind == Kind::Whole } else { kind.is_number() };
        if !takes(kinds.0) || !takes(kinds.1) {
            return Err(self.mixed(node, name, kinds.0, kinds.1));
        }
        let divides = matches!(name, operators::DIVIDE | operators::MODULO);
        if divides && number(right) == Some(0.0) {
            return Err(self.wrong(right, "divides by 0"));
        }
        Ok(self.level(left, right, kinds).unwrap_or(Kind::Decimal))
    }

    fn membership(&mut self, node: &IdedExpr, element: &mut IdedExpr, list: &mut IdedExpr) -> Result<Kind, Finding> {
        let kind = self.kind(element)?;
        let id = list.id;
        let Expr::List(items) = &mut list.expr else {
            return Err(self.wrong(list, "a list such as `[1, 2]` is needed behind `in`"));
        };
        if items.elements.is_empty() {
            let place = IdedExpr { id, expr: Expr::Unspecified };
            return Err(self.wrong(&place, "the list is empty; nothing is in it"));
        }
        for item in &mut items.elements {
            let other = self.kind(item)?;
            if other != kind && !(other.is_number() && kind.is_number()) {
                return Err(self.mixed(node, operators::IN, kind, other));
            }
            self.possible(element, item)?;
        }
        Ok(Kind::Truth)
    }

    /// Makes both numbers of one kind; `None` where they are no numbers and differ.
    fn level(&self, left: &mut IdedExpr, right: &mut IdedExpr, kinds: (Kind, Kind)) -> Option<Kind> {
        match kinds {
            (Kind::Whole, Kind::Decimal) => make_decimal(left),
            (Kind::Decimal, Kind::Whole) => make_decimal(right),
            (left, right) => return (left == right).then_some(left),
        }
        Some(Kind::Decimal)
    }

    fn mixed(&self, node: &IdedExpr, name: &str, left: Kind, right: Kind) -> Finding {
        let sign = sign(name);
        let message = match name {
            operators::MODULO => {
                format!("`%` takes whole numbers, not {} and {}; `int(x)` cuts a decimal", left.word(), right.word())
            }
            operators::NEGATE => format!("`-` takes a number, not {}", left.word()),
            _ => format!("`{sign}` cannot take {} and {}", left.word(), right.word()),
        };
        self.wrong(node, message)
    }

    /// Refuses to compare a variable with what it can never be.
    fn possible(&self, left: &IdedExpr, right: &IdedExpr) -> Result<(), Finding> {
        for (name, value) in [(left, right), (right, left)] {
            let Expr::Ident(ident) = &name.expr else { continue };
            let Some(variable) = lookup(ident) else { continue };
            if let Some(message) = impossible(variable, value) {
                return Err(self.wrong(value, message));
            }
        }
        Ok(())
    }
}

fn make_decimal(expr: &mut IdedExpr) {
    let whole = std::mem::take(expr);
    let id = whole.id;
    let call = CallExpr { func_name: "double".to_owned(), target: None, args: vec![whole] };
    *expr = IdedExpr { id, expr: Expr::Call(call) };
}
