use clap::Parser;
use rstest::rstest;
use rustls::pki_types::ServerName;

use super::*;

#[derive(Parser)]
struct Harness {
    #[command(flatten)]
    args: Args,
}

/// The configuration of `confpin serve LINE`, or the text that the user reads.
fn parse(line: &str) -> Result<Config, String> {
    let words = std::iter::once("confpin").chain(line.split_whitespace());
    let harness = Harness::try_parse_from(words).map_err(|error| error.to_string())?;
    Config::try_from(harness.args).map_err(|error| error.to_string())
}

const FILES: &str = "--tls-cert c.pem --tls-key k.pem";

#[test]
fn files_and_defaults() {
    let config = parse(FILES).unwrap();
    assert_eq!(config.certificates, Certificates::Files { cert: "c.pem".into(), key: "k.pem".into() });
    assert_eq!(config.listen.port(), 8443);
    assert_eq!(config.admin_listen.port(), 8080);
    assert_eq!(config.on_error, OnError::Deny);
    assert_eq!(config.settle, Some(Duration::from_secs(10)));
    assert_eq!(config.orphan_grace, Duration::from_secs(600));
    assert_eq!(config.limits.max_body, 16 << 20);
}

#[test]
fn a_service_has_a_ca_in_a_secret() {
    let config = parse("--webhook-service confpin --ca-life 48h --certificate-life 1h").unwrap();
    let lives = Lives { ca: SignedDuration::from_hours(48), certificate: SignedDuration::from_hours(1) };
    let secret = "confpin-ca".to_owned();
    assert_eq!(config.certificates, Certificates::Service { name: "confpin".to_owned(), secret, lives });
}

#[test]
fn a_lease_has_an_identity() {
    let config = parse(&format!("{FILES} --lease confpin --identity pod-1")).unwrap();
    assert_eq!(config.lease, Some(LeaseAccess { name: "confpin".to_owned(), identity: "pod-1".to_owned() }));
    assert_eq!(parse(&format!("{FILES} --identity pod-1")).unwrap().lease, None);
}

#[test]
fn the_namespaces_to_watch_are_a_list_and_repeatable() {
    assert_eq!(parse(FILES).unwrap().scope, Scope::Cluster);
    let config = parse(&format!("{FILES} --watch-namespace shop,billing --watch-namespace web")).unwrap();
    assert_eq!(config.scope, Scope::of(["billing", "shop", "web"].map(str::to_owned)));
    // An empty variable of the environment must not be taken for the whole cluster.
    assert!(parse(&format!("{FILES} --watch-namespace=")).unwrap_err().contains("--watch-namespace"));
}

#[test]
fn a_settle_of_0_turns_it_off() {
    assert_eq!(parse(&format!("{FILES} --settle 0")).unwrap().settle, None);
}

#[test]
fn both_servers_may_take_any_free_port() {
    assert!(parse(&format!("{FILES} --listen 127.0.0.1:0 --admin-listen 127.0.0.1:0")).is_ok());
}

#[test]
fn exemptions_are_lists_and_repeatable() {
    let config = parse(&format!("{FILES} --exempt-name a,b --exempt-name c.d --exempt-label x/y=1,z")).unwrap();
    let names: Vec<_> = config.exempt.names.iter().map(ObjectName::as_str).collect();
    assert_eq!(names, ["a", "b", "c.d"]);
    assert_eq!(config.exempt.labels, ["x/y=1", "z"].map(|mark| mark.parse().unwrap()));
}

#[rstest]
#[case(
    "https://127.0.0.1:9443",
    ServerName::from(std::net::Ipv4Addr::LOCALHOST),
    9443,
    "https://127.0.0.1:9443/mutate"
)]
#[case("https://[::1]:9443/", ServerName::from(std::net::Ipv6Addr::LOCALHOST), 9443, "https://[::1]:9443/mutate")]
#[case("https://host.example/p", ServerName::try_from("host.example").unwrap(), 443, "https://host.example/p")]
fn a_webhook_url_names_the_host_of_the_certificate(
    #[case] url: &str,
    #[case] host: ServerName<'static>,
    #[case] port: u16,
    #[case] registered: &str,
) {
    let config = parse(&format!("--webhook-url {url}")).unwrap();
    let Certificates::Url(url) = config.certificates else { panic!("{:?}", config.certificates) };
    assert_eq!(*url.host(), host);
    assert_eq!(url.port(), port);
    assert_eq!(url.with_default_path("/mutate"), registered);
}

