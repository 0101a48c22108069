//! The recipes: each one's policy is accepted, and each one's calls are answered as it says.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::run;
use crate::support::app::*;
use crate::support::process::tollgate;

/// A recipe with a policy: its title, its policy, its calls and what they answer.
struct Recipe {
    title: String,
    policy: String,
    calls: String,
    answers: Vec<String>,
}

fn document() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/RECIPES.md")).unwrap()
}

/// The first block of this language in the text, and what comes after it.
fn block<'a>(text: &'a str, language: &str) -> Option<(&'a str, &'a str)> {
    let (_, from) = text.split_once(&format!("```{language}\n"))?;
    from.split_once("```\n")
}

fn recipes(document: &str) -> Vec<Recipe> {
    let sections = document.split("\n## ").skip(1);
    let recipe = |section: &str| {
        let (policy, after) = block(section, "toml")?;
        let (calls, after) = block(after, "sh").expect("the calls");
        let (answers, _) = block(after, "").expect("the answers");
        Some(Recipe {
            title: section.lines().next().expect("a title").to_owned(),
            policy: policy.to_owned(),
            calls: calls.to_owned(),
            answers: answers.lines().map(str::to_owned).collect(),
        })
    };
    sections.filter_map(recipe).collect()
}

/// Whether an answer has the parts that are shown, in their order, from its beginning to its end; a `…` at the end
/// leaves out what follows.
fn is_shown(shown: &str, answer: &str) -> bool {
    let mut parts = shown.split('…');
    let Some(mut left) = parts.next().and_then(|first| answer.strip_prefix(first)) else { return false };
    for part in parts {
        match left.find(part) {
            Some(at) => left = &left[at + part.len()..],
            None => return false,
        }
    }
    left.is_empty() || shown.ends_with('…')
}

#[test]
fn what_is_shown_of_an_answer_is_all_of_it_but_what_is_left_out() {
    assert!(is_shown(r#"{"a":1,…"c":3}"#, r#"{"a":1,"b":2,"c":3}"#));
    assert!(is_shown(r#"{…"b":2,…"#, r#"{"a":1,"b":2,"c":3}"#));
    for wrong in [r#"{"b":2,…"#, r#"{…"c":3…"b":2…"#, r#"{"a":1,…"b":2"#] {
        assert!(!is_shown(wrong, r#"{"a":1,"b":2,"c":3}"#), "{wrong}");
    }
}

#[test]
fn the_table_of_recipes_leads_to_each_of_them() {
    let document = document();
    for Recipe { title, .. } in recipes(&document) {
        let words = title.to_lowercase().replace([':', ','], "");
        let anchor = format!("(#{})", words.replace(' ', "-"));
        assert!(document.contains(&anchor), "{anchor}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_recipe_is_answered_as_it_says() {
    let app = an_app().at("2026-03-10T12:00:00Z").without_jobs().start().await;
    let document = document();
    let (beginning, _) = block(&document, "sh").unwrap();
    let beginning = beginning.replace("http://127.0.0.1:8080", app.url());
    let (url, key) = (app.url().to_owned(), app.key().to_owned());
    let recipes = recipes(&document);
    assert!(recipes.len() >= 7, "{}", recipes.len());
    tokio::task::spawn_blocking(move || {
        for recipe in recipes {
            recipe.is_answered(&beginning, &url, &key);
        }
    })
    .await
    .unwrap();
    app.finish().await;
}

impl Recipe {
    fn is_answered(&self, beginning: &str, url: &str, key: &str) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("recipe.toml");
        fs::write(&path, &self.policy).unwrap();
        let mut apply = tollgate(&["policy", "apply", path.to_str().unwrap(), "--yes", "--url", url]);
        let (code, _, error) = run(apply.env("TOLLGATE_ADMIN_KEY", key));
        assert_eq!(code, 0, "{}: {error}", self.title);
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{beginning}{}", self.calls)]).env_clear();
        shell.env("PATH", "/usr/local/bin:/usr/bin:/bin").env("TOLLGATE_ADMIN_KEY", key);
        let (_, out, error) = run(&mut shell);
        let answers: Vec<&str> = out.lines().collect();
        assert_eq!(answers.len(), self.answers.len(), "{}: {out}{error}", self.title);
        for (shown, answer) in self.answers.iter().zip(answers) {
            assert!(is_shown(shown, answer), "{}:\n{shown}\nis not\n{answer}", self.title);
        }
    }
}
