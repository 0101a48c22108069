use std::collections::VecDeque;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt;
use futures::future::BoxFuture;
use rstest::rstest;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};

use super::*;

/// Answers each look-up with the next list, and the last one from then on.
struct Answers(Mutex<VecDeque<Vec<IpAddr>>>, AtomicUsize);

impl Answers {
    fn of(lists: &[&[&str]]) -> Arc<Self> {
        let list = |list: &&[&str]| list.iter().map(|text| text.parse().unwrap()).collect();
        Arc::new(Self(Mutex::new(lists.iter().map(list).collect()), AtomicUsize::new(0)))
    }
}

impl Resolve for Answers {
    fn resolve<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        self.1.fetch_add(1, Ordering::Relaxed);
        let mut lists = self.0.lock().unwrap();
        let next = if lists.len() > 1 { lists.pop_front() } else { lists.front().cloned() };
        async move { next.ok_or_else(|| io::Error::other("no such name")) }.boxed()
    }
}

fn outbound(allowed: &[&str]) -> Outbound {
    let allowed_networks = allowed.iter().map(|text| text.parse().unwrap()).collect();
    Outbound::new(OutboundOptions { allowed_networks, timeout: Duration::from_secs(5) })
}

fn url(text: impl AsRef<str>) -> WebhookUrl {
    WebhookUrl::parse(text.as_ref()).unwrap()
}

fn call() -> Call {
    Call { headers: vec![("webhook-id", "one".to_owned())], body: "{}".to_owned() }
}

/// A server on the loopback that answers every connection with these bytes, and what it has received.
async fn server(answer: &'static str) -> (u16, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (port, received) = (listener.local_addr().unwrap().port(), Arc::<Mutex<Vec<String>>>::default());
    let seen = received.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let text = request_of(&mut stream).await;
            seen.lock().unwrap().push(text);
            // The caller may have hung up.
            let _ = stream.write_all(answer.as_bytes()).await;
            // An endless answer goes on until then.
            while answer.ends_with("a: b\r\n") && stream.write_all(answer.as_bytes()).await.is_ok() {}
        }
    });
    (port, received)
}

async fn request_of(stream: &mut (impl AsyncReadExt + Unpin)) -> String {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"{}") {
        if stream.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
            break;
        }
    }
    String::from_utf8(bytes).unwrap()
}

const ACCEPTED: &str = "HTTP/1.1 204 No Content\r\n\r\n";

#[tokio::test]
async fn a_name_that_turns_private_is_refused_and_each_call_looks_it_up_once() {
    let (port, received) = server(ACCEPTED).await;
    let answers = Answers::of(&[&["127.0.0.1"], &["10.0.0.1"], &["8.8.8.8", "::ffff:127.0.0.1"]]);
    let outbound = outbound(&["127.0.0.1/32"]).resolving(answers.clone());
    let receiver = url(format!("http://receiver.test:{port}/hooks?a=1"));
    assert_eq!(outbound.post(&receiver, call()).await, Ok(204));
    let private = NoAnswer::NotAllowed("10.0.0.1".parse().unwrap());
    assert_eq!(outbound.post(&receiver, call()).await, Err(private));
    // One that may be reached does not excuse another.
    let secure = url(format!("https://receiver.test:{port}/"));
    let mapped = NoAnswer::NotAllowed("::ffff:127.0.0.1".parse().unwrap());
    assert_eq!(outbound.post(&secure, call()).await, Err(mapped));
    assert_eq!(answers.1.load(Ordering::Relaxed), 3);
    let received = received.lock().unwrap();
    assert_eq!(received.len(), 1);
    let text = received[0].to_lowercase();
    assert!(text.starts_with("post /hooks?a=1 http/1.1\r\n"), "{text}");
    for header in
        [&*format!("host: receiver.test:{port}"), "webhook-id: one", "content-length: 2", "connection: close"]
    {
        assert!(text.contains(&format!("\r\n{header}\r\n")), "{header} in {text}");
    }
}

#[rstest]
#[case("https://127.0.0.1/")]
#[case("https://[::1]/")]
#[case("https://169.254.169.254/latest/meta-data")]
#[case("https://0x0a.1/")]
#[case("https://[fd00::1]/")]
#[case("https://[64:ff9b::a00:1]/")]
#[case("https://[2002:a00:1::]/")]
#[tokio::test]
async fn a_private_address_is_refused_before_and_at_the_call(#[case] text: &str) {
    let refused = |found| matches!(found, Err(NoAnswer::NotAllowed(_)));
    assert!(refused(outbound(&[]).check(&url(text))));
    assert!(refused(outbound(&["192.168.0.0/16"]).post(&url(text), call()).await.map(drop)));
    assert_eq!(outbound(&["0.0.0.0/1", "128.0.0.0/1", "::/1", "8000::/1"]).check(&url(text)), Ok(()));
}

