//! What callers write for people to read: reasons and references.

use crate::operations::FieldError;

/// The longest of them, in characters.
const CHARACTERS_MAX: usize = 500;

/// What is wrong with a remark that has at least so many characters.
pub(super) fn fault(pointer: &str, text: &str, least: usize) -> Option<FieldError> {
    let fits = (least..=CHARACTERS_MAX).contains(&text.chars().count());
    let message = format!(
        "must be {least} to {CHARACTERS_MAX} characters without control characters, also of direction"
    );
    (!fits || text.chars().any(is_control)).then(|| FieldError::new(pointer, message))
}

/// Whether a character does something to the text around it: a control character, or one of Unicode's `Bidi_Control`,
/// which set the direction of writing. After one of those, the digits of an amount may be shown in another order.
fn is_control(character: char) -> bool {
    let sets_direction = matches!(
        character,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    character.is_control() || sets_direction
}
