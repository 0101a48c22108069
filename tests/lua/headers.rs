use tollgate::gate::scripts::Script;

/// How many keys and arguments a script states and how many it reads at fixed places.
fn highest(text: &str, name: &str) -> usize {
    let open = format!("{name}[");
    let number = |at: usize| text[at + open.len()..].split(']').next().unwrap().parse().ok();
    text.match_indices(&open).filter_map(|(at, _)| number(at)).max().unwrap_or(0)
}

/// The last number that a header line of this name states; its following lines belong to it.
fn stated(text: &str, name: &str) -> usize {
    let mut lines = text.lines().skip_while(|line| !line.starts_with(&format!("-- {name} ")));
    let first = lines.next().unwrap();
    let more = lines.take_while(|line| line.starts_with("--          "));
    let words = std::iter::once(first).chain(more).flat_map(|line| line.split("  "));
    words
        .filter_map(|word| word.trim_start().split(['.', ' ']).next()?.parse::<usize>().ok())
        .max()
        .unwrap_or(0)
}

#[test]
fn every_key_and_argument_a_script_reads_is_stated_in_its_header() {
    for script in Script::ALL {
        let text = script.text("run").unwrap();
        for name in ["KEYS", "ARGV"] {
            let (read, states) = (highest(&text, name), stated(&text, name));
            assert!(read <= states, "{}: reads {name}[{read}], states {states}", script.name());
        }
    }
}
