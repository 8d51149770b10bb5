//! Parser of configuration files: text becomes a tree in which every value has its position, and the tree
//! becomes settings.
//!
//! Reading order: `tree` has the values, `problem` the errors in them; `parse` reads TOML, `expand` substitutes
//! variables, `include` merges files; `schema` is derived from the types of the settings, `check` validates a tree
//! against it, and `read` converts the tree to settings; `show`, `init` and `layout` write, `mask` hides secrets in
//! URLs.

mod check;
mod expand;
mod include;
mod init;
mod layout;
mod mask;
mod parse;
mod problem;
mod read;
mod schema;
mod show;
mod tree;

pub(crate) use self::{
    check::check,
    include::{Files, load, parse_text},
    mask::masked,
    problem::Findings,
    read::read,
    show::shown_json,
    tree::{Node, Spot, Value},
};
pub use self::{
    init::init,
    layout::format,
    problem::{Problem, Problems, Severity, did_you_mean},
    schema::schema,
    show::show,
    tree::Origin,
};
