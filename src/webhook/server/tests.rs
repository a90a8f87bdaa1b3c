//! The server over real TLS on the loopback, with a handler that does what a test asks for.

use std::convert::Infallible;
use std::error::Error as _;
use std::net::SocketAddr;

use axum::body::Body;
use axum::http::{Method, Request, StatusCode, header};
use axum::response::IntoResponse;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use http_body_util::BodyExt;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use jiff::Timestamp;
use rstest::rstest;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::*;
use crate::tls::authority::Authority;
use crate::tls::resolver::Resolver;
use crate::tls::{self, provider};

type Answer = BoxFuture<'static, Response>;

/// A handler that is a function.
struct Does<F>(F);

impl<F: Fn(Bytes, Instant) -> Answer + Send + Sync + 'static> Handler for Does<F> {
    fn review(&self, body: Bytes, deadline: Instant) -> impl Future<Output = Response> + Send {
        (self.0)(body, deadline)
    }
}

fn echo(body: Bytes, _: Instant) -> Answer {
    async move { body.into_response() }.boxed()
}

/// Begins, says so, and answers when it is let go.
#[derive(Clone, Default)]
struct Gate {
    begun: Arc<Notify>,
    go: Arc<Notify>,
}

impl Gate {
    fn handler(&self) -> impl Fn(Bytes, Instant) -> Answer + Send + Sync + 'static + use<> {
        let gate = self.clone();
        move |_, _| {
            let gate = gate.clone();
            async move {
                gate.begun.notify_one();
                gate.go.notified().await;
                "done".into_response()
            }
            .boxed()
        }
    }
}

/// A running server and what a test needs to reach it.
struct Running {
    address: SocketAddr,
    authority: Authority,
    resolver: Arc<Resolver>,
    health: Health,
    metrics: Metrics,
    stop: CancellationToken,
    task: JoinHandle<Result<(), Error>>,
}

fn localhost() -> [ServerName<'static>; 1] {
    [ServerName::from(std::net::Ipv4Addr::LOCALHOST)]
}

/// What a test wants to be otherwise.
#[derive(Default)]
struct Setup {
    limits: Limits,
    client_roots: Option<RootCertStore>,
    drain: Duration,
}

impl From<Limits> for Setup {
    fn from(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }
}

fn start<F>(setup: impl Into<Setup>, handler: F) -> Running
where
    F: Fn(Bytes, Instant) -> Answer + Send + Sync + 'static,
{
    let Setup { limits, client_roots, drain } = setup.into();
    let authority = Authority::generate(Timestamp::now()).unwrap();
    let leaf = authority.issue(&localhost(), Timestamp::now()).unwrap();
    let resolver = Arc::new(Resolver::new(leaf.certified));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (health, metrics, stop) = (Health::default(), Metrics::new(), CancellationToken::new());
    let server = Server {
        tls: Arc::new(tls::server_config(resolver.clone(), client_roots).unwrap()),
        handler: Arc::new(Does(handler)),
        limits,
        drain,
        health: health.clone(),
        metrics: metrics.clone(),
    };
    let task = tokio::spawn(server.run(listener, stop.clone()));
    Running { address, authority, resolver, health, metrics, stop, task }
}

#[derive(Clone, Copy, Debug)]
enum Http {
    One,
    Two,
}

type Client = Pool<HttpsConnector<HttpConnector>, Body>;

impl Running {
    fn trust(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.authority.ca_pem().as_bytes()).unwrap()).unwrap();
        Arc::new(roots)
    }

    /// A client with connections of its own.
    fn client(&self, http: Http) -> Client {
        let config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(self.trust())
            .with_no_client_auth();
        pool(config, http)
    }

    fn client_with_certificate(&self, leaf: &tls::Leaf, key: PrivateKeyDer<'static>) -> Client {
        let config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(self.trust())
            .with_client_auth_cert(leaf.certified.cert.clone(), key)
            .unwrap();
        pool(config, Http::Two)
    }

    fn request(&self, path: &str) -> Request<Body> {
        Request::builder()
            .method(Method::POST)
            .uri(format!("https://{}{path}", self.address))
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from("{}"))
            .unwrap()
    }

    /// Posts `{}` to `path` over a connection of its own.
    async fn post(&self, path: &str) -> (StatusCode, String) {
        read(self.client(Http::Two).request(self.request(path)).await.unwrap()).await
    }

    fn counted(&self, line: &str) -> bool {
        self.metrics.encode().unwrap().lines().any(|found| found == line)
    }
}

