//! nuncio.toml: written, checked, shown, served.

use std::fs;

use nuncio_tests::hub::{Hub, cli, cli_with_env, cli_with_stdin, start};
use serde_json::Value;

use super::{directory, json, path, text};

#[tokio::test(flavor = "multi_thread")]
async fn a_file_to_begin_with_is_written_checked_and_served() {
    let folder = directory("init");
    let file = folder.join("nuncio.toml");
    let output = cli(&["init", path(&file)]).await;
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(output.stdout.contains("nuncio.toml\n") && output.stdout.contains("nuncio.schema.json\n"));
    let again = cli(&["init", path(&file)]).await;
    assert_eq!(again.code, Some(2), "{again:?}");
    assert!(again.stderr.contains("it exists already") && again.stderr.contains("--force"), "{again:?}");
    assert_eq!(cli(&["init", path(&file), "--force"]).await.code, Some(0));
    let schema = fs::read_to_string(folder.join("nuncio.schema.json")).unwrap();
    let printed = cli(&["config", "schema"]).await.stdout;
    assert_eq!(schema, printed);
    let checked = cli(&["check", path(&file)]).await;
    assert_eq!((checked.code, &*checked.stdout), (Some(0), ""), "{checked:?}");
    assert!(checked.stderr.contains("no problems found"), "{checked:?}");
    let mut hub = start(&["serve", "--config", path(&file), "--listen", "127.0.0.1:0", "-o", "json"]);
    let line = hub.line().await.unwrap_or_else(|| panic!("{}", hub.stderr()));
    let announced: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(announced["config"], path(&file));
    assert_eq!(announced["agents"].as_array().unwrap().len(), 3, "{announced}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_mistake_of_a_file_is_told_and_the_code_is_78() {
    let folder = directory("mistakes");
    let file = folder.join("nuncio.toml");
    fs::write(&file, "lisen = \"x\"\n[agents.a]\nurl = \"http://127.0.0.1:1\"\nmode = \"prxy\"\n").unwrap();
    let checked = cli(&["check", path(&file)]).await;
    assert_eq!(checked.code, Some(78), "{checked:?}");
    for words in [
        "nuncio.toml:1:1: lisen: there is no such key; did you mean listen?\n",
        "nuncio.toml:4:8: agents.a.mode: expected one of durable, proxy; did you mean proxy?\n",
    ] {
        assert!(checked.stdout.contains(words), "expected {words:?} in {}", checked.stdout);
    }
    let later = "2 problems found; whether the agents can be reached is checked when these are corrected";
    assert!(checked.stderr.contains(later), "{checked:?}");
    // As for `serve`.
    let missing = cli(&["check", "/nonexistent.toml"]).await;
    assert_eq!(missing.code, Some(2), "{missing:?}");
    assert!(missing.stdout.contains("/nonexistent.toml: cannot be read"), "{missing:?}");
    let served = cli(&["serve", "--config", path(&file)]).await;
    assert_eq!(served.code, Some(78), "{served:?}");
    assert!(served.stderr.contains("did you mean listen?"), "{served:?}");
    // Nobody listens there.
    fs::write(&file, "[agents.a]\nurl = \"http://127.0.0.1:1\"\n").unwrap();
    let checked = cli(&["check", path(&file), "-o", "json"]).await;
    assert_eq!(checked.code, Some(78), "{checked:?}");
    let found = json(&checked);
    assert_eq!(found["problems"][0]["key"], "agents.a.url", "{found}");
    assert_eq!((&found["problems"][0]["line"], &found["ok"]), (&2.into(), &false.into()), "{found}");
    assert_eq!(cli(&["check", path(&file), "--offline"]).await.code, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_in_force_says_where_it_comes_from() {
    let folder = directory("origins");
    let file = folder.join("nuncio.toml");
    fs::write(
        &file,
        "demo = true\nlisten = \"127.0.0.1:1\"\ndrain_seconds = 3\n[data]\nstore = \"memory\"\n",
    )
    .unwrap();
    let args = ["config", "show", "--origin", "--config", path(&file), "--listen", "127.0.0.1:9"];
    let variables = [("NUNCIO_DATA", "postgres://me:s3cret@db.example/tasks"), ("NUNCIO_KEY_FILE", "/k")];
    let shown = cli_with_env(&args, &variables).await;
    assert_eq!(shown.code, Some(0), "{shown:?}");
    for line in [
        "listen = \"127.0.0.1:9\"  # flag --listen\n".to_owned(),
        format!("drain_seconds = 3  # {}:3\n", path(&file)),
        "store = \"postgres://db.example/tasks\"  # env NUNCIO_DATA\n".to_owned(),
        "listen = \"off\"  # env NUNCIO_ADMIN_LISTEN\n".to_owned(),
        "give_up_hours = 24  # default\n".to_owned(),
    ] {
        assert!(shown.stdout.contains(&line), "expected {line:?} in {}", shown.stdout);
    }
    assert!(!shown.stdout.contains("s3cret"), "{}", shown.stdout);
    let shown = json(&cli_with_env(&[&args[..], &["-o", "json"]].concat(), &variables).await);
    assert_eq!(shown["config"]["listen"], "127.0.0.1:9");
    assert_eq!(shown["origins"]["listen"], "flag --listen");
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_on_the_command_line_are_checked_before_anything_is_served() {
    for (args, words) in [
        (&["--agent", "billing"][..], "NAME=SPEC"),
        (&["--agent", "Billing=https://x"], "is not a valid name of an agent"),
        (&["--agent", "a=openai:http://x/v1"], "the name of the model is missing"),
        (&["--agent", "a=mistral:http://x/v1#llama3"], "--agent a: unknown kind of agent"),
        (&["--agent", "a=ftp://x"], "unknown kind of agent"),
        (&["--agent", "echo=https://x", "--demo"], "the demo has an agent of this name"),
        (&["--agent", "a=cmd:"], "error: --agent a: expected a program and its arguments"),
        (&["--config", "none.toml"], "none.toml: cannot be read"),
    ] {
        let output = cli(&[&["serve"], args].concat()).await;
        assert_eq!(output.code, Some(2), "{args:?}: {output:?}");
        assert!(output.stderr.contains(words), "{args:?}: expected {words:?} in {}", output.stderr);
    }
    let output = cli(&["serve", "--agent", "x=foo"]).await;
    assert!(output.stderr.contains("--agent x: expected http://… or https://…"), "{output:?}");
    assert!(output.stderr.contains("Usage: nuncio serve [OPTIONS]"), "{output:?}");
}

/// No command shows a secret of an invalid file: neither check, show, start nor reload.
#[tokio::test(flavor = "multi_thread")]
async fn no_output_holds_a_secret_of_the_file() {
    let folder = directory("planted");
    let (file, token) = (folder.join("nuncio.toml"), folder.join("hub.token"));
    let right = "[agents.a]\ndemo = \"echo\"\n";
    fs::write(&file, right).unwrap();
    let args = ["--config", path(&file), "--admin", "127.0.0.1:0", "--admin-token-file", path(&token)];
    let hub = Hub::of_agents("127.0.0.1:0", &args).await;
    let admin = format!("http://{}", text(&hub.announced["admin"]["listen"]));
    let variables = [("NUNCIO_ADMIN", &*admin), ("NUNCIO_ADMIN_TOKEN_FILE", path(&token))];
    // Port 1 of loopback: nothing listens there.
    for (planted, is_wrong) in [
        ("[agents.b]\nurl = \"https://b\"\nauth = { user = \"me\", passwrod = \"s3cret\" }", true),
        ("[agents.b.auth]\nbaerer = \"s3cret\" # s3cret", true),
        ("[agents.b.auth]\nbearer = [\"s3cret\"]", true),
        ("[agents.b.auth]\nbearer = s3cret", true),
        ("[data]\npassword = \"s3cret\"", true),
        ("[agents.b]\ncommand = \"KEY=s3cret ./agent\"", true),
        ("[agents.b]\nurl = \"https://me:s3cret@b\"", true),
        ("[agents.b]\nurl = \"http://127.0.0.1:1/x?key=s3cret\"", false),
        ("[agents.b]\nurl = \"http://127.0.0.1:1\"\ncard = \"http://127.0.0.1:1/?key=s3cret\"", false),
    ] {
        fs::write(&file, format!("{right}{planted}\n")).unwrap();
        let config = ["--config", path(&file)];
        let mut outputs = Vec::new();
        for args in [
            &["check", path(&file)][..],
            &["check", path(&file), "-o", "json"],
            &[&["config", "show", "--origin"], &config[..]].concat(),
            &[&["config", "show", "-o", "json"], &config[..]].concat(),
            &["config", "reload"],
            &["agent", "list", "-o", "json"],
        ] {
            let output = cli_with_env(args, &variables).await;
            outputs.push(format!("{args:?}: {}{}", output.stdout, output.stderr));
        }
        if is_wrong {
            let serve = [&["serve", "--listen", "127.0.0.1:0"], &config[..]].concat();
            outputs.push(format!("serve: {}", cli(&serve).await.stderr));
        }
        for output in outputs.iter().chain([&hub.process.stderr()]) {
            assert!(!output.contains("s3cret"), "{planted}\n-- {output}");
        }
    }
    // What the log says of the agent that does not answer is in it by now or never.
    hub.process.says("the agent cannot be reached").await;
    assert!(!hub.process.stderr().contains("s3cret"), "{}", hub.process.stderr());
}

#[tokio::test(flavor = "multi_thread")]
async fn fmt_writes_files_in_the_usual_layout() {
    let folder = directory("fmt");
    let (file, other) = (folder.join("nuncio.toml"), folder.join("agents.toml"));
    let (written, formatted) =
        ("demo=true\n[agents.a]\nurl='x' # why\n", "demo = true\n\n[agents.a]\nurl = 'x'  # why\n");
    fs::write(&file, written).unwrap();
    fs::write(&other, formatted).unwrap();
    let checked = cli(&["config", "fmt", "--check", path(&file), path(&other)]).await;
    assert_eq!((checked.code, checked.stdout.trim_end()), (Some(1), path(&file)), "{checked:?}");
    assert_eq!(fs::read_to_string(&file).unwrap(), written, "it only looks");
    let done = cli(&["config", "fmt", path(&file), path(&other)]).await;
    assert_eq!((done.code, done.stdout.trim_end()), (Some(0), path(&file)), "{done:?}");
    assert_eq!(fs::read_to_string(&file).unwrap(), formatted);
    let again = json(&cli(&["config", "fmt", "--check", path(&file), "-o", "json"]).await);
    assert_eq!((text(&again["file"]), &again["changed"]), (path(&file), &false.into()));
    assert_eq!(cli_with_stdin(&["config", "fmt", "-"], written).await.stdout, formatted);

    fs::write(&file, "demo = \n").unwrap();
    let wrong = cli(&["config", "fmt", path(&file)]).await;
    assert!(wrong.code == Some(78) && wrong.stderr.contains("nuncio.toml:1:"), "{wrong:?}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "demo = \n");
    let missing = cli(&["config", "fmt", "no/file"]).await;
    assert!(missing.code == Some(2) && missing.stderr.contains("cannot read no/file"), "{missing:?}");
}
