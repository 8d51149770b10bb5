//! The end of a certificate's validity, read from its DER form (RFC 5280, section 4.1). Nothing else is read, and
//! nothing is verified: the TLS library does that.

use nuncio_protocol::Timestamp;

/// ASN.1 tags (X.690, section 8.1.2).
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// The number of fields of a certificate before its validity: serial number, signature, issuer.
const FIELDS_BEFORE_VALIDITY: usize = 3;
/// The first year of this century that UTCTime cannot express: from it on two digits mean the last century.
const UTC_PIVOT: u32 = 50;

/// The time at which a certificate expires; `None` if it is no certificate.
pub(super) fn not_after(der: &[u8]) -> Option<Timestamp> {
    let (certificate, _) = within(der, SEQUENCE)?;
    let (mut fields, _) = within(certificate, SEQUENCE)?;
    if let Some((_, rest)) = within(fields, VERSION) {
        fields = rest;
    }
    for _ in 0..FIELDS_BEFORE_VALIDITY {
        (_, _, fields) = element(fields)?;
    }
    let (validity, _) = within(fields, SEQUENCE)?;
    let (_, _, rest) = element(validity)?;
    let (tag, time, _) = element(rest)?;
    time_of(tag, std::str::from_utf8(time).ok()?)
}

/// The content of the first element, which has this tag, and the elements after it.
fn within(der: &[u8], wanted: u8) -> Option<(&[u8], &[u8])> {
    let (tag, content, rest) = element(der)?;
    (tag == wanted).then_some((content, rest))
}

/// The first element: its tag, its content, and the bytes after it.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = der.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        short @ 0..=0x7f => (usize::from(*short), rest),
        long => {
            let (bytes, rest) = rest.split_at_checked(usize::from(long & 0x7f))?;
            let length = bytes.iter().try_fold(0_usize, |length, byte| {
                length.checked_mul(256).map(|length| length + usize::from(*byte))
            });
            (length?, rest)
        }
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((*tag, content, rest))
}

fn time_of(tag: u8, text: &str) -> Option<Timestamp> {
    let text = text.strip_suffix('Z').filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
    let (year, rest) = match tag {
        UTC_TIME => {
            let (year, rest) = text.split_at_checked(2)?;
            let year: u32 = year.parse().ok()?;
            (if year < UTC_PIVOT { 2000 + year } else { 1900 + year }, rest)
        }
        GENERALIZED_TIME => {
            let (year, rest) = text.split_at_checked(4)?;
            (year.parse().ok()?, rest)
        }
        _ => return None,
    };
    let part = |at: usize| rest.get(at..at + 2);
    let (month, day, hour, minute, second) = (part(0)?, part(2)?, part(4)?, part(6)?, part(8)?);
    Timestamp::parse(&format!("{year:04}-{month}-{day}T{hour}:{minute}:{second}Z")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_certificate_is_read() {
        // 2049 is the last year of UTCTime; later ones are in the other form.
        for year in [2031, 2049, 2050, 2099] {
            let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
            params.not_after = rcgen::date_time_ymd(year, 12, 31);
            let key = rcgen::KeyPair::generate().unwrap();
            let der = params.self_signed(&key).unwrap().der().to_vec();
            let expected = Timestamp::parse(&format!("{year}-12-31T00:00:00Z")).unwrap();
            assert_eq!(not_after(&der), Some(expected));
            for length in 0..der.len().min(200) {
                assert_eq!(not_after(&der[..length]), None, "cut off");
            }
        }
        for wrong in
            [&b""[..], b"0", b"0\x82", b"0\x84\xff\xff\xff\xff", b"hello, world", &[0x30, 0x80, 0, 0]]
        {
            assert_eq!(not_after(wrong), None, "{wrong:x?}");
        }
    }
}
