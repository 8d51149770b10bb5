//! The loss table. A row says where something is lost or changed, in which forms of v0.3, what becomes of
//! it, and why; and it can be applied, so that it predicts what a translation leaves. The table in
//! docs/protocol-notes.md is made from it.

mod down;
mod rule;
mod up;

use std::collections::HashSet;

use nuncio_protocol::{ErrorKind, op::Op};
use serde_json::Value;

use crate::{
    path::{Object, differences, visit},
    wire::{Kind, Wire},
};

/// The fate of the members at the paths of a row.
#[derive(Clone, Copy)]
pub(crate) enum Effect {
    /// Gone, if this is true of the value.
    Lost(fn(&Value) -> bool),
    /// Written if it is absent: from the whole document and the name of the member.
    Filled(fn(&Value, &str) -> Option<Value>),
    /// Another value in its place.
    Changed(fn(&mut Value)),
    /// Written over whatever there was, from the object that it is in.
    Computed(fn(&Object) -> Option<Value>),
    /// Several members that hang together.
    Rewritten(fn(&mut Value)),
    /// The document cannot be said at all, if this is true of it; the kind of error may depend on what it is.
    Refused(fn(&Value) -> bool, fn(Kind) -> ErrorKind),
}

/// A row of the table.
pub(crate) struct Row {
    /// The table it stands in.
    pub(crate) section: Section,
    /// The documents, for people.
    pub(crate) of: &'static str,
    /// The documents.
    pub(crate) kinds: &'static [Kind],
    /// The members: of v1.0 JSON on the way down, of the v0.3 forms on the way up.
    pub(crate) paths: &'static [&'static str],
    /// Only then; empty if always.
    pub(crate) when: &'static str,
    /// The forms in which it happens: of v0.3, and of protobuf in v1.0.
    pub(crate) forms: &'static [Wire],
    /// The forms of v1.0 on the way through which it happens.
    pub(crate) through: &'static [Wire],
    /// The fate, as text.
    pub(crate) becomes: &'static str,
    /// The fate in the other forms of v0.3.
    pub(crate) elsewhere: &'static str,
    /// The fate.
    pub(crate) effect: Effect,
    /// Why, for people.
    pub(crate) why: &'static str,
}

/// A part of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    DownRequests,
    DownAnswers,
    DownCards,
    DownProtobuf,
    UpRequests,
    UpAnswers,
    UpCards,
    UpErrors,
}

impl Section {
    pub(crate) const ALL: [Self; 8] = [
        Self::DownRequests,
        Self::DownAnswers,
        Self::DownCards,
        Self::DownProtobuf,
        Self::UpRequests,
        Self::UpAnswers,
        Self::UpCards,
        Self::UpErrors,
    ];

    /// The heading in the document.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::DownRequests => "Down: requests",
            Self::DownAnswers => "Down: answers",
            Self::DownCards => "Down: cards",
            Self::DownProtobuf => "Down: what protobuf cannot say, in either version",
            Self::UpRequests => "Up: requests",
            Self::UpAnswers => "Up: answers and events",
            Self::UpCards => "Up: cards",
            Self::UpErrors => "Up: errors",
        }
    }
}

/// One direction of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// v1.0 → v0.3 → v1.0.
    Down,
    /// v0.3 → v1.0 → v0.3.
    Up,
}

/// The rows of a direction.
pub(crate) fn rows(direction: Direction) -> Vec<&'static Row> {
    let tables: &[&'static [Row]] = match direction {
        Direction::Down => &[down::ROWS],
        Direction::Up => &[up::ROWS],
    };
    tables.iter().flat_map(|rows| rows.iter()).collect()
}

/// The expected document by the table, and the rows that changed it.
pub(crate) struct Predicted {
    pub(crate) outcome: Result<Value, ErrorKind>,
    pub(crate) fired: Vec<usize>,
}

impl Predicted {
    /// True if something that was said is gone.
    pub(crate) fn is_lossy(&self, direction: Direction) -> bool {
        let rows = rows(direction);
        self.fired.iter().any(|row| rows[*row].loses())
    }
}

/// Applies a direction of the table to a document that goes through `form` and, on the way up, `through`.
pub(crate) fn predict(
    direction: Direction,
    form: Wire,
    through: Wire,
    kind: Kind,
    document: &Value,
) -> Predicted {
    let mut tree = document.clone();
    let mut fired = Vec::new();
    for (i, row) in rows(direction).into_iter().enumerate() {
        if !(row.kinds.contains(&kind) && row.forms.contains(&form) && row.through.contains(&through)) {
            continue;
        }
        let before = tree.clone();
        if let Err(refused) = row.apply(kind, &mut tree) {
            fired.push(i);
            return Predicted { outcome: Err(refused), fired };
        }
        if tree != before {
            row.check_paths(&before, &tree);
            fired.push(i);
        }
    }
    Predicted { outcome: Ok(tree), fired }
}

