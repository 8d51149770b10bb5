//! Forms with files (`multipart/form-data`, RFC 7578), as browsers send them.

use super::form::{Form, FormFile};
use crate::admin::problem::AdminProblem;

/// Maximum number of fields and files.
const MAX_PARTS: usize = 100;

/// Reads a form; `None` if the content type is another one.
pub(super) fn read(content_type: &str, body: &[u8]) -> Option<Result<Form, AdminProblem>> {
    let (media_type, parameters) = content_type.split_once(';')?;
    if !media_type.trim().eq_ignore_ascii_case("multipart/form-data") {
        return None;
    }
    let boundary = parameters.split(';').find_map(|parameter| parameter.trim().strip_prefix("boundary="));
    let boundary = boundary.map(|text| text.trim_matches('"')).filter(|text| !text.is_empty());
    let broken = || AdminProblem::invalid("the form is broken: reload the page and send it again");
    Some(boundary.and_then(|boundary| parse(boundary, body)).ok_or_else(broken))
}

/// The fields and files; `None` if the body is not of this form.
fn parse(boundary: &str, body: &[u8]) -> Option<Form> {
    let first = format!("--{boundary}");
    let next = format!("\r\n--{boundary}");
    let mut rest = body.strip_prefix(first.as_bytes())?;
    let mut form = Form::default();
    for _ in 0..MAX_PARTS {
        if rest.starts_with(b"--") {
            return Some(form);
        }
        rest = rest.strip_prefix(b"\r\n")?;
        let end = position(rest, next.as_bytes())?;
        let part = &rest[..end];
        rest = &rest[end + next.len()..];
        let head = position(part, b"\r\n\r\n")?;
        let (head, content) = (std::str::from_utf8(&part[..head]).ok()?, &part[head + 4..]);
        add(&mut form, head, content)?;
    }
    None
}

fn add(form: &mut Form, head: &str, content: &[u8]) -> Option<()> {
    let header = |name: &str| {
        let mut headers = head.split("\r\n").filter_map(|line| line.split_once(':'));
        headers.find(|(given, _)| given.trim().eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    };
    let disposition = header("content-disposition")?;
    let name = parameter(disposition, "name")?;
    match parameter(disposition, "filename") {
        // A field without a chosen file is sent as an empty one without a name.
        Some(file) if file.is_empty() && content.is_empty() => {}
        Some(file) => {
            let media_type = header("content-type").unwrap_or("application/octet-stream").to_owned();
            form.push_file(FormFile { name: file, media_type, bytes: content.to_vec() });
        }
        None => form.push(name, std::str::from_utf8(content).ok()?.to_owned()),
    }
    Some(())
}

/// A quoted parameter. Browsers write the quotes in it as %22.
fn parameter(disposition: &str, name: &str) -> Option<String> {
    let (_, rest) = disposition.split_once(&format!("; {name}=\""))?;
    let (value, _) = rest.split_once('"')?;
    Some(value.replace("%22", "\"").replace("%0D%0A", "\n"))
}

fn position(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TYPE: &str = "multipart/form-data; boundary=----x";

    #[test]
    fn fields_and_files_are_read() {
        let body = b"------x\r\nContent-Disposition: form-data; name=\"text\"\r\n\r\n a\r\nb \r\n\
            ------x\r\nContent-Disposition: form-data; name=\"none\"; filename=\"\"\r\nContent-Type: application/octet-stream\r\n\r\n\r\n\
            ------x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a%22b.pdf\"\r\nContent-Type: application/pdf\r\n\r\n\x00\xff\r\n--\r\n\
            ------x--\r\n";
        let form = read(TYPE, body).unwrap().unwrap();
        assert_eq!(form.get("text"), Some("a\r\nb"));
        let file = form.files().first().unwrap();
        assert_eq!(
            (&*file.name, &*file.media_type, &*file.bytes),
            ("a\"b.pdf", "application/pdf", &b"\x00\xff\r\n--"[..])
        );
        assert_eq!(form.files().len(), 1, "a field without a file is none");
    }

    #[test]
    fn other_and_broken_forms_are_told_apart() {
        assert!(read("application/x-www-form-urlencoded", b"a=b").is_none());
        for (content_type, body) in [
            (TYPE, &b""[..]),
            (TYPE, b"------x\r\n"),
            (TYPE, b"------x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nb"),
            (TYPE, b"------x\r\nno header\r\n\r\nb\r\n------x--"),
            ("multipart/form-data; charset=utf-8", b"------x--"),
        ] {
            assert!(read(content_type, body).unwrap().is_err(), "{body:?}");
        }
    }
}
