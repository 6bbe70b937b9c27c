//! CEL: compiled when a connector loads, run against a scope.
//!
//! Reads: the text of an expression. Gives: its tree, and what it looks at. Hostile text gives an
//! error: length and nesting are bounded, and the parser runs on a thread of its own with a large
//! stack, whose panic is an error too.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use cel::common::ast::{EntryExpr, Expr as Node, IdedExpr, LiteralValue, SourceInfo, operators};
use cel::common::value::CowVal;
use cel::{Context, Env};

use super::path::{Path, Root, Step};
use super::scope::Scope;
use super::spelling::nearest;
use super::steps;
use super::view::{ENTERED, Roots, answer};
use super::{EvalError, ExprError};
use crate::value::{Kind, Value};

/// Bytes of an expression.
pub const TEXT_BYTES_MAX: usize = 4096;
/// Nesting of an expression's tree; evaluating walks it recursively on a worker's stack.
pub(super) const DEPTH_MAX: usize = 24;
/// Loops inside loops (`all`, `exists`, `map`, `filter`).
const LOOPS_MAX: usize = 2;
const PARSER_STACK_BYTES: usize = 64 << 20;

/// Functions that exist, for "did you mean". Operators contain `_` or `@` and are not listed.
const FUNCTIONS: [&str; 27] = [
    "entered",
    "has",
    "size",
    "int",
    "double",
    "string",
    "bool",
    "uint",
    "bytes",
    "dyn",
    "type",
    "contains",
    "startsWith",
    "endsWith",
    "matches",
    "all",
    "exists",
    "exists_one",
    "map",
    "filter",
    "charAt",
    "indexOf",
    "join",
    "lowerAscii",
    "split",
    "substring",
    "trim",
];

/// Operators that give true or false, whatever they compare.
const YES_OR_NO: [&str; 10] = [
    operators::LOGICAL_AND,
    operators::LOGICAL_OR,
    operators::LOGICAL_NOT,
    operators::EQUALS,
    operators::NOT_EQUALS,
    operators::GREATER,
    operators::GREATER_EQUALS,
    operators::LESS,
    operators::LESS_EQUALS,
    operators::IN,
];

/// A checked tree, and what it reads.
#[derive(Debug)]
pub(super) struct Program {
    tree: IdedExpr,
    /// The tree has a map literal.
    whole: bool,
    pub(super) reads: BTreeSet<Path>,
    pub(super) entered: BTreeSet<Box<str>>,
}

impl Program {
    pub(super) fn compile(text: &str) -> Result<Self, ExprError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(ExprError::TooLong { bytes: text.len() });
        }
        std::thread::scope(|scope| {
            let builder = std::thread::Builder::new().stack_size(PARSER_STACK_BYTES);
            let thread = builder.spawn_scoped(scope, || parse(text));
            let joined = thread.map_err(|_| ExprError::Parser)?.join();
            joined.unwrap_or(Err(ExprError::Parser))
        })
    }

    pub(super) fn kind(&self) -> Option<Kind> {
        kind(&self.tree)
    }

    pub(super) fn eval(&self, scope: &Scope<'_>) -> Result<Value, EvalError> {
        let roots = Roots { scope, whole: self.whole };
        let mut context = context().new_inner_scope();
        context.set_variable_resolver(&roots);
        steps::begin();
        let found: Result<CowVal<'_, '_>, _> = cel::Value::resolve_val(&self.tree, &context);
        if steps::is_spent() {
            return Err(EvalError::TooManySteps);
        }
        found.map_err(|error| EvalError::from_cel(&error)).and_then(|val| answer(val.as_ref()))
    }
}