fn pool(config: ClientConfig, http: Http) -> Client {
    let connector = HttpsConnectorBuilder::new().with_tls_config(config).https_only();
    let connector = match http {
        Http::One => connector.enable_http1().build(),
        Http::Two => connector.enable_http2().build(),
    };
    Pool::builder(TokioExecutor::new()).build(connector)
}

async fn read(response: axum::http::Response<hyper::body::Incoming>) -> (StatusCode, String) {
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

fn limits() -> Limits {
    Limits::default()
}

#[rstest]
#[tokio::test]
async fn a_review_reaches_the_handler_and_its_answer_the_client(#[values(Http::One, Http::Two)] http: Http) {
    let server = start(limits(), echo);
    let response = server.client(http).request(server.request("/mutate?timeout=10s")).await.unwrap();
    assert!(response.headers().get(header::SERVER).is_none());
    assert_eq!(read(response).await, (StatusCode::OK, "{}".to_owned()));
}

#[tokio::test]
async fn the_handler_is_told_a_deadline_within_the_time_granted() {
    let server = start(limits(), |_, deadline| {
        async move { deadline.duration_since(Instant::now()).as_millis().to_string().into_response() }.boxed()
    });
    let left: u128 = server.post("/mutate?timeout=2s").await.1.parse().unwrap();
    assert!((1..=1_800).contains(&left), "{left}");
}

#[tokio::test]
async fn other_paths_and_methods_are_refused_with_a_hint() {
    let server = start(limits(), echo);
    let (status, text) = server.post("/other").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(text.contains(PATH));
    let mut get = server.request(PATH);
    *get.method_mut() = Method::GET;
    let response = server.client(Http::Two).request(get).await.unwrap();
    assert_eq!(response.headers()[header::ALLOW], "POST");
    assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
}

#[rstest]
#[case(Some("application/json"), StatusCode::OK)]
#[case(Some("Application/JSON; charset=utf-8"), StatusCode::OK)]
#[case(Some("application/jsonp"), StatusCode::UNSUPPORTED_MEDIA_TYPE)]
#[case(Some("text/plain"), StatusCode::UNSUPPORTED_MEDIA_TYPE)]
#[case(None, StatusCode::UNSUPPORTED_MEDIA_TYPE)]
#[tokio::test]
async fn only_json_is_read(#[case] content_type: Option<&'static str>, #[case] expected: StatusCode) {
    let server = start(limits(), echo);
    let mut request = server.request(PATH);
    request.headers_mut().remove(header::CONTENT_TYPE);
    if let Some(content_type) = content_type {
        request.headers_mut().insert(header::CONTENT_TYPE, content_type.parse().unwrap());
    }
    let (status, text) = read(server.client(Http::Two).request(request).await.unwrap()).await;
    assert_eq!(status, expected);
    assert!(status.is_success() || text.contains("application/json"));
}

#[rstest]
#[case::announced(Body::from(vec![b' '; 1025]))]
#[case::streamed(Body::from_stream(stream::iter((0..1025).map(|_| Ok::<_, Infallible>(" ")))))]
#[tokio::test]
async fn a_body_over_the_limit_is_refused_announced_or_not(#[case] body: Body) {
    let server = start(Limits { max_body: 1024, ..limits() }, echo);
    let mut request = server.request(PATH);
    *request.body_mut() = body;
    let (status, text) = read(server.client(Http::Two).request(request).await.unwrap()).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    assert!(text.contains("1024") && text.contains("--max-body"), "{text}");
}

#[tokio::test]
async fn a_body_of_just_the_limit_is_read() {
    let server = start(Limits { max_body: 1 << 20, ..limits() }, echo);
    let mut request = server.request(PATH);
    *request.body_mut() = Body::from(vec![b' '; 1 << 20]);
    let (status, text) = read(server.client(Http::Two).request(request).await.unwrap()).await;
    assert_eq!((status, text.len()), (StatusCode::OK, 1 << 20));
}

#[tokio::test]
async fn a_handler_that_does_not_answer_is_answered_for_within_the_time_granted() {
    let server = start(limits(), |_, _| std::future::pending().boxed());
    let start = Instant::now();
    let (status, text) = server.post("/mutate?timeout=1s").await;
    assert_eq!(status, StatusCode::GATEWAY_TIMEOUT);
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    assert!(text.contains("time granted"), "{text}");
    assert!(server.counted(r#"confpin_requests_rejected_total{reason="timeout"} 1"#));
}

#[tokio::test]
async fn a_body_that_does_not_arrive_is_not_waited_for() {
    let server = start(limits(), echo);
    let mut request = server.request("/mutate?timeout=100ms");
    let begin = stream::iter([Ok::<_, Infallible>("{")]);
    *request.body_mut() = Body::from_stream(begin.chain(stream::pending()));
    let (status, _) = read(server.client(Http::Two).request(request).await.unwrap()).await;
    assert_eq!(status, StatusCode::REQUEST_TIMEOUT);
}

#[tokio::test]
async fn a_panic_is_answered_and_the_next_request_is_served() {
    let server = start(limits(), |body, deadline| {
        async move { if body.len() > 2 { panic!("a test's panic") } else { echo(body, deadline).await } }.boxed()
    });
    let client = server.client(Http::Two);
    let mut request = server.request(PATH);
    *request.body_mut() = Body::from("panic");
    let (status, _) = read(client.request(request).await.unwrap()).await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    let (status, _) = read(client.request(server.request(PATH)).await.unwrap()).await;
    assert_eq!(status, StatusCode::OK);
}

#[tokio::test]
async fn a_request_too_many_waits_for_its_turn_and_no_longer_than_it_is_granted() {
    let gate = Gate::default();
    let server = start(Limits { max_concurrent: 1, ..limits() }, gate.handler());
    let client = server.client(Http::Two);
    let first = tokio::spawn(client.request(server.request(PATH)));
    gate.begun.notified().await;
    assert!(server.counted("confpin_requests_in_flight 1"));

    let (status, text) = server.post("/mutate?timeout=100ms").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(text.contains("--max-concurrent"), "{text}");

    let third = tokio::spawn(client.request(server.request(PATH)));
    for request in [first, third] {
        gate.go.notify_one();
        assert_eq!(request.await.unwrap().unwrap().status(), StatusCode::OK);
    }
}

#[tokio::test]
async fn requests_that_wait_do_not_take_the_room_of_those_whose_turn_it_is() {
    let gate = Gate::default();
    let server = start(Limits { max_concurrent: 1, ..limits() }, gate.handler());
    let client = server.client(Http::Two);
    let requests: Vec<_> = (0..32)
        .map(|_| {
            let mut request = server.request("/mutate?timeout=30s");
            *request.body_mut() = Body::from(vec![b' '; 1 << 20]);
            tokio::spawn(client.request(request))
        })
        .collect();
    for _ in 0..requests.len() {
        gate.begun.notified().await;
        gate.go.notify_one();
    }
    for request in requests {
        assert_eq!(request.await.unwrap().unwrap().status(), StatusCode::OK);
    }
}

#[rstest]
#[tokio::test]
async fn the_end_waits_for_requests_in_flight_and_takes_no_new_connection(#[values(Http::One, Http::Two)] http: Http) {
    let gate = Gate::default();
    let server = start(limits(), gate.handler());
    let client = server.client(http);
    let request = tokio::spawn(client.request(server.request(PATH)));
    gate.begun.notified().await;

    server.stop.cancel();
    while tokio::net::TcpStream::connect(server.address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    assert_eq!(server.health.ready().unwrap_err(), ["draining"]);
    assert!(!server.task.is_finished());

    gate.go.notify_one();
    assert_eq!(read(request.await.unwrap().unwrap()).await, (StatusCode::OK, "done".to_owned()));
    server.task.await.unwrap().unwrap();
}

#[tokio::test]
async fn until_endpoints_have_followed_requests_are_still_served() {
    let server = start(Setup { drain: Duration::from_secs(3600), ..Setup::default() }, echo);
    server.stop.cancel();
    while server.health.ready().is_ok() {
        tokio::task::yield_now().await;
    }
    assert_eq!(server.post(PATH).await.0, StatusCode::OK);

    // Who cannot wait aborts; then nothing is left.
    server.task.abort();
    assert!(server.task.await.unwrap_err().is_cancelled());
    tokio::net::TcpStream::connect(server.address).await.unwrap_err();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_is_replaced_under_load() {
    let server = Arc::new(start(limits(), echo));
    let done = CancellationToken::new();
    let load: Vec<_> = (0..2)
        .map(|_| {
            let (server, done) = (server.clone(), done.clone());
            tokio::spawn(async move {
                let mut count = 0_u32;
                while !done.is_cancelled() {
                    // Each has a connection of its own.
                    assert_eq!(server.post(PATH).await.0, StatusCode::OK);
                    count += 1;
                }
                count
            })
        })
        .collect();
    let old = server.client(Http::Two);
    let first = peer_certificate(&server).await;
    assert_eq!(old.request(server.request(PATH)).await.unwrap().status(), StatusCode::OK);
    for _ in 0..3 {
        let leaf = server.authority.issue(&localhost(), Timestamp::now()).unwrap();
        let expected = leaf.certified.cert[0].clone();
        server.resolver.replace(leaf.certified);
        assert_eq!(peer_certificate(&server).await, expected);
        assert_ne!(expected, first);
    }
    // The connection that began with the first certificate goes on.
    assert_eq!(old.request(server.request(PATH)).await.unwrap().status(), StatusCode::OK);
    done.cancel();
    for task in load {
        assert!(task.await.unwrap() > 0);
    }
}

/// The certificate that a new connection gets.
async fn peer_certificate(server: &Running) -> CertificateDer<'static> {
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(server.trust())
        .with_no_client_auth();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let stream = tokio::net::TcpStream::connect(server.address).await.unwrap();
    let [host] = localhost();
    let stream = connector.connect(host, stream).await.unwrap();
    stream.get_ref().1.peer_certificates().unwrap()[0].clone()
}

#[tokio::test]
async fn with_client_cas_only_their_clients_are_served() {
    let (ours, theirs) = (client_authority(), client_authority());
    let mut roots = RootCertStore::empty();
    roots.add(ours.0.clone()).unwrap();
    let server = start(Setup { client_roots: Some(roots), ..Setup::default() }, echo);

    let (leaf, key) = client_certificate(&ours);
    let response = server.client_with_certificate(&leaf, key).request(server.request(PATH)).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);

    let (leaf, key) = client_certificate(&theirs);
    let foreign = server.client_with_certificate(&leaf, key).request(server.request(PATH)).await;
    let nameless = server.client(Http::Two).request(server.request(PATH)).await;
    for refused in [foreign, nameless] {
        assert!(refused.unwrap_err().source().is_some());
    }
}

type ClientAuthority = (CertificateDer<'static>, rcgen::Issuer<'static, rcgen::KeyPair>);

fn client_authority() -> ClientAuthority {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let certificate = params.self_signed(&key).unwrap();
    (certificate.into(), rcgen::Issuer::new(params, key))
}

fn client_certificate((_, issuer): &ClientAuthority) -> (tls::Leaf, PrivateKeyDer<'static>) {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(["client.example".to_owned()]).unwrap();
    params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    let certificate: CertificateDer<'static> = params.signed_by(&key, issuer).unwrap().into();
    let validity = tls::Validity { not_before: Timestamp::MIN, not_after: Timestamp::MAX };
    let der = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let certified = rustls::sign::CertifiedKey::from_der(vec![certificate], der.clone_key(), &provider()).unwrap();
    (tls::Leaf { certified: certified.into(), validity }, der)
}

#[tokio::test]
async fn a_connection_too_many_is_closed_and_room_is_made_by_one_that_ends() {
    let server = start(Limits { max_connections: 1, ..limits() }, echo);
    let first = server.client(Http::Two);
    assert_eq!(first.request(server.request(PATH)).await.unwrap().status(), StatusCode::OK);
    server.client(Http::Two).request(server.request(PATH)).await.unwrap_err();
    drop(first);
    while server.client(Http::Two).request(server.request(PATH)).await.is_err() {
        tokio::task::yield_now().await;
    }
}
