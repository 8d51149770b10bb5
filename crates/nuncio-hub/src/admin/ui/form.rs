//! Fields of forms and of addresses: pairs of texts, where an empty text means that nothing was entered.

use nuncio_protocol::Timestamp;
use url::form_urlencoded;

use crate::admin::problem::AdminProblem;

const MILLIS: i64 = 1000;

/// The fields of a form or the parameters of an address.
#[derive(Clone, Default)]
pub(super) struct Form {
    fields: Vec<(String, String)>,
    files: Vec<FormFile>,
}

/// A file of a form.
#[derive(Clone)]
pub(super) struct FormFile {
    pub(super) name: String,
    pub(super) media_type: String,
    pub(super) bytes: Vec<u8>,
}

impl Form {
    pub(super) fn parse(bytes: &[u8]) -> Self {
        Self { fields: form_urlencoded::parse(bytes).into_owned().collect(), files: Vec::new() }
    }

    pub(super) fn push(&mut self, name: String, value: String) {
        self.fields.push((name, value));
    }

    pub(super) fn push_file(&mut self, file: FormFile) {
        self.files.push(file);
    }

    /// The files that were chosen.
    pub(super) fn files(&self) -> &[FormFile] {
        &self.files
    }

    /// The value of a field, if something was entered.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let value = self.fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.trim());
        value.filter(|value| !value.is_empty())
    }

    /// The value of a field as a text of its own.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        self.get(name).map(str::to_owned)
    }

    /// The value of a field, or nothing.
    pub(super) fn shown(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }

    /// The value of a field that the form cannot do without.
    pub(super) fn required(&self, name: &str) -> Result<&str, AdminProblem> {
        self.get(name)
            .ok_or_else(|| AdminProblem::invalid(format!("{name}: nothing was entered; fill it in")))
    }

    /// The parts of a field that are separated by commas or white space.
    pub(super) fn list(&self, name: &str) -> Option<Vec<String>> {
        let words = self.get(name)?.split(|c: char| c == ',' || c.is_whitespace());
        Some(words.filter(|word| !word.is_empty()).map(str::to_owned).collect())
    }

    pub(super) fn number<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, AdminProblem> {
        let number = self.get(name).map(|text| {
            text.parse()
                .map_err(|_| AdminProblem::invalid(format!("{name}: {text} is not a number of that range")))
        });
        number.transpose()
    }

    /// A time in the past: `90s`, `15m`, `1h` or `7d` ago, or a time such as 2026-11-18T12:00:00Z.
    pub(super) fn past(&self, name: &str, now: Timestamp) -> Result<Option<Timestamp>, AdminProblem> {
        self.moment(name, |millis| Timestamp::from_millis(now.as_millis().checked_sub(millis)?))
    }

    /// A time in the future, in the same forms.
    pub(super) fn future(&self, name: &str, now: Timestamp) -> Result<Option<Timestamp>, AdminProblem> {
        self.moment(name, |millis| Timestamp::from_millis(now.as_millis().checked_add(millis)?))
    }

    fn moment(
        &self,
        name: &str,
        at: impl Fn(i64) -> Option<Timestamp>,
    ) -> Result<Option<Timestamp>, AdminProblem> {
        let Some(text) = self.get(name) else { return Ok(None) };
        let moment = match duration(text) {
            Some(millis) => at(millis),
            None => Timestamp::parse(text).ok(),
        };
        let expected = || {
            AdminProblem::invalid(format!(
                "{name}: {text} is not a time; enter one such as 15m, 1h, 7d or 2026-11-18T12:00:00Z"
            ))
        };
        moment.map(Some).ok_or_else(expected)
    }
}

/// The milliseconds of a text such as `15m`.
fn duration(text: &str) -> Option<i64> {
    let unit = text.chars().next_back()?;
    let number: i64 = text[..text.len() - unit.len_utf8()].parse().ok().filter(|number| *number >= 0)?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 60 * 60,
        'd' => 24 * 60 * 60,
        _ => return None,
    };
    number.checked_mul(seconds)?.checked_mul(MILLIS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read() {
        let form = Form::parse(b"name=+a%20b+&none=&agents=a,%20b%0Ac&n=7&bad=x");
        assert_eq!(form.get("name"), Some("a b"));
        assert_eq!((form.get("none"), form.get("absent")), (None, None));
        assert_eq!(form.list("agents"), Some(["a", "b", "c"].map(str::to_owned).to_vec()));
        assert_eq!(form.number::<u32>("n").unwrap(), Some(7));
        assert!(form.number::<u32>("bad").is_err());
        assert!(form.required("none").is_err());
    }

    #[test]
    fn times_are_relative_or_absolute() {
        let now = Timestamp::parse("2026-11-18T12:00:00Z").unwrap();
        for (text, expected) in [
            ("90s", Some("2026-11-18T11:58:30Z")),
            ("15m", Some("2026-11-18T11:45:00Z")),
            ("1h", Some("2026-11-18T11:00:00Z")),
            ("7d", Some("2026-11-11T12:00:00Z")),
            ("2026-11-01T00:00:00Z", Some("2026-11-01T00:00:00Z")),
            ("-1h", None),
            ("1y", None),
            ("é", None),
            ("yesterday", None),
            ("9223372036854775807d", None),
        ] {
            let form = Form { fields: vec![("since".to_owned(), text.to_owned())], ..Form::default() };
            let expected = expected.map(|time| Timestamp::parse(time).unwrap());
            assert_eq!(form.past("since", now).ok().flatten(), expected, "{text}");
        }
        let form = Form { fields: vec![("expires".to_owned(), "1d".to_owned())], ..Form::default() };
        assert_eq!(
            form.future("expires", now).unwrap(),
            Some(Timestamp::parse("2026-11-19T12:00:00Z").unwrap())
        );
    }
}
