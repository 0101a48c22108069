//! One table, three formats.

use tollgate::cli::{Format, Section, Table};

fn usage() -> Table {
    let mut table = Table::new(&["meter", "=used up", ">jobs", "note"]);
    table.row(["ocr.page", "7", "1", "a, \"b\""]);
    table.row(["llm.input_token", "18059974", "20", ""]);
    table
}

#[test]
fn columns_line_up_and_numbers_stand_to_the_right() {
    let expected = "\
meter             used up  jobs  note
----------------------------------------
ocr.page                7     1  a, \"b\"
llm.input_token  18059974    20
";
    let text = usage().render(Format::Table).unwrap();
    let trimmed: String = text.lines().map(|line| format!("{}\n", line.trim_end())).collect();
    assert_eq!(trimmed, expected);
}

#[test]
fn scripts_get_json_and_csv() {
    let json: serde_json::Value = serde_json::from_str(&usage().render(Format::Json).unwrap()).unwrap();
    assert_eq!(
        json[1],
        serde_json::json!({ "meter": "llm.input_token", "used_up": "18059974", "jobs": 20, "note": "" })
    );
    let csv = usage().render(Format::Csv).unwrap();
    assert_eq!(csv, "meter,used_up,jobs,note\nocr.page,7,1,\"a, \"\"b\"\"\"\nllm.input_token,18059974,20,\n");
}

#[test]
fn numbers_are_numbers_in_json_and_amounts_keep_every_digit() {
    let mut table = Table::new(&[">seconds", "=units", "~value", "?line"]);
    table.row(["12.345", "123456789012.000001", "900", "7"]);
    table.row(["0", "7", "everysec", ""]);
    let json: serde_json::Value = serde_json::from_str(&table.render(Format::Json).unwrap()).unwrap();
    let expected = serde_json::json!([
        { "seconds": 12.345, "units": "123456789012.000001", "value": 900, "line": 7 },
        { "seconds": 0, "units": "7", "value": "everysec", "line": null },
    ]);
    assert_eq!(json, expected);
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
