//! What becomes of one request.

use super::*;

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
async fn a_handler_that_does_not_answer_is_answered_for() {
    let server = start(limits(), |_, _| std::future::pending().boxed());
    let (status, text) = server.post("/mutate?timeout=200ms").await;
    assert_eq!(status, StatusCode::GATEWAY_TIMEOUT);
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
