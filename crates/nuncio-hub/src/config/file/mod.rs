//! From texts to a tree whose every value knows where it comes from, checked by the schema.
//!
//! Reading order: `tree` has the values, `problem` what is wrong with them; `parse` reads TOML, `expand` puts
//! variables in, `include` brings files together; `schema` is made of the types in `raw`, and `check` holds a tree
//! to it; `show` and `init` write, `mask` hides what may be secret in addresses.

mod check;
mod expand;
mod include;
mod init;
mod mask;
mod parse;
mod problem;
mod schema;
mod show;
mod tree;

pub(crate) use self::{
    check::check,
    include::{Files, parse_text, read},
    mask::masked,
    problem::did_you_mean,
    show::shown_json,
    tree::{Node, Spot, Value},
};
pub use self::{
    init::init,
    problem::{Problem, Problems, Severity},
    schema::schema,
    show::show,
    tree::Origin,
};
