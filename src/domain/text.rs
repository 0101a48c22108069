//! Texts for people.

/// Whether a character does something to the text around it: a control character, or one of Unicode's `Bidi_Control`,
/// which set the direction of writing. After one of those, the digits of an amount may be shown in another order.
pub fn is_control(character: char) -> bool {
    let sets_direction = matches!(
        character,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    character.is_control() || sets_direction
}
