//! Type checker for expressions. It is needed because the library finds type errors only during evaluation, whereas a
//! configuration must be validated before.
//!
//! Whole numbers and decimals can be mixed, whereas CEL allows this only in comparisons. For that, a whole number that is
//! combined with a decimal is converted in the syntax tree.

mod words;

use cel::common::ast::{CallExpr, Expr, IdedExpr, LiteralValue, SourceInfo, operators};

use super::DIVIDE;
use super::facts::{ValueKind, lookup};
use words::{impossible, number, refused_call, sign, unknown};

/// Maximum depth of the syntax tree, in nodes, because evaluation is recursive.
const DEPTH_MAX: usize = 32;

/// Error in an expression, with its byte offset in the text.
#[derive(Debug)]
pub(super) struct ExpressionProblem {
    pub(super) offset: Option<usize>,
    pub(super) message: String,
}

impl ExpressionProblem {
    pub(super) fn whole(message: impl Into<String>) -> Self {
        Self { offset: None, message: message.into() }
    }

    pub(super) fn at(offset: usize, message: impl Into<String>) -> Self {
        Self { offset: Some(offset), message: message.into() }
    }
}

impl ValueKind {
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

/// Type checker for one expression.
pub(super) struct Typing<'a> {
    source: &'a SourceInfo,
    names: Vec<&'static str>,
    depth: usize,
}

impl<'a> Typing<'a> {
    /// Creates a type checker. `source` has the positions of the nodes.
    pub(super) fn new(source: &'a SourceInfo) -> Self {
        Self { source, names: Vec::new(), depth: 0 }
    }