#[tokio::test]
async fn plain_http_goes_to_allowed_networks_only() {
    let public = Answers::of(&[&["8.8.8.8"]]);
    let outbound_of = |allowed: &[&str]| outbound(allowed).resolving(public.clone());
    assert_eq!(outbound_of(&[]).check(&url("http://receiver.test/")), Err(NoAnswer::NotSecure));
    assert_eq!(outbound_of(&[]).check(&url("http://8.8.8.8/")), Err(NoAnswer::NotSecure));
    let somewhere = outbound_of(&["10.0.0.0/8"]);
    assert_eq!(somewhere.check(&url("http://receiver.test/")), Ok(()), "its addresses may be among them");
    assert_eq!(somewhere.post(&url("http://receiver.test/"), call()).await, Err(NoAnswer::NotSecure));
}

#[tokio::test]
async fn a_redirect_is_an_answer_and_leads_nowhere() {
    let (port, received) =
        server("HTTP/1.1 307 Temporary Redirect\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n").await;
    assert_eq!(
        outbound(&["127.0.0.0/8"]).post(&url(format!("http://127.0.0.1:{port}/")), call()).await,
        Ok(307)
    );
    assert_eq!(received.lock().unwrap().len(), 1);
}

#[rstest]
#[case::a_body_that_never_ends("HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\nx", true)]
#[case::a_head_that_never_ends("HTTP/1.1 200 OK\r\na: b\r\n", false)]
#[case::no_http("220 mail.test ESMTP\r\n", false)]
#[tokio::test]
async fn of_an_answer_only_a_bounded_head_is_read(#[case] answer: &'static str, #[case] is_answered: bool) {
    let (port, _) = server(answer).await;
    let answered = outbound(&["127.0.0.0/8"]).post(&url(format!("http://127.0.0.1:{port}/")), call()).await;
    assert_eq!(answered.is_ok(), is_answered, "{answered:?}");
    assert!(!matches!(answered, Err(NoAnswer::Late(_))), "{answered:?}");
}

#[tokio::test]
async fn a_server_that_says_nothing_or_is_not_there_costs_no_more_than_the_timeout() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = silent.local_addr().unwrap().port();
    let options =
        OutboundOptions { timeout: Duration::from_millis(100), ..outbound(&["127.0.0.0/8"]).options };
    let impatient = Outbound::new(options);
    assert_eq!(
        impatient.post(&url(format!("http://127.0.0.1:{port}/")), call()).await,
        Err(NoAnswer::Late(100))
    );
    drop(silent);
    let gone = impatient.post(&url(format!("http://127.0.0.1:{port}/")), call()).await;
    assert!(matches!(gone, Err(NoAnswer::Disconnected(_))), "{gone:?}");
    let unknown = impatient.resolving(Answers::of(&[])).post(&url("https://receiver.test/"), call()).await;
    assert_eq!(unknown, Err(NoAnswer::Unresolved("no such name".to_owned())));
}

#[tokio::test]
async fn an_address_that_never_answers_leaves_time_for_the_next_one() {
    let (port, received) = server(ACCEPTED).await;
    // Whose queue is full, a listener drops further attempts to connect without a word.
    let full = TcpSocket::new_v4().unwrap();
    full.bind(format!("127.0.0.2:{port}").parse().unwrap()).unwrap();
    let full = full.listen(0).unwrap();
    let queued = TcpStream::connect(full.local_addr().unwrap()).await.unwrap();
    let options = OutboundOptions { timeout: Duration::from_secs(2), ..outbound(&["127.0.0.0/8"]).options };
    let outbound = Outbound::new(options).resolving(Answers::of(&[&["127.0.0.2", "127.0.0.1"]]));
    assert_eq!(outbound.post(&url(format!("http://receiver.test:{port}/")), call()).await, Ok(204));
    assert_eq!(received.lock().unwrap().len(), 1);
    drop((queued, full));
}

/// A server with a certificate for `receiver.test`, and the authority that gave it. Both are good for a hundred years.
async fn secure_server() -> (u16, RootCertStore) {
    let certificate = CertificateDer::from(include_bytes!("tests/receiver.der").as_slice());
    let key = PrivatePkcs8KeyDer::from(include_bytes!("tests/receiver.key.der").as_slice());
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key.into())
        .unwrap();
    let mut authorities = RootCertStore::empty();
    authorities.add(CertificateDer::from(include_bytes!("tests/authority.der").as_slice())).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (port, acceptor) = (listener.local_addr().unwrap().port(), TlsAcceptor::from(Arc::new(config)));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            request_of(&mut stream).await;
            stream.write_all(ACCEPTED.as_bytes()).await.unwrap();
            // The caller may have hung up.
            let _ = stream.shutdown().await;
        }
    });
    (port, authorities)
}

#[tokio::test]
async fn https_reaches_a_server_that_proves_its_name_and_no_other() {
    let (port, authorities) = secure_server().await;
    let here = || outbound(&["127.0.0.0/8"]).resolving(Answers::of(&[&["127.0.0.1"]]));
    let trusting = here().trusting(authorities);
    assert_eq!(trusting.post(&url(format!("https://receiver.test:{port}/")), call()).await, Ok(204));
    for (outbound, name) in [(&trusting, "other.test"), (&trusting, "127.0.0.1"), (&here(), "receiver.test")]
    {
        let refused = outbound.post(&url(format!("https://{name}:{port}/")), call()).await;
        assert!(
            matches!(refused, Err(NoAnswer::Disconnected(_) | NoAnswer::Unmade(_))),
            "{name}: {refused:?}"
        );
    }
}
