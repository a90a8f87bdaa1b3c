//! What becomes of connections: their end, their certificate, whose they are, how many there are.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

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
    // A connection of before is to be closed by its client, who knows whether a request is on its way.
    let mut connection = connect(&server).await;
    let response = exchange(&mut connection, &server).await;
    assert!(response.to_ascii_lowercase().contains("\r\nconnection: close\r\n"), "{response}");
    assert_eq!(connection.read(&mut [0]).await.unwrap(), 0);

    // Who cannot wait aborts; then nothing is left.
    server.task.abort();
    assert!(server.task.await.unwrap_err().is_cancelled());
    tokio::net::TcpStream::connect(server.address).await.unwrap_err();
}

#[tokio::test]
async fn a_connection_idles_for_longer_than_an_api_server_keeps_it() {
    let server = start(limits(), echo);
    let mut connection = connect(&server).await;
    for _ in 0..2 {
        let response = exchange(&mut connection, &server).await;
        assert!(response.starts_with("HTTP/1.1 200 ") && !response.contains("close"), "{response}");
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(95)).await;
        tokio::time::resume();
    }
}

type Connection = tokio_rustls::client::TlsStream<tokio::net::TcpStream>;

/// A connection for HTTP/1 by hand.
async fn connect(server: &Running) -> Connection {
    let connector = tokio_rustls::TlsConnector::from(Arc::new(server.client_config()));
    let stream = tokio::net::TcpStream::connect(server.address).await.unwrap();
    let [host] = localhost();
    connector.connect(host, stream).await.unwrap()
}

/// Sends `{}`, and reads the response, which has that too.
async fn exchange(connection: &mut Connection, server: &Running) -> String {
    let (address, kind) = (server.address, "content-type: application/json");
    let request = format!("POST {PATH} HTTP/1.1\r\nhost: {address}\r\n{kind}\r\ncontent-length: 2\r\n\r\n{{}}");
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut response = Vec::new();
    while !response.ends_with(b"\r\n\r\n{}") {
        assert_ne!(connection.read_buf(&mut response).await.unwrap(), 0, "it was closed");
    }
    String::from_utf8(response).unwrap()
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
        let leaf = server.authority.issue(&localhost(), Timestamp::now(), LIFE).unwrap();
        let expected = leaf.certified.cert[0].clone();
        server.resolver.replace(leaf.certified);
        assert_eq!(peer_certificate(&server).await, expected);
        assert_ne!(expected, first);
    }
    // The connection that began with the first certificate stays open.
    assert_eq!(old.request(server.request(PATH)).await.unwrap().status(), StatusCode::OK);
    done.cancel();
    for task in load {
        assert!(task.await.unwrap() > 0);
    }
}

/// The certificate that a new connection gets.
async fn peer_certificate(server: &Running) -> CertificateDer<'static> {
    connect(server).await.get_ref().1.peer_certificates().unwrap()[0].clone()
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
