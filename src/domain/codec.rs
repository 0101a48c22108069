//! The little-endian binary form shared by scripts, records and events: Lua's `struct` with `<` and no padding.

use bytes::Buf;

/// A packed value that cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("packed bytes do not decode: {0}")]
pub struct Undecodable(pub &'static str);

/// Reads packed values from the start of a byte slice.
pub struct Reader<'a> {
    rest: &'a [u8],
    length: usize,
}

impl<'a> Reader<'a> {
    /// Starts with the first of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, length: bytes.len() }
    }

    /// How many bytes have been read.
    pub fn position(&self) -> usize {
        self.length - self.rest.len()
    }

    /// The bytes not read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// One byte (`B`).
    pub fn u8(&mut self) -> Result<u8, Undecodable> {
        self.rest.try_get_u8().map_err(|_| Undecodable("too short"))
    }

    /// Two bytes (`I2`).
    pub fn u16(&mut self) -> Result<u16, Undecodable> {
        self.rest.try_get_u16_le().map_err(|_| Undecodable("too short"))
    }

    /// Four bytes (`I4`).
    pub fn u32(&mut self) -> Result<u32, Undecodable> {
        self.rest.try_get_u32_le().map_err(|_| Undecodable("too short"))
    }

    /// Eight bytes, signed (`i8`).
    pub fn i64(&mut self) -> Result<i64, Undecodable> {
        self.rest.try_get_i64_le().map_err(|_| Undecodable("too short"))
    }

    /// Eight bytes that must not be negative (`i8`).
    pub fn u64(&mut self) -> Result<u64, Undecodable> {
        u64::try_from(self.i64()?).map_err(|_| Undecodable("negative where only zero and above make sense"))
    }

    /// The next `count` bytes.
    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8], Undecodable> {
        let (head, rest) = self.rest.split_at_checked(count).ok_or(Undecodable("too short"))?;
        self.rest = rest;
        Ok(head)
    }

    /// The next N bytes as an array.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Undecodable> {
        self.bytes(N)?.try_into().map_err(|_| Undecodable("too short"))
    }

    /// A text of up to 255 bytes after its length (`Bc0`).
    pub fn text(&mut self) -> Result<&'a str, Undecodable> {
        let length = usize::from(self.u8()?);
        std::str::from_utf8(self.bytes(length)?).map_err(|_| Undecodable("text is not UTF-8"))
    }
}

/// Writes packed values to the end of a byte vector.
pub trait Write {
    /// One byte (`B`).
    fn put_byte(&mut self, value: u8);
    /// Two bytes (`I2`).
    fn put_2(&mut self, value: u16);
    /// Four bytes (`I4`).
    fn put_4(&mut self, value: u32);
    /// Eight bytes, signed (`i8`).
    fn put_8(&mut self, value: i64);
    /// A text of at most 255 bytes after its length (`Bc0`); a longer one is cut, so callers bound it first.
    fn put_text(&mut self, text: &str);
}

impl Write for Vec<u8> {
    fn put_byte(&mut self, value: u8) {
        self.push(value);
    }
    fn put_2(&mut self, value: u16) {
        self.extend_from_slice(&value.to_le_bytes());
    }
    fn put_4(&mut self, value: u32) {
        self.extend_from_slice(&value.to_le_bytes());
    }
    fn put_8(&mut self, value: i64) {
        self.extend_from_slice(&value.to_le_bytes());
    }
    fn put_text(&mut self, text: &str) {
        let length = u8::try_from(text.len()).unwrap_or(u8::MAX);
        self.push(length);
        self.extend_from_slice(&text.as_bytes()[..usize::from(length)]);
    }
}
