//! Reads texts into settings, through a tree in which every value knows its position.
//!
//! Reading order: `tree` has the values, `problem` the mistakes in them; `parse` reads TOML, `expand` puts variables
//! in, `include` brings files together; `schema` is made of the settings, `check` holds a tree to it, and `read` makes
//! settings of the tree; `show`, `init` and `layout` write, `mask` hides secrets in addresses.

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
    problem::{Findings, did_you_mean},
    read::read,
    show::shown_json,
    tree::{Node, Spot, Value},
};
pub use self::{
    init::init,
    layout::format,
    problem::{Problem, Problems, Severity},
    schema::schema,
    show::show,
    tree::Origin,
};
