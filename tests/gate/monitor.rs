//! Every command that reaches a server, to the byte.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;

use super::server::Server;

/// The commands that a server runs from now on.
pub struct Monitor(BufReader<UnixStream>);

impl Monitor {
    /// Of this server.
    pub fn of(server: &Server) -> Self {
        let mut stream = UnixStream::connect(server.socket()).unwrap();
        stream.write_all(b"MONITOR\r\n").unwrap();
        let mut monitor = Self(BufReader::new(stream));
        assert_eq!(monitor.line(), "+OK");
        monitor
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// The commands of clients, as their words, that have arrived before one with this mark.
    pub fn until(&mut self, mark: &str) -> Vec<Vec<Vec<u8>>> {
        let lines = std::iter::from_fn(|| Some(self.line())).take_while(|line| !line.contains(mark));
        lines.filter(|line| !line.contains(" lua] ")).map(|line| words(&line)).collect()
    }
}

/// The words between double quotes, without their escapes.
fn words(line: &str) -> Vec<Vec<u8>> {
    let (mut words, mut word) = (Vec::new(), None::<Vec<u8>>);
    let mut bytes = line.bytes();
    while let Some(byte) = bytes.next() {
        match (&mut word, byte) {
            (None, b'"') => word = Some(Vec::new()),
            (Some(_), b'"') => words.extend(word.take()),
            (Some(word), b'\\') => word.push(match bytes.next().unwrap() {
                b'n' => b'\n',
                b'r' => b'\r',
                b't' => b'\t',
                b'a' => 7,
                b'b' => 8,
                b'x' => {
                    let mut digit = || char::from(bytes.next().unwrap()).to_digit(16).unwrap();
                    u8::try_from(digit() * 16 + digit()).unwrap()
                }
                other => other,
            }),
            (Some(word), _) => word.push(byte),
            (None, _) => {}
        }
    }
    words
}
