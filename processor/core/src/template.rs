//! Text templates.
/// One compiled text.
#[derive(Debug)]
pub struct Template;
/// A JSON tree whose texts are templates.
#[derive(Debug)]
pub struct TextTree;