#[rstest]
#[case::nothing("", &["--tls-cert", "--webhook-url"])]
#[case::both("--tls-cert c --tls-key k --webhook-url https://h", &["--webhook-url", "--tls-cert"])]
#[case::two_ways("--webhook-service a --webhook-url https://h", &["--webhook-url", "--webhook-service"])]
#[case::no_identity("--tls-cert c --tls-key k --lease a", &["--identity"])]
#[case::short_ca("--webhook-service a --ca-life 1s --certificate-life 1s", &["--ca-life", "10s"])]
#[case::long_leaf("--webhook-service a --ca-life 24h --certificate-life 25h", &["--certificate-life", "--ca-life"])]
#[case::odd_service("--webhook-service A", &["--webhook-service", "lower-case"])]
#[case::no_key("--tls-cert c", &["--tls-key"])]
#[case::no_cert("--tls-key c", &["--tls-cert"])]
#[case::plain_http("--webhook-url http://h/", &["--webhook-url", "https"])]
#[case::no_scheme("--webhook-url host:1", &["--webhook-url", "https"])]
#[case::no_host("--webhook-url https:///p", &["--webhook-url"])]
#[case::user_info("--webhook-url https://a:b@h/", &["--webhook-url", "user info"])]
#[case::query("--webhook-url https://h/?a=b", &["--webhook-url", "query"])]
#[case::fragment("--webhook-url https://h/#a", &["--webhook-url", "fragment"])]
#[case::port_0("--webhook-url https://h:0/", &["--webhook-url", "port 0"])]
#[case::odd_host("--webhook-url https://a_!/", &["--webhook-url"])]
#[case::same_port("--tls-cert c --tls-key k --listen 0.0.0.0:1 --admin-listen 0.0.0.0:1", &["--admin-listen", "0.0.0.0:1"])]
#[case::bare_port("--tls-cert c --tls-key k --listen 8443", &["--listen"])]
#[case::no_unit("--tls-cert c --tls-key k --settle 30", &["--settle", "30s"])]
#[case::negative("--tls-cert c --tls-key k --settle=-3s", &["--settle", "30s"])]
#[case::long_drain("--tls-cert c --tls-key k --drain 1h", &["--drain", "5m"])]
#[case::long_settle("--tls-cert c --tls-key k --settle 8761h", &["--settle", "365 days"])]
#[case::long_grace("--tls-cert c --tls-key k --orphan-grace 9999999999999h", &["--orphan-grace", "365 days"])]
#[case::long_interval("--tls-cert c --tls-key k --min-interval 8761h", &["--min-interval", "365 days"])]
#[case::small_body("--tls-cert c --tls-key k --max-body 1Ki", &["--max-body", "64Ki"])]
#[case::odd_size("--tls-cert c --tls-key k --max-body 1G", &["--max-body", "16Mi"])]
#[case::nobody("--tls-cert c --tls-key k --max-concurrent 0", &["--max-concurrent", "at least 1"])]
#[case::no_reference("--tls-cert c --tls-key k --max-references 0", &["--max-references", "at least 1"])]
#[case::upper("--tls-cert c --tls-key k --exempt-name Abc", &["--exempt-name", "lower-case"])]
#[case::label("--tls-cert c --tls-key k --exempt-label =x", &["--exempt-label", "key=value"])]
#[case::on_error("--tls-cert c --tls-key k --on-error maybe", &["--on-error", "deny", "admit"])]
fn a_refusal_names_the_option_and_what_would_be_right(#[case] line: &str, #[case] needles: &[&str]) {
    let message = parse(line).unwrap_err();
    for needle in needles {
        assert!(message.contains(needle), "{needle:?} is not in: {message}");
    }
}

#[rstest]
#[case("30s", 30_000)]
#[case("1h30m", 5_400_000)]
#[case("500ms", 500)]
#[case("0", 0)]
#[case("1m0s", 60_000)]
fn periods_read_as_people_and_go_write_them(#[case] text: &str, #[case] millis: u64) {
    assert_eq!(text.parse::<Period>().unwrap().get(), Duration::from_millis(millis));
}