    /// Checks that an expression is a condition; returns the names that it uses.
    pub(super) fn condition(mut self, expr: &mut IdedExpr) -> Result<Vec<&'static str>, ExpressionProblem> {
        self.expect(expr, ValueKind::Truth, "a condition")?;
        Ok(self.names)
    }

    fn wrong(&self, expr: &IdedExpr, message: impl Into<String>) -> ExpressionProblem {
        let offset = self.source.offset_for(expr.id).map(|(start, _)| start as usize);
        ExpressionProblem { offset, message: message.into() }
    }

    fn expect(&mut self, expr: &mut IdedExpr, kind: ValueKind, what: &str) -> Result<(), ExpressionProblem> {
        let found = self.kind(expr)?;
        if found == kind {
            return Ok(());
        }
        Err(self.wrong(expr, format!("{what} is {}, not {}", kind.word(), found.word())))
    }

    fn kind(&mut self, expr: &mut IdedExpr) -> Result<ValueKind, ExpressionProblem> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.wrong(expr, "is nested too deeply; simplify it"));
        }
        let kind = self.kind_of_node(expr);
        self.depth -= 1;
        kind
    }

    fn kind_of_node(&mut self, expr: &mut IdedExpr) -> Result<ValueKind, ExpressionProblem> {
        let refused = match &mut expr.expr {
            Expr::Literal(literal) => match literal {
                LiteralValue::Boolean(_) => return Ok(ValueKind::Truth),
                LiteralValue::Int(_) => return Ok(ValueKind::Whole),
                LiteralValue::Double(number) if number.inner().is_finite() => return Ok(ValueKind::Decimal),
                LiteralValue::String(_) => return Ok(ValueKind::Text),
                LiteralValue::UInt(_) => "numbers are written without `u`",
                LiteralValue::Double(_) => "the number is too large",
                LiteralValue::Bytes(_) => "bytes are not supported; write a text",
                LiteralValue::Null => "null is not supported; every name has a value",
            },
            Expr::Ident(_) => return self.variable(expr),
            Expr::Call(_) => return self.call(expr),
            Expr::List(_) => "a list is only valid after `in`",
            Expr::Select(select) if select.test => "`has()` is not needed; every name has a value",
            Expr::Select(_) => "names have no fields; `.` is only valid before a function",
            Expr::Comprehension(_) => "`all`, `exists`, `map` and similar macros are not supported",
            Expr::Map(_) | Expr::Struct(_) => "maps and messages are not supported",
            Expr::Unspecified => "is not an expression",
        };
        Err(self.wrong(expr, refused))
    }

    /// Returns the type of a variable. Replaces an alias by the variable's name.
    fn variable(&mut self, expr: &mut IdedExpr) -> Result<ValueKind, ExpressionProblem> {
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

    fn call(&mut self, expr: &mut IdedExpr) -> Result<ValueKind, ExpressionProblem> {
        let (id, mut call) = match std::mem::take(&mut expr.expr) {
            Expr::Call(call) => (expr.id, call),
            _ => return Err(self.wrong(expr, "is not a call")),
        };
        let kind = self.call_of(&IdedExpr { id, expr: Expr::Unspecified }, &mut call);
        expr.expr = Expr::Call(call);
        kind
    }

    /// Returns the type of a call. `node` has its position.
    fn call_of(&mut self, node: &IdedExpr, call: &mut CallExpr) -> Result<ValueKind, ExpressionProblem> {
        let name = call.func_name.clone();
        match (name.as_str(), call.target.as_deref_mut(), call.args.as_mut_slice()) {
            (operators::LOGICAL_AND | operators::LOGICAL_OR, None, [left, right]) => {
                let what = format!("each side of `{}`", sign(&name));
                self.expect(left, ValueKind::Truth, &what)?;
                self.expect(right, ValueKind::Truth, &what)?;
                Ok(ValueKind::Truth)
            }
            (operators::LOGICAL_NOT, None, [operand]) => {
                self.expect(operand, ValueKind::Truth, "what stands behind `!`")?;
                Ok(ValueKind::Truth)
            }
            (operators::NEGATE, None, [operand]) => {
                let kind = self.kind(operand)?;
                if kind.is_number() { Ok(kind) } else { Err(self.mixed(node, &name, kind, kind)) }
            }
            (operators::CONDITIONAL, None, [condition, left, right]) => {
                self.expect(condition, ValueKind::Truth, "what stands before `?`")?;
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
                if name == operators::DIVIDE && kind == ValueKind::Decimal {
                    DIVIDE.clone_into(&mut call.func_name);
                }
                Ok(kind)
            }
            ("size", None, [text]) | ("size", Some(text), []) => {
                self.expect(text, ValueKind::Text, "what `size` measures")?;
                Ok(ValueKind::Whole)
            }
            ("startsWith" | "endsWith" | "contains", Some(text), [part]) => {
                self.expect(text, ValueKind::Text, &format!("what stands before `.{name}`"))?;
                self.expect(part, ValueKind::Text, &format!("what `{name}` looks for"))?;
                Ok(ValueKind::Truth)
            }
            ("int" | "double", None, [number]) => {
                let kind = self.kind(number)?;
                if !kind.is_number() {
                    return Err(self.wrong(node, format!("`{name}` takes a number, not {}", kind.word())));
                }
                Ok(if name == "int" { ValueKind::Whole } else { ValueKind::Decimal })
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
    ) -> Result<ValueKind, ExpressionProblem> {
        let kinds = (self.kind(left)?, self.kind(right)?);
        let numbers = kinds.0.is_number() && kinds.1.is_number();
        let has_order = !matches!(name, operators::EQUALS | operators::NOT_EQUALS);
        if has_order && kinds == (ValueKind::Text, ValueKind::Text) {
            let message = format!("texts have no order for `{}`; name them: `x in [\"a\", \"b\"]`", sign(name));
            return Err(self.wrong(node, message));
        }
        if !numbers && (has_order || kinds.0 != kinds.1) {
            return Err(self.mixed(node, name, kinds.0, kinds.1));
        }
        self.possible(left, right)?;
        Ok(ValueKind::Truth)
    }

    fn arithmetic(
        &mut self,
        node: &IdedExpr,
        name: &str,
        left: &mut IdedExpr,
        right: &mut IdedExpr,
    ) -> Result<ValueKind, ExpressionProblem> {
        let kinds = (self.kind(left)?, self.kind(right)?);
        let takes =
            |kind: ValueKind| if name == operators::MODULO { kind == ValueKind::Whole } else { kind.is_number() };
        if !takes(kinds.0) || !takes(kinds.1) {
            return Err(self.mixed(node, name, kinds.0, kinds.1));
        }
        let divides = matches!(name, operators::DIVIDE | operators::MODULO);
        if divides && number(right) == Some(0.0) {
            return Err(self.wrong(right, "divides by 0"));
        }
        Ok(self.level(left, right, kinds).unwrap_or(ValueKind::Decimal))
    }

    fn membership(
        &mut self,
        node: &IdedExpr,
        element: &mut IdedExpr,
        list: &mut IdedExpr,
    ) -> Result<ValueKind, ExpressionProblem> {
        let kind = self.kind(element)?;
        let id = list.id;
        let Expr::List(items) = &mut list.expr else {
            return Err(self.wrong(list, "`in` needs a list such as `[1, 2]`"));
        };
        if items.elements.is_empty() {
            let place = IdedExpr { id, expr: Expr::Unspecified };
            return Err(self.wrong(&place, "the list is empty, so this is never true"));
        }
        for item in &mut items.elements {
            let other = self.kind(item)?;
            if other != kind && !(other.is_number() && kind.is_number()) {
                return Err(self.mixed(node, operators::IN, kind, other));
            }
            self.possible(element, item)?;
        }
        Ok(ValueKind::Truth)
    }

    /// Converts two numbers to a common type and returns that type. `None` if the types differ and are not both numbers.
    fn level(&self, left: &mut IdedExpr, right: &mut IdedExpr, kinds: (ValueKind, ValueKind)) -> Option<ValueKind> {
        match kinds {
            (ValueKind::Whole, ValueKind::Decimal) => make_decimal(left),
            (ValueKind::Decimal, ValueKind::Whole) => make_decimal(right),
            (left, right) => return (left == right).then_some(left),
        }
        Some(ValueKind::Decimal)
    }

    fn mixed(&self, node: &IdedExpr, name: &str, left: ValueKind, right: ValueKind) -> ExpressionProblem {
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

    /// Rejects a comparison of a variable with a value that it can never have.
    fn possible(&self, left: &IdedExpr, right: &IdedExpr) -> Result<(), ExpressionProblem> {
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
    let inner = std::mem::take(expr);
    let id = inner.id;
    let call = CallExpr { func_name: "double".to_owned(), target: None, args: vec![inner] };
    *expr = IdedExpr { id, expr: Expr::Call(call) };
}
