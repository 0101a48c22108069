//! One table, three formats.

use tollgate::cli::{Format, Section, Table};

fn usage() -> Table {
    let mut table = Table::new(&["meter", ">used up", "note"]);
    table.row(["ocr.page", "7", "a, \"b\""]);
    table.row(["llm.input_token", "18059974", ""]);
    table
}

#[test]
fn columns_line_up_and_numbers_stand_to_the_right() {
    let expected = "\
meter             used up  note
----------------------------------
ocr.page                7  a, \"b\"
llm.input_token  18059974
";
    let text = usage().render(Format::Table).unwrap();
    let trimmed: String = text.lines().map(|line| format!("{}\n", line.trim_end())).collect();
    assert_eq!(trimmed, expected);
}

#[test]
fn scripts_get_json_and_csv() {
    let json: serde_json::Value = serde_json::from_str(&usage().render(Format::Json).unwrap()).unwrap();
    assert_eq!(json[1], serde_json::json!({ "meter": "llm.input_token", "used_up": "18059974", "note": "" }));
    let csv = usage().render(Format::Csv).unwrap();
    assert_eq!(csv, "meter,used_up,note\nocr.page,7,\"a, \"\"b\"\"\"\nllm.input_token,18059974,\n");
}

#[test]
fn several_tables_are_one_json_object() {
    let sections =
        [Section { name: "first", table: usage() }, Section { name: "second", table: Table::new(&["a"]) }];
    let json: serde_json::Value =
        serde_json::from_str(&Section::render(&sections, Format::Json).unwrap()).unwrap();
    assert_eq!(json["first"].as_array().unwrap().len(), 2);
    assert_eq!(json["second"], serde_json::json!([]));
    let csv = Section::render(&sections, Format::Csv).unwrap();
    assert!(csv.ends_with("\n\na\n"), "{csv:?}");
}