/// What a tree gives, where its root says it.
fn kind(tree: &IdedExpr) -> Option<Kind> {
    match &tree.expr {
        Node::List(_) => Some(Kind::List),
        Node::Map(_) => Some(Kind::Object),
        Node::Literal(LiteralValue::Boolean(_)) => Some(Kind::Bool),
        Node::Literal(LiteralValue::Null) => Some(Kind::Null),
        Node::Call(call) if YES_OR_NO.contains(&call.func_name.as_str()) => Some(Kind::Bool),
        Node::Call(call) if call.func_name == operators::CONDITIONAL => {
            let [_, one, other] = call.args.as_slice() else { return None };
            kind(one).filter(|one| kind(other) == Some(*one))
        }
        Node::Select(select) => select.test.then_some(Kind::Bool),
        Node::Unspecified
        | Node::Call(_)
        | Node::Comprehension(_)
        | Node::Ident(_)
        | Node::Literal(_)
        | Node::Struct(_) => None,
    }
}

/// One for the process: building it takes tens of microseconds.
fn context() -> &'static Context<'static, 'static> {
    static CONTEXT: OnceLock<Context<'static, 'static>> = OnceLock::new();
    CONTEXT.get_or_init(|| Context::with_env(Arc::clone(env())))
}

fn env() -> &'static Arc<Env> {
    static ENV: OnceLock<Arc<Env>> = OnceLock::new();
    ENV.get_or_init(|| {
        let mut env = Env::stdlib();
        // Fails only for a name that is taken twice, which the tests would show.
        let _declared = env.add_extension(cel::extensions::strings).is_ok();
        steps::declare(&mut env);
        Arc::new(env)
    })
}

fn parse(text: &str) -> Result<Program, ExprError> {
    let parsed = env().parser().enable_optional_syntax(false).parse_with_source_info(text);
    let (mut tree, source) = parsed.map_err(|errors| syntax(text, &errors.errors))?;
    if depth(&tree) > DEPTH_MAX {
        return Err(ExprError::TooDeep { max: DEPTH_MAX });
    }
    let mut walk = Walk {
        source: &source,
        bound: Vec::new(),
        loops: 0,
        whole: false,
        reads: BTreeSet::new(),
        entered: BTreeSet::new(),
    };
    walk.visit(&mut tree)?;
    let Walk { whole, reads, entered, .. } = walk;
    Ok(Program { tree, whole, reads, entered })
}

fn syntax(text: &str, errors: &[cel::ParseError]) -> ExprError {
    let Some(first) = errors.first() else { return ExprError::Parser };
    let line = usize::try_from(first.pos.0).unwrap_or(0).saturating_sub(1);
    let before: usize = text.split_inclusive('\n').take(line).map(|l| l.chars().count()).sum();
    let column = usize::try_from(first.pos.1).unwrap_or(0).saturating_sub(1);
    ExprError::Syntax { message: in_words(&first.msg), at: before.saturating_add(column) }
}

/// The parser lists every token that would have been possible; the one that stands there says more.
fn in_words(message: &str) -> Box<str> {
    let message = message.lines().next().unwrap_or_default();
    let message = message.strip_prefix("Syntax error: ").unwrap_or(message);
    let (what, _) = message.split_once(" expecting").unwrap_or((message, ""));
    if what.contains("<EOF>") {
        return "the expression ends too early".into();
    }
    match what.split_once('\'').and_then(|(_, rest)| rest.rsplit_once('\'')) {
        Some((token, _)) => format!("`{}` is not expected here", token.trim()).into(),
        None => what.into(),
    }
}

/// Levels of the tree; a chain of members is one, as it is evaluated in one.
fn depth(node: &IdedExpr) -> usize {
    if chain(node).is_some() {
        return 1;
    }
    children(&node.expr).into_iter().map(depth).max().unwrap_or(0).saturating_add(1)
}

fn children(node: &Node) -> Vec<&IdedExpr> {
    match node {
        Node::Unspecified | Node::Ident(_) | Node::Literal(_) => Vec::new(),
        Node::Call(call) => call.target.iter().map(|t| &**t).chain(&call.args).collect(),
        Node::List(list) => list.elements.iter().collect(),
        Node::Select(select) => vec![&select.operand],
        Node::Comprehension(each) => {
            vec![&each.iter_range, &each.accu_init, &each.loop_cond, &each.loop_step, &each.result]
        }
        Node::Map(map) => entries(&map.entries),
        Node::Struct(object) => entries(&object.entries),
    }
}