impl Row {
    const fn new(
        section: Section,
        of: &'static str,
        kinds: &'static [Kind],
        paths: &'static [&'static str],
    ) -> Self {
        let effect = Effect::Lost(rule::always);
        Self {
            section,
            of,
            kinds,
            paths,
            when: "",
            forms: &[],
            through: ANY,
            becomes: "",
            elsewhere: "kept",
            effect,
            why: "",
        }
    }

    const fn when(self, when: &'static str) -> Self {
        Self { when, ..self }
    }

    const fn becomes(self, forms: &'static [Wire], becomes: &'static str, effect: Effect) -> Self {
        Self { forms, becomes, effect, ..self }
    }

    const fn through(self, through: &'static [Wire]) -> Self {
        Self { through, ..self }
    }

    const fn elsewhere(self, elsewhere: &'static str) -> Self {
        Self { elsewhere, ..self }
    }

    const fn because(self, why: &'static str) -> Self {
        Self { why, ..self }
    }

    fn apply(&self, kind: Kind, tree: &mut Value) -> Result<(), ErrorKind> {
        let each = |tree: &mut Value, f: &mut dyn FnMut(&mut Object, &str)| {
            self.paths.iter().for_each(|path| visit(tree, path, f));
        };
        match self.effect {
            Effect::Lost(when) => each(tree, &mut |object, key| {
                if object.get(key).is_some_and(when) {
                    object.remove(key);
                }
            }),
            Effect::Filled(with) => {
                let whole = tree.clone();
                each(tree, &mut |object, key| {
                    if !object.contains_key(key)
                        && let Some(value) = with(&whole, key)
                    {
                        object.insert(key.to_owned(), value);
                    }
                });
            }
            Effect::Changed(change) => each(tree, &mut |object, key| {
                if let Some(value) = object.get_mut(key) {
                    change(value);
                }
            }),
            Effect::Computed(compute) => each(tree, &mut |object, key| {
                if let Some(value) = compute(object) {
                    object.insert(key.to_owned(), value);
                }
            }),
            Effect::Rewritten(rewrite) => rewrite(tree),
            Effect::Refused(when, by) => {
                if when(tree) {
                    return Err(by(kind));
                }
            }
        }
        Ok(())
    }

    /// True if something that was said is gone: not changed, not without meaning, and not of a card, which is
    /// made for each version.
    fn loses(&self) -> bool {
        let is_of_card = matches!(self.section, Section::DownCards | Section::UpCards);
        matches!(self.effect, Effect::Lost(_)) && !is_of_card && !self.why.starts_with("says nothing")
    }

    /// A row that rewrites several members at once may touch no others than it names.
    fn check_paths(&self, before: &Value, after: &Value) {
        if !matches!(self.effect, Effect::Rewritten(_)) {
            return;
        }
        for found in differences(before, after) {
            let named = self.paths.iter().any(|path| found.starts_with(path.trim_end_matches(".*")));
            assert!(named, "{} {:?}: touches {found}", self.of, self.paths);
        }
    }
}

/// The rows that had an effect, by form and kind of document.
#[derive(Default)]
pub(crate) struct Seen(HashSet<(usize, Wire, Kind)>);

impl Seen {
    pub(crate) fn add(&mut self, predicted: &Predicted, form: Wire, kind: Kind) {
        self.0.extend(predicted.fired.iter().map(|row| (*row, form, kind)));
    }

    /// Says which row was not seen where it should be.
    pub(crate) fn missing(&self, direction: Direction) -> Vec<String> {
        let mut missing = Vec::new();
        for (i, row) in rows(direction).into_iter().enumerate() {
            for form in row.forms {
                for kind in row.kinds.iter().filter(|kind| !self.0.contains(&(i, *form, **kind))) {
                    missing.push(format!(
                        "{} {:?} {}: never seen in {form:?} {kind:?}",
                        row.of, row.paths, row.when
                    ));
                }
            }
        }
        missing
    }
}

const SENDS: &[Kind] = &[Kind::Call(Op::SendMessage), Kind::Call(Op::SendStreamingMessage)];
const CARD: &[Kind] = &[Kind::Reply(Op::GetExtendedAgentCard)];
const ALL: &[Wire] = &Wire::OLD;
const JSON_RPC: &[Wire] = &[Wire::JsonRpc];
const REST: &[Wire] = &[Wire::Rest];
const GRPC: &[Wire] = &[Wire::Grpc];
const PROTO: &[Wire] = &[Wire::Rest, Wire::Grpc];
const JSON: &[Wire] = &[Wire::JsonRpc, Wire::Rest];
const ANY: &[Wire] = &Wire::NEW;
