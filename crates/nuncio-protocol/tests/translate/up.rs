//! v0.3 → v1.0 → v0.3 of every golden document, by way of both forms of v1.0.

use nuncio_protocol::{ErrorKind, v03, wire::Dialect};
use serde_json::{Value, value::to_raw_value};

use crate::{
    document::{Document, of_v03},
    down::compare,
    loss::{Direction, Seen, predict},
    wire::{Kind, Wire},
};

fn there_and_back(form: Wire, through: Wire, document: &Document) -> Result<Value, ErrorKind> {
    let kind = document.kind;
    let up = form.read(kind, form.bytes(kind, &document.json));
    let up = up.unwrap_or_else(|error| panic!("{} in {form:?}: {error}", document.name));
    let down = through.pass(kind, &up).and_then(|thing| form.write(&thing));
    down.map(|bytes| form.tree(kind, &bytes)).map_err(|error| error.kind())
}

/// The same table, as `says_more` knows it.
#[test]
fn who_says_more_is_whom_the_table_takes_something_from() {
    let mut seen = [0; 2];
    for (form, dialect) in [(Wire::JsonRpc, &v03::JsonRpc as &dyn Dialect), (Wire::Rest, &v03::Rest)] {
        for document in of_v03(form) {
            let Kind::Call(op) = document.kind else { continue };
            let predicted = predict(Direction::Up, form, Wire::V1Json, document.kind, &document.json);
            let params = to_raw_value(&document.json).unwrap();
            let is_lossy = predicted.is_lossy(Direction::Up);
            assert_eq!(dialect.says_more(op, Some(&params)), is_lossy, "{} in {form:?}", document.name);
            seen[usize::from(is_lossy)] += 1;
        }
    }
    assert!(seen.iter().all(|seen| *seen > 0), "{seen:?}");
}

#[test]
fn what_is_lost_on_the_way_up_is_what_the_table_says() {
    let (mut seen, mut failures) = (Seen::default(), Vec::new());
    for form in Wire::OLD {
        for document in of_v03(form) {
            let kind = document.kind;
            // A document of protobuf has many spellings in JSON; this is the one that is compared.
            let spelled = |json: &Value| form.tree(kind, &form.bytes(kind, json));
            for through in Wire::NEW {
                let predicted = predict(Direction::Up, form, through, kind, &document.json);
                seen.add(&predicted, form, kind);
                let expected = predicted.outcome.map(|json| spelled(&json));
                let found = there_and_back(form, through, &document);
                let name = format!("{} in {form:?} by way of {through:?}", document.name);
                failures.extend(compare(&name, &spelled(&document.json), &expected, &found));
            }
        }
    }
    assert!(failures.is_empty(), "{} differ\n\n{}", failures.len(), failures.join("\n\n"));
    assert_eq!(seen.missing(Direction::Up), [""; 0]);
}
