//! Tests of the style sheet: every text can be read in both schemes (WCAG 2.2, contrast of at least 4.5).

use std::collections::BTreeMap;

const STYLE: &str = include_str!("../html/style.css");

/// Text and background of every combination that the style sheet uses.
const PAIRS: [(&str, &str); 14] = [
    ("pass", "pass-bg"),
    ("loose", "loose-bg"),
    ("fail", "fail-bg"),
    ("info", "info-bg"),
    ("unseen", "unseen-bg"),
    ("ink", "bg"),
    ("ink", "card"),
    ("ink", "code"),
    ("dim", "bg"),
    ("dim", "card"),
    ("accent", "bg"),
    ("accent", "card"),
    ("accent", "code"),
    ("fail", "card"),
];

/// The colours of each scheme, by name.
fn schemes() -> Vec<BTreeMap<&'static str, &'static str>> {
    let roots = STYLE.split(":root{").skip(1).filter_map(|rest| rest.split('}').next());
    let colours = |root: &'static str| {
        let declarations = root.split(';').filter_map(|declaration| declaration.split_once(':'));
        declarations
            .filter_map(|(name, value)| Some((name.strip_prefix("--")?, value.strip_prefix('#')?)))
            .collect()
    };
    roots.map(colours).collect()
}

fn luminance(colour: &str) -> f64 {
    let digits: String = match colour.len() {
        3 => colour.chars().flat_map(|digit| [digit, digit]).collect(),
        _ => colour.to_owned(),
    };
    let value = u32::from_str_radix(&digits, 16).expect("a colour");
    let channel = |shift: u32| {
        let part = f64::from((value >> shift) & 0xff) / 255.0;
        if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
    };
    0.2126 * channel(16) + 0.7152 * channel(8) + 0.0722 * channel(0)
}

#[test]
fn text_has_contrast_in_light_and_dark() {
    let schemes = schemes();
    assert_eq!(schemes.len(), 2, "light and dark");
    for (number, scheme) in schemes.iter().enumerate() {
        for (text, background) in PAIRS {
            let (text_light, back_light) = (luminance(scheme[text]), luminance(scheme[background]));
            let contrast = (text_light.max(back_light) + 0.05) / (text_light.min(back_light) + 0.05);
            assert!(contrast >= 4.5, "scheme {number}: {text} on {background} has {contrast:.2}");
        }
    }
}
