//! Refuses the loss of important settings while the hub runs: an editor that empties a file before writing
//! it, a full disk or a failed template would open the hub to anybody, or remove all agents.

use super::{AgentOrigin, Identity, Loaded, Origin, Problem, Problems, Severity};

const FORCE_REMEDY: &str = "if this is intended, run `nuncio config reload --force`";

/// Finds settings that a new configuration has lost and that are rarely removed on purpose.
pub(crate) fn lost(old: &Loaded, new: &Loaded) -> Problems {
    let mut found = Vec::new();
    let mut refuse = |text: &str| {
        found.push(Problem::general(Severity::Error, format!("{text}; {FORCE_REMEDY}")));
    };
    if says_anything(old) && !says_anything(new) {
        refuse("the file is empty now");
    } else {
        if has_lost_identity(old, new) {
            refuse("the file has no identity settings any more, which restrict the callers");
        }
        if agents_of_file(old) > 0 && agents_of_file(new) == 0 {
            refuse("the file has no agents any more");
        }
    }
    Problems(found)
}

fn says_anything(loaded: &Loaded) -> bool {
    loaded.origins.values().any(|origin| matches!(origin, Origin::File { .. }))
}

/// A default that is written out counts as intended.
fn has_lost_identity(old: &Loaded, new: &Loaded) -> bool {
    let is_said =
        |(key, origin): (&String, &Origin)| key.starts_with("identity.") && *origin != Origin::Default;
    let default = Identity::default();
    old.config.identity != default && new.config.identity == default && !new.origins.iter().any(is_said)
}

fn agents_of_file(loaded: &Loaded) -> usize {
    loaded.config.agents.iter().filter(|agent| agent.origin == AgentOrigin::File).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::{Folder, load, must};

    const AGENT: &str = "[agents.a]\ndemo = \"echo\"\n";
    const CLOSED: &str = "[identity]\nanonymous = \"never\"\n";
    const ISSUER: &str = "[[identity.jwt]]\nissuer = \"https://x\"\naudience = [\"a\"]\n";

    #[test]
    fn what_a_file_may_not_lose() {
        let both = format!("{CLOSED}{AGENT}");
        let (identity, agents) = ("no identity settings", "no agents any more");
        for (old, new, expected) in [
            (&*both, "", &["the file is empty"][..]),
            (&both, "# all gone\n", &["the file is empty"]),
            (&both, "demo = true\n", &[identity, agents]),
            (&both, AGENT, &[identity]),
            (&both, "[identity]\n[agents.a]\ndemo = \"echo\"\n", &[identity]),
            (&both, CLOSED, &[agents]),
            (&format!("{ISSUER}{AGENT}"), AGENT, &[identity]),
            // An explicit setting is intended.
            (&both, &format!("identity.anonymous = \"loopback\"\n{AGENT}"), &[]),
            (&both, &format!("{CLOSED}[agents.b]\ndemo = \"echo\"\n"), &[]),
            (&format!("{CLOSED}{ISSUER}{AGENT}"), &both, &[]),
            (&both, &format!("{ISSUER}{AGENT}"), &[]),
            (AGENT, &both, &[]),
            ("", "", &[]),
            ("", AGENT, &[]),
        ] {
            let found = lost(&must(load(old)), &must(load(new)));
            assert_eq!(found.0.len(), expected.len(), "{old:?} to {new:?}: {found}");
            for words in expected {
                assert!(found.to_string().contains(words), "{old:?} to {new:?}: {found}");
                assert!(found.to_string().contains("nuncio config reload --force"), "{found}");
            }
        }
    }

    /// Settings of flags stay when the file loses theirs.
    #[test]
    fn what_flags_say_is_not_the_files_to_lose() {
        let folder = Folder::new(&[("nuncio.toml", "drain_seconds = 1\n")]);
        let mut source = folder.source();
        let spec = crate::config::agent_spec("https://a.example").unwrap();
        source.given.push(crate::config::Given::new("agents.a", spec, Origin::Flag("--agent a".to_owned())));
        let old = must(source.load());
        folder.write("nuncio.toml", "drain_seconds = 2\n");
        assert_eq!(lost(&old, &must(source.load())), Problems::default());
    }
}