fn entries(entries: &[cel::common::ast::IdedEntryExpr]) -> Vec<&IdedExpr> {
    let each = entries.iter().flat_map(|entry| match &entry.expr {
        EntryExpr::StructField(field) => vec![&field.value],
        EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
    });
    each.collect()
}

// --------------------------------------------------------------------------------------------- //

/// Checks names, notes what is read, and puts `entered("x")` into a form that CEL can evaluate.
struct Walk<'s> {
    source: &'s SourceInfo,
    bound: Vec<String>,
    loops: usize,
    whole: bool,
    reads: BTreeSet<Path>,
    entered: BTreeSet<Box<str>>,
}

impl Walk<'_> {
    fn visit(&mut self, node: &mut IdedExpr) -> Result<(), ExprError> {
        if let Some((root, steps)) = chain(node) {
            return self.read(root_id(node), &root, steps);
        }
        match &mut node.expr {
            Node::Unspecified | Node::Literal(_) | Node::Ident(_) => Ok(()),
            Node::Select(select) => self.visit(&mut select.operand),
            Node::List(list) => list.elements.iter_mut().try_for_each(|item| self.visit(item)),
            Node::Struct(_) => Err(ExprError::NoStructs { at: self.at(node.id) }),
            Node::Map(map) => {
                self.whole = true;
                map.entries.iter_mut().try_for_each(|entry| match &mut entry.expr {
                    EntryExpr::StructField(field) => self.visit(&mut field.value),
                    EntryExpr::MapEntry(entry) => {
                        self.visit(&mut entry.key)?;
                        self.visit(&mut entry.value)
                    }
                })
            }
            Node::Comprehension(_) => self.each(node),
            Node::Call(_) => self.call(node),
        }
    }

    fn each(&mut self, node: &mut IdedExpr) -> Result<(), ExprError> {
        let at = self.at(node.id);
        let Node::Comprehension(each) = &mut node.expr else { return Ok(()) };
        self.visit(&mut each.iter_range)?;
        steps::count_walk(&mut each.iter_range);
        self.loops = self.loops.saturating_add(1);
        if self.loops > LOOPS_MAX {
            return Err(ExprError::TooManyLoops { at, max: LOOPS_MAX });
        }
        let depth = self.bound.len();
        self.bound.push(each.iter_var.clone());
        self.bound.push(each.accu_var.clone());
        self.bound.extend(each.iter_var2.clone());
        for inner in
            [&mut each.accu_init, &mut each.loop_cond, &mut each.loop_step, &mut each.result]
        {
            self.visit(inner)?;
        }
        self.bound.truncate(depth);
        self.loops = self.loops.saturating_sub(1);
        Ok(())
    }

    fn call(&mut self, node: &mut IdedExpr) -> Result<(), ExprError> {
        let at = self.at(node.id);
        let Node::Call(call) = &mut node.expr else { return Ok(()) };
        // A call's place is its parenthesis; its name stands before it.
        let at = at.saturating_sub(call.func_name.chars().count());
        let operator = call.func_name.contains(['_', '@', '!']) && call.func_name != "exists_one";
        if !operator && !FUNCTIONS.contains(&call.func_name.as_str()) && !is_strings(call) {
            let near = nearest(&call.func_name, FUNCTIONS).map(Box::from);
            return Err(ExprError::UnknownFunction {
                name: call.func_name.as_str().into(),
                near,
                at,
            });
        }
        if call.func_name == "entered" {
            let [argument] = &call.args[..] else { return Err(ExprError::EnteredArgument { at }) };
            let Node::Literal(LiteralValue::String(state)) = &argument.expr else {
                return Err(ExprError::EnteredArgument { at });
            };
            self.entered.insert(state.inner().into());
            let argument = argument.clone();
            let ident = IdedExpr { id: node.id, expr: Node::Ident(ENTERED.to_owned()) };
            call.func_name = cel::common::ast::operators::EQUALS.to_owned();
            call.args = vec![ident, argument];
            return Ok(());
        }
        if let Some(target) = &mut call.target {
            self.visit(target)?;
        }
        call.args.iter_mut().try_for_each(|argument| self.visit(argument))?;
        if self.loops > 0 {
            count(call, operator);
        }
        Ok(())
    }

    fn read(&mut self, id: u64, root: &str, steps: Vec<Step>) -> Result<(), ExprError> {
        if self.bound.iter().any(|name| name == root) {
            return Ok(());
        }
        let at = self.at(id);
        let path = Path { root: super::known_root(root, at)?, steps };
        super::check_members(&path, at)?;
        self.reads.insert(path);
        Ok(())
    }

    fn at(&self, id: u64) -> usize {
        let start = self.source.offset_for(id).map_or(0, |(start, _)| start);
        usize::try_from(start).unwrap_or(0)
    }
}

/// Inside of a loop a search counts what it looks through, and a function what it reads.
fn count(call: &mut cel::common::ast::CallExpr, operator: bool) {
    if call.func_name == cel::common::ast::operators::IN {
        call.args.get_mut(1).into_iter().for_each(steps::count_walk);
    } else if !operator {
        call.target.as_deref_mut().into_iter().for_each(steps::count_read);
        call.args.iter_mut().for_each(steps::count_read);
    }
}

/// Functions of the strings extension that are rarely used and therefore not suggested.
fn is_strings(call: &cel::common::ast::CallExpr) -> bool {
    const MORE: [&str; 6] = ["format", "lastIndexOf", "replace", "reverse", "upperAscii", "quote"];
    MORE.contains(&call.func_name.as_str())
}

/// The node of the name at the beginning of a chain.
fn root_id(node: &IdedExpr) -> u64 {
    match &node.expr {
        Node::Select(select) => root_id(&select.operand),
        Node::Call(call) => call.args.first().map_or(node.id, root_id),
        Node::Unspecified
        | Node::Comprehension(_)
        | Node::Ident(_)
        | Node::List(_)
        | Node::Literal(_)
        | Node::Map(_)
        | Node::Struct(_) => node.id,
    }
}

/// The root and steps of a chain of selections and literal indexes.
fn chain(node: &IdedExpr) -> Option<(String, Vec<Step>)> {
    match &node.expr {
        Node::Ident(name) => Some((name.clone(), Vec::new())),
        Node::Select(select) => {
            let (root, mut steps) = chain(&select.operand)?;
            steps.push(Step::Member(select.field.as_str().into()));
            Some((root, steps))
        }
        Node::Call(call) if call.func_name == operators::INDEX => {
            let [operand, index] = &call.args[..] else { return None };
            let step = match &index.expr {
                Node::Literal(LiteralValue::String(name)) => Step::Member(name.inner().into()),
                Node::Literal(LiteralValue::Int(index)) => {
                    Step::Index(usize::try_from(*index.inner()).ok()?)
                }
                Node::Unspecified
                | Node::Call(_)
                | Node::Comprehension(_)
                | Node::Ident(_)
                | Node::List(_)
                | Node::Literal(_)
                | Node::Map(_)
                | Node::Select(_)
                | Node::Struct(_) => return None,
            };
            let (root, mut steps) = chain(operand)?;
            steps.push(step);
            Some((root, steps))
        }
        Node::Unspecified
        | Node::Call(_)
        | Node::Comprehension(_)
        | Node::List(_)
        | Node::Literal(_)
        | Node::Map(_)
        | Node::Struct(_) => None,
    }
}

/// Whether the root is one that a member must follow by name (`effects.settle.id`).
pub(super) const fn needs_member(root: Root) -> bool {
    matches!(root, Root::Effects)
}
